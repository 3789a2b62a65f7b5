"""The predictor of the task recommend: a model, the ratings it knows, and its reasons."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from regard.core.map import AttentionMap
from regard.core.names import did_you_mean
from regard.data.ratings import Ratings
from regard.data.ratings_file import load_ratings
from regard.models.recommender import Factorisation, Parts
from regard.models.recommender import Recommender as RecommenderModel
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_model
from regard.tasks.settings import Count, Share
from regard.trace import Call, Trace
from regard.training import Config, Settings, read_settings
from regard.training.run_directory import read_run_config

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
