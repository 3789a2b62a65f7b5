"""One recipe trained with several decoders, scores and normalizers, and what came of each."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from regard.analysis.entropy import entropy
from regard.core.names import nearest
from regard.models.build import KINDS
from regard.models.score import SCORES
from regard.models.summary import parameters
from regard.tasks.translate import Translate
from regard.tasks.translator import Translator
from regard.training import Config, Progress, Silent, read_config, read_run_config, train
from regard.training.ending import last_step
from regard.training.metrics import read_metrics

ATTENTIVE = ("luong", "bahdanau", "gnmt")  # decoders that take a score and a normalizer
DECODERS = ("plain", "peeky", *ATTENTIVE, "transformer")
NORMALIZERS = {"softmax": "global", "hard": "hard", "gumbel": "gumbel"}
"""Normalizers that an aligner can be built with, and what it is then called."""
EQUAL = ("dot", "scaled_dot", "cosine")  # scores of queries and keys of one width
TRANSFORMER_LR = 1e-3  # instead of a recurrent model's learning rate, at which it would not learn
EVALUATIONS = 10  # of a run, unless the recipe says how often: points of its curve
LONGER = ("steps", "epochs", "minutes", "patience", "evaluate_every", "threads", "log_every")
MAPPED = 200  # validation sources whose maps are looked at


class Variant(NamedTuple):
    """What one of the models is made with."""

    decoder: str
    score: str | None = None  # None: the decoder has none to choose
    normalizer: str | None = None

    @property
    def name(self) -> str:
        """What to call it, also its folder.

        >>> Variant("luong", "dot", "softmax").name, Variant("luong", "dot", "hard").name
        ('luong-dot', 'luong-dot-hard')
        """
        shown = (self.decoder, self.score, self.normalizer)
        return "-".join(part for part in shown if part not in (None, "softmax"))


class Row(NamedTuple):
    """What came of one variant."""

    name: str
    quality: float  # the task's metric on validation data, of the model that was kept
    seconds_to_quality: float | None  # None: it never got there
    seconds: float  # of training and evaluation
    parameters: int
    tokens_per_second: float | None  # median over the run; None if it was too short to say
    entropy: float | None  # of a row of the alignment map, in nats; None without attention
    curve: list[tuple[float, float]]  # seconds and quality of every evaluation


class Comparison(NamedTuple):
    """What came of all variants, the best first."""

    metric: str
    target: float  # the quality that `seconds_to_quality` is about
    rows: list[Row]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows]}


def variants(
    decoders: Iterable[str], scores: Iterable[str] = ("general",), normalizers: Iterable[str] = ()
) -> list[Variant]:
    """Every combination that there is; a decoder without a choice of scores comes once.

    >>> [variant.name for variant in variants(["plain", "luong"], ["dot", "general"])]
    ['plain', 'luong-dot', 'luong-general']

    Raises:
        ValueError: for an unknown name, with the nearest known one
    """
    choices = (
        ("decoder", list(decoders), DECODERS),
        ("score", list(scores), tuple(SCORES)),
        ("normalizer", list(normalizers) or ["softmax"], tuple(NORMALIZERS)),
    )
    for what, given, known in choices:
        for name in given:
            if name not in known:
                raise ValueError(f"unknown {what} {name!r}{nearest(name, known)}")
    found: list[Variant] = []
    for decoder in choices[0][1]:
        if decoder in ATTENTIVE:
            found += [Variant(decoder, *both) for both in product(choices[1][1], choices[2][1])]
        else:
            found.append(Variant(decoder))
    return list(dict.fromkeys(found))


def model_table(model: Mapping[str, Any], variant: Variant, *, one_way: bool) -> dict[str, Any]:
    """The table `[model]` of a variant of a recipe.

    A decoder of the recipe's own family takes its sizes. Between recurrent models and Transformers
    sizes mean different things: there it is the recipe's preset, or the tiny one.

    >>> recipe = {"kind": "luong", "cell": "lstm", "hidden": 7}
    >>> model_table(recipe, Variant("bahdanau", "dot", "softmax"), one_way=True)
    {'cell': 'lstm', 'hidden': 7, 'kind': 'bahdanau', 'score': 'dot', 'bidirectional': 'none'}

    Args:
        one_way: whether the source is read from left to right only
    """
    known = inspect.signature(KINDS[variant.decoder]).parameters
    kept = {key: value for key, value in model.items() if key in (*known, "preset")}
    if (model.get("kind", "luong") == "transformer") != (variant.decoder == "transformer"):
        kept = {key: kept[key] for key in ("preset", "dropout", "frames") if key in kept}
        if "preset" not in kept:
            kept = {"preset": "tiny", "dropout": 0.0, **kept}
    kept["kind"] = variant.decoder
    if variant.decoder == "gnmt" and "preset" not in kept:
        kept["layers"] = max(2, kept.get("layers", 2))
    if variant.score is not None:
        kept["score"] = variant.score
    if variant.normalizer not in (None, "softmax"):
        kept["attention"] = NORMALIZERS[str(variant.normalizer)]
    if one_way and "bidirectional" in known:
        kept["bidirectional"] = "none"
    return kept


def compare(
    recipe: Mapping[str, Any],
    chosen: Sequence[Variant],
    out: Path,
    *,
    settings: Sequence[str] = (),
    target: float | None = None,
    progress: Callable[[str], Progress] = lambda name: Silent(),
) -> Comparison:
    """Train every variant into a folder of its own below `out`; runs that are there are reused.

    If a score needs queries and keys of one width, every recurrent model but GNMT, whose upper
    layers do so anyway, reads the source in one direction: all are compared on the same terms.

    Args:
        recipe: a configuration of the task translate
        chosen: of `variants`
        settings: what to change of the recipe, such as "training.lr=1e-3"
        target: the quality to take the time to; by default within a tenth of the best one
        progress: makes, from a variant's name, who is told of its training

    Raises:
        ValueError: a task without pairs, or a run that was trained with other settings
    """
    config = read_config(recipe, settings)
    if config.task != "translate":
        raise ValueError(f"compare is for tasks with pairs, such as dates; this is {config.task!r}")
    _check_options(config.model)
    one_way = any(variant.score in EQUAL for variant in chosen)
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
        task = Translate.from_config(own)
        rows.append(_trained(task, own, out / name, progress(name)))
    assert task is not None, "nothing to compare"
    sign = 1 if task.larger_is_better else -1
    rows.sort(key=lambda row: -sign * row.quality)
    if target is None:
        target = rows[0].quality - sign * 0.1 * abs(rows[0].quality)
    reached = [next((s for s, q in row.curve if sign * q >= sign * target), None) for row in rows]
    told = [row._replace(seconds_to_quality=s) for row, s in zip(rows, reached, strict=True)]
    return Comparison(task.metric, target, told)


def _trained(task: Translate, config: Config, run: Path, progress: Progress) -> Row:
    last = last_step(task, config.training)
    if config.training.evaluate_every is None and last is not None:
        often = {"evaluate_every": max(1, last // EVALUATIONS)}
        training = config.training.model_copy(update=often)
        config = config.model_copy(update={"training": training})
    there = (run / "config.toml").is_file()
    outcome = train(task, config, run, resume=there, progress=progress)
    if outcome.reason == "interrupted":
        raise RuntimeError(f"stopped in {run.name}, which is saved; the same command goes on there")
    lines = read_metrics(run / "metrics.jsonl")
    metric = f"valid/{task.metric}"
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    translator = Translator.open(run)
    return Row(
        run.name,
        outcome.figures[task.metric],
        None,
        outcome.seconds,
        parameters(translator.model),
        median(speeds) if speeds else None,
        _entropy(translator, task.valid.sources[:MAPPED]),
        [(line["seconds"], line[metric]) for line in lines if metric in line and "seconds" in line],
    )


def _entropy(translator: Translator, sources: Sequence[Any]) -> float | None:
    """Of the maps of every head, in the mean over sources; None if there are none."""
    found = [
        float(entropy(map).mean())
        for written in translator.translate(sources, return_map=True)
        for map in (written.maps or {}).values()
        if map.numel()
    ]
    return fmean(found) if found else None


def _check_options(model: Mapping[str, Any]) -> None:
    """Refuse what no kind of model takes: it would be left out for each of them."""
    known = {"kind", "preset"}.union(*(inspect.signature(k).parameters for k in KINDS.values()))
    for name in model:
        if name not in known:
            raise ValueError(f"unknown key model.{name}{nearest(name, sorted(known))}")


def _check_alike(run: Path, config: Config) -> None:
    """Refuse a run that was trained in another way; it may be made longer."""
    if not (run / "config.toml").is_file():
        return
    before, now = (each.training.model_dump() for each in (read_run_config(run), config))
    for key in before:
        if key not in LONGER and before[key] != now[key]:
            raise ValueError(
                f"{run} was trained with training.{key} = {before[key]}, not {now[key]}: choose "
                "another place with --out"
            )
