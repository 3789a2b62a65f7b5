"""`regard recommend`: what a user may like, and why."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.tasks import Recommendation
    from regard.tasks.advisor import Reason


SHOWN = 3  # reasons of each kind


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
    from regard.tasks import Advisor, load

    if (user is None) == (profile is None and past is None):
        raise typer.BadParameter("give --user, or for somebody new --profile and --past")
    fields = dict(_field(text) for text in profile or [])
    advisor = load(run)
    if not isinstance(advisor, Advisor):
        raise ValueError(f"{run} is no run of the task recommend")
    if user is not None:
        found = advisor.recommend(user, count)
    else:
        found = advisor.recommend_to(fields, past or [], count)
    if not found:
        raise ValueError("there is nothing to recommend to somebody who has every item")
    if figure is not None:
        from regard.visual.figure.reasons import draw_reasons

        draw_reasons(*_matrix(found), figure)
    if as_json:
        print(json.dumps([_record(one) for one in found], ensure_ascii=False, indent=2))
        return
    from regard.visual.display_width import printable

    everything = len(advisor.ratings.items)
    taste = "the user's own taste" if user is not None else "an unknown user's taste"
    for rank, one in enumerate(found, start=1):
        item = printable(one.item)
        print(f"{rank:>3}. {printable(one.title)}  (item {item}, score {one.score:.2f})")
        if len(one.past) == everything:  # somebody without a past looks at the catalogue
            print(f"       {_sum(one.past):+6.2f}  the catalogue of {everything:,} items")
        else:
            _list(one.past, "other past item")
        _list(one.profile, "other column of the profile", "other columns of the profile")
        print(f"       {one.own:+6.2f}  {taste}, {one.popularity:+.2f} popularity")


def _list(reasons: list["Reason"], other: str, others: str | None = None) -> None:
    """Print the first reasons, and the sum of the rest, so that everything adds up."""
    from regard.visual.display_width import printable

    for reason in reasons[:SHOWN]:
        weight = "" if reason.weight is None else f", weight {reason.weight:.2f}"
        print(f"       {reason.gives:+6.2f}  {printable(reason.what)}{weight}")
    if rest := reasons[SHOWN:]:
        name = other if len(rest) == 1 else others or f"{other}s"
        print(f"       {_sum(rest):+6.2f}  {len(rest)} {name}")


def _sum(reasons: list["Reason"]) -> float:
    return sum(reason.gives for reason in reasons)


def _field(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--profile is FIELD=VALUE, such as age=30, got {text!r}")
    return name, value


def _matrix(found: list["Recommendation"]) -> tuple[list[str], list[str], list[list[float]]]:
    """Rows of reasons, columns of items, and what each reason gives each item."""
    past = {reason.what: reason.weight for one in found for reason in one.past}
    heaviest = sorted(past, key=lambda what: -(past[what] or 0.0))[:6]
    columns = list(dict.fromkeys(reason.what for one in found for reason in one.profile))
    rows = [f"{past[what]:.2f} {what}" for what in heaviest]
    rows += [*columns, "own taste", "popularity"]
    gives = [{reason.what: reason.gives for reason in (*one.past, *one.profile)} for one in found]
    matrix = [[each.get(what, 0.0) for each in gives] for what in (*heaviest, *columns)]
    matrix += [[one.own for one in found], [one.popularity for one in found]]
    return rows, [one.title for one in found], matrix


def _record(one: "Recommendation") -> dict[str, object]:
    row = one._asdict()
    for name in ("past", "profile"):
        row[name] = [reason._asdict() for reason in row[name]]
    return row
