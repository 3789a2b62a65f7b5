"""Multi-head attention: several attentions in parallel, each on its own projections."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.jagged import is_jagged, pack
from regard.attention.observer import observed
from regard.core.map import AttentionMap
from regard.core.mask import Mask, as_mask, causal
from regard.core.names import layer_score
from regard.core.normalize import Normalizer, find_normalizer, softmax
from regard.core.score import Score
from regard.layers.cache import Past, SharedMemory, start
from regard.layers.checks import check_dropout, check_heads, check_inputs, check_sizes
from regard.layers.masking import (
    GroupedMask,
    computed_map,
    mask_over_heads,
    split_heads,
    ungrouped_map,
    zero_hidden_inputs,
)
from regard.layers.per_head import per_head
from regard.layers.position import ALiBi, Position, RelativeBias
from regard.layers.role import AttentionRole
from regard.layers.rotary import Rotary
from regard.layers.step import attend_step, can_step

MultiHeadState = Past | SharedMemory


class MultiHeadAttention(nn.Module):
    """Attend with several heads, each on its own projection of the inputs.

        head_h = attend(Q W_Q,h, K W_K,h, V W_V,h),  output = [head_1 ; … ; head_H] W_O

    Vaswani et al. 2017, section 3.2.2. With fewer `kv_heads` than heads, groups of heads share
    keys and values: Ainslie et al. 2023. Without `position` the layer is equivariant: permuting
    its inputs permutes its outputs.

    >>> import torch, regard
    >>> layer = MultiHeadAttention(12, heads=4, kv_heads=2)
    >>> x = torch.randn(3, 7, 12)
    >>> output, map = layer(x, mask=regard.lengths([7, 5, 0]), return_map=True)
    >>> output.shape, map.shape
    (torch.Size([3, 7, 12]), torch.Size([3, 4, 7, 7]))
    >>> y, state = layer.step(x[:, :1], layer.start(batch=3))
    >>> torch.allclose(y, layer(x, mask=regard.causal())[:, :1], atol=1e-6)
    True

    Args:
        dim: width of the queries
        heads: number of heads, a divisor of `inner_dim`
        inner_dim: width of all heads together, the D of W_Q ∈ R^(dim × D), `dim` if None; each
            head is D / heads wide
        kv_heads: number of heads of keys and values, a divisor of `heads`; all if None
        key_dim: width of the keys, `dim` if None
        value_dim: width of the values, `key_dim` if None
        out_dim: width of the output, `dim` if None
        output_projection: False leaves out W_O: the output is the concatenated heads, `inner_dim`
            wide
        score: a name, a module or callable on the width of a head, shared by all heads, or a
            sequence of them, one for each head; a score with parameters is built from its name
        normalize: a name or a callable, as for `attend`; a `Normalizer` may hold a temperature or
            a sink for each of the heads. A step of decoding that has fewer keys than `top_k` so
            far takes all of them
        position: an object with the methods of `Position`: `forward` is applied to the inputs (and
            to values that are the keys), `rotate` to queries and keys of each head, and `bias` is
            added to the scores
        dropout: of the weights, in train mode
        bias: whether the projections have one
        qk_norm: from the width of a head to a module that normalizes queries, and another for
            keys, such as `nn.RMSNorm`. Henry et al. 2020
    """

    role: AttentionRole | None = None  # set by the model

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        inner_dim: int | None = None,
        kv_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        out_dim: int | None = None,
        output_projection: bool = True,
        score: str | Score | Sequence[str | Score] = "scaled_dot",
        normalize: str | Callable[..., Tensor] = "softmax",
        position: Position | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        width_out = dim if out_dim is None else out_dim
        inner = dim if inner_dim is None else inner_dim
        check_sizes(dim=dim, heads=heads, inner_dim=inner, kv_heads=kv_heads, key_dim=key_dim)
        check_sizes(value_dim=value_dim, out_dim=width_out)
        check_heads(inner, heads, "dim" if inner_dim is None else "inner_dim")
        if heads % kv_heads:
            divisors = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
            raise ValueError(
                f"heads must be a multiple of kv_heads, got heads={heads} and kv_heads={kv_heads}; "
                f"kv_heads may be {divisors}"
            )
        check_dropout(dropout)
        if not output_projection and out_dim not in (None, inner):
            raise ValueError(
                f"output_projection=False gives an output as wide as all heads, {inner}, got "
                f"out_dim={out_dim}; leave one of them out"
            )
        self.dim, self.heads, self.kv_heads, self.dropout = dim, heads, kv_heads, dropout
        self._widths = {"query": dim, "key": key_dim, "value": value_dim}
        width = inner // heads
        self.query_projection = nn.Linear(dim, inner, bias=bias)
        self.key_projection = nn.Linear(key_dim, kv_heads * width, bias=bias)
        self.value_projection = nn.Linear(value_dim, kv_heads * width, bias=bias)
        self.output_projection = (
            nn.Linear(inner, width_out, bias=bias) if output_projection else nn.Identity()
        )
        self.query_norm = nn.Identity() if qk_norm is None else qk_norm(width)
        self.key_norm = nn.Identity() if qk_norm is None else qk_norm(width)
        self.position = _checked_position(position, heads, width)
        self.score: str | Score
        if isinstance(score, Sequence | nn.ModuleList) and not isinstance(score, str):
            self.score = per_head([layer_score(one, width, width) for one in score], heads)
        else:
            self.score = layer_score(score, width, width)
        self.normalize = find_normalizer(normalize)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize projections as in Glorot & Bengio 2010, and biases with zero."""
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """A layer with a copy of torch's weights, which gives the same numbers, batch first.

        Masks are inverted: see `regard.from_torch_mha`.
        """
        if layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError(
                "add_bias_kv and add_zero_attn add keys that are not in the input, which "
                "MultiHeadAttention does not do; build the nn.MultiheadAttention without them"
            )
        new = cls(
            layer.embed_dim,
            layer.num_heads,
            key_dim=layer.kdim,
            value_dim=layer.vdim,
            dropout=layer.dropout,
            bias=layer.in_proj_bias is not None,
        )
        names = ("query_projection", "key_projection", "value_projection")
        parts: Sequence[Tensor] = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        if layer.in_proj_weight is not None:
            parts = layer.in_proj_weight.chunk(3)
        weights = dict(zip((f"{name}.weight" for name in names), parts, strict=True))
        if layer.in_proj_bias is not None:
            parts = layer.in_proj_bias.chunk(3)
            weights |= zip((f"{name}.bias" for name in names), parts, strict=True)
        weights |= {f"output_projection.{n}": t for n, t in layer.out_proj.state_dict().items()}
        new = new.to(layer.out_proj.weight)
        new.load_state_dict(weights)
        return new.train(layer.training)

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Tensor | None = None,
        offset: int | None = None,
        return_map: bool = False,
    ) -> Tensor | Attended:
        """Attend to keys, or to the queries themselves.

        Args:
            query: (batch, M, dim), or jagged (batch, lengths, dim)
            key: (batch, N, key_dim), the query if not given
            value: (batch, N, value_dim), the key if not given
            mask: a Mask, or bool with True = may attend: (M, N), (batch, M, N) or
                (batch, heads, M, N)
            bias: float, added to the scores, in the shapes of a mask
            offset: position of the first query among the keys; N − M if not given, as for masks
            return_map: also return the lazy map, (batch, heads, M, N)

        Returns: (batch, M, out_dim), or `Attended(output, map)`
        """
        if is_jagged(query, key, value):
            if bias is not None or offset is not None:
                raise ValueError("jagged inputs take no bias= and no offset=")
            return self._jagged(query, key, value, mask, return_map)
        key = query if key is None else key
        value = key if value is None else value
        check_inputs(self._widths, query=query, key=key, value=value)
        mask = None if mask is None else mask_over_heads(mask)
        shared = value is key
        query, key, value = zero_hidden_inputs(query, key, value, mask)
        M, N = query.shape[1], key.shape[1]
        offset = N - M if offset is None else offset
        same = query is key and offset == 0
        key = self.position(key, 0)
        query = key if same else self.position(query, offset)
        q, k = self._queries(query, offset), self._keys(key, 0)
        v = self._values(key if shared else value)
        if bias is not None and bias.dim() == 3:
            bias = bias.unsqueeze(1)  # (batch, 1, M, N)
        total = _sum(self._position_bias(q, N, offset), bias)
        context, map = self._attend(q, k, v, mask, total, return_map)
        output = self._join(context)
        return output if map is None else Attended(output, map)

    def _jagged(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Mask | Tensor | None,
        return_map: bool,
    ) -> Tensor | Attended:
        """Attend within the sequences of a jagged batch, which are one packed sequence."""
        if type(self.position).forward is not Position.forward:
            raise ValueError(
                f"{type(self.position).__name__} adds positions that count from the first token "
                "of a batch; add them to the sequences before, or use Rotary or ALiBi"
            )
        own = key is query or key is None
        key = query if key is None else key
        shared = value is key or value is None
        batch = pack(query, key, key if value is None else value, mask)
        if type(self.position) is not Position and not torch.equal(*batch.offsets):
            raise ValueError(
                f"{type(self.position).__name__} needs as many keys as queries in each sequence of "
                "a jagged batch"
            )
        attended = self.forward(
            batch.query[None],
            None if own else batch.key[None],
            None if shared else batch.value[None],
            mask=batch.mask,
            return_map=return_map,
        )
        if isinstance(attended, Attended):
            return Attended(batch.nested(attended.output[0]), attended.map)
        return batch.nested(attended[0])

    # -------------------------------------------------------------- decoding

    def start(
        self,
        batch: int,
        memory: Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> MultiHeadState:
        """The state before the first step.

        Args:
            batch: number of sequences to decode
            memory: (sentences, N, key_dim), to attend to instead of the steps so far;
                `batch` is the number of sentences, or a multiple of it if beams share them
            memory_mask: which of it is real: a Mask that is the same for all queries, or bool
                (sentences, N)

        Returns: a state, with `reorder(index)` for beams
        """
        if memory is not None:
            check_inputs(self._widths, key=memory, value=memory)
        return start(batch, memory, memory_mask, self._held, heads=self.heads)

    @observed
    def step(
        self, x: Tensor, state: MultiHeadState, *, return_map: bool = False
    ) -> tuple[Tensor | Attended, MultiHeadState]:
        """One position of the pass under `causal()`, or of the pass over the memory.

        Positions of a memory and of the steps both count from 0: the full pass over a memory is
        `forward(x, memory, mask=memory_mask, offset=0)`.

        Args:
            x: (batch, 1, dim), or several positions at once, such as a prompt
            state: from `start` or the last step; it stays valid

        Returns: (batch, 1, out_dim) or `Attended(output, map)`, and the new state
        """
        check_inputs(self._widths, query=x)
        if x.shape[0] != state.batch:
            raise ValueError(f"x should be ({state.batch}, 1, {self.dim}), got {tuple(x.shape)}")
        offset, steps = state.length, x.shape[1]
        placed = self.position(x, offset)
        q = self._queries(placed, offset)
        if isinstance(state, Past):
            check_inputs(self._widths, key=x, value=x)
            state = state.append(self._keys(placed, offset), self._values(placed))
            k, v = state.tensors
            bias = self._position_bias(q, k.shape[2], offset)
            if steps == 1 and self._plain(q, k):
                context, map = attend_step(q, k, v, bias=bias, return_map=return_map)
            else:
                mask = causal() if steps > 1 else None
                context, map = self._attend(q, k, v, mask, bias, return_map, growing=True)
                map = None if map is None else computed_map(map)
        else:
            k, v = state.tensors
            bias = self._position_bias(q, k.shape[2], offset)
            if bias is not None:
                bias = bias.repeat(1, state.beams, 1)  # the beams of a sentence are its queries
            q = state.grouped(q)
            if self._plain(q, k) and (state.visible is None or state.shade is not None):
                options: dict[str, Any] = {"shade": state.shade, "change": state.ungrouped}
                context, map = attend_step(q, k, v, bias=bias, return_map=return_map, **options)
            else:
                mask = None if state.visible is None else as_mask(state.visible)
                context, map = self._attend(q, k, v, mask, bias, return_map)
                context = state.ungrouped(context)
                map = None if map is None else computed_map(map, state.ungrouped)
            state = state.stepped(steps)
        output = self._join(context)
        return (output if map is None else Attended(output, map)), state

    # -------------------------------------------------------------- heads

    def _held(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory (sentences, N, key_dim)."""
        memory = self.position(memory, 0)
        # contiguous, or every step would copy them
        return self._keys(memory, 0).contiguous(), self._values(memory).contiguous()

    def _queries(self, x: Tensor, offset: int) -> Tensor:
        """(batch, M, dim) to (batch, heads, M, width)."""
        q = self.query_norm(_split(self.query_projection(x), self.heads))
        return self.position.rotate(q, offset)

    def _keys(self, x: Tensor, offset: int) -> Tensor:
        """(batch, N, key_dim) to (batch, kv_heads, N, width)."""
        k = self.key_norm(_split(self.key_projection(x), self.kv_heads))
        return self.position.rotate(k, offset)

    def _values(self, x: Tensor) -> Tensor:
        """(batch, N, value_dim) to (batch, kv_heads, N, width)."""
        return _split(self.value_projection(x), self.kv_heads)

    def _position_bias(self, q: Tensor, N: int, offset: int) -> Tensor | None:
        """The bias that positions add to the scores, (heads, M, N), or None."""
        return self.position.bias(q.shape[2], N, offset, device=q.device, dtype=q.dtype)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Tensor | None,
        return_map: bool,
        growing: bool = False,
    ) -> tuple[Tensor, AttentionMap | None]:
        """Context (batch, heads, M, width) and map (batch, heads, M, N) of all heads.

        Args:
            q: (batch, heads, M, width)
            k, v: (batch, kv_heads, N, width)
            mask: over (batch, heads)
            bias: (M, N), (heads, M, N) or (batch, heads or 1, M, N)
            growing: whether more keys will follow, so that there may be fewer than `top_k`
        """
        groups = (self.kv_heads, self.heads // self.kv_heads)
        grouped = groups[1] > 1
        normalize = self.normalize
        if isinstance(normalize, Normalizer) and (grouped or growing):
            heads = groups if grouped else (self.heads,)
            normalize = normalize.for_heads(heads, k.shape[2] if growing else None)
        if grouped:
            q, k, v = q.unflatten(1, groups), k.unsqueeze(2), v.unsqueeze(2)
            mask = GroupedMask(mask, groups) if mask is not None and mask.leading > 1 else mask
            bias = None if bias is None else split_heads(bias, groups, 2)
        attended = attend(
            q,
            k,
            v,
            score=self.score,
            mask=mask,
            bias=bias,
            normalize=normalize,
            dropout=self.dropout if self.training else 0.0,
            return_map=return_map,
        )
        if not isinstance(attended, Attended):
            return (attended.flatten(1, 2) if grouped else attended), None
        context, map = attended
        return (context.flatten(1, 2), ungrouped_map(map)) if grouped else (context, map)

    def _plain(self, q: Tensor, k: Tensor) -> bool:
        """Whether `attend_step` can compute a step."""
        drops = self.training and self.dropout > 0
        plain = self.score == "scaled_dot" and self.normalize is softmax
        return plain and not drops and can_step(q, k)

    def _join(self, context: Tensor) -> Tensor:
        """(batch, heads, M, width) to (batch, M, out_dim)."""
        return self.output_projection(context.transpose(1, 2).flatten(-2))

    def extra_repr(self) -> str:
        groups = "" if self.kv_heads == self.heads else f", kv_heads={self.kv_heads}"
        score = f", score={self.score!r}" if isinstance(self.score, str) else ""
        inner = self.query_projection.out_features
        shown = "" if inner == self.dim else f", inner_dim={inner}"
        return f"{self.dim}, heads={self.heads}{shown}{groups}{score}, dropout={self.dropout}"


def _split(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads · width) to (batch, heads, length, width)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _checked_position(position: Position | None, heads: int, width: int) -> Position:
    if position is None:
        return Position()
    if not callable(position) or not hasattr(position, "rotate") or not hasattr(position, "bias"):
        raise TypeError(
            f"position should have forward, rotate and bias, got {type(position).__name__}; "
            "derive it from regard.layers.Position and override the method it needs"
        )
    if isinstance(position, ALiBi | RelativeBias) and position.heads != heads:
        name = type(position).__name__
        raise ValueError(f"position should be {name}({heads}), got {name}({position.heads})")
    if isinstance(position, Rotary) and position.dim != width:
        raise ValueError(
            f"position should be Rotary({width}), the width of a head, got Rotary({position.dim}); "
            "if that is odd, choose another dim or number of heads"
        )
    return position
