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

    classifier = load(run)
    if not isinstance(classifier, Classifier):
        raise ValueError(f"{run} is no run of the task classify")
    documents = list(texts) if texts else [sys.stdin.read()]
    if not all(text.strip() for text in documents):
        raise ValueError("a document needs at least one word")
    found = classifier.classify(documents)
    if page is not None:
        found[0].document.page(page)
    if figure is not None:
        found[0].document.figure(figure)
    if as_json:
        rows = [
            {
                "label": one.label,
                "probabilities": one.probabilities,
                "sentences": one.document.sentences,
                "word_weights": one.document.word_weights,
                "sentence_weights": one.document.sentence_weights,
            }
            for one in found
        ]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        for one in found:
            print(one.document.show() if show else one.document.title)
