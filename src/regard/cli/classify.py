"""`regard classify`: the class of a document, with its sentences and words shaded."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def classify(
    run: Annotated[Path, typer.Argument(help="A run of the task classify.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Documents; without one, standard input is the document."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show/--no-show", help="Show the document, shaded.")
    ] = True,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the first document as an HTML page.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Write the first document as PNG or SVG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Say the class of documents, and which sentences and words decided."""
    from regard.tasks import Classifier, load

    classifier = load(run, Classifier)
    documents = list(texts) if texts else [sys.stdin.read()]
    if not all(text.strip() for text in documents):
        raise ValueError("a document needs at least one word")
    traces = [classifier.trace(text) for text in documents]
    if page is not None:
        traces[0].page(page)
    if figure is not None:
        traces[0].figure(figure)
    if as_json:
        rows = [classifier.to_json(one) for one in classifier.predict(documents)]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for trace in traces:
        if show:
            trace.show()
        else:
            print(trace.about["title"])
