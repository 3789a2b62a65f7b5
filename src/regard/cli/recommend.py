"""`regard recommend`: what a user may like, and why."""

import json
from pathlib import Path
from typing import Annotated

import typer


def recommend(
    run: Annotated[Path, typer.Argument(help="A run of the task recommend.")],
    user: Annotated[str | None, typer.Option("--user", help="A user of the data.")] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="FIELD=VALUE", help="Or somebody new: age=30, again."),
    ] = None,
    past: Annotated[
        list[str] | None,
        typer.Option("--past", metavar="ITEM", help="What somebody new chose, in that order."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many items.")] = 10,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Write what carried each item, PNG or SVG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Recommend items to a user, each with what carried it: past items, profile, popularity."""
    from regard.tasks import NewUser, Recommender, load
    from regard.visual.display_width import printable

    if (user is None) == (profile is None and past is None):
        raise typer.BadParameter("give --user, or for a new user --profile and --past")
    fields = dict(_field(text) for text in profile or [])
    predictor = load(run, Recommender)
    who = user if user is not None else NewUser(fields, past or [])
    (found,) = predictor.predict([who], count=count)
    if not found:
        raise ValueError("there is nothing to recommend: this user has every item")
    if figure is not None:
        predictor.trace(who, count=count).figure(figure)
    if as_json:
        print(json.dumps(predictor.to_json(found), ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(printable, predictor.to_text(found).split("\n"))))


def _field(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--profile is FIELD=VALUE, such as age=30, got {text!r}")
    return name, value
