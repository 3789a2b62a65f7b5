"""`regard why`: why a model wrote a word and not another, tested by hiding words and heads."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Json, check_language, file_option, option
from regard.cli.output import check_output, write, write_json


def why(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|MODEL",
            help="A run of translate or language, or a folder with a Hugging Face checkpoint.",
        ),
    ],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="What the model reads; of a causal model, what comes before."
        ),
    ],
    said: Annotated[
        str | None,
        option("A word that it wrote. [default: the least certain, or the next]", "WORD"),
    ] = None,
    instead: Annotated[
        str | None, option("What it could have written. [default: the likeliest other]", "WORD")
    ] = None,
    at: Annotated[
        int | None, option("The N-th written token, from 0, instead of --said.", "N", 0)
    ] = None,
    controls: Annotated[int, option("Random others beside each claim.", "N", 2)] = 20,
    seed: Annotated[int, option("Of the random others.", "N", 0)] = 0,
    out: Annotated[Path | None, file_option("Write a page: .html.")] = None,
    language: Annotated[str, option("Language of tables and page.", "en|ko", name="--lang")] = "en",
    json: Json = False,
    device: Device = "cpu",
) -> None:
    """Explain why a model wrote a word and not another.

    Source words and attention heads are ranked by contrastive gradients. The strongest are then
    hidden, and each claim is confirmed, refuted or undecided, beside random others.
    """
    check_language(language)
    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise typer.BadParameter(f"--out should end in .html, got {out.name}")
        check_output(out)
    from regard.tasks import load
    from regard.tasks.decision import why as explain
    from regard.visual.html import write_html
    from regard.visual.why import why_page, why_text

    predictor = load(source, device=device)
    found = explain(
        predictor, text, said=said, instead=instead, at=at, controls=controls, seed=seed
    )
    if out is not None:
        write_html(why_page(found, language=language), out)
    if json:
        write_json(found.as_dict())
    elif out is None:
        write(why_text(found, language=language))
    else:
        print(out)
