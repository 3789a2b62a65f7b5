"""Recommendation: what a user chooses next, by attention of its profile to past choices."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data import fingerprint
from regard.data.ratings import Ratings, read_movielens, read_ratings
from regard.data.ratings_file import load_ratings, save_ratings
from regard.data.tables import is_saved_dataset
from regard.data.viewers import generate_opposites, generate_viewers
from regard.tasks.classification import shuffled_epochs, split_sizes, table
from regard.tasks.recommender import TABLES, Model, Recommender, build_model
from regard.tasks.settings import ConfiguredTask, Count
from regard.training import Loss, Settings, stored_file
from regard.training.processes import shared, summed

TOP = 10  # HR@10 and NDCG@10


class Data(Settings):
    """The table `[data]`; without `path` viewers are generated."""

    path: str | None = Field(
        None,
        description="a folder with u.data, u.user, u.item; or a .csv, .tsv, .jsonl (.gz or .zst of "
        "them) or .parquet, or a directory of save_to_disk",
    )
    format: Literal["csv", "tsv", "jsonl", "parquet", "dataset"] | None = Field(
        None, description="of the table at path; by default, by the name"
    )
    encoding: str | None = Field(
        None,
        description="of a csv, tsv or jsonl, such as cp949; by default by its byte order mark, or "
        "UTF-8",
    )
    delimiter: str | None = Field(
        None, description="between columns of a csv or tsv; by default found in its first line"
    )
    user: str = Field("user", description="table: the column of the user")
    item: str = Field("item", description="table: the column of the item")
    time: str = Field("time", description="table: the column of the time, a number")
    rating: str | None = Field(None, description="table: the column of the rating, if there is one")
    users: str | None = Field(None, description="table: another one, of user profiles")
    items: str | None = Field(None, description="table: another one, of item profiles")
    title: str = Field("title", description="table: the column of `items` with their titles")
    min_rating: float = Field(0.0, description="choices with a lower rating are left out")
    generated: Literal["viewers", "opposites"] = Field(
        "viewers", description="what to generate without a path"
    )
    count: int = Field(500, ge=10, description="users to generate")
    catalogue: int = Field(300, ge=20, description="items to generate")
    batch: Count = Field(256, description="choices in a batch")

    @model_validator(mode="after")
    def _tables(self) -> "Data":
        if self.path is None and (self.users or self.items or self.rating):
            raise ValueError("users, items and rating belong to a table: give its path")
        return self


class LossSettings(Settings):
    """The table `[loss]`."""

    among: Literal["all", "new"] = Field(
        "all", description="items a choice is learned among: all, or those its user does not have"
    )


class Choices(NamedTuple):
    """Users at some moment, and what they chose then."""

    users: Tensor  # (B,), from 1 on
    profiles: Tensor  # (B, columns)
    past: Tensor  # (B, L), the latest first
    lengths: Tensor  # (B,)
    chosen: Tensor  # (B,)
    had: Tensor  # bool (B, items): what they had chosen before


class RecommendTask(ConfiguredTask):
    """Ratings: each user's last choice is for test, the one before it for validation.

    With `generated = "opposites"` only the last choice of a user can be predicted: whole users
    are held out instead.

    Args:
        data: the ratings
        model: options of the model
        loss: how it is trained
        seed: of the order of batches, and of generated viewers
        run: a run directory whose ratings are used
    """

    predictor = Recommender
    tables = (("data", Data), ("model", Model), ("loss", LossSettings))
    unit = "choices"
    metric = "ndcg"
    larger_is_better = True

    def __init__(
        self,
        data: Data,
        model: Model,
        loss: LossSettings,
        seed: int = 1,
        run: Path | None = None,
    ) -> None:
        self.data, self.model, self.loss_settings, self.seed = data, model, loss, seed
        stored = stored_file(run, TABLES)
        self.ratings = load_ratings(stored) if stored else _read(data, seed)
        self.profiles = torch.from_numpy(self.ratings.user_profiles.rows)
        opposites = data.path is None and data.generated == "opposites"
        split = _by_user if opposites else _by_time
        self.train, self.valid, self.test = split(self.ratings)
        self._order = shuffled_epochs(len(self.train), seed)
        if loss.among == "new" and any(
            len({*items}) < len(items) for items in self.ratings.histories
        ):
            raise ValueError(
                "[loss] among = 'new' needs choices that are new to their user, but some user of "
                "this data chose an item again; use among = 'all'"
            )

    def build(self) -> nn.Module:
        """Build a fresh model for these users and items."""
        return build_model(self.model, self.ratings)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return -(-len(self.train) // self.data.batch)

    def batch(self, epoch: int, step: int) -> Choices:
        """Return one batch of the epoch."""
        size = self.data.batch
        places = self._order(epoch)[step * size : (step + 1) * size]
        return self._choices([self.train[place] for place in places])

    def loss(self, model: nn.Module, batch: Choices) -> Loss:
        """Return the cross entropy of the choice among all items, or those that are new, summed."""
        scores = model(*batch[:4]).scores
        if self.loss_settings.among == "new":
            scores = scores.masked_fill(batch.had, -torch.inf)
        return Loss(F.cross_entropy(scores, batch.chosen, reduction="sum"), len(batch.chosen))

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return HR@10 and NDCG@10 over all items, of validation and of test."""
        hit, ndcg = self._ranked(self.valid, model)
        test_hit, test_ndcg = self._ranked(self.test, model)
        return {"hit": hit, "ndcg": ndcg, "test_hit": test_hit, "test_ndcg": test_ndcg}

    def popularity(self) -> dict[str, float]:
        """Return the test metrics of always recommending the most popular items."""
        hit, ndcg = self._ranked(self.test, None)
        return {"test_hit": hit, "test_ndcg": ndcg}

    def write(self, run: Path) -> None:
        """Store the choices of users and the profiles."""
        save_ratings(self.ratings, run / TABLES)

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the ratings, which are a part of the run."""
        return {"ratings": fingerprint(self.ratings.histories)}

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        ratings, popular = self.ratings, self.popularity()
        users, items = ratings.user_profiles.columns, ratings.item_profiles.columns
        return table(
            {
                "users": f"{len(ratings.users):,}, {len(users)} columns: " + ", ".join(users[:6]),
                "items": f"{len(ratings.items):,}, {len(items)} columns: " + ", ".join(items[:6]),
                "choices": split_sizes(self.train, self.valid, self.test),
                "baseline": f"always the most popular: HR@10 {popular['test_hit']:.3f}, NDCG@10 "
                f"{popular['test_ndcg']:.3f}",
            }
        )

    def _choices(self, moments: Sequence[tuple[int, int]]) -> Choices:
        users = torch.tensor([user for user, _ in moments])
        histories, longest = self.ratings.histories, self.model.past
        pasts = [histories[user][max(0, t - longest) : t][::-1] for user, t in moments]
        lengths = torch.tensor([len(past) for past in pasts])
        past = np.zeros((len(moments), max(1, int(lengths.max()))), np.int64)
        had = np.zeros((len(moments), len(self.ratings.items)), bool)
        for row, (items, (user, t)) in enumerate(zip(pasts, moments, strict=True)):
            past[row, : len(items)] = items
            had[row, histories[user][:t]] = True
        chosen = torch.tensor([int(histories[user][t]) for user, t in moments])
        return Choices(
            users + 1,
            self.profiles[users],
            torch.from_numpy(past),
            lengths,
            chosen,
            torch.from_numpy(had),
        )

    def _ranked(
        self, moments: list[tuple[int, int]], model: nn.Module | None
    ) -> tuple[float, float]:
        """HR@10 and NDCG@10 of a model, or of popularity; what a user has is not recommended.

        Of items with the same score as the choice half count as ranked before it: a model that
        gives every item one score, or NaN, gains nothing by that.
        """
        hits, gain = 0.0, 0.0
        counts = np.bincount(
            [self.ratings.histories[user][t] for user, t in self.train],
            minlength=len(self.ratings.items),
        )
        popular = torch.from_numpy(counts).float()
        parts = ((self._choices(some), some) for some in _in_parts(moments, self.data.batch))
        for batch, some in parts if model is None else shared(parts, model):
            scores = popular.repeat(len(some), 1) if model is None else model(*batch[:4]).scores
            target = scores.gather(1, batch.chosen.unsqueeze(1))
            above = (scores > target) & ~batch.had
            level = ~(scores < target) & ~batch.had  # those above as well
            level.scatter_(1, batch.chosen.unsqueeze(1), False)
            rank = (above.sum(1) + level.sum(1)) // 2  # 0 is the best
            found = rank[rank < TOP]
            hits += len(found)
            gain += float((1 / torch.log2(found + 2.0)).sum())
        if model is not None:
            hits, gain = summed(hits, gain)
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
    if (path.is_dir() and not is_saved_dataset(path)) or path.name == "u.data":
        if data.users or data.items or data.rating:
            raise ValueError(
                f"data.users, data.items and data.rating belong to a table, but {path} is in "
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
        format=data.format,
        encoding=data.encoding,
        delimiter=data.delimiter,
    )


def _by_user(ratings: Ratings) -> tuple[list[tuple[int, int]], ...]:
    """The last choice of each user: three users in five for training, the others held out."""
    last = [(user, len(history) - 1) for user, history in enumerate(ratings.histories)]
    held = [[moment for moment in last if moment[0] % 5 == rest] for rest in (3, 4)]
    return [moment for moment in last if moment[0] % 5 < 3], *held


def _by_time(ratings: Ratings) -> tuple[list[tuple[int, int]], ...]:
    """Moments (user, place in its history): the last is for test, the one before for validation."""
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
            "no user has three choices or more, of which the last is for test and the one before "
            "it for validation"
        )
    return train, valid, test
