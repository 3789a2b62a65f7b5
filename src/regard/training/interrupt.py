"""Ctrl-C and SIGTERM as a wish: the step under way is finished and saved first."""

import signal
import threading
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Notes the first signal; a second one acts as it always did.

    >>> with Interrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.asked
    True
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            self.before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, action in self.before.items():
            signal.signal(number, action)
        self.before = {}
