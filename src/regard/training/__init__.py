"""Training: a visible loop over a task."""

from regard.training.config import Config, Training, read_config, write_config
from regard.training.finish import Outcome
from regard.training.loop import train
from regard.training.progress import Progress, Silent
from regard.training.run_directory import read_run_config, stored_file
from regard.training.settings import Settings, read_settings
from regard.training.task import Loss, Task
from regard.training.vocabulary import vocabulary_loss
from regard.training.weights import put_weights, read_tensors, weights, write_model

__all__ = [
    "Config",
    "Loss",
    "Outcome",
    "Progress",
    "Settings",
    "Silent",
    "Task",
    "Training",
    "put_weights",
    "read_config",
    "read_run_config",
    "read_settings",
    "read_tensors",
    "stored_file",
    "train",
    "vocabulary_loss",
    "weights",
    "write_config",
    "write_model",
]
