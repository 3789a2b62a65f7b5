"""`regard see`: what a trained model attends to, in the terminal, a figure, a page or a file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.inputs import are_few_texts, read_records
from regard.cli.options import (
    Beam,
    Count,
    Device,
    Text,
    check_language,
    file_option,
    flag,
    option,
)
from regard.cli.output import check_output, one_line
from regard.cli.predict import check_given

if TYPE_CHECKING:
    from regard.trace import Trace

SUFFIXES = (".png", ".svg", ".html", ".attn")


def see(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL|FILE.attn",
            help="A run directory, a Hugging Face checkpoint, or a stored trace.",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="A text or file, as for regard predict; by default a test example.",
        ),
    ] = None,
    out: Annotated[
        list[Path] | None, file_option("Write .png, .svg, .html or .attn instead; repeatable.")
    ] = None,
    example: Annotated[
        int | None, option("The N-th test example, or example of the trace.", "N", 1)
    ] = None,
    attention: Annotated[
        str | None, option("Only attention of this name; * matches anything.", "NAME")
    ] = None,
    layer: Annotated[int | None, option("Only attention N of these, from 0.", "N", 0)] = None,
    head: Annotated[int | None, option("Only head N, from 0 as on the page.", "N", 0)] = None,
    summary: Annotated[
        bool, flag("--summary", "List the heads worth looking at, instead of maps.")
    ] = False,
    words: Annotated[bool, flag("--words", "Join the tokens of each word.")] = False,
    generate: Annotated[
        int | None, option("MODEL: let it write up to N tokens.", "N", 1, 10**6)
    ] = None,
    hub: Annotated[
        bool, flag("--hub", "MODEL is a name of the Hugging Face hub: download it.")
    ] = False,
    text: Text = False,
    language: Annotated[str | None, option("Language of the page.", "en|ko", name="--lang")] = None,
    beam: Beam = None,
    count: Count = None,
    checkpoints: Annotated[
        bool, flag("--checkpoints", "translate: let the page show each checkpoint.")
    ] = False,
    device: Device = "cpu",
) -> None:
    """Show what a model attends to.

    Without --out it is shown in the terminal.
    """
    from regard.paths.kernels import without_kernels

    if are_few_texts(inputs or []):
        context.with_resource(without_kernels())
    check_language(language or "en")
    files = list(out or [])
    for file in files:
        if file.suffix.lower() not in SUFFIXES:
            raise typer.BadParameter(
                f"the suffix of --out {file.name} should be one of {', '.join(SUFFIXES)}"
            )
        check_output(file)
    pages = [file for file in files if file.suffix.lower() == ".html"]
    for name, given in (("--checkpoints", checkpoints), ("--lang", language)):
        if given and not pages:
            raise typer.BadParameter(f"{name} needs --out FILE.html")
    if summary and files:
        raise typer.BadParameter("--summary is printed: use it without --out")
    numbers = {"beam": beam, "count": count, "generate": generate}
    options = {name: value for name, value in numbers.items() if value is not None}
    several: Any = None
    if source.is_file():
        if inputs or options or checkpoints:
            raise typer.BadParameter(
                f"{source.name} is a stored trace: INPUT, --beam, --count, --generate and "
                "--checkpoints are for models"
            )
        traces = [_stored(source, example)]
    elif not source.exists() and not hub:
        from regard.training.run_directory import nearest_run

        raise FileNotFoundError(
            f"{source} is neither a run directory, a checkpoint nor a trace file"
            f"{nearest_run(source)}; --hub downloads a model of that name"
        )
    else:
        predictor = _predictor(source, device, hub)
        parsed = _inputs(source, predictor, inputs or [], example, text, figure=bool(files))
        if checkpoints and predictor.task != "translate":
            raise typer.BadParameter("--checkpoints is for runs of the task translate")
        check_given(predictor, options, "trace")
        traces = [predictor.trace(one, **options) for one in parsed]
        if not any(trace.calls for trace in traces):
            if missed := traces[0].missed:
                raise ValueError(f"{source}: no attention could be recorded: {missed[0]}")
            kind = "" if predictor.config is None else predictor.config.model.get("kind", "")
            raise ValueError(
                f"{source}: this{f' {kind}' if kind else ''} model has no attention, so there is "
                "nothing to see; regard predict shows what it answers"
            )
        if checkpoints:
            print("reading checkpoints", file=sys.stderr)
            several = predictor.trace_checkpoints(source, parsed[0], **options)
    traces = [_selected(trace, attention, layer, head) for trace in traces]
    if words:
        from regard.analysis import by_words

        traces = [by_words(trace) for trace in traces]
    if summary:
        print(_summary(traces[0]))
    elif not files:
        traces[0].show()
    for file in files:
        _write(traces, several, file, language or "en")
        print(file)


def _stored(file: Path, example: int | None) -> "Trace":
    from regard.trace import load_trace

    trace = load_trace(file)
    count = trace.batch or 1
    if example is not None and example > count:
        raise ValueError(f"--example should be from 1 to {count}, got {example}")
    return trace.of((example or 1) - 1) if trace.batch is not None else trace


def _predictor(source: Path, device: str, hub: bool) -> Any:
    from regard.tasks import load, load_pretrained

    if hub:
        return load_pretrained(str(source), device=device, hub=True)
    return load(source, device=device)


def _inputs(
    run: Path,
    predictor: Any,
    arguments: list[str],
    example: int | None,
    text: bool,
    *,
    figure: bool,
) -> list[Any]:
    """Return what to show: an input, or examples of the test data of the run."""
    from regard.visual.views import VIEWS

    if arguments and example is not None:
        raise typer.BadParameter("give INPUT or --example, not both")
    if not arguments:
        view = VIEWS.get(predictor.task)
        last = example or (view.together if view is not None and figure else 1)
        try:
            found = predictor.examples(last)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"the run has no test data: give INPUT ({error})") from error
        if example is not None and len(found) < example:
            raise ValueError(f"--example should be from 1 to {len(found)}, got {example}")
        if not found:
            raise ValueError(f"{run} has no test examples: give INPUT")
        return found[-1:] if example is not None else found
    records = list(read_records(arguments, predictor.task, text=text))
    if len(records) != 1:
        raise ValueError(f"{' '.join(arguments)} should be one input, got {len(records)}")
    return [predictor.parse(records[0].content)]


def _selected(
    trace: "Trace", attention: str | None, layer: int | None, head: int | None
) -> "Trace":
    from regard.trace import Trace

    if attention is not None:
        try:
            trace = trace.select(attention)
        except KeyError as error:
            raise ValueError(f"--attention: {error.args[0]}") from error
    if layer is not None:
        last = len(trace.calls) - 1
        if layer > last:
            raise ValueError(f"--layer should be from 0 to {last}, got {layer}")
        trace = Trace([trace.calls[layer]], trace.tokens, trace.about, trace.missed)
    if head is not None:
        last = min((call.heads for call in trace.calls), default=0) - 1
        if head > last:
            raise ValueError(f"--head should be from 0 to {last}, got {head}")
        trace = trace.select(heads=[head])
    return trace


def _summary(trace: "Trace") -> str:
    """Return a row for each head that is among the first ones in a pattern."""
    from regard.analysis import head_patterns

    rows = [("pattern", "attention", "head", "value")]
    for one in head_patterns(trace):
        unit = " nats" if one.pattern in ("widest", "sharpest") else ""
        rows.append((one.pattern, one.name, str(one.head), f"{one.value:.2f}{unit}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    title = str(trace.about.get("title", ""))
    return "\n".join([*([one_line(title)] if title else []), *lines])


def _write(
    traces: "list[Trace]", several: "dict[str, Trace] | None", file: Path, language: str
) -> None:
    from regard.visual.views import figure, page

    suffix = file.suffix.lower()
    file.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".html":
        page(several or traces[0], file, language=language)
    elif suffix == ".attn":
        traces[0].save(file)
    else:
        figure(traces, file)
