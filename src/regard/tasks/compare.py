"""One recipe trained with several decoders, scores and normalizers, compared."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from regard.analysis import entropy
from regard.core.score import SCORES
from regard.models.summary import parameters
from regard.tasks.translate import TranslateTask
from regard.tasks.translator import Translator
from regard.tasks.variants import Variant, check_options, model_table
from regard.training import Config, Progress, Silent, read_config, read_run_config, train
from regard.training.config import TRANSFORMER_LR
from regard.training.metrics import read_metrics
from regard.training.progress import duration
from regard.training.schedule import last_step
from regard.visual.notebook import table_html

EVALUATIONS = 10  # of a run, by default: the points of its curve
LONGER = ("steps", "epochs", "minutes", "patience", "evaluate_every", "log_every")
MACHINE = ("threads", "device")
MAPPED = 200  # validation sources whose maps are computed, for their entropy
HEAD = ("", "quality", "time to it", "time", "parameters", "tokens/s", "entropy")
NONE = "–"


class Row(NamedTuple):
    """The result of one variant."""

    name: str
    quality: float | None  # the metric of the best model on validation data; None if it diverged
    seconds_to_quality: float | None  # None: not reached
    seconds: float | None  # of training and evaluation; None if it diverged
    parameters: int
    tokens_per_second: float | None  # median over the run; None if it was too short
    entropy: float | None  # of a row of the alignment map, in nats; None without attention
    curve: list[tuple[float, float]]  # seconds and quality of every evaluation
    diverged: str | None = None  # at which step, and what may help

    def cells(self) -> tuple[str, ...]:
        """The row of a table, under `HEAD`."""
        reached, speed = self.seconds_to_quality, self.tokens_per_second
        return (
            self.name,
            format_quality(self.quality),
            "never" if reached is None else duration(reached),
            NONE if self.seconds is None else duration(self.seconds),
            f"{self.parameters:,}",
            NONE if speed is None else f"{speed:,.0f}",
            NONE if self.entropy is None else f"{self.entropy:.2f}",
        )

    def __repr__(self) -> str:
        return f"Row({', '.join(self.cells())})"


class Comparison(NamedTuple):
    """The results of all variants, the best first."""

    metric: str
    target: float | None  # of `seconds_to_quality`; None if no variant learned
    rows: list[Row]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows]}

    def cells(self) -> list[tuple[str, ...]]:
        """A table of all variants, as text, with its head."""
        return [HEAD, *(row.cells() for row in self.rows)]

    @property
    def caption(self) -> str:
        """What the columns of `cells` are."""
        about = f"quality: {self.metric} on validation data"
        if self.target is not None:
            about += f"; time to it: to {self.target:.4f}"
        return about + "; entropy: of the alignment, in nats"

    def __repr__(self) -> str:
        rows = ", ".join(f"{row.name} {format_quality(row.quality)}" for row in self.rows[:3])
        rest = f", … {len(self.rows)} variants" if len(self.rows) > 3 else ""
        return f"Comparison({self.metric}: {rows}{rest})"

    def _repr_html_(self) -> str:
        return table_html(self.cells(), self.caption)


def format_quality(value: float | None) -> str:
    """A quality with four digits, or "diverged".

    >>> format_quality(0.5), format_quality(None)
    ('0.5000', 'diverged')
    """
    return "diverged" if value is None else f"{value:.4f}"


def compare(
    recipe: Mapping[str, Any],
    chosen: Sequence[Variant],
    out: Path,
    *,
    settings: Sequence[str] = (),
    target: float | None = None,
    progress: Callable[[str], Progress] = lambda name: Silent(),
) -> Comparison:
    """Train every variant into a folder of its own below `out`; existing runs are reused.

    If a score needs queries and keys of one width, every recurrent model but GNMT, whose upper
    layers do so anyway, reads the source in one direction, so that the comparison is fair.
    A variant whose loss becomes NaN or infinite is marked as diverged, and the others continue.

    Args:
        recipe: a configuration of the task translate
        chosen: of `regard.tasks.variants.variants`
        settings: what to change of the recipe, such as "training.lr=1e-3"
        target: the quality whose time is measured; by default within a tenth of the best
        progress: makes the receiver of training events of a variant, from its name

    Raises:
        ValueError: another task, or an existing run that was trained with other settings
        KeyboardInterrupt: stopped by a signal; what was trained is saved, and continued next time
    """
    config = read_config(recipe, settings)
    if config.task != "translate":
        raise ValueError(f"compare needs the task translate, got {config.task!r}")
    if config.training.init is not None:
        raise ValueError("compare trains every variant from scratch: leave out training.init")
    check_options(config.model)
    one_way = any(variant.score in SCORES for variant in chosen)
    own_lr = not any(text.partition("=")[0].strip() == "training.lr" for text in settings)
    configs = {}
    for variant in chosen:
        table = model_table(config.model, variant, one_way=one_way)
        training = config.training
        recurrent = config.model.get("kind", "luong") != "transformer"
        if variant.decoder == "transformer" and recurrent and own_lr:
            training = training.model_copy(update={"lr": min(training.lr, TRANSFORMER_LR)})
        own = config.model_copy(update={"model": table, "training": training})
        configs[variant.name] = own
        _check_alike(out / variant.name, own)
    rows, task = [], None
    for name, own in configs.items():
        task = TranslateTask.from_config(own, out / name)
        row = _trained(task, own, out / name, progress(name))
        if row.diverged is None:
            row = row._replace(entropy=_entropy(out / name, task.valid.sources[:MAPPED]))
        rows.append(row)
    assert task is not None, "nothing to compare"
    sign = 1 if task.larger_is_better else -1
    return _ranked(rows, task.metric, sign, target)


def _ranked(rows: list[Row], metric: str, sign: int, target: float | None) -> Comparison:
    """The best first, and when each reached the target. Sign: -1 if smaller is better."""
    best = max((sign * row.quality for row in rows if row.quality is not None), default=None)
    if target is None and best is not None and (sign < 0 or best > 0):  # else none learned
        target = sign * (best - 0.1 * abs(best))
    rows = sorted(rows, key=lambda row: (row.quality is None, -sign * (row.quality or 0.0)))
    if target is not None:
        rows = [row._replace(seconds_to_quality=_reached(row, sign, target)) for row in rows]
    return Comparison(metric, target, rows)


def _reached(row: Row, sign: int, target: float) -> float | None:
    return next((seconds for seconds, q in row.curve if sign * q >= sign * target), None)


def _trained(task: TranslateTask, config: Config, run: Path, progress: Progress) -> Row:
    last = last_step(task, config.training)
    if config.training.evaluate_every is None and last is not None:
        often = {"evaluate_every": max(1, last // EVALUATIONS)}
        training = config.training.model_copy(update=often)
        config = config.model_copy(update={"training": training})
    there = (run / "config.toml").is_file()
    quality = seconds = diverged = None
    try:
        outcome = train(task, config, run, resume=there, progress=progress)
    except FloatingPointError as error:
        diverged = str(error)
    else:
        if outcome.reason == "interrupted":
            raise KeyboardInterrupt(
                f"stopped in {run.name}, which is saved; the same command continues it"
            )
        quality, seconds = outcome.metrics[task.metric], outcome.seconds
    written = run / "metrics.jsonl"
    lines = read_metrics(written) if written.is_file() else []
    metric = f"valid/{task.metric}"
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    return Row(
        name=run.name,
        quality=quality,
        seconds_to_quality=None,
        seconds=seconds,
        parameters=parameters(task.build()),
        tokens_per_second=median(speeds) if speeds else None,
        entropy=None,
        curve=[(line["seconds"], line[metric]) for line in lines if {metric, "seconds"} <= {*line}],
        diverged=diverged,
    )


def _entropy(run: Path, sources: Sequence[Any]) -> float | None:
    """The mean entropy of the maps of every head and source; None if there are none."""
    found = [
        float(entropy(map).mean())
        for written in Translator.from_run(run).translate(sources, beam=1, return_map=True)
        for map in (written.maps or {}).values()
        if map.numel()
    ]
    return fmean(found) if found else None


def _check_alike(run: Path, config: Config) -> None:
    """Raise if a run was trained with other options; its length may differ."""
    if not (run / "config.toml").is_file():
        return
    before, now = (each.training.model_dump() for each in (read_run_config(run), config))
    for key in before:
        if key not in (*LONGER, *MACHINE) and before[key] != now[key]:
            raise ValueError(
                f"{run} was trained with training.{key} = {before[key]}, not {now[key]}: choose "
                "another place with --out"
            )
