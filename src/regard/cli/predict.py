"""`regard predict` and `regard translate`: a trained model applied to inputs of any kind."""

import inspect
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.inputs import Record, are_few_texts, in_batches, read_records
from regard.cli.options import (
    Beam,
    Count,
    Device,
    Mbr,
    Penalty,
    Run,
    Text,
    file_option,
    flag,
    option,
)
from regard.cli.output import StatusLine, check_output, to_json, write
from regard.cli.predict_files import predict_files
from regard.cli.translate import SAMPLING, TRACED, BatchTranslator, store_trace

if TYPE_CHECKING:
    from regard.tasks import Predictor

TRANSLATE = ("sample", *SAMPLING, "scores", "longest", "trace")  # besides those of `predict`
EVERY_TASK = ("context", "run", "inputs", "text", "jsonl", "as_json", "buffer", "device", "out")
"""Parameters of the command itself; each of the others is an option that some tasks take."""


def predict(
    context: typer.Context,
    run: Run,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, texts, or - for standard input (default)."),
    ] = None,
    text: Text = False,
    jsonl: Annotated[bool, flag("--jsonl", "Lines are JSON objects.")] = False,
    as_json: Annotated[bool, flag("--json", "Print one JSON object per input.")] = False,
    beam: Beam = None,
    n_best: Annotated[
        int | None,
        option("translate: translations per input: number, ranking score, text."),
    ] = None,
    penalty: Penalty = None,
    prefix: Annotated[
        str | None, option("translate: how every translation begins.", "TEXT")
    ] = None,
    copy_unknown: Annotated[
        bool, flag("--copy-unknown", "translate: copy source tokens for unknown ones.")
    ] = False,
    scores: Annotated[
        bool, flag("--scores", "translate: log-probability and a tab before texts.")
    ] = False,
    sample: Annotated[bool, flag("--sample", "translate: sample instead of searching.")] = False,
    mbr: Mbr = None,
    temperature: Annotated[
        float | None,
        option("language, --sample, --mbr: below 1 sharpens; language: 0 is greedy.", "X"),
    ] = None,
    top_k: Annotated[int | None, option("language, --sample: only the N likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, option("--sample: only the likeliest tokens of this total.", "X")
    ] = None,
    seed: Annotated[int | None, option("language, --sample: random seed.")] = None,
    length: Annotated[int | None, option("language: tokens to generate.", "N", 1, 10**6)] = None,
    count: Count = None,
    trace: Annotated[
        Path | None,
        file_option(f"translate: store the attention of the first {TRACED} inputs.", "FILE.attn"),
    ] = None,
    longest: Annotated[
        int | None, option("translate: most tokens of a line. [default: 2048]", "N", 1)
    ] = None,
    buffer: Annotated[
        int | None,
        option("Inputs to read before writing. [default: 1024; at a terminal 1]", "N", 1, 10**6),
    ] = None,
    device: Device = "cpu",
    out: Annotated[
        Path | None,
        option("Write a file for each INPUT file into DIR; those that are there stay.", "DIR"),
    ] = None,
) -> None:
    """Apply a trained model of any task to inputs.

    An INPUT that names a file is read line by line; .jsonl files hold a JSON object per line, and
    of .tsv files the first column is read. A text that begins with { is a JSON object. What an
    input is depends on the task: a text (translate, classify, language), two texts (pair, as two
    arguments or two columns), a user (recommend), a node (graph), a size (memory), an image file
    or the number of a test image (image), digits with marks (hard).

    With --out each file, or pattern of files in quotes, becomes a file of DIR. Under torchrun the
    processes share the files; one that is finished is never done again.
    """
    from regard.paths.kernels import without_kernels
    from regard.tasks import load

    if are_few_texts(inputs or []):
        context.with_resource(without_kernels())
    params = {name: context.params[name] for name in task_options()}
    given = {name: value for name, value in params.items() if not (value is None or value is False)}
    if trace is not None:
        check_output(trace, option="--trace", new_folders=False)
    predictor = load(run, device=device)
    if context.info_name == "translate" and predictor.task != "translate":
        raise ValueError(f"{run} is a run of the task {predictor.task}: use regard predict")
    check_given(predictor, given)
    size = buffer or (1 if sys.stdin.isatty() else 1024)
    answer = _answer(predictor, given)
    if out is not None:
        if text or trace is not None:
            raise typer.BadParameter("--out is for files, without --text and --trace")

        def answers(file: str) -> Iterator[str]:  # samples depend on the line of a file alone
            records = read_records([file], predictor.task, jsonl=jsonl)
            return _lines(predictor, _answer(predictor, given), records, size, as_json)

        return predict_files(answers, inputs or [], out, ".jsonl" if as_json else ".txt")
    records = read_records(inputs or [], predictor.task, text=text, jsonl=jsonl)
    status, done = StatusLine(), 0
    for line in _lines(predictor, answer, records, size, as_json):
        done += 1
        write(line)
        status.show(pace(done, time.monotonic() - status.start))
    if done > len(inputs or []):
        status.show(pace(done, time.monotonic() - status.start), done=True)
    if trace is not None:
        store_trace(answer.traced, trace)


def _answer(predictor: "Predictor", given: dict[str, Any]) -> Any:
    """Return what answers one batch of parsed inputs after the other."""
    if predictor.task == "translate":
        return BatchTranslator(predictor, dict(given))  # type: ignore[arg-type]
    return partial(_predict, predictor, given)


def _lines(
    predictor: "Predictor", answer: Any, records: Iterator[Record], size: int, as_json: bool
) -> Iterator[str]:
    """Yield what is printed for each input."""
    parsed = _parsed(predictor, records)
    if isinstance(answer, BatchTranslator):
        parsed = answer.check(parsed)
    for batch in in_batches(parsed, size):
        for (record, _), (text, value) in zip(batch, answer(batch), strict=True):
            yield to_json({"input": record.given, "prediction": value}) if as_json else text
        sys.stdout.flush()


def task_options() -> list[str]:
    """Return the names of the options of `regard predict` that some tasks take and others do not.

    >>> task_options()[:2]
    ['beam', 'n_best']
    """
    return [name for name in inspect.signature(predict).parameters if name not in EVERY_TASK]


def check_given(predictor: "Predictor", given: dict[str, Any], method: str = "predict") -> None:
    """Raise if an option was given that the task of the run does not take."""
    from regard.tasks import predict_options, trace_options

    known = set(predict_options(predictor) if method == "predict" else trace_options(predictor))
    if predictor.task == "translate" and method == "predict":
        known |= set(TRANSLATE)
    for name in given:
        if name not in known:
            takes = ", ".join(_flag(each) for each in task_options() if each in known) or "none"
            raise typer.BadParameter(
                f"{_flag(name)} is not an option of the task {predictor.task}, which takes {takes}"
            )


def pace(count: int, seconds: float) -> str:
    """Return how many lines there were, and how many a second.

    >>> pace(7, 20.0)
    '7 lines, 0.3 a second'
    """
    rate = count / max(seconds, 1e-9)
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    return f"{count:,} line{'s' * (count != 1)}, {shown} a second"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parsed(predictor: "Predictor", records: Iterator[Record]) -> Iterator[tuple[Record, Any]]:
    for record in records:
        try:
            yield record, predictor.parse(record.given)
        except ValueError as error:
            raise ValueError(f"{record.place}: {error}") from error


def _predict(
    predictor: "Predictor", options: dict[str, Any], batch: list[tuple[Record, Any]]
) -> list[tuple[str, Any]]:
    found = predictor.predict([parsed for _, parsed in batch], **options)
    return [(predictor.to_text(one), predictor.to_json(one)) for one in found]
