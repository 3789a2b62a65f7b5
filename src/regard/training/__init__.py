"""Training: a visible loop over a task."""

from regard.training.task import Loss, Task

__all__ = ["Loss", "Task"]
