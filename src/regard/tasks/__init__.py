"""Tasks, by name: what is learned. Each is one file with its settings, its task, its predictor."""

from typing import Any

from regard.tasks.classification import Classification
from regard.tasks.classify import Classifier, ClassifyTask
from regard.tasks.decision import why
from regard.tasks.graph import GraphTask, NodeClassifier
from regard.tasks.hard import HardPredictor, HardTask
from regard.tasks.image import ImagePredictor, ImageTask
from regard.tasks.language import LanguageTask, TextGenerator
from regard.tasks.memory import MemoryPredictor, MemoryTask
from regard.tasks.pair import PairPredictor, PairTask
from regard.tasks.predictor import Predictor, check_options, predict_options, trace_options
from regard.tasks.pretrained import PretrainedPredictor, load_pretrained
from regard.tasks.recommend import NewUser, Recommendation, Recommender, RecommendTask
from regard.tasks.run import evaluate_run, load, load_model, train
from regard.tasks.translate import TranslateTask
from regard.tasks.translator import Translation, Translator

TASKS: dict[str, Any] = {
    "classify": ClassifyTask,
    "graph": GraphTask,
    "hard": HardTask,
    "image": ImageTask,
    "language": LanguageTask,
    "memory": MemoryTask,
    "pair": PairTask,
    "recommend": RecommendTask,
    "translate": TranslateTask,
}
"""The classes by what may stand after `task =` in a configuration.

Each is a `regard.training.Task` with `from_config(config, run=None)`, and with `predictor`, the
class of what `regard.load` returns for its runs, and `tables`, the classes of its settings.
"""

__all__ = [
    "TASKS",
    "Classification",
    "Classifier",
    "ClassifyTask",
    "GraphTask",
    "HardPredictor",
    "HardTask",
    "ImagePredictor",
    "ImageTask",
    "LanguageTask",
    "MemoryPredictor",
    "MemoryTask",
    "NewUser",
    "NodeClassifier",
    "PairPredictor",
    "PairTask",
    "Predictor",
    "PretrainedPredictor",
    "RecommendTask",
    "Recommendation",
    "Recommender",
    "TextGenerator",
    "TranslateTask",
    "Translation",
    "Translator",
    "check_options",
    "evaluate_run",
    "load",
    "load_model",
    "load_pretrained",
    "predict_options",
    "trace_options",
    "train",
    "why",
]
