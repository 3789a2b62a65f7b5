"""`regard see`: what a trained model attends to, in the terminal, a figure or a page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.trace import Trace


def see(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|FILE.attn", help="A run directory, or a stored trace.")
    ],
    text: Annotated[
        str | None,
        typer.Argument(
            help="What the model of a run reads; of a graph a node, of images how many.",
            show_default=False,
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write a figure.", dir_okay=False, show_default=False)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write a figure.", dir_okay=False, show_default=False)
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page that needs no network.", dir_okay=False, show_default=False
        ),
    ] = None,
    language: Annotated[str, typer.Option("--lang", help="Of the page: en or ko.")] = "en",
    beam: Annotated[int, typer.Option(min=1, help="Continuations that are followed at once.")] = 5,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Let the page go through the run's checkpoints.")
    ] = False,
) -> None:
    """Show what a model attends to while it reads TEXT and writes its answer.

    Runs of language and classify read TEXT as well; of graph it is a node, of memory the size of a
    sequence, of image and hard how many held-out examples are shown.
    """
    for file, suffix in ((png, ".png"), (svg, ".svg"), (html, ".html")):
        if file is not None and file.suffix.lower() != suffix:
            raise typer.BadParameter(f"--{suffix[1:]} writes a {suffix} file, got {file.name}")
    if checkpoints and html is None:
        raise typer.BadParameter("--checkpoints needs --html FILE")
    if source.is_file():
        trace = _stored(source, text)
    elif not source.exists():
        raise FileNotFoundError(f"there is no run and no trace {source}")
    else:
        model = _loaded(source)
        if checkpoints and not hasattr(model, "translate"):
            raise typer.BadParameter("--checkpoints is for models that translate")
        if not _reads_text(model):
            return _show(model, source, text, png, svg, html)
        if text is None:
            raise typer.BadParameter(f'say what to read: regard see {source} "some text"')
        trace = _traced(model, text, beam)
    if not (png or svg or html):
        _print(trace)
    for file in (png, svg):
        if file is not None:
            print(_figure(trace, file))
    if html is not None:
        from regard.visual.page import write

        several = _through(source, text, beam) if checkpoints else None
        print(write(several or trace, html, language=language))


def _stored(file: Path, text: str | None) -> "Trace":
    from regard.trace import load_trace

    if text is not None:
        raise typer.BadParameter(f"{file.name} holds what was read already; leave the text out")
    trace = load_trace(file)
    return trace.of(0) if trace.batch is not None else trace


def _loaded(run: Path) -> Any:
    from regard.tasks import Translator, load

    model = load(run)
    if isinstance(model, Translator) and model.source is None:
        raise ValueError(f"{run} reads float frames, not text: use it from Python")
    return model


def _reads_text(model: Any) -> bool:
    """Whether its answer is a trace: of a translation, or of a text that is read."""
    from regard.tasks import Translator, Writer

    return isinstance(model, Translator | Writer)


def _traced(model: Any, text: str, beam: int) -> "Trace":
    from regard.tasks import Writer
    from regard.tasks.translation_trace import trace_translation
    from regard.trace import Trace

    if isinstance(model, Writer):
        tokens, maps = model.attention(text)
        return Trace.of_maps(maps, queries=tokens, text=text)
    return trace_translation(model, text, beam=beam)


def _show(
    model: Any, run: Path, what: str | None, png: Path | None, svg: Path | None, html: Path | None
) -> None:
    """What a model of another task attends to."""
    from regard.cli.sight import sight

    found = sight(model, run, what)
    if html is not None and found.page is None:
        raise ValueError(f"there is no page of a run such as {run}; --png and --svg draw it")
    for file, write in ((png, found.figure), (svg, found.figure), (html, found.page)):
        if file is not None and write is not None:
            write(file)
            print(file)
    if not (png or svg or html):
        print(found.text)


def _through(run: Path, text: str | None, beam: int) -> "dict[str, Trace]":
    """The same translation taught to the model as it was at each checkpoint of a run."""
    from regard.tasks.translation_trace import trace_checkpoints

    if text is None:
        raise typer.BadParameter("--checkpoints goes with a run, not with a stored trace")
    print("reading checkpoints", file=sys.stderr)
    return trace_checkpoints(_loaded(run), run, text, beam=beam)


def _print(trace: "Trace") -> None:
    if "translation" in trace.about:
        print(trace.about["translation"], end="\n\n")
    trace.show()


def _figure(trace: "Trace", file: Path) -> Path:
    """Where a text is aligned with another, that map is the picture; else all of them are."""
    import torch

    from regard.visual.figure import draw, heatmap

    crossing = [c for c in trace.calls if {c.queries, c.keys} == {"source", "target"}]
    if not crossing:
        return draw(trace, file)
    mean = torch.stack([call.map.dense().mean(0) for call in crossing]).mean(0)  # (M, N)
    return heatmap(mean, *trace.labels(crossing[0]), file, title=trace.about.get("text"))
