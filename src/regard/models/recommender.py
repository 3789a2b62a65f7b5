"""The attention recommender: a user attends to items, which predicts the next one."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.attention.observer import observed
from regard.core.blocks import can_inspect_values
from regard.core.mask import lengths as real
from regard.core.names import check_name
from regard.layers.checks import check_dropout, check_heads, check_sizes
from regard.layers.dropout import Dropout
from regard.layers.transformer import EncoderLayer
from regard.models.options import find_positions
from regard.models.stack import Stack

PROJECTIONS = ("learned", "identity")


class Recommended(NamedTuple):
    """Scores of all items, and the weights of those attended to."""

    scores: Tensor  # (B, items)
    weights: Tensor  # (B, heads, L): of past items; of all items, L = items, without a past


class Parts(NamedTuple):
    """The terms of each item's score, for one user: score = popularity + own + past.sum(0)."""

    popularity: Tensor  # (items,): the item's own, for any user
    own: Tensor  # (items,): the user's embedding
    past: Tensor  # (L, items): each item attended to, times its weight
    weights: Tensor  # (L,): those weights, the heads averaged


class Recommender(nn.Module):
    """The user's profile is the query, items' profiles are keys, and their embeddings values.

        Q = W_Q p_u,  K = W_K p_j,  V = e_j,  c = softmax(QKᵀ/√d) V
        r = W [u ; c],  score_i = r · e_i + b_i

    p are profiles: fixed rows of a table, which may be of different widths for users and items. u
    is a learned embedding of the user, e of the item: a learned row plus a projection of its
    profile. The keys are the user's past items; a user without a past attends to all items. Since
    everything after the softmax is linear, a score is exactly the sum
    of the terms of each past item, the user's embedding and the item's popularity (`parts`).

    Three options take the order of the past into account:

        last_item        Q = W_Q [p_u ; p_last ; e_last],  K = W_K [p_j ; e_j]
        recency          c = softmax(QKᵀ/√d + t) V, with a learned t for each place in the past
        self_attention   e_j of past items from layers in which they attend to each other

    Similar in kind: Vaswani et al. 2017 (the attention), He et al. 2018 (NAIS: the past weighted
    by attention), Kang & McAuley 2018 (SASRec: self-attention over the past).

    >>> model = Recommender(5, torch.eye(7), torch.eye(11), dim=12, heads=3)
    >>> past = torch.tensor([[3, 1, 0], [0, 0, 0]])
    >>> found = model(torch.tensor([1, 0]), torch.randn(2, 7), past, torch.tensor([2, 0]))
    >>> found.scores.shape
    torch.Size([2, 11])

    Args:
        users: number of known users, who have the ids 1, 2, …; 0 stands for any other
        user_profiles: (users, columns), of which only the width is used
        item_profiles: (items, columns)
        dim: width of embeddings and of all heads together
        heads: number of heads, a divisor of `dim`
        past: number of the latest items attended to
        projections: "learned", or "identity": Q = p_u and K = p_j, which must be as wide as
            each other, in one head
        last_item: whether the query includes the latest item, and keys the items' embeddings
        recency: whether each place in the past has a learned bias
        self_attention: layers of self-attention over the past, with learned positions
        forget: the fraction of examples, in train mode, whose user and past are masked, so that
            the model learns to recommend from the profile only
        dropout: of the context and the embeddings in r, in train mode
    """

    item_profiles: Tensor

    def __init__(
        self,
        users: int,
        user_profiles: Tensor,
        item_profiles: Tensor,
        *,
        dim: int = 64,
        heads: int = 1,
        past: int = 30,
        projections: str = "learned",
        last_item: bool = False,
        recency: bool = False,
        self_attention: int = 0,
        forget: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        (items, width), user_width = item_profiles.shape, user_profiles.shape[1]
        check_sizes(items=items, dim=dim, heads=heads, past=past)
        check_dropout(forget)
        check_name("projections", projections, PROJECTIONS)
        check_heads(dim, heads)
        if projections == "identity" and (user_width != width or heads != 1 or last_item):
            raise ValueError(
                "identity projections need one head, profiles of the same width and no last_item, "
                f"got {heads} heads, {user_width} and {width} columns and last_item={last_item}; "
                "use projections='learned'"
            )
        self.heads, self.past, self.forget, self.drop = heads, past, forget, Dropout(dropout)
        self.projections, self.last_item = projections, last_item
        self.register_buffer("item_profiles", item_profiles.float(), persistent=False)
        self.user = nn.Embedding(users + 1, dim)  # u
        self.item = nn.Embedding(items, dim)  # e
        self.item_profile = _linear(width, dim)
        if projections == "learned":
            more = width + dim if last_item else 0
            self.query = _linear(user_width + more, dim)  # W_Q
            self.key = _linear(width + (dim if last_item else 0), dim)  # W_K
        self.recency = nn.Parameter(torch.zeros(heads, past)) if recency else None  # t
        self.join = nn.Linear(2 * dim, dim, bias=False)  # W
        self.popularity = nn.Parameter(torch.zeros(items))  # b
        self.order, self.encoder = None, None
        if self_attention:
            self.order, _ = find_positions("learned", dim, heads, past)
            self.encoder = Stack(
                EncoderLayer,
                self_attention,
                dim,
                norm="pre",
                heads=heads,
                hidden=2 * dim,
                dropout=dropout,
            )
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=dim**-0.5)
        nn.init.zeros_(self.user.weight[:1].detach())

    def forward(
        self, users: Tensor, profiles: Tensor, past: Tensor, lengths: Tensor
    ) -> Recommended:
        """Score all items for some users.

        Args:
            users: ids from 1, 0 for an unknown user, (B,)
            profiles: (B, columns)
            past: item ids, the latest first, (B, L)
            lengths: how many of them are real, (B,)
        """
        if self.training and self.forget:
            hidden = torch.rand(len(users), device=users.device) < self.forget
            users, lengths = users.masked_fill(hidden, 0), lengths.masked_fill(hidden, 0)
        context, weights, _ = self._context(profiles, past, lengths)
        joined = torch.cat((self.drop(self.user(users)), self.drop(context)), dim=-1)
        return Recommended(self.join(joined) @ self.items().T + self.popularity, weights)

    def items(self) -> Tensor:
        """The embedding of every item, (items, dim)."""
        return self.item.weight + self.item_profile(self.item_profiles)

    @torch.no_grad()
    def parts(self, user: int, profile: Tensor, past: Tensor) -> Parts:
        """The terms of one user's scores; they add up to `forward` in eval mode.

        Args:
            user: its id, or 0
            profile: (columns,)
            past: the latest items first, (L,); empty for a user without a past
        """
        count = past.new_tensor([len(past)])
        shown = past if len(past) else past.new_zeros(1)
        _, weights, value = self._context(profile[None], shown[None], count)
        items, (own, context) = self.items(), self.join.weight.chunk(2, dim=1)  # the blocks of W
        mixed = weights[0].unsqueeze(-1) * value[0]  # (heads, L, width)
        mixed = mixed.transpose(0, 1).flatten(1)  # (L, dim)
        return Parts(
            self.popularity.detach(),
            self.user.weight[user] @ own.T @ items.T,
            mixed @ context.T @ items.T,
            weights[0].mean(0),
        )

    def _context(
        self, profiles: Tensor, past: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """c (B, dim), the weights (B, heads, L) and the values (B, heads, L, width)."""
        new = lengths == 0
        if not can_inspect_values(lengths):
            return self._attend(profiles, past, lengths)
        if bool(new.all()):
            return self._attend(profiles, None, lengths)
        context, weights, value = self._attend(profiles, past, lengths)
        if bool(new.any()):  # they attend to the catalogue; their weights are dropped
            others = self._attend(profiles[new], None, lengths[new])[0]
            context = context.index_copy(0, new.nonzero()[:, 0], others)
        return context, weights, value

    @observed
    def _attend(
        self, profiles: Tensor, past: Tensor | None, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attend to the past, or, without one, to all items: context, weights and values."""
        items = self.items()  # (items, dim)
        if past is None:
            p, e = self.item_profiles[None], items[None]  # (1, items, ...)
            mask, bias = None, None
            last = e.new_zeros(len(profiles), p.shape[-1] + e.shape[-1])
        else:
            p, e = self.item_profiles[past], items[past]  # (B, L, ...)
            mask = real(lengths)
            bias = None if self.recency is None else self.recency[:, None, : past.shape[1]]
            latest = torch.cat((p[:, 0], e[:, 0]), dim=-1)
            last = torch.where((lengths > 0).unsqueeze(1), latest, 0.0)
            if self.encoder is not None and self.order is not None:
                e = self.encoder(self.order(e), mask=mask)
        query, key = profiles.unsqueeze(1), p  # (B, 1, columns), (B, L, columns)
        if self.last_item:
            query = torch.cat((profiles, last), dim=-1).unsqueeze(1)
            key = torch.cat((p, e), dim=-1)
        if self.projections == "learned":
            query, key = self.query(query).to(e.dtype), self.key(key).to(e.dtype)  # autocast
        value = _split(e, self.heads).expand(len(profiles), -1, -1, -1)
        context, map = attend(
            _split(query, self.heads),
            _split(key, self.heads).expand(len(profiles), -1, -1, -1),
            value,
            mask=mask,
            bias=bias,
            return_map=True,
        )  # (B, heads, 1, width)
        return context.flatten(1), map.dense()[..., 0, :], value

    def extra_repr(self) -> str:
        return f"projections={self.projections!r}, last_item={self.last_item}, forget={self.forget}"


class Factorisation(nn.Module):
    """Matrix factorisation, the baseline: score_ui = p_u · q_i + b_i. Koren et al. 2009, eq. 1.

    >>> model = Factorisation(5, 11, dim=3)
    >>> none = torch.zeros(2, 0)
    >>> model(torch.tensor([1, 0]), none, none, none).scores.shape
    torch.Size([2, 11])

    Args:
        users: number of users, with ids from 1; 0 stands for any other
        items: number of items
        dim: number of factors
        dropout: of the factors, in train mode
    """

    def __init__(self, users: int, items: int, *, dim: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(users=users, items=items, dim=dim)
        self.user, self.item = nn.Embedding(users + 1, dim), nn.Embedding(items, dim)
        self.popularity = nn.Parameter(torch.zeros(items))
        self.drop = Dropout(dropout)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def forward(
        self, users: Tensor, profiles: Tensor, past: Tensor, lengths: Tensor
    ) -> Recommended:
        """Score all items for some users, (B, items); profiles and the past are not used."""
        own = self.drop(self.user(users))
        return Recommended(
            own @ self.item.weight.T + self.popularity, own.new_zeros(len(own), 1, 0)
        )


def _linear(width: int, dim: int) -> nn.Linear:
    """A projection, of no columns too, without torch's warning that it then has no weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return nn.Linear(width, dim, bias=False)


def _split(x: Tensor, heads: int) -> Tensor:
    """(B, L, heads · width) to (B, heads, L, width)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
