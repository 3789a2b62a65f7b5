"""Export a run to another runtime, and compare the export with it before it gets its name."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any

import torch
from torch import Tensor

from regard.core.names import check_name
from regard.export import (
    TEMPLATES,
    TYPES,
    copy_run,
    read_export,
    seal,
    write_ctranslate2,
    write_onnx,
    write_tokenizer_reader,
)
from regard.system.files import atomic_directory
from regard.tasks.predictor import Predictor
from regard.tasks.run import load
from regard.tasks.translator import Translator

TARGETS: dict[str, Callable[..., dict[str, Any]]] = {
    "ctranslate2": write_ctranslate2,
    "onnx": write_onnx,
}
SAMPLE = 16  # inputs with which a float32 export is compared
PAIRS = 1000  # pairs by which another type is compared, in BLEU
CLOSE = 1e-4  # largest difference of scores, probabilities and weights; relative above 1
BLEU = 0.2  # largest loss of another type than float32


def export(
    run: str | Path,
    to: str,
    out: str | Path | None = None,
    *,
    dtype: str = "float32",
    inputs: Sequence[Any] | None = None,
) -> Path:
    """Write the model of a run for another runtime, and return the directory.

    `load` takes it like a run. Before the directory gets its name, the export is compared with the
    run: in float32 the same texts and labels, scores and weights to 1e-4; in other types a BLEU of
    at most 0.2 less.

    Args:
        run: a run directory
        to: "ctranslate2" (Transformers that translate) or "onnx"
        out: a new directory; RUN-TO by default, followed by the type if it is not float32
        dtype: of the weights; "int8" and "bfloat16" are for CTranslate2
        inputs: to compare with, as `predict` takes them; of the run's own data if None

    Raises:
        FileExistsError: if `out` exists
        ValueError: if the model cannot be exported, or the export differs, with the reason
    """
    run = Path(run)
    check_name("target", to, TARGETS)
    check_name("type", dtype, TYPES)
    if dtype != "float32" and to != "ctranslate2":
        raise ValueError(f"--to {to} writes float32; {dtype} is for --to ctranslate2")
    if read_export(run) is not None:
        raise ValueError(f"{run} is an export already: give the run that it was made of")
    predictor: Predictor = load(run)
    suffix = to if dtype == "float32" else f"{to}-{dtype}"
    folder = run.with_name(f"{run.resolve().name}-{suffix}") if out is None else Path(out)
    if folder.exists():
        raise FileExistsError(f"{folder} exists: remove it, or choose another --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder) as part:
        copy_run(run, part)
        options = {"dtype": dtype} if to == "ctranslate2" else {}
        about = {"target": to, "dtype": dtype, **TARGETS[to](predictor.model, part, **options)}
        write_tokenizer_reader(part)
        text = _readme(predictor, to, name=run.resolve().name, dtype=dtype)
        (part / "README.md").write_text(text, encoding="utf-8", newline="\n")
        seal(run, part, about)
        exported: Predictor = load(part)
        if dtype == "float32":
            compare(predictor, exported, inputs)
        else:
            compare_quality(predictor, exported)
    return folder


def _readme(predictor: Predictor, target: str, **values: str) -> str:
    """The README of an export: the parts of its template that are for this kind of input."""
    kind = predictor.task
    if kind == "translate" and getattr(predictor, "source", None) is None:
        kind = "frames"
    elif kind == "pair" and getattr(predictor, "right", None) is None:
        kind = "scene"
    template = (TEMPLATES / f"{target}.md").read_text(encoding="utf-8")
    first, *parts = re.split(r"<!-- ([\w ]+) -->\n", template)
    chosen = [
        text for kinds, text in zip(parts[::2], parts[1::2], strict=True) if kind in kinds.split()
    ]
    values |= {"task": predictor.task, "context": getattr(predictor, "context", "")}
    values |= getattr(predictor, "limits", {})  # of documents
    return Template(first + "".join(chosen)).substitute(values)


def compare(predictor: Predictor, exported: Predictor, inputs: Sequence[Any] | None) -> None:
    """Raise `ValueError` unless both predict the same for a sample, maps included."""
    sample = predictor.examples(SAMPLE) if inputs is None else list(inputs)
    if not sample:
        raise ValueError("there is nothing to compare the export with: give --data")
    for options in _options(predictor):
        pairs = zip(*(p.predict(sample, **options) for p in (predictor, exported)), strict=True)
        for number, (expected, found) in enumerate(pairs, 1):
            where = f"example {number}"
            _check(predictor.to_json(expected), exported.to_json(found), where)
            if isinstance(predictor, Translator):
                _check_maps(expected.maps, found.maps, where)
    if predictor.task in ("classify", "pair", "image"):
        for number, one in enumerate(sample[:4], 1):
            maps = [
                {call.name: call.map.dense() for call in p.trace(one).calls}
                for p in (predictor, exported)
            ]
            _check_maps(maps[0], maps[1], f"example {number}")


def compare_quality(predictor: Predictor, exported: Predictor) -> None:
    """Raise `ValueError` if the BLEU of an export is more than 0.2 below that of its run."""
    from regard.evaluation import bleu

    assert isinstance(predictor, Translator)
    assert isinstance(exported, Translator)
    pairs = predictor.pairs("test")[:PAIRS]
    references = [[target] for target in pairs.targets]
    before, after = (
        bleu([one.text for one in each.translate(pairs.sources)], references).metric.value
        for each in (predictor, exported)
    )
    if not after >= before - BLEU:
        raise ValueError(
            f"the BLEU of the export is {after:.2f} on {len(pairs)} pairs, that of the run "
            f"{before:.2f}: export it in float32"
        )


def _options(predictor: Predictor) -> list[dict[str, Any]]:
    """Options of `predict` by which both are compared."""
    if isinstance(predictor, Translator):
        greedy = {"return_map": True, "beam": 1}
        return [greedy, {"return_map": True, "beam": 4, "penalty": 0.0}]
    return [{"length": 20, "temperature": 0.0}] if predictor.task == "language" else [{}]


def _check(expected: Any, found: Any, where: str) -> None:
    """Raise `ValueError` unless two JSON values are the same, numbers to `CLOSE`."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for key in expected:
            _check(expected[key], found[key], f"{where}, {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for a, b in zip(expected, found, strict=True):
            _check(a, b, where)
    elif isinstance(expected, float) and isinstance(found, float):
        if not abs(expected - found) <= CLOSE * max(1.0, abs(expected)):
            raise ValueError(f"the export differs from the run: {where}: {found}, not {expected}")
    elif expected != found:
        raise ValueError(f"the export differs from the run: {where}: {found!r}, not {expected!r}")


def _check_maps(
    expected: dict[str, Tensor] | None, found: dict[str, Tensor] | None, where: str
) -> None:
    """Raise `ValueError` unless the maps that the export has are those of the run."""
    for name, weights in (found or {}).items():
        own = (expected or {})[name]
        own = own.mean(0, keepdim=True) if len(weights) == 1 else own  # CTranslate2: the average
        worst = float((own - weights).abs().max()) if own.shape == weights.shape else torch.inf
        if own.numel() and not worst <= CLOSE:
            raise ValueError(
                f"the export differs from the run: {where}, weights of {name}, by {worst:g}"
            )
