"""`regard pair`: the class of two inputs, and where each looked."""

from pathlib import Path
from typing import Annotated

import typer


def pair(
    run: Annotated[Path, typer.Argument(help="A run of the task pair.")],
    left: Annotated[str | None, typer.Argument(help="The left text, or the question.")] = None,
    right: Annotated[str | None, typer.Argument(help="The right text.")] = None,
    example: Annotated[
        int | None, typer.Option("--example", min=0, help="A generated scene and its question.")
    ] = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Write PNG or SVG.")] = None,
) -> None:
    """Judge two texts, or a question about a generated scene, and show both maps."""
    from regard.tasks import PairPredictor, load

    predictor = load(run, PairPredictor)
    if predictor.right is None:
        from regard.data.scenes import generate_questions

        if right is not None:
            raise typer.BadParameter("this run reads scenes: give --example, and a question")
        number = example or 0
        question = generate_questions(number + 2 - number % 2, seed=12345)[number]
        text = question.text if left is None else left
        print(text)
        print(question.scene.text())
        trace = predictor.trace((text, question.scene))
    else:
        if left is None or right is None or example is not None:
            raise typer.BadParameter("this run reads two texts: give both")
        trace = predictor.trace(predictor.parse({"left": left, "right": right}))
    if figure is not None:
        trace.figure(figure)
    trace.show()
