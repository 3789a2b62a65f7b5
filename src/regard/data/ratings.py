"""Ratings of items by users over time: tables, or the format of MovieLens-100k."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.files import lines
from regard.data.profiles import Profiles
from regard.data.tables import TABLES, Columns, find_format, read_records

GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


@dataclass(frozen=True)
class Ratings:
    """The items each user chose, in the order of time, and profiles of users and items."""

    users: list[str]
    items: list[str]
    histories: list[np.ndarray]  # of each user, positions in `items`, oldest first
    user_profiles: Profiles
    item_profiles: Profiles
    titles: list[str]  # of the items, for display

    @classmethod
    def of(
        cls,
        events: Iterable[tuple[str, str, float]],
        users: Mapping[str, Mapping[str, str]],
        items: Mapping[str, Mapping[str, str]],
        titles: Mapping[str, str],
    ) -> "Ratings":
        """Make ratings from (user, item, time) and the fields of users and items."""
        user_place = {name: place for place, name in enumerate(users)}
        item_place = {name: place for place, name in enumerate(items)}
        chosen: list[list[tuple[float, int]]] = [[] for _ in users]
        for user, item, time in events:
            chosen[user_place[user]].append((time, item_place[item]))
        # stable: equal times keep the order of the file
        histories = [
            np.array([item for _, item in sorted(mine, key=lambda event: event[0])], np.int64)
            for mine in chosen
        ]
        return cls(
            list(users),
            list(items),
            histories,
            Profiles.of(_columns(users), len(users)),
            Profiles.of(_columns(items), len(items)),
            [titles.get(name, name) for name in items],
        )

    @property
    def count(self) -> int:
        """Number of choices."""
        return sum(map(len, self.histories))


def read_movielens(folder: str | Path, *, min_rating: float = 0.0) -> Ratings:
    """Read `u.data`, `u.user` and `u.item`, in Latin-1. Harper & Konstan 2015.

    A user has age, gender and occupation, an item genres and decade.

    Args:
        folder: directory of the three files
        min_rating: lower ratings are left out
    """
    folder = Path(folder)
    users: dict[str, dict[str, str]] = {}
    for number, row in _rows(folder / "u.user", "|", 5):
        _new(users, row[0], "user", folder / "u.user", number)
        users[row[0]] = {"age": row[1], "gender": row[2], "occupation": row[3]}
    items: dict[str, dict[str, str]] = {}
    titles: dict[str, str] = {}
    for number, row in _rows(folder / "u.item", "|", 5 + len(GENRES)):
        _new(items, row[0], "item", folder / "u.item", number)
        genres = [name for name, flag in zip(GENRES, row[5:], strict=True) if flag == "1"]
        year = row[2][-4:]
        decade = f"{year[:3]}0s" if year.isdigit() else ""
        items[row[0]] = {"genre": "|".join(genres), "decade": decade}
        titles[row[0]] = row[1]
    events = []
    for number, row in _rows(folder / "u.data", "\t", 4):
        where = f"{folder / 'u.data'}, line {number}"
        _known(users, row[0], "user", where, folder / "u.user")
        _known(items, row[1], "item", where, folder / "u.item")
        if _number(row[2], "rating", where) >= min_rating:
            events.append((row[0], row[1], _number(row[3], "time", where)))
    return Ratings.of(_first_choices(events), users, items, titles)


def read_ratings(
    path: str | Path,
    *,
    user: str = "user",
    item: str = "item",
    time: str = "time",
    rating: str | None = None,
    min_rating: float = 0.0,
    users: str | Path | None = None,
    items: str | Path | None = None,
    title: str = "title",
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> Ratings:
    """Read choices from a table with names of its columns.

    Of repeated choices of an item by a user the first one counts.

    Args:
        path: a table with a row for each choice
        user, item, time: its columns; a time is a number
        rating: a column of numbers; None if every row is a choice
        min_rating: lower ratings are left out
        users: a table of profiles, with the same column `user`
        items: a table of profiles, with the same column `item`
        title: the column of `items` with display names, if there is one
        format: of `path`, a name of `TABLES`; by default, by the name
        encoding: of the tables, as in `read_table`
        delimiter: of `path`, as in `read_table`
    """
    wanted = {"user": user, "item": item, "time": time, **({"rating": rating} if rating else {})}
    rows = _table(path, wanted, format, encoding, delimiter)
    user_table = _profiles(users, "user", user, rows, encoding)
    item_table = _profiles(items, "item", item, rows, encoding)
    titles = {name: fields.pop(title) for name, fields in item_table.items() if title in fields}
    events = []
    for number, row in rows:
        where = f"{path}, line {number}"
        _known(user_table, row[user], "user", where, users)
        _known(item_table, row[item], "item", where, items)
        if rating is None or _number(row[rating], "rating", where) >= min_rating:
            events.append((row[user], row[item], _number(row[time], "time", where)))
    if not events:
        raise ValueError(f"{path} has no choices rated {min_rating:g} or more")
    return Ratings.of(_first_choices(events), user_table, item_table, titles)


def _columns(table: Mapping[str, Mapping[str, str]]) -> dict[str, Sequence[str]]:
    """The columns of a table that is given by rows."""
    fields = next(iter(table.values()), {})
    return {field: [row[field] for row in table.values()] for field in fields}


def _profiles(
    path: str | Path | None,
    what: str,
    key: str,
    choices: Iterable[tuple[int, Mapping[str, str]]],
    encoding: str | None,
) -> dict[str, dict[str, str]]:
    """The fields of each user or item: of a table, or none for those of the choices."""
    if path is None:
        return {row[key]: {} for _, row in choices}
    found: dict[str, dict[str, str]] = {}
    for number, row in _table(path, {what: key}, encoding=encoding):
        _new(found, row[key], what, path, number)
        found[row[key]] = {name: value for name, value in row.items() if name != key}
    return found


def _table(
    path: str | Path,
    wanted: Mapping[str, str],
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
) -> list[tuple[int, dict[str, str]]]:
    """All columns of a table, as texts, with the numbers of its rows."""
    rows = []
    columns = Columns(path, wanted, labels=wanted)
    kind = find_format(path, format, TABLES)
    for number, record in read_records(
        path, columns, format=kind, encoding=encoding, delimiter=delimiter
    ):
        try:
            chosen = columns.texts(record)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        others = {name: "" if value is None else str(value) for name, value in record.items()}
        rows.append((number, {**others, **dict(zip(wanted.values(), chosen, strict=True))}))
    return rows


def _rows(path: Path, separator: str, columns: int) -> list[tuple[int, list[str]]]:
    """Rows of a MovieLens file with their line numbers."""
    rows = []
    for number, line in lines(path, "latin-1"):
        if line.strip():
            row = line.split(separator)
            if len(row) != columns:
                raise ValueError(f"{path}, line {number}: {len(row)} columns instead of {columns}")
            rows.append((number, row))
    if not rows:
        raise ValueError(f"{path} is empty")
    return rows


def _new(table: Mapping[str, object], name: str, what: str, path: object, number: int) -> None:
    if name in table:
        raise ValueError(f"{path}, line {number}: duplicate {what} {name!r}")


def _known(table: Mapping[str, object], name: str, what: str, where: str, file: object) -> None:
    if name not in table:
        raise ValueError(f"{where}: unknown {what} {name!r}, it is not in {file}")


def _number(text: str, what: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: the {what} should be a number, got {text!r}")
    return number


def _first_choices(events: Iterable[tuple[str, str, float]]) -> list[tuple[str, str, float]]:
    """The first choice of each item by each user, in the order of time.

    Items that a user has are not recommended: repeated choices can be neither learned nor ranked.
    """
    found: dict[tuple[str, str], tuple[str, str, float]] = {}
    for event in sorted(events, key=lambda event: event[2]):
        found.setdefault(event[:2], event)
    return list(found.values())
