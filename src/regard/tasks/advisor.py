"""A trained recommender: what `regard.load` gives for a run of `recommend`."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from regard.core.names import did_you_mean
from regard.data.lines import readable
from regard.data.profiles import Profiles
from regard.data.ratings import Ratings
from regard.models.recommender import Factorisation, Recommender
from regard.tasks.run import load_weights
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
TABLES = "ratings.npz"


class Model(Settings):
    """The table `[model]`: the options of `Recommender`, or of the baseline `Factorisation`."""

    kind: Literal["attention", "factorisation"] = "attention"
    dim: Count = 48
    dropout: Share = 0.2
    heads: Count = 1
    past: Count = 30
    projections: Literal["learned", "identity"] = "learned"
    self_attention: int = Field(0, ge=0)
    forget: Share = 0.1


def build_model(options: Model, ratings: Ratings) -> nn.Module:
    """A model for the users and items of some ratings."""
    if options.kind == "factorisation":
        sizes = {"dim": options.dim, "dropout": options.dropout}
        return Factorisation(len(ratings.users), len(ratings.items), **sizes)  # type: ignore
    flat = options.model_dump(exclude={"kind"})
    return Recommender(
        len(ratings.users),
        torch.from_numpy(ratings.user_profiles.rows),
        torch.from_numpy(ratings.item_profiles.rows),
        **flat,
    )


class Reason(NamedTuple):
    """A part of a score, and what it comes from."""

    what: str  # a past item's title, a column of the profile
    gives: float  # what it adds to the score
    weight: float | None = None  # of a past item, its attention weight


class Recommendation(NamedTuple):
    """An item, its score, and why."""

    item: str
    title: str
    score: float
    past: list[Reason]  # what past items give, the most first
    profile: list[Reason]  # what columns of the profile give
    own: float  # what the user's embedding gives
    popularity: float  # what the item has by itself


class Advisor:
    """A model, with what its users chose and who they are.

    Args:
        model: a trained model
        ratings: what it was trained on
    """

    def __init__(self, model: Recommender, ratings: Ratings) -> None:
        self.model, self.ratings = model.eval(), ratings

    @classmethod
    def open(cls, run: str | Path) -> "Advisor":
        """A run of the task `recommend`."""
        run, config = Path(run), read_run_config(run)
        options = read_settings(Model, config.model, "model")
        ratings = read_tables(run)
        model = build_model(options, ratings)
        if not isinstance(model, Recommender):
            raise ValueError(f"{run} is a run of matrix factorisation, which gives no reasons")
        load_weights(model, run)
        return cls(model, ratings)

    def recommend(self, user: str, count: int = 10) -> list[Recommendation]:
        """The best items for a user that the model knows, among those it does not have."""
        place = self._place(user)
        profile = torch.from_numpy(self.ratings.user_profiles.rows[place])
        history = self.ratings.histories[place]
        own = place + 1 if len(history) else 0  # nobody has trained the embedding of one without
        return self._answer(own, profile, history, count)

    def recommend_to(
        self, profile: Mapping[str, str], past: Sequence[str] = (), count: int = 10
    ) -> list[Recommendation]:
        """The best items for somebody new, by the profile and what was chosen so far.

        Args:
            profile: fields such as {"age": "30", "occupation": "artist"}; it may be empty
            past: items, the first choice first; it may be empty
        """
        places = []
        for item in past:
            if item not in self.ratings.items:
                raise ValueError(
                    f"unknown item {item!r}{did_you_mean(item, self.ratings.items[:20])}"
                )
            places.append(self.ratings.items.index(item))
        row = torch.from_numpy(self.ratings.user_profiles.encode(profile))
        return self._answer(0, row, np.array(places, np.int64), count)

    @torch.no_grad()
    def importance(self, user: str) -> Tensor:
        """The weight of every item, (items,), if the user's profile asked the whole catalogue."""
        profile = torch.from_numpy(self.ratings.user_profiles.rows[self._place(user)])[None]
        none = torch.zeros(1, 1, dtype=torch.long)
        found = self.model(torch.tensor([0]), profile, none, torch.tensor([0]))
        return found.weights[0].mean(0)

    def _place(self, user: str) -> int:
        if user not in self.ratings.users:
            raise ValueError(
                f"unknown user {user!r}{did_you_mean(user, self.ratings.users[:20])} ...; for "
                "a new user give a profile"
            )
        return self.ratings.users.index(user)

    @torch.no_grad()
    def _answer(
        self, user: int, profile: Tensor, history: np.ndarray, count: int
    ) -> list[Recommendation]:
        past = torch.from_numpy(history[-self.model.past :][::-1].copy())
        parts = self.model.parts(user, profile, past)
        scores = parts.popularity + parts.own + parts.profile.sum(0) + parts.past.sum(0)
        scores[torch.from_numpy(history)] = -torch.inf
        looked = past.tolist() if len(past) else range(len(self.ratings.items))
        titles, columns = self.ratings.titles, self.ratings.user_profiles.columns
        found = []
        for item in scores.topk(min(count, len(scores) - len(set(history.tolist())))).indices:
            i = int(item)
            carried = [
                Reason(titles[j], float(gives), float(weight))
                for j, gives, weight in zip(looked, parts.past[:, i], parts.weights, strict=True)
            ]
            who = [
                Reason(column, float(gives))
                for column, gives in zip(columns, parts.profile[:, i], strict=True)
                if gives != 0
            ]
            found.append(
                Recommendation(
                    self.ratings.items[i],
                    titles[i],
                    float(scores[i]),
                    sorted(carried, key=lambda reason: -reason.gives),
                    sorted(who, key=lambda reason: -reason.gives),
                    float(parts.own[i]),
                    float(parts.popularity[i]),
                )
            )
        return found


def write_ratings(ratings: Ratings, run: Path) -> None:
    """Store ratings and profiles in a run directory."""
    names = {
        "users": ratings.users,
        "items": ratings.items,
        "titles": ratings.titles,
        "user_columns": ratings.user_profiles.columns,
        "item_columns": ratings.item_profiles.columns,
    }
    with (run / TABLES).open("wb") as file:
        np.savez_compressed(
            file,
            names=np.frombuffer(json.dumps(names).encode(), np.uint8),
            user_rows=ratings.user_profiles.rows,
            item_rows=ratings.item_profiles.rows,
            lengths=np.array([len(history) for history in ratings.histories]),
            choices=np.concatenate(ratings.histories),
        )


def read_tables(run: Path) -> Ratings:
    """Ratings and profiles from a run directory."""
    path = readable(run / TABLES)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is damaged: it is no npz file")
    try:
        with np.load(path, allow_pickle=False) as stored:
            names = json.loads(stored["names"].tobytes())
            ends = np.cumsum(stored["lengths"])[:-1]
            return Ratings(
                names["users"],
                names["items"],
                np.split(stored["choices"], ends),
                Profiles(stored["user_rows"], names["user_columns"]),
                Profiles(stored["item_rows"], names["item_columns"]),
                names["titles"],
            )
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
