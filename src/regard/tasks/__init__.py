"""Tasks: data, model, loss, metric and what to show, by name."""

from typing import Any

from regard.tasks.advisor import Advisor, Recommendation
from regard.tasks.classifier import Classification, Classifier
from regard.tasks.classify import Classify
from regard.tasks.finder import Finder
from regard.tasks.graph import GraphTask
from regard.tasks.hard import HardTask
from regard.tasks.image import ImageTask
from regard.tasks.judge import Judge, Judgement
from regard.tasks.language import Language
from regard.tasks.machine import Machine
from regard.tasks.memory import MemoryTask
from regard.tasks.node_classifier import NodeClassifier
from regard.tasks.pair import Pair
from regard.tasks.recommend import Recommend
from regard.tasks.run import load, load_weights
from regard.tasks.seer import Seer
from regard.tasks.translate import Translate
from regard.tasks.translator import Translation, Translator
from regard.tasks.writer import Writer

TASKS: dict[str, Any] = {
    "classify": Classify,
    "graph": GraphTask,
    "hard": HardTask,
    "language": Language,
    "pair": Pair,
    "recommend": Recommend,
    "image": ImageTask,
    "memory": MemoryTask,
    "translate": Translate,
}
"""What may stand after `task =` in a configuration, and the class that does it.

Each has `from_config(config, run=None) -> Task`, with the tokenizers and classes of the run if
one is given, and `open(run) -> object`, which `regard.load` gives.
"""

__all__ = [
    "TASKS",
    "Advisor",
    "Classification",
    "Classifier",
    "Classify",
    "Finder",
    "GraphTask",
    "HardTask",
    "ImageTask",
    "Judge",
    "Judgement",
    "Language",
    "Machine",
    "MemoryTask",
    "NodeClassifier",
    "Pair",
    "Recommend",
    "Recommendation",
    "Seer",
    "Translate",
    "Translation",
    "Translator",
    "Writer",
    "load",
    "load_weights",
]
