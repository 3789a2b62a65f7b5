"""`regard translate`: lines from standard input to standard output."""

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

if TYPE_CHECKING:
    from regard.tasks import Translation, Translator

LONGEST = 2048
TRACED = 16  # lines that a trace holds at most


def translate(
    run: Annotated[Path, typer.Argument(help="A run of the task translate.")],
    beam: Annotated[int, typer.Option(min=1, help="Continuations that are followed at once.")] = 5,
    n_best: Annotated[
        int,
        typer.Option("--n-best", min=1, help="Translations of each line, as number, score, text."),
    ] = 1,
    penalty: Annotated[
        float, typer.Option(min=0.0, help="More prefers longer outputs: Wu et al. 2016, eq. 14.")
    ] = 0.6,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample.")] = 1.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Of --sample.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Of --sample.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of --sample.")] = 0,
    prefix: Annotated[str, typer.Option(help="What every translation begins with.")] = "",
    copy_unknown: Annotated[
        bool,
        typer.Option("--copy-unknown", help="Write what an unknown token looked at, not a mark."),
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Log-probability and a tab before each text.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each line.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help=f"Store who looked at whom in the first {TRACED} lines.", dir_okay=False),
    ] = None,
    longest: Annotated[
        int, typer.Option(min=1, help="Tokens of a line; a longer one is refused.")
    ] = LONGEST,
    buffer: Annotated[
        int | None,
        typer.Option(min=1, help="Lines that are read before writing; 1024, at a terminal 1."),
    ] = None,
) -> None:
    """Translate each line of standard input, in order; a blank line becomes an empty one."""
    from regard.tasks import Translator, load

    if n_best > (beam if not sample else n_best):
        raise typer.BadParameter(f"--n-best {n_best} needs a --beam of {n_best} or more")
    if not sample and (temperature, top_k, top_p, seed) != (1.0, None, None, 0):
        raise typer.BadParameter("--temperature, --top-k, --top-p and --seed need --sample")
    if trace is not None and not trace.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {trace.absolute().parent} to write {trace.name} to")
    translator = load(run, Translator)
    if translator.source is None:
        raise ValueError(f"{run} reads float frames, not lines of text: use it from Python")
    options: dict[str, Any] = {"n_best": n_best, "copy_unknown": copy_unknown, "penalty": penalty}
    options["beam"] = 1 if sample else beam
    if sample:
        drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        options["sampling"] = drawn
    lines = _short(_lines(sys.stdin.buffer), translator, longest)
    size = buffer or (1 if sys.stdin.isatty() else 1024)
    counted = _Progress()
    traced: list[Translation] = []
    for texts in _buffers(lines, size):
        options["first"] = counted.lines
        if prefix:
            options["prefix"] = [prefix] * len(texts)
        mapped = TRACED - len(traced) if trace is not None else 0
        found = [*_some(translator, texts[:mapped], options | {"return_map": True})]
        traced += [own[0] for own in found]
        options["first"] += len(found)
        found += _some(translator, texts[mapped:], options)
        for text, own in zip(texts, found, strict=True):
            counted.lines += 1
            print(_written(counted.lines, text, own, scores, as_json, n_best))
        sys.stdout.flush()
        counted.show()
    counted.show(done=True)
    if trace is not None:
        _store(traced, trace)


def _some(
    translator: "Translator", texts: list[str], options: dict[str, Any]
) -> "list[list[Translation]]":
    """Of each text its translations, in a list even if there is one."""
    if "prefix" in options:
        options = options | {"prefix": options["prefix"][: len(texts)]}
    found: list[Any] = translator.translate(texts, **options)
    return found if options["n_best"] > 1 else [[one] for one in found]


def _lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of UTF-8 without their ends."""
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"line {number} of standard input is not UTF-8: {error.reason} at byte "
                f"{error.start + 1}; convert it, for example with iconv -t UTF-8"
            ) from error
        yield text.removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")


def _short(lines: Iterator[str], translator: "Translator", longest: int) -> Iterator[str]:
    """The same lines, of which none is too long."""
    assert translator.source is not None
    for number, text in enumerate(lines, 1):
        if len(text.encode()) > longest:  # there are no more tokens than bytes
            count = len(translator.source.encode(text))
            if count > longest:
                raise ValueError(
                    f"line {number} has {count:,} tokens, more than --longest {longest:,}: "
                    "split it, or raise --longest"
                )
        yield text


def _buffers(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` lines; a line that is refused is so after those before it are written."""
    while True:
        texts: list[str] = []
        try:
            for text in islice(lines, size):
                texts.append(text)
        except ValueError:
            if texts:
                yield texts
            raise
        if not texts:
            return
        yield texts


def _written(
    number: int, source: str, own: "list[Translation]", scores: bool, as_json: bool, n_best: int
) -> str:
    """What is printed for a line."""
    if as_json:
        found = [{"text": one.text, "score": one.score, "tokens": one.tokens} for one in own]
        return json.dumps({"source": source, "translations": found}, ensure_ascii=False)
    rows = []
    for one in own:
        columns = [str(number)] if n_best > 1 else []
        columns += [f"{one.score:.4f}"] if scores or n_best > 1 else []
        rows.append("\t".join([*columns, " ".join(one.text.splitlines())]))
    return "\n".join(rows)


def _store(found: "list[Translation]", path: Path) -> None:
    """The maps of some lines as one trace, padded to the longest."""
    import torch
    from torch.nn.functional import pad

    from regard.trace.call import Call, held
    from regard.trace.trace import Trace

    real = [one for one in found if one.maps]
    if not real:
        raise ValueError("there is nothing to trace: no lines, or a model without attention")
    rows, columns = max(len(one.tokens) for one in real), max(len(one.source) for one in real)
    calls = []
    for name in real[0].maps or {}:
        maps = [one.maps[name] for one in real if one.maps]
        whole = [pad(m, (0, columns - m.shape[2], 0, rows - m.shape[1])) for m in maps]
        calls.append(Call(name, held(torch.stack(whole)), "target", "source"))
    tokens = {"target": [one.tokens for one in real], "source": [one.source for one in real]}
    Trace(calls, tokens, {"task": "translate"}).save(path)


class _Progress:
    """Lines so far on standard error: one that is rewritten, or one in ten seconds."""

    def __init__(self) -> None:
        self.lines = 0
        self.start = self.shown = time.monotonic()

    def show(self, *, done: bool = False) -> None:
        now = time.monotonic()
        seen = sys.stderr.isatty()
        if not done and now - self.shown < (0.5 if seen else 10.0):
            return
        self.shown = now
        pace = self.lines / max(now - self.start, 1e-9)
        shown = f"{pace:,.0f}" if pace >= 10 else f"{pace:.1f}"
        text = f"{self.lines:,} line{'s' * (self.lines != 1)}, {shown} a second"
        front, end = ("\r", "\n" if done else "") if seen else ("", "\n")
        print(f"{front}{text}", end=end, file=sys.stderr, flush=True)
