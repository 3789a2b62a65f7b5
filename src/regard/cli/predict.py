"""`regard predict` and `regard translate`: a trained model applied to inputs of any kind."""

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from glob import glob, has_magic
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

if TYPE_CHECKING:
    from regard.tasks import Predictor, Translation, Translator
    from regard.tasks.search import SearchOptions


LONGEST = 2048
CHECKED = 100  # lines that are searched for one of unknown tokens
TRACED = 16  # lines that a trace holds at most
SAMPLING = ("temperature", "top_k", "top_p", "seed")  # fields of `Sampling`
SEARCH = ("beam", "n_best", "penalty", "mbr")  # fields of `SearchOptions`


def read_search(line: dict[str, Any]) -> "SearchOptions":
    """Take the options of a search out of those of a command line."""
    from regard.tasks.search import search_options

    sampling: dict[str, Any] | None = {name: line.pop(name) for name in SAMPLING if name in line}
    options = {name: line.pop(name) for name in SEARCH if name in line}
    if line.pop("sample", False):
        if "mbr" in options:
            raise typer.BadParameter("--mbr samples by itself: leave out --sample")
    elif sampling and "mbr" not in options:
        flags = "--temperature, --top-k, --top-p and --seed"
        raise typer.BadParameter(f"{flags} are for samples: add --sample or --mbr")
    elif not sampling:
        sampling = None
    try:
        return search_options(**options, sampling=sampling)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


class BatchTranslator:
    """Translations of one batch after the other, of which the first are traced."""

    def __init__(self, translator: "Translator", options: dict[str, Any]) -> None:
        self.translator = translator
        self.longest = options.pop("longest", LONGEST)
        self.scores = options.pop("scores", False)
        self.to_trace = TRACED if options.pop("trace", None) is not None else 0
        self.traced: list[Translation] = []
        self.prefix = options.pop("prefix", "")
        self.seen = self.done = 0
        self.search = read_search(options)
        own = self.search.model_fields_set
        self.options: dict[str, Any] = {name: getattr(self.search, name) for name in own} | options
        if self.search.sampling is not None:
            self.options["sampling"] = self.search.drawing

    def check(self, inputs: Iterator[tuple[Record, Any]]) -> Iterator[tuple[Record, Any]]:
        """Yield the inputs again; raise at one that is too long, and note one that is unknown."""
        tokenizer = self.translator.source
        to_check = CHECKED
        for record, text in inputs:
            # There are no more tokens than bytes.
            if tokenizer is not None and len(text.encode(errors="replace")) > self.longest:
                count = len(tokenizer.encode(text))
                if count > self.longest:
                    raise ValueError(
                        f"{record.place} has {count:,} tokens, more than --longest "
                        f"{self.longest:,}: split it, or raise --longest"
                    )
            if tokenizer is not None and to_check:
                ids = tokenizer.encode(text)
                to_check -= 1
                if 2 * ids.count(tokenizer.unk) > len(ids):
                    to_check = 0
                    note = "did not occur in training (<unk>): what is written for it means little"
                    print(f"note: most of {record.place} {note}", file=sys.stderr)
            yield record, text

    def __call__(self, batch: list[tuple[Record, Any]]) -> list[tuple[str, Any]]:
        sources = [parsed for _, parsed in batch]
        split = max(self.to_trace - len(self.traced), 0)
        found = self._some(sources[:split], return_map=True)
        self.traced += [translations[0] for translations in found]
        found += self._some(sources[split:])
        rows = []
        for translations in found:
            self.done += 1
            rows.append((self._text(translations), self._json(translations)))
        return rows

    def _some(self, sources: list[Any], **more: Any) -> "list[list[Translation]]":
        if not sources:
            return []
        if self.prefix:
            more["prefix"] = [self.prefix] * len(sources)
        found = self.translator.predict(sources, first=self.seen, **self.options, **more)
        self.seen += len(sources)
        return found if self.search.n_best > 1 else [[one] for one in found]

    def _ranking(self, one: "Translation") -> float:
        """Return the score by which a beam sorts; samples are not sorted."""
        from regard.decoding.search import length_penalty

        search = self.search
        return one.score / (
            1 if search.samples else length_penalty(len(one.tokens), search.penalty)
        )

    def _text(self, translations: "list[Translation]") -> str:
        rows = []
        for one in translations:
            text = self.translator.to_text(one)
            if self.search.n_best > 1:
                rows.append(f"{self.done}\t{self._ranking(one):.4f}\t{text}")
            else:
                rows.append(f"{one.score:.4f}\t{text}" if self.scores else text)
        return "\n".join(rows)

    def _json(self, translations: "list[Translation]") -> Any:
        rows = [
            self.translator.to_json(one) | {"ranking": self._ranking(one)} for one in translations
        ]
        return rows if self.search.n_best > 1 else self.translator.to_json(translations[0])


def store_trace(translations: "list[Translation]", path: Path) -> None:
    """Store the maps of some translations as one trace, padded to the longest."""
    import torch
    from torch.nn.functional import pad

    from regard.core.map import AttentionMap
    from regard.trace.call import Call
    from regard.trace.trace import Trace

    real = [one for one in translations if one.maps]
    if not real:
        raise ValueError("there is nothing to trace: no lines, or a model without attention")
    rows, columns = max(len(one.tokens) for one in real), max(len(one.source) for one in real)
    calls = []
    for name in real[0].maps or {}:
        maps = [one.maps[name] for one in real if one.maps]
        whole = [pad(m, (0, columns - m.shape[2], 0, rows - m.shape[1])) for m in maps]
        calls.append(Call(name, AttentionMap.of(torch.stack(whole)), "target", "source"))
    tokens = {"target": [one.tokens for one in real], "source": [one.source for one in real]}
    Trace(calls, tokens, {"task": "translate"}).save(path)


def predict_files(
    answers: Callable[[str], Iterator[str]], patterns: Sequence[str], folder: Path, suffix: str
) -> None:
    """Write the predictions of each file, which is complete under its name or not there.

    Under torchrun each process takes its share of the files. What was finished before stays; what
    a killed process was writing is written again.

    Args:
        answers: yields the lines of a file
        patterns: files, or patterns of files such as "shards/*.jsonl.gz"
        folder: to write into
        suffix: of the files written
    """
    from regard.system.files import UNFINISHED, atomic_file
    from regard.training.processes import launched

    targets = _targets(patterns, folder, suffix)
    check_output(folder / "file")
    folder.mkdir(parents=True, exist_ok=True)
    rank, world = launched()
    own = list(targets.items())[rank::world]
    left = [(file, target) for file, target in own if not target.exists()]
    status = StatusLine()
    for number, (file, target) in enumerate(left, start=1):
        for part in folder.glob(f"{UNFINISHED}*-{target.name}"):
            part.unlink(missing_ok=True)
        with atomic_file(target) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{line}\n" for line in answers(file))
        status.show(f"rank {rank}: {number} of {len(left)} files")
    seconds = time.monotonic() - status.start
    done = f"{len(left)} files in {seconds:.0f} s, {len(own) - len(left)} were finished before"
    print(f"rank {rank}: {done}", file=sys.stderr)


def _targets(patterns: Sequence[str], folder: Path, suffix: str) -> dict[str, Path]:
    """Return the file to write for each file to read."""
    from regard.data.files import COMPRESSED, readable

    files: list[str] = []
    for pattern in patterns:
        found = sorted(glob(pattern)) if has_magic(pattern) else [str(readable(pattern))]
        if not found:
            raise FileNotFoundError(f"no file matches {pattern}")
        files += found
    targets: dict[str, Path] = {}
    for file in files:
        name = Path(file).name
        for ending in COMPRESSED:
            name = name.removesuffix(ending)
        target = folder / Path(name).with_suffix(suffix)
        if target in targets.values():
            raise typer.BadParameter(f"two files would be written to {target}: rename one")
        if target.exists() and target.samefile(file):
            raise typer.BadParameter(f"{target} would replace what is read: choose another --out")
        targets[file] = target
    if not targets:
        raise typer.BadParameter("--out needs files to read")
    return targets


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


def _answer(predictor: "Predictor", options: dict[str, Any]) -> Any:
    """Return what answers one batch of parsed inputs after the other."""
    if predictor.task == "translate":
        return BatchTranslator(predictor, dict(options))  # type: ignore[arg-type]
    return partial(_predict, predictor, options)


def _lines(
    predictor: "Predictor", answer: Any, records: Iterator[Record], size: int, as_json: bool
) -> Iterator[str]:
    """Yield what is printed for each input."""
    parsed = _parsed(predictor, records)
    if isinstance(answer, BatchTranslator):
        parsed = answer.check(parsed)
    for batch in in_batches(parsed, size):
        for (record, _), (text, value) in zip(batch, answer(batch), strict=True):
            yield to_json({"input": record.content, "prediction": value}) if as_json else text
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
            yield record, predictor.parse(record.content)
        except ValueError as error:
            raise ValueError(f"{record.place}: {error}") from error


def _predict(
    predictor: "Predictor", options: dict[str, Any], batch: list[tuple[Record, Any]]
) -> list[tuple[str, Any]]:
    found = predictor.predict([parsed for _, parsed in batch], **options)
    return [(predictor.to_text(one), predictor.to_json(one)) for one in found]
