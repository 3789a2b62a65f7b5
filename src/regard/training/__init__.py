"""Training: a visible loop over a task."""

from regard.training.config import Config, Training, read_config, write_config
from regard.training.settings import Settings, read_settings
from regard.training.task import Loss, Task

__all__ = [
    "Config",
    "Loss",
    "Settings",
    "Task",
    "Training",
    "read_config",
    "read_settings",
    "write_config",
]
