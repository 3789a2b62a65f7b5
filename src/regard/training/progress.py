"""What a person sees of a run: a bar in a terminal, plain lines elsewhere, or nothing."""

from typing import Protocol

from regard.training.state import Evaluation, State


class Progress(Protocol):
    """Who is told what happens."""

    def start(self, state: State, last: int | None, unit: str) -> None:
        """The run begins, or goes on; `last` is its last step, if that is known."""

    def step(self, state: State, loss: float, speed: float) -> None:
        """A step was made, with this mean loss, and so many of the unit in a second."""

    def evaluated(self, found: Evaluation, best: bool) -> None:
        """The model was evaluated; whether it was never better."""

    def stop(self) -> None:
        """There are no more steps."""


class Silent:
    """Shows nothing."""

    def start(self, state: State, last: int | None, unit: str) -> None: ...

    def step(self, state: State, loss: float, speed: float) -> None: ...

    def evaluated(self, found: Evaluation, best: bool) -> None: ...

    def stop(self) -> None: ...
