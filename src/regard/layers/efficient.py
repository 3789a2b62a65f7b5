"""Efficient attention: linear in the length, because the map is never computed."""

from typing import NamedTuple

from torch import Tensor, nn

from regard.attention import Attended, attend_linear, observer
from regard.attention.observer import observed
from regard.core.mask import Grid, Mask, Window
from regard.core.mask.algebra import And
from regard.layers.cache import check_step, count_beams
from regard.layers.checks import check_heads, check_inputs, check_sizes
from regard.layers.masking import mask_over_heads, padding_mask, zero_hidden_inputs, zero_padding
from regard.layers.role import AttentionRole
from regard.paths.linear import LinearState, linear_context, linear_start, linear_step


class EfficientState(NamedTuple):
    """The state of decoding: d_k × d_v numbers per head, however long the past or the memory.

    `past` is for positions so far, `context` for a memory.
    """

    past: LinearState | None
    context: Tensor | None  # (batch, heads, F, F)

    @property
    def batch(self) -> int:
        held = self.context if self.past is None else self.past.sums
        assert held is not None
        return held.shape[0]

    def reorder(self, index: Tensor) -> "EfficientState":
        """The state of other beams: entry i becomes what entry index[i] was."""
        return EfficientState(
            None if self.past is None else self.past.reorder(index),
            None if self.context is None else self.context.index_select(0, index),
        )


class EfficientAttention(nn.Module):
    """Multi-head attention in linear time and memory: each head is ρ_q(Q) (ρ_k(K)ᵀ V).

        head_h = ρ_q(X W_Q,h) · (ρ_k(X W_K,h)ᵀ X W_V,h),  output = [head_1 ; …] W_O

    ρ_q is the softmax over the features of a query, ρ_k over the positions of a key's feature.
    Shen et al. 2018 (arXiv 1812.01243), eq. 3-4. Under `regard.causal()` the softmax over
    positions is over the keys up to each query, and `start` and `step` give the same one position
    at a time. The implied map ρ_q(Q) ρ_k(K)ᵀ has rows that sum to one.

    >>> import torch, regard
    >>> layer = EfficientAttention(10, heads=2)
    >>> x = torch.randn(3, 7, 10)
    >>> layer(x, mask=regard.causal() & regard.lengths([7, 5, 0])).shape
    torch.Size([3, 7, 10])
    >>> y, state = layer.step(x[:, :1], layer.start(3))
    >>> torch.allclose(y, layer(x, mask=regard.causal())[:, :1], atol=1e-6)
    True

    Args:
        dim: width of the queries and of all heads together
        heads: number of heads, a divisor of `dim`
        key_dim: width of the keys, `dim` if not given
        value_dim: width of the values, `key_dim` if not given
        out_dim: width of the output, `dim` if not given
        bias: whether the four projections have one
    """

    role: AttentionRole | None = None  # set by the model

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        out_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        out_dim = dim if out_dim is None else out_dim
        check_sizes(dim=dim, heads=heads, key_dim=key_dim, value_dim=value_dim, out_dim=out_dim)
        check_heads(dim, heads)
        self.dim, self.heads = dim, heads
        self.query_projection = nn.Linear(dim, dim, bias=bias)
        self.key_projection = nn.Linear(key_dim, dim, bias=bias)
        self.value_projection = nn.Linear(value_dim, dim, bias=bias)
        self.output_projection = nn.Linear(dim, out_dim, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize projections as in Glorot & Bengio 2010, and biases with zero.

        Those of queries and keys are twice as large. Otherwise the softmax over features and the
        one over positions are both almost flat, and every position gets almost the same context.
        """
        for part in self.children():
            assert isinstance(part, nn.Linear)
            softmaxed = part in (self.query_projection, self.key_projection)
            nn.init.xavier_uniform_(part.weight, gain=2.0 if softmaxed else 1.0)
            if part.bias is not None:
                nn.init.zeros_(part.bias)

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """Attend to keys, or to the queries themselves.

        Args: those of `MultiHeadAttention.forward`, but
            mask: `regard.causal()`, `regard.lengths(keys)` or another mask that hides keys from
                all queries alike, or both with &
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query=query, key=key, value=value)
        real, causal = None, False
        if mask is not None:
            real, causal = _split_mask(mask_over_heads(mask), key.shape[1] - query.shape[1])
        query, key, value = zero_hidden_inputs(query, key, value, real)
        attended = attend_linear(
            self._split(self.query_projection(query)),
            self._split(self.key_projection(key)),
            self._split(self.value_projection(value)),
            mask=real,
            causal=causal,
            return_map=return_map,
        )
        if isinstance(attended, Attended):
            return Attended(self._join(attended.output), attended.map)
        return self._join(attended)

    def start(
        self,
        batch: int,
        memory: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> EfficientState:
        """The state before the first step, as of `MultiHeadAttention`.

        A `memory_mask` may also be lengths (sentences,).
        """
        width = self.dim // self.heads
        weight = self.key_projection.weight
        beams = count_beams(batch, memory, memory_mask)
        if memory is None:
            shape = (batch, self.heads)
            return EfficientState(
                linear_start(shape, width, width, weight.dtype, weight.device), None
            )
        self._check(key=memory, value=memory)
        real = padding_mask(memory_mask, memory, "memory_mask")
        memory = zero_padding(memory, real)
        visible = None
        if real is not None:
            grid = Grid(1, memory.shape[1], 1, memory.device)
            visible = real.seen(grid).unsqueeze(1)  # (batch, 1, N)
        key = self._split(self.key_projection(memory))
        value = self._split(self.value_projection(memory))
        context = linear_context(key, value, visible=visible)  # (sentences, heads, F, F)
        return EfficientState(None, context.repeat_interleave(beams, dim=0))

    @observed
    def step(
        self, x: Tensor, state: EfficientState, *, return_map: bool = False
    ) -> tuple[Tensor, EfficientState]:
        """One position of the causal pass, or of the pass over a memory.

        Args:
            x: (batch, 1, dim)
            state: from `start` or the last step
            return_map: not supported, since the state does not hold the keys

        Returns: (batch, 1, out_dim), and the new state
        """
        if return_map:
            raise ValueError(
                "a step of efficient attention has no map, since its state does not hold the "
                "keys; use forward with return_map=True"
            )
        if observer.observing:
            reason = "the state of a step does not hold the keys; edit forward instead"
            observer.reject_edit(observer.observers(), reason)
        self._check(query=x)
        check_step(x, state, self.dim)
        query = self._split(self.query_projection(x))
        if state.context is not None:
            return self._join(query.softmax(-1) @ state.context), state
        assert state.past is not None
        self._check(key=x, value=x)
        key, value = self._split(self.key_projection(x)), self._split(self.value_projection(x))
        output, past = linear_step(query, key, value, state.past)
        return self._join(output), EfficientState(past, None)

    def _split(self, x: Tensor) -> Tensor:
        """(B, L, dim) to (B, heads, L, dim / heads)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _join(self, heads: Tensor) -> Tensor:
        """(B, heads, M, dim / heads) to (B, M, out_dim)."""
        return self.output_projection(heads.transpose(1, 2).flatten(-2))

    def _check(self, **inputs: Tensor) -> None:
        widths = {name: getattr(self, f"{name}_projection").in_features for name in inputs}
        check_inputs(widths, **inputs)

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}"


def _split_mask(mask: Mask, offset: int) -> tuple[Mask | None, bool]:
    """Split a mask into the keys that are real and whether it is causal.

    Args:
        offset: position of the first query if the last one sits on the last key
    """
    if type(mask) is And:
        (left, causal), (right, also) = (
            _split_mask(mask.left, offset),
            _split_mask(mask.right, offset),
        )
        if left is None or right is None:
            return (right if left is None else left), causal or also
        return left & right, causal or also
    offsets = (None, offset)
    if isinstance(mask, Window) and (mask.left, mask.right) == (None, 0) and mask.offset in offsets:
        return None, True
    if not mask.ignores_queries():
        raise ValueError(
            "efficient attention takes causal(), masks that are the same for all queries such as "
            f"lengths(keys), and both with &, got {mask}"
        )
    return mask, False
