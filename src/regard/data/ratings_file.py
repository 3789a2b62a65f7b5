"""Ratings and profiles in one npz file, as a run directory keeps them."""

import json
from pathlib import Path

import numpy as np

from regard.data.files import read_npz
from regard.data.profiles import Profiles
from regard.data.ratings import Ratings

NAMES = ("users", "items", "titles", "user_columns", "item_columns")


def save_ratings(ratings: Ratings, path: Path) -> None:
    """Store ratings and profiles in an npz file."""
    names = {
        "users": ratings.users,
        "items": ratings.items,
        "titles": ratings.titles,
        "user_columns": ratings.user_profiles.columns,
        "item_columns": ratings.item_profiles.columns,
    }
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            names=np.frombuffer(json.dumps(names).encode(), np.uint8),
            user_rows=ratings.user_profiles.rows,
            item_rows=ratings.item_profiles.rows,
            lengths=np.array([len(history) for history in ratings.histories]),
            choices=np.concatenate(ratings.histories),
        )


def load_ratings(path: Path) -> Ratings:
    """Return what `save_ratings` stored; every number is checked.

    Raises:
        FileNotFoundError: if the file does not exist
        ValueError: if it is damaged
    """
    stored = read_npz(path, ("names", "user_rows", "item_rows", "lengths", "choices"))
    lengths, choices = stored["lengths"], stored["choices"]
    rows = {name: stored[f"{name}_rows"] for name in ("user", "item")}
    try:
        names = json.loads(stored["names"].tobytes())
        users, items, titles, user_columns, item_columns = lists = [names[name] for name in NAMES]
        if not all(isinstance(name, str) for some in lists for name in some):
            raise ValueError("names should be texts")
        shapes = (len(users), len(user_columns)), (len(items), len(item_columns))
        if (rows["user"].shape, rows["item"].shape) != shapes or len(titles) != len(items):
            raise ValueError("profiles, titles and names should be as many")
        if any(table.dtype.kind != "f" for table in rows.values()):
            raise ValueError("profiles should be numbers")
        if (
            lengths.shape != (len(users),)
            or choices.shape != (lengths.sum(),)
            or (lengths < 0).any()
        ):
            raise ValueError("choices should be as many as their lengths")
        if len(choices) and not 0 <= choices.min() <= choices.max() < len(items):
            raise ValueError("choices should be numbers of items")
        return Ratings(
            users,
            items,
            np.split(choices.astype(np.int64), np.cumsum(lengths)[:-1]),
            Profiles(rows["user"].astype(np.float32), user_columns),
            Profiles(rows["item"].astype(np.float32), item_columns),
            titles,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
