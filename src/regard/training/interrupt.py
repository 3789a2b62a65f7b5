"""Ctrl-C, SIGTERM and SIGHUP as requests: the current step is finished and saved first."""

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

from regard.system.posix import INTERRUPTS, is_hangup


class Interrupt:
    """Records the first signal; a second one has its usual effect.

    Under torchrun every signal is recorded: it forwards its own, and ends what does not end.

    >>> with Interrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in INTERRUPTS:
                ignored = signal.getsignal(number) is signal.SIG_IGN
                if not (ignored and is_hangup(number)):
                    self.before[number] = signal.signal(number, self._record)
        return self

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            self._restore()

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, action in self.before.items():
            signal.signal(number, action)
        self.before = {}
