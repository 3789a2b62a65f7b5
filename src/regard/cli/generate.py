"""`regard generate`: a language model goes on with a text."""

from pathlib import Path
from typing import Annotated

import typer


def generate(
    run: Annotated[Path, typer.Argument(help="A run of the task language.")],
    prompt: Annotated[str, typer.Option("--prompt", help="How the text begins.")] = "\n",
    length: Annotated[int, typer.Option("--length", min=1, help="Tokens to add.")] = 300,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="0 takes the likeliest token.")
    ] = 0.8,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, help="Draw among so many of the likeliest.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws.")] = 0,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Write how every head looks at the prompt, PNG or SVG."),
    ] = None,
) -> None:
    """Write a text with a trained language model."""
    from regard.tasks import TextGenerator, load

    generator = load(run, TextGenerator)
    options = {"temperature": temperature, "top_k": top_k, "seed": seed}
    print(generator.generate(prompt, length=length, **options))  # type: ignore[arg-type]
    if figure is not None:
        generator.trace(prompt).figure(figure)
