"""Recommendation: what a user chooses next, by attention to who it is and what it chose."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data import fingerprint
from regard.data.ratings import Ratings, read_movielens, read_ratings
from regard.data.viewers import generate_opposites, generate_viewers
from regard.tasks.advisor import (
    TABLES,
    Advisor,
    Model,
    build_model,
    read_tables,
    write_ratings,
)
from regard.tasks.tables import NoLoss
from regard.training import Loss, stored_file
from regard.training.config import Config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
TOP = 10  # HR@10 and NDCG@10


class Data(Settings):
    """The table `[data]`; without `path` viewers are generated."""

    path: str | None = Field(None, description="a folder with u.data, u.user, u.item; or a CSV")
    user: str = Field("user", description="CSV: the column of the user")
    item: str = Field("item", description="CSV: the column of the item")
    time: str = Field("time", description="CSV: the column of the time, a number")
    rating: str | None = Field(None, description="CSV: the column of the rating, if there is one")
    users: str | None = Field(None, description="CSV: a file of who users are")
    items: str | None = Field(None, description="CSV: a file of what items are")
    title: str = Field("title", description="CSV: the column of `items` people know an item by")
    min_rating: float = Field(0.0, description="choices that were rated lower are left out")
    generated: Literal["viewers", "opposites"] = Field("viewers", description="without a path")
    count: int = Field(500, ge=10, description="users to generate")
    catalogue: int = Field(300, ge=20, description="items to generate")
    batch: Count = Field(256, description="choices in a batch")

    @model_validator(mode="after")
    def _tables(self) -> "Data":
        if self.path is None and (self.users or self.items or self.rating):
            raise ValueError("users, items and rating belong to a CSV file: give its path")
        return self


class Choices(NamedTuple):
    """Some users at some moment, and what they chose then."""

    users: Tensor  # (B,), from 1 on
    profiles: Tensor  # (B, columns)
    past: Tensor  # (B, L), the latest first
    lengths: Tensor  # (B,)
    chosen: Tensor  # (B,)


class Recommend:
    """The task of ratings: each user's last choice is for test, the one before for validation.

    With `generated = "opposites"` every user has one choice that can be told, the last: whole
    users are held out instead.

    Args:
        data: the ratings
        model: options of the model
        seed: of the order of batches, and of generated viewers
    """

    unit = "choices"
    metric = "ndcg"
    larger_is_better = True

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        stored = stored_file(run, TABLES)
        self.ratings = read_tables(stored.parent) if stored else _read(data, seed)
        self.profiles = torch.from_numpy(self.ratings.user_profiles.rows)
        opposites = data.path is None and data.generated == "opposites"
        split = _by_user if opposites else _by_time
        self.train, self.valid, self.test = split(self.ratings)
        self._order: tuple[int, np.ndarray] | None = None

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "Recommend":
        """The task of a configuration, with the ratings stored in the run if one is given."""
        read_settings(NoLoss, config.loss, "loss")
        data = read_settings(Data, config.data, "data")
        return cls(data, read_settings(Model, config.model, "model"), config.seed, run)

    @classmethod
    def open(cls, run: Path) -> Advisor:
        """What `regard.load` gives for a run of this task."""
        return Advisor.open(run)

    # -------------------------------------------------------------- what the loop asks

    def build(self) -> nn.Module:
        """A fresh model for these users and items."""
        return build_model(self.model, self.ratings)

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return -(-len(self.train) // self.data.batch)

    def batch(self, epoch: int, step: int) -> Choices:
        """One batch of the epoch."""
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.train))
            self._order = epoch, order
        size = self.data.batch
        places = self._order[1][step * size : (step + 1) * size]
        return self._choices([self.train[place] for place in places])

    def loss(self, model: nn.Module, batch: Choices) -> Loss:
        """Cross entropy of the choice among all items, summed."""
        scores = model(*batch[:4]).scores
        return Loss(F.cross_entropy(scores, batch.chosen, reduction="sum"), len(batch.chosen))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """HR@10 and NDCG@10 over all items, of validation, which choose the model, and of test."""
        hit, ndcg = self._ranked(self.valid, model)
        test_hit, test_ndcg = self._ranked(self.test, model)
        return {"hit": hit, "ndcg": ndcg, "test_hit": test_hit, "test_ndcg": test_ndcg}

    def popularity(self) -> dict[str, float]:
        """What always recommending the most popular items would give on test."""
        hit, ndcg = self._ranked(self.test, None)
        return {"test_hit": hit, "test_ndcg": ndcg}

    def write(self, run: Path) -> None:
        """Store what users chose and the profiles."""
        write_ratings(self.ratings, run)

    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the ratings, which are a part of the run."""
        return {"ratings": fingerprint(self.ratings.histories)}

    def describe(self) -> str:
        """Statistics of the data, for people."""
        ratings, popular = self.ratings, self.popularity()
        rows = {
            "users": f"{len(ratings.users):,}, {len(ratings.user_profiles.columns)} columns: "
            + ", ".join(ratings.user_profiles.columns[:6]),
            "items": f"{len(ratings.items):,}, {len(ratings.item_profiles.columns)} columns: "
            + ", ".join(ratings.item_profiles.columns[:6]),
            "choices": f"{len(self.train):,} for training, {len(self.valid):,} for validation, "
            f"{len(self.test):,} for test",
            "baseline": f"always the most popular: HR@10 {popular['test_hit']:.3f}, NDCG@10 "
            f"{popular['test_ndcg']:.3f}",
        }
        return "\n".join(f"{name:<12}{value}" for name, value in rows.items())

    # -------------------------------------------------------------- choices

    def _choices(self, moments: Sequence[tuple[int, int]]) -> Choices:
        users = torch.tensor([user for user, _ in moments])
        histories, longest = self.ratings.histories, self.model.past
        pasts = [histories[user][max(0, t - longest) : t][::-1] for user, t in moments]
        lengths = torch.tensor([len(past) for past in pasts])
        past = np.zeros((len(moments), max(1, int(lengths.max()))), np.int64)
        for row, items in enumerate(pasts):
            past[row, : len(items)] = items
        chosen = torch.tensor([int(histories[user][t]) for user, t in moments])
        return Choices(users + 1, self.profiles[users], torch.from_numpy(past), lengths, chosen)

    def _ranked(
        self, moments: list[tuple[int, int]], model: nn.Module | None
    ) -> tuple[float, float]:
        """HR@10 and NDCG@10 of a model, or of popularity; what a user has is not recommended.

        Of items with the choice's own score half are before it: a model that scores all alike, or
        not at all, finds nothing by that.
        """
        hits, gain = 0, 0.0
        counts = np.bincount(
            [self.ratings.histories[user][t] for user, t in self.train],
            minlength=len(self.ratings.items),
        )
        popular = torch.from_numpy(counts).float()
        for some in _in_parts(moments, self.data.batch):
            batch = self._choices(some)
            scores = popular.repeat(len(some), 1) if model is None else model(*batch[:4]).scores
            target = scores.gather(1, batch.chosen.unsqueeze(1))
            above, level = scores > target, ~(scores < target)  # level: those above as well
            for row, (user, t) in enumerate(some):
                had = torch.from_numpy(self.ratings.histories[user][:t])
                above[row, had] = level[row, had] = False
            level.scatter_(1, batch.chosen.unsqueeze(1), False)
            rank = (above.sum(1) + level.sum(1)) // 2  # 0 is the best
            found = rank[rank < TOP]
            hits += len(found)
            gain += float((1 / torch.log2(found + 2.0)).sum())
        return hits / len(moments), gain / len(moments)


def _in_parts(moments: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    for start in range(0, len(moments), size):
        yield moments[start : start + size]


def _read(data: Data, seed: int) -> Ratings:
    if data.path is None:
        if data.generated == "opposites":
            return generate_opposites(data.count, seed=seed)
        return generate_viewers(data.count, data.catalogue, seed=seed)
    path = Path(data.path)
    if path.is_dir() or path.name == "u.data":
        if data.users or data.items or data.rating:
            raise ValueError(
                f"data.users, data.items and data.rating belong to a CSV file, but {path} is in "
                "the format of MovieLens, which has them in u.user, u.item and u.data"
            )
        return read_movielens(path if path.is_dir() else path.parent, min_rating=data.min_rating)
    return read_ratings(
        data.path,
        user=data.user,
        item=data.item,
        time=data.time,
        rating=data.rating,
        min_rating=data.min_rating,
        users=data.users,
        items=data.items,
        title=data.title,
    )


def _by_user(ratings: Ratings) -> tuple[list[tuple[int, int]], ...]:
    """Everybody's last choice: of three users in five for training, the others held out."""
    last = [(user, len(history) - 1) for user, history in enumerate(ratings.histories)]
    held = [[moment for moment in last if moment[0] % 5 == rest] for rest in (3, 4)]
    return [moment for moment in last if moment[0] % 5 < 3], *held


def _by_time(ratings: Ratings) -> tuple[list[tuple[int, int]], ...]:
    """Moments (user, place in its history): the last is for test, the one before to validate."""
    train: list[tuple[int, int]] = []
    valid, test = [], []
    for user, history in enumerate(ratings.histories):
        held = 2 if len(history) >= 3 else 0
        train += [(user, t) for t in range(len(history) - held)]
        if held:
            valid.append((user, len(history) - 2))
            test.append((user, len(history) - 1))
    if not test:
        raise ValueError(
            "nobody has three choices or more, of which the last is for test and the one before "
            "for validation"
        )
    return train, valid, test
