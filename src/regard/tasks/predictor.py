"""The predictor protocol: what `regard.load` returns, the same for every task."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import nn

from regard.core.names import did_you_mean
from regard.data.files import format_of
from regard.evaluation import ClassificationReport
from regard.trace import Trace
from regard.training.config import Config
from regard.training.settings import SettingsType, read_settings

COLUMNS = ("source", "target", "text", "left", "right", "label", "bad")  # settings of a table


@runtime_checkable
class Predictor(Protocol):
    """A trained model with its tokenizers and classes, ready to use.

    A predictor is a subclass, which inherits what has a default here.

    `predict` takes a list of inputs and returns one prediction for each. What an input and a
    prediction are is up to the task: a text and a `Translation`, a document and a
    `Classification`. Everything a command line needs is here too: `parse` makes an input of a line
    of text or of a JSON object, `to_text` and `to_json` render a prediction, and
    `predict_options` lists the options of `predict`, so that one it does not take is an error:

        predictor = regard.load(run)
        check_options(predictor, {"beam": 5})  # ValueError if the task has no beam
        inputs = [predictor.parse(line) for line in lines]
        for prediction in predictor.predict(inputs, beam=5):
            print(predictor.to_text(prediction))
        predictor.trace(inputs[0]).figure("first.png")
    """

    task: ClassVar[str]  # its name in a configuration: "translate", "classify", ...
    model: nn.Module
    config: Config | None  # of the run; None if the predictor was made from its parts

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> Self:
        """Load a run directory that `regard train` has written.

        Raises:
            FileNotFoundError: if it is not a run directory, or has no model yet
            ValueError: if it is damaged, or its parts do not fit each other
        """
        ...

    def predict(self, inputs: Sequence[Any], /, *args: Any, **options: Any) -> list[Any]:
        """Return one prediction for each input; the options are keyword-only arguments."""
        ...

    def trace(self, input: Any, /, *args: Any, **options: Any) -> Trace:
        """Return what the model attends to for one input, for `show`, `figure`, `page`, `save`.

        `about["task"]` is the name of the task, by which `regard.visual` chooses how to draw it;
        whatever else a drawing needs is in `about` as JSON, so that it survives a file. A call has
        a map (heads, M, N) and the names of the token lists of its rows and columns:

            call = Call("pooling", map, "row", "letter")
            Trace([call], {"row": ["row"], "letter": ["a", "b"]}, {"task": self.task})
        """
        ...

    def parse(self, record: str | Mapping[str, Any]) -> Any:
        """Return the input that a line of text, or a JSON object, describes.

        Raises:
            ValueError: with what is expected, if it does not describe one
        """
        ...

    def to_text(self, prediction: Any) -> str:
        """Return a prediction as text, of one line or several."""
        return str(prediction)

    def to_json(self, prediction: Any) -> Any:
        """Return a prediction as what `json.dumps` takes."""
        return prediction._asdict()

    def examples(self, count: int, split: str = "test") -> list[Any]:
        """Return inputs that the model was not trained on, from the data of its run.

        Raises:
            ValueError: if the predictor was made from its parts and the task has no generator
        """
        ...

    def evaluate(self, path: str | Path, **settings: Any) -> dict[str, float]:
        """Return metrics of the labelled texts of a file, for tasks that have such.

        Args:
            path: what `[data]` of the task takes as `path`
            settings: others of `[data]`; by default those of the run
        """
        raise ValueError(f"a run of the task {self.task} is evaluated on its own data alone")

    def report(
        self,
        path: str | Path | None = None,
        *,
        split: str = "test",
        shown: int = 5,
        **settings: Any,
    ) -> ClassificationReport:
        """Return how well classes are predicted, for tasks that have such.

        Args:
            path: a file of examples; by default a split of the run's own data is taken
            split: test or valid, without a path
            shown: worst examples in the report
            settings: as in `evaluate`
        """
        raise ValueError(f"a run of the task {self.task} has no classes to report")

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return 1 if self.config is None else self.config.seed

    @property
    def device(self) -> torch.device:
        """Where the model is; that of another runtime takes tensors of the CPU."""
        return next(self.model.parameters(), torch.empty(0)).device

    def data_settings(self, kind: type[SettingsType]) -> SettingsType:
        """Return the table `[data]` of the run, without `store`: reading a run writes nothing.

        Raises:
            ValueError: if the predictor was made from its parts
        """
        if self.config is None:
            raise ValueError(
                f"this {type(self).__name__} was not loaded from a run: it has no data"
            )
        data = {name: value for name, value in self.config.data.items() if name != "store"}
        return read_settings(kind, data, "data")

    def file_settings(
        self, kind: type[SettingsType], path: str | Path, settings: Mapping[str, Any]
    ) -> SettingsType:
        """Return the table `[data]` that reads a file: by default with the columns of the run."""
        own = {} if self.config is None else self.config.data
        files = "path" if "path" in kind.model_fields else "train"
        kept = {name: own[name] for name in COLUMNS if name in own}
        if format_of(str(own.get(files))) == format_of(path):
            kept |= {name: own[name] for name in ("format", "encoding", "delimiter") if name in own}
        return read_settings(kind, {**kept, files: str(path), **settings}, "data")


def predict_options(predictor: Predictor | type[Predictor]) -> dict[str, Any]:
    """Return the options of a predictor's `predict`, with their defaults.

    >>> from regard.tasks import Classifier, Translator
    >>> predict_options(Classifier)
    {}
    >>> "beam" in predict_options(Translator)
    True
    """
    return _keywords(predictor.predict)


def trace_options(predictor: Predictor | type[Predictor]) -> dict[str, Any]:
    """Return the options of a predictor's `trace`, with their defaults."""
    return _keywords(predictor.trace)


def check_options(
    predictor: Predictor, options: Mapping[str, Any], method: str = "predict"
) -> dict[str, Any]:
    """Return the given options, after checking that the task takes each of them.

    Args:
        method: "predict" or "trace"

    Raises:
        ValueError: naming the option and those that the task takes
    """
    known = _keywords(getattr(predictor, method))
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) if known else "; it takes none"
            raise ValueError(f"the task {predictor.task} does not take the option {name}{hint}")
    return dict(options)


def _keywords(method: Any) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_inputs(inputs: Any, what: str) -> None:
    """Raise `TypeError` if one text was given instead of a list of inputs."""
    if isinstance(inputs, str | Mapping):
        raise TypeError(f"expected a list of {what}, got one: write [{inputs!r}]")


def check_traceable(model: nn.Module) -> None:
    """Raise `ValueError` for a model of another runtime, whose attention cannot be recorded."""
    if next(model.parameters(), None) is None:
        raise ValueError("an export cannot be traced: give the run that it was made of")


def field(record: Mapping[str, Any], *names: str, kind: type = str) -> Any:
    """Return the value of the first of these keys that a JSON object has.

    >>> field({"text": "a film"}, "text")
    'a film'

    Raises:
        ValueError: if it has none of them, or a value of another type
    """
    for name in names:
        if name in record:
            value = record[name]
            if not isinstance(value, kind):
                raise ValueError(
                    f"{name!r} should be {kind.__name__}, got {type(value).__name__}: {value!r}"
                )
            return value
    expected = " or ".join(map(repr, names))
    raise ValueError(f"expected a JSON object with the key {expected}, got keys {sorted(record)}")


def whole_number(value: str | int, what: str, largest: int) -> int:
    """Return a number of a line of text.

    Raises:
        ValueError: unless it is a whole number from 1 to `largest`
    """
    text = str(value).strip()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= largest:
        raise ValueError(f"{what} is a whole number from 1 to {largest}, got {value!r}")
    return int(text)
