"""`nn.MultiheadAttention` computed by `attend`: the same constructor, weights and result."""

import math
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attended, attend
from regard.attention.jagged import is_jagged, pack
from regard.attention.observer import observed
from regard.core.mask import Mask, from_torch_mha


class TorchMultiheadAttention(nn.MultiheadAttention):
    """A drop-in for `nn.MultiheadAttention`, also inside `nn.TransformerEncoderLayer`.

    Constructor, names of the weights, masks (True = may NOT attend) and the returned tuple are
    torch's, and so are the types of errors. Four things are better: a query that may attend to
    nothing gets zeros instead of NaN, asking for the weights does not change the output,
    `regard.capture` records every head, and jagged nested tensors are taken in training as well. In
    training the weights are those before dropout. TorchScript, which torch deprecates, is refused.

    >>> import torch
    >>> torch_layer = nn.MultiheadAttention(16, 2, batch_first=True)
    >>> layer = TorchMultiheadAttention(16, 2, batch_first=True)
    >>> _ = layer.load_state_dict(torch_layer.state_dict())
    >>> x = torch.randn(3, 5, 16)
    >>> output, weights = layer(x, x, x)
    >>> torch.allclose(output, torch_layer(x, x, x)[0], atol=1e-6), weights.shape
    (True, torch.Size([3, 5, 5]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # in evaluation nn.TransformerEncoderLayer would take the weights and skip this module
        self._qkv_same_embed_dim = False

    @observed
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; see `nn.MultiheadAttention.forward`.

        Args:
            query: (L, B, E), (B, L, E) if `batch_first`, (L, E) without a batch, or jagged
                (B, lengths, E)
            key: likewise with length S and width kdim
            value: likewise with length S and width vdim
            key_padding_mask: (B, S) or (S,), bool with True = hidden, or float, added to the scores
            need_weights: whether to return the weights
            attn_mask: (L, S) or (B · heads, L, S), bool with True = hidden, or float
            average_attn_weights: the mean over the heads instead of each head's weights
            is_causal: a hint that `attn_mask` is causal, which then has to be given

        Returns: the output, shaped like the query, and the weights, (B, L, S) or (B, heads, L, S),
            or None
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal=True is a hint about attn_mask; give attn_mask as well")
        if is_jagged(query, key, value):
            if attn_mask is not None or key_padding_mask is not None:
                raise RuntimeError("jagged inputs have no padding and take no masks, got one")
            return self._jagged(query, key, value, need_weights, average_attn_weights)
        self._check(query, key, value, key_padding_mask, attn_mask)
        batched = query.dim() == 3
        query, key, value = (self._batch_first(x, batched) for x in (query, key, value))
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        query, key, value = self._project(query, key, value)
        key, value = self._with_extra_keys(key, value)
        mask, bias = self._masks(attn_mask, key_padding_mask, key.shape[1])
        heads = [x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (query, key, value)]
        attended = attend(
            *heads,
            mask=mask,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            return_map=True,
        )
        output = self.out_proj(attended.output.transpose(1, 2).flatten(-2))  # (B, L, E)
        weights = attended.map.dense() if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def __prepare_scriptable__(self) -> "TorchMultiheadAttention":
        raise RuntimeError(
            "TorchMultiheadAttention cannot be compiled by TorchScript, which torch has "
            "deprecated; use torch.compile or torch.export"
        )

    def _check(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> None:
        """Raise what torch raises for inputs and masks that do not fit."""
        dims = query.dim(), key.dim(), value.dim()
        _assert(dims in ((2,) * 3, (3,) * 3), f"query, key and value should be 2-D or 3-D: {dims}")
        for name, x, width in (
            ("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)
        ):  # fmt: skip
            _assert(x.shape[-1] == width, f"{name} should be {width} wide, got {tuple(x.shape)}")
        flipped = dims[0] == 3 and not self.batch_first
        sizes = [x.shape[1::-1] if flipped else x.shape[:-1] for x in (query, key, value)]
        (*batch, L), (*others, S) = sizes[:2]
        both = f"key {tuple(key.shape)} and value {tuple(value.shape)}"
        _assert(sizes[1] == sizes[2], f"{both} should have the same batch and length")
        if batch != others:
            raise RuntimeError(f"query has a batch of {batch[0]} and key one of {others[0]}")
        for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if mask is not None:
                known = mask.dtype == torch.bool or mask.is_floating_point()
                _assert(known, f"{name} should be bool, True = hidden, or float, got {mask.dtype}")
        if key_padding_mask is not None:
            own, shape = tuple(key_padding_mask.shape), (*batch, S)
            _assert(own == shape, f"key_padding_mask should be {shape}, got {own}")
        if attn_mask is not None:
            _assert(attn_mask.dim() in (2, 3), f"attn_mask has {attn_mask.dim()} dimensions")
            shape = (L, S) if attn_mask.dim() == 2 else (math.prod(batch) * self.num_heads, L, S)
            if attn_mask.shape != shape:
                raise RuntimeError(f"attn_mask should be {shape}, got {tuple(attn_mask.shape)}")

    def _jagged(
        self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each sequence; the weights are padded with zeros, as torch's."""
        if self.bias_k is not None or self.add_zero_attn:
            raise RuntimeError("add_bias_kv and add_zero_attn need tensors of one length")
        batch = pack(query, key, value, None)
        q, k, v = (
            x.unflatten(-1, (self.num_heads, -1)).transpose(0, 1) for x in self._project(*batch[:3])
        )
        dropout = self.dropout if self.training else 0.0
        attended = attend(q, k, v, mask=batch.mask, dropout=dropout, return_map=need_weights)
        context = attended.output if isinstance(attended, Attended) else attended
        output = batch.nested(self.out_proj(context.transpose(0, 1).flatten(-2)))
        if not isinstance(attended, Attended):
            return output, None
        rows, keys = batch.offsets
        longest = [int(offsets.diff().max()) for offsets in (rows, keys)]
        weights = q.new_zeros(len(rows) - 1, self.num_heads, *longest)
        places = zip(pairwise(rows.tolist()), pairwise(keys.tolist()), strict=True)
        for index, ((row, end), (first, last)) in enumerate(places):
            weights[index, :, : end - row, : last - first] = attended.map[:, row:end, first:last]
        return output, weights.mean(1) if average else weights

    def _batch_first(self, x: Tensor, batched: bool) -> Tensor:
        """(B, length, width), whatever the layout."""
        if not batched:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        query, key, value = (
            F.linear(x, weight, bias)
            for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        return query, key, value

    def _with_extra_keys(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the learned pair of `add_bias_kv` and the zeros of `add_zero_attn`."""
        if self.bias_k is not None and self.bias_v is not None:
            key, value = (
                torch.cat([x, extra.expand(len(x), 1, -1)], dim=1)
                for x, extra in ((key, self.bias_k), (value, self.bias_v))
            )
        if self.add_zero_attn:
            key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
        return key, value

    def _masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, keys: int
    ) -> tuple[Mask | None, Tensor | None]:
        """Torch's two masks as ours: bool ones hide, float ones are added to the scores."""
        hidden: dict[str, Tensor] = {}
        bias: Tensor | None = None
        for name, tensor in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if tensor is None:
                continue
            tensor = F.pad(tensor, (0, keys - tensor.shape[-1]))  # extra keys can be seen
            if not tensor.is_floating_point():
                hidden[name] = tensor.bool()
                continue
            if name == "key_padding_mask":
                tensor = tensor[:, None, None]  # (B, 1, 1, S)
            elif tensor.dim() == 3:
                tensor = tensor.unflatten(0, (-1, self.num_heads))
            bias = tensor if bias is None else bias + tensor
        return from_torch_mha(**hidden, heads=self.num_heads), bias


def _assert(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
