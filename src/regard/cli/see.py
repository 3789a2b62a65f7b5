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
    sequence, of image the number of a test image, of hard a row of digits.
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
        if checkpoints and model.task != "translate":
            raise typer.BadParameter("--checkpoints is for runs of the task translate")
        if text is None and model.task in ("translate", "language", "classify"):
            raise typer.BadParameter(f'give a text to read: regard see {source} "some text"')
        given = model.parse(text) if text is not None else model.examples(1)[0]
        trace = model.trace(given, beam=beam) if model.task == "translate" else model.trace(given)
    if not (png or svg or html):
        trace.show()
    for file in (png, svg):
        if file is not None:
            print(trace.figure(file))
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


def _through(run: Path, text: str | None, beam: int) -> "dict[str, Trace]":
    """Return traces of the same translation at each checkpoint of a run."""
    if text is None:
        raise typer.BadParameter("--checkpoints goes with a run, not with a stored trace")
    print("reading checkpoints", file=sys.stderr)
    return _loaded(run).trace_checkpoints(run, text, beam=beam)
