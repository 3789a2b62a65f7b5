"""Co-attention: two inputs attend to each other, pooled or position by position."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import attend
from regard.attention.observer import observed
from regard.core.map import AttentionMap
from regard.core.mask import Mask
from regard.core.score import Additive
from regard.layers.checks import check_sizes
from regard.layers.hierarchical import AttentionPooling
from regard.layers.masking import padding_mask, zero_padding


class CoAttended(NamedTuple):
    """Both contexts, (B, left_dim) and (B, right_dim), and the maps that made them.

    `left_map` (B, 1, L) and `right_map` (B, 1, R) are distributions over the positions of one
    side. With several glimpses these are (B, glimpses, ·), and the contexts are concatenated,
    (B, glimpses · dim). `affinity` (B, L, R) relates left and right positions, between −1 and 1;
    its rows are not distributions. Alternating co-attention has no affinity and one glimpse.
    """

    left: Tensor
    right: Tensor
    left_map: AttentionMap
    right_map: AttentionMap
    affinity: AttentionMap | None = None


class CoAttention(nn.Module):
    """Parallel co-attention: both inputs attend to each other at the same time.

        C = tanh(Qᵀ W_b V)
        H_v = tanh(W_v V + (W_q Q) C),  H_q = tanh(W_q Q + (W_v V) Cᵀ)
        a_v = softmax(w_hvᵀ H_v),  a_q = softmax(w_hqᵀ H_q)
        v̂ = Σ_n a_v,n v_n,  q̂ = Σ_t a_q,t q_t

    Lu et al. 2016, eq. 3-5. The paper's question Q is the left input, its image V the right one;
    any two sequences will do. Products with C are attention with values W_q Q and W_v V and tanh
    in place of softmax, so that only blocks of rows of C are held.

    With several `glimpses` there are as many w_hv and w_hq, each with its own context: comparing
    two things takes two distributions.

    >>> layer = CoAttention(5, 3, 7)
    >>> text, image = torch.randn(2, 11, 5), torch.randn(2, 13, 3)
    >>> found = layer(text, image, left_mask=torch.tensor([11, 4]))
    >>> found.left.shape, found.right.shape, found.affinity.shape
    (torch.Size([2, 5]), torch.Size([2, 3]), torch.Size([2, 11, 13]))

    Args:
        left_dim: width of the left input
        right_dim: width of the right input
        hidden: width of H
        glimpses: number of distributions, and contexts, of each side
    """

    def __init__(self, left_dim: int, right_dim: int, hidden: int, *, glimpses: int = 1) -> None:
        super().__init__()
        check_sizes(left_dim=left_dim, right_dim=right_dim, hidden=hidden, glimpses=glimpses)
        self.left_dim, self.right_dim = left_dim, right_dim
        self.affinity = nn.Parameter(torch.empty(left_dim, right_dim))  # W_b
        self.left_projection = nn.Linear(left_dim, hidden, bias=False)  # W_q
        self.right_projection = nn.Linear(right_dim, hidden, bias=False)  # W_v
        self.left_query = nn.Parameter(torch.empty(glimpses, hidden))  # w_hq
        self.right_query = nn.Parameter(torch.empty(glimpses, hidden))  # w_hv
        for weight in (self.affinity, self.left_query, self.right_query):
            nn.init.xavier_uniform_(weight)

    @observed
    def forward(
        self,
        left: Tensor,
        right: Tensor,
        *,
        left_mask: Mask | Tensor | None = None,
        right_mask: Mask | Tensor | None = None,
    ) -> CoAttended:
        """Attend from both sides to both sides.

        Args:
            left: (B, L, left_dim)
            right: (B, R, right_dim)
            left_mask: which of left is real: lengths (B,), bool (B, L) with True = real, or a Mask
            right_mask: the same for right

        Returns: `CoAttended`; a side without a real position gives zeros
        """
        _check_inputs(left, right, self.left_dim, self.right_dim)
        # padding is zero, so its affinity is tanh(0) = 0: it needs no mask before the softmax
        left, left_real = _without_padding(left, left_mask, "left_mask")
        right, right_real = _without_padding(right, right_mask, "right_mask")
        query = (left @ self.affinity).to(right.dtype)  # (B, L, right_dim)
        left_hidden = self.left_projection(left).to(left.dtype)  # (B, L, hidden)
        right_hidden = self.right_projection(right).to(right.dtype)  # (B, R, hidden)
        from_right, affinity = attend(
            query, right, right_hidden, score="dot", normalize=_tanh, return_map=True
        )
        from_left = attend(right, query, left_hidden, score="dot", normalize=_tanh)
        left_context, left_map = attend(
            self.left_query.to(left.dtype)[None],
            torch.tanh(left_hidden + from_right),
            left,
            score="dot",
            mask=left_real,
            return_map=True,
        )
        right_context, right_map = attend(
            self.right_query.to(right.dtype)[None],
            torch.tanh(right_hidden + from_left),
            right,
            score="dot",
            mask=right_real,
            return_map=True,
        )
        return CoAttended(
            left_context.flatten(-2), right_context.flatten(-2), left_map, right_map, affinity
        )


class AlternatingCoAttention(nn.Module):
    """Alternating co-attention: each side guides the other in turn.

        x̂ = A(X; g):  H = tanh(W_x X + (W_g g) 1ᵀ),  a = softmax(w_hxᵀ H),  x̂ = Σ_i a_i x_i
        ŝ = A(Q; 0),  v̂ = A(V; ŝ),  q̂ = A(Q; v̂)

    Lu et al. 2016, eq. 6-7. A is additive attention with g as its only query. Each of the three
    steps has its own weights. The paper's question Q is the left input, its image V the right one.

    >>> found = AlternatingCoAttention(5, 3, 7)(torch.randn(2, 11, 5), torch.randn(2, 13, 3))
    >>> found.left.shape, found.left_map.shape, found.right_map.shape
    (torch.Size([2, 5]), torch.Size([2, 1, 11]), torch.Size([2, 1, 13]))

    Args:
        left_dim: width of the left input
        right_dim: width of the right input
        hidden: width of H
    """

    def __init__(self, left_dim: int, right_dim: int, hidden: int) -> None:
        super().__init__()
        check_sizes(left_dim=left_dim, right_dim=right_dim, hidden=hidden)
        self.left_dim, self.right_dim = left_dim, right_dim
        self.summary = AttentionPooling(left_dim, hidden, bias=False)
        self.right_score = Additive(left_dim, right_dim, hidden)
        self.left_score = Additive(right_dim, left_dim, hidden)

    @observed
    def forward(
        self,
        left: Tensor,
        right: Tensor,
        *,
        left_mask: Mask | Tensor | None = None,
        right_mask: Mask | Tensor | None = None,
    ) -> CoAttended:
        """Attend to left, right and left again. Arguments and result as of `CoAttention`."""
        _check_inputs(left, right, self.left_dim, self.right_dim)
        left, left_real = _without_padding(left, left_mask, "left_mask")
        right, right_real = _without_padding(right, right_mask, "right_mask")
        summary = self.summary(left, mask=left_real)
        right_context, right_map = attend(
            summary.unsqueeze(-2),  # (B, 1, left_dim)
            right,
            right,
            score=self.right_score,
            mask=right_real,
            return_map=True,
        )
        left_context, left_map = attend(
            right_context,  # (B, 1, right_dim)
            left,
            left,
            score=self.left_score,
            mask=left_real,
            return_map=True,
        )
        return CoAttended(left_context.squeeze(-2), right_context.squeeze(-2), left_map, right_map)


class Aligned(NamedTuple):
    """What each position found on the other side, and the maps that made it.

    `left` (B, L, right_dim) has the context of each left position, `right` (B, R, left_dim) that of
    each right one. The rows of `left_map` (B, L, R) and `right_map` (B, R, L) are distributions
    over the other side.
    """

    left: Tensor
    right: Tensor
    left_map: AttentionMap
    right_map: AttentionMap


class AlignedCoAttention(nn.Module):
    """Soft alignment: each position of both inputs attends to the positions of the other one.

        e_ij = q_iᵀ W v_j / √d
        β_i = Σ_j softmax_j(e_ij) v_j,  α_j = Σ_i softmax_i(e_ij) q_i

    Parikh et al. 2016, eq. 1-2, with a bilinear form for F(q)ᵀ F(v). Both directions have the same
    scores. `CoAttention` pools each side to a few vectors; here every position keeps a context of
    its own, which can be compared with it.

    >>> layer = AlignedCoAttention(5, 3)
    >>> found = layer(torch.randn(2, 11, 5), torch.randn(2, 13, 3), left_mask=torch.tensor([11, 4]))
    >>> found.left.shape, found.right.shape, found.left_map.shape
    (torch.Size([2, 11, 3]), torch.Size([2, 13, 5]), torch.Size([2, 11, 13]))

    Args:
        left_dim: width of the left input
        right_dim: width of the right input, d
    """

    def __init__(self, left_dim: int, right_dim: int) -> None:
        super().__init__()
        check_sizes(left_dim=left_dim, right_dim=right_dim)
        self.left_dim, self.right_dim = left_dim, right_dim
        self.affinity = nn.Parameter(torch.empty(left_dim, right_dim))  # W
        nn.init.xavier_uniform_(self.affinity)

    @observed
    def forward(
        self,
        left: Tensor,
        right: Tensor,
        *,
        left_mask: Mask | Tensor | None = None,
        right_mask: Mask | Tensor | None = None,
    ) -> Aligned:
        """Attend from each side to the other. Arguments as of `CoAttention`.

        Returns: `Aligned`; if a side has no real position, the contexts of the other are zero
        """
        _check_inputs(left, right, self.left_dim, self.right_dim)
        left, left_real = _without_padding(left, left_mask, "left_mask")
        right, right_real = _without_padding(right, right_mask, "right_mask")
        query = (left @ self.affinity).to(right.dtype)  # (B, L, right_dim)
        from_right = attend(query, right, right, mask=right_real, return_map=True)
        from_left = attend(right, query, left, mask=left_real, return_map=True)
        return Aligned(from_right.output, from_left.output, from_right.map, from_left.map)


def _tanh(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Each score by itself, between −1 and 1."""
    return torch.tanh(scores)


def _without_padding(
    x: Tensor, mask: Mask | Tensor | None, name: str
) -> tuple[Tensor, Mask | None]:
    """One side with zeros at its padding, and the mask that hides that."""
    real = padding_mask(mask, x, name)
    return zero_padding(x, real), real


def _check_inputs(left: Tensor, right: Tensor, left_dim: int, right_dim: int) -> None:
    for name, x, dim in (("left", left, left_dim), ("right", right, right_dim)):
        if x.dim() != 3 or x.shape[-1] != dim:
            raise ValueError(
                f"{name} should be (batch, length, {dim}), got {tuple(x.shape)}; an image "
                "(batch, channels, height, width) is given as image.flatten(2).mT"
            )
    if left.shape[0] != right.shape[0]:
        raise ValueError(
            f"left and right should have the same batch size, got {len(left)} and {len(right)}"
        )
