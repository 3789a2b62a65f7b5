"""Recommendation by attention to past choices: the predictor with its reasons, and the task."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.core.names import did_you_mean
from regard.data import fingerprint
from regard.data.ratings import Ratings, read_movielens, read_ratings
from regard.data.ratings_file import load_ratings, save_ratings
from regard.data.tables import is_saved_dataset
from regard.data.viewers import generate_opposites, generate_viewers
from regard.models.recommender import Factorisation, Parts
from regard.models.recommender import Recommender as RecommenderModel
from regard.tasks.classification import shuffled_epochs, split_sizes, table
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_model
from regard.tasks.settings import ConfiguredTask, Count, Share
from regard.trace import Call, Trace
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.processes import shared, summed
from regard.training.run_directory import read_run_config

TOP = 10  # HR@10 and NDCG@10
TABLES = "ratings.npz"  # in a run directory
SHOWN = 3  # reasons and features that are printed


class Model(Settings):
    """The table `[model]`: options of `Recommender`, or of the baseline `Factorisation`."""

    kind: Literal["attention", "factorisation"] = Field(
        "attention", description="attention, or matrix factorisation for comparison"
    )
    dim: Count = Field(48, description="width of the embeddings")
    dropout: Share = Field(0.2, description="of embeddings and layers")
    heads: Count = Field(1, description="number of attention heads")
    past: Count = Field(30, description="number of latest items that are attended to")
    projections: Literal["learned", "identity"] = Field(
        "learned", description="of queries and keys; identity makes similarity raise every weight"
    )
    last_item: bool = Field(
        False, description="add the latest item to the query, and items' embeddings to the keys"
    )
    recency: bool = Field(False, description="add a learned bias to the score of each past place")
    self_attention: int = Field(
        0, ge=0, description="layers in which past items attend to each other"
    )
    forget: Share = Field(0.1, description="share of examples trained without user and past")


class NewUser(NamedTuple):
    """A user that the data does not have."""

    profile: Mapping[str, str]  # fields such as {"age": "30", "occupation": "artist"}
    past: Sequence[str] = ()  # items, the first choice first


class Reason(NamedTuple):
    """A past item, and what it adds to a score."""

    what: str  # its title
    gives: float  # what it adds to the score
    weight: float  # its attention weight


class Recommendation(NamedTuple):
    """An item, its score, and the parts that add up to the score."""

    item: str
    title: str
    score: float
    past: list[Reason]  # of past items, the largest first
    own: float  # of the user's embedding
    popularity: float  # of the item itself


class Feature(NamedTuple):
    """A feature of items, and how much it matters to a user."""

    what: str  # a column of the profiles of items, such as "genre War"
    weight: float  # the mean weight of the items that have it; 1 is the mean of all items


class Recommendations(NamedTuple):
    """What to recommend to a user, and which features of items matter to this user."""

    items: list[Recommendation]  # the best first
    features: list[Feature]  # of the catalogue, the one that matters most first


class Recommender(Predictor):
    """A model with the choices and profiles of its users: a run of the task recommend.

    An input is the name of a user of the data, or a `NewUser`.

    Args:
        model: a trained model
        ratings: what it was trained on
        config: of the run
    """

    task: ClassVar[str] = "recommend"

    def __init__(self, model: nn.Module, ratings: Ratings, config: Config | None = None) -> None:
        self.model: Any = model.eval()
        self.ratings, self.config = ratings, config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "Recommender":
        """Load a run directory of the task recommend."""
        run, config = Path(directory), read_run_config(directory)
        options = read_settings(Model, config.model, "model")
        if options.kind == "factorisation":
            raise ValueError(f"{run} is a run of matrix factorisation, which gives no reasons")
        ratings = load_ratings(run / TABLES)
        return cls(load_model(partial(build_model, options, ratings), run, device), ratings, config)

    def recommend(self, user: str, count: int = 10) -> list[Recommendation]:
        """Return the best items for a user of the data, among those it has not chosen yet."""
        return self.predict([user], count=count)[0].items

    def recommend_to(
        self, profile: Mapping[str, str], past: Sequence[str] = (), count: int = 10
    ) -> list[Recommendation]:
        """Return the best items for a new user, by the profile and past choices.

        Args:
            profile: fields such as {"age": "30", "occupation": "artist"}; it may be empty
            past: items, the first choice first; it may be empty
        """
        return self.predict([NewUser(profile, past)], count=count)[0].items

    def predict(self, inputs: Sequence[str | NewUser], *, count: int = 10) -> list[Recommendations]:
        """Return the best items for each user, none if it has them all, and what matters to it.

        Args:
            inputs: names of users of the data, or new users
            count: how many items
        """
        check_inputs(inputs, "users")
        if count < 1:
            raise ValueError(f"count should be 1 or more, got {count}")
        return [
            Recommendations(self._best(*self._user(user), count), self.importance(user))
            for user in inputs
        ]

    def trace(self, input: str | NewUser, *, count: int = 10) -> Trace:
        """Return what a user attends to among past items, and the parts of the best scores."""
        (found,) = self.predict([input], count=count)
        if not found.items:
            raise ValueError("there is nothing to recommend: this user has every item")
        number, profile, history = self._user(input)
        titles, (past, parts) = self.ratings.titles, self._parts(number, profile, history)
        about = {
            "task": self.task,
            "title": f"recommended: {found.items[0].title}",
            "prediction": self.to_text(found),
            "recommendations": self.to_json(found),
        }
        everything = AttentionMap.of(self._catalogue(profile).view(1, 1, -1))
        calls = [Call("catalogue", everything, "user", "item")]
        if len(history):
            weights = AttentionMap.of(parts.weights.view(1, 1, -1))
            calls.insert(0, Call("past", weights, "user", "past"))
        user = input if isinstance(input, str) else "new user"
        tokens = {"user": [user], "past": [titles[item] for item in past], "item": titles}
        return Trace(calls, tokens, about)

    def importance(self, user: str | NewUser) -> list[Feature]:
        """Return how much each feature of items matters to a user, by the profile alone.

        The user attends to all items; the weight of a feature is the mean weight of the items
        that have it, as a multiple of the mean weight of all items.
        """
        _, profile, _ = self._user(user)
        weights, items = self._catalogue(profile), self.ratings.item_profiles
        rows = torch.from_numpy(items.rows)  # (items, features)
        found = len(rows) * (weights @ rows) / rows.sum(0).clamp(min=1)
        features = map(Feature, items.columns, found.tolist())
        return sorted(features, key=lambda feature: -feature.weight)

    def parse(self, record: str | Mapping[str, Any]) -> str | NewUser:
        """Return a line as the name of a user; of JSON, `user`, or `profile` and `past`."""
        if isinstance(record, str):
            return record.strip()
        if "user" in record:
            return str(field(record, "user", kind=object))
        if not {"profile", "past"} & set(record):
            raise ValueError(
                "expected a JSON object with the key 'user', or 'profile' and 'past' of a new "
                f"user, got keys {sorted(record)}"
            )
        profile = field({"profile": {}, **record}, "profile", kind=dict)
        past = field({"past": [], **record}, "past", kind=list)
        fields = {str(name): str(value) for name, value in profile.items()}
        return NewUser(fields, [str(item) for item in past])

    def to_text(self, prediction: Recommendations) -> str:
        """Return a numbered list of items, each with the parts of its score, then features."""
        if not prediction.items:
            return "there is nothing to recommend: this user has every item"
        everything = len(self.ratings.items)
        lines = []
        for rank, one in enumerate(prediction.items, start=1):
            lines.append(f"{rank:>3}. {one.title}  (item {one.item}, score {one.score:.2f})")
            if len(one.past) == everything:  # a user without a past attends to the catalogue
                total = sum(reason.gives for reason in one.past)
                lines.append(f"       {total:+6.2f}  the catalogue of {everything:,} items")
            else:
                lines += _reasons(one.past)
            lines.append(f"       {one.own:+6.2f}  own taste, {one.popularity:+.2f} popularity")
        if prediction.features:
            lines.append("features that matter to this user (1 is the average):")
            for what, weight in prediction.features[:SHOWN]:
                lines.append(f"       {weight:6.2f}  {what}")
        return "\n".join(lines)

    def to_json(self, prediction: Recommendations) -> Any:
        """Return the items and features with everything that is known of them."""
        return {
            "items": [
                {**one._asdict(), "past": [reason._asdict() for reason in one.past]}
                for one in prediction.items
            ],
            "features": [feature._asdict() for feature in prediction.features],
        }

    def examples(self, count: int, split: str = "test") -> list[str]:
        """Return the first users of the data."""
        return self.ratings.users[:count]

    def _user(self, user: str | NewUser) -> tuple[int, Tensor, np.ndarray]:
        """The number of a user's embedding, 0 for none, its profile (columns,), its history."""
        ratings = self.ratings
        if isinstance(user, NewUser):
            places = []
            for item in user.past:
                if item not in ratings.items:
                    raise ValueError(
                        f"unknown item {item!r}{did_you_mean(item, ratings.items[:20])}"
                    )
                places.append(ratings.items.index(item))
            row = torch.from_numpy(ratings.user_profiles.encode(user.profile))
            return 0, row, np.array(places, np.int64)
        if user not in ratings.users:
            known = did_you_mean(user, ratings.users[:20])
            raise ValueError(f"unknown user {user!r}{known} ...; for a new user give a profile")
        place = ratings.users.index(user)
        history = ratings.histories[place]
        own = place + 1 if len(history) else 0  # without a choice its embedding was not trained
        return own, torch.from_numpy(ratings.user_profiles.rows[place]), history

    def _catalogue(self, profile: Tensor) -> Tensor:
        """The weight of every item, (items,), for a user without a past."""
        _, parts = self._parts(0, profile, np.zeros(0, np.int64))
        return parts.weights

    def _parts(
        self, user: int, profile: Tensor, history: np.ndarray
    ) -> tuple[Sequence[int], Parts]:
        """The items that are attended to, and the parts of all scores."""
        past = torch.from_numpy(history[-self.model.past :][::-1].copy())
        attended = past.tolist() if len(past) else range(len(self.ratings.items))
        found = self.model.parts(user, profile.to(self.device), past.to(self.device))
        return attended, Parts(*(part.cpu() for part in found))

    def _best(
        self, user: int, profile: Tensor, history: np.ndarray, count: int
    ) -> list[Recommendation]:
        past, parts = self._parts(user, profile, history)
        scores = parts.popularity + parts.own + parts.past.sum(0)
        scores[torch.from_numpy(history)] = -torch.inf
        titles, weights = self.ratings.titles, parts.weights.tolist()
        found = []
        for i in scores.topk(min(count, len(scores) - len({*history.tolist()}))).indices.tolist():
            given = zip(past, parts.past[:, i].tolist(), weights, strict=True)
            carried = [Reason(titles[j], gives, weight) for j, gives, weight in given]
            found.append(
                Recommendation(
                    self.ratings.items[i],
                    titles[i],
                    float(scores[i]),
                    sorted(carried, key=lambda reason: -reason.gives),
                    float(parts.own[i]),
                    float(parts.popularity[i]),
                )
            )
        return found


def _reasons(reasons: list[Reason]) -> list[str]:
    """Lines of the first reasons, and of the sum of the rest."""
    lines = [
        f"       {reason.gives:+6.2f}  {reason.what}, weight {reason.weight:.2f}"
        for reason in reasons[:SHOWN]
    ]
    if rest := reasons[SHOWN:]:
        total = sum(reason.gives for reason in rest)
        lines.append(f"       {total:+6.2f}  {len(rest)} other past item{'s' * (len(rest) > 1)}")
    return lines


def build_model(options: Model, ratings: Ratings) -> nn.Module:
    """A model for the users and items of some ratings."""
    if options.kind == "factorisation":
        users, items = len(ratings.users), len(ratings.items)
        return Factorisation(users, items, dim=options.dim, dropout=options.dropout)
    return RecommenderModel(
        len(ratings.users),
        torch.from_numpy(ratings.user_profiles.rows),
        torch.from_numpy(ratings.item_profiles.rows),
        **options.model_dump(exclude={"kind"}),
    )


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
