"""The decoder of a Transformer for searches on the CPU: matrix products and compiled loops.

A step of `Transformer.step` is some sixty small operations per layer. Here it is six matrix
products and five loops, and reordering beams moves row numbers instead of keys and values.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import observer
from regard.core.blocks import can_inspect_values
from regard.core.normalize import softmax
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.position import Position
from regard.layers.recurrence import LANES
from regard.layers.reorder import BatchReorder, as_reorder
from regard.layers.transformer import DecoderLayer, FeedForward, PostNorm, PreNorm
from regard.models.memory import Memory
from regard.models.stack import Stack
from regard.models.transformer import Transformer
from regard.paths import kernels
from regard.system.process import limit_threads_after_fork

ROOM = 32
"""Steps of all entries that a state makes room for at a time, or as many rows as it has."""

NORM_WORK = 8
"""What normalizing a number costs, in the units by which kernels choose their threads."""


def can_compile(model: Any) -> bool:
    """Whether `CompiledDecoder` computes the steps of a model."""
    if type(model) is not Transformer or type(model.decoder) is not Stack:
        return False
    weight = model.output.weight
    norm = {PreNorm: nn.LayerNorm, PostNorm: nn.Identity}  # after the last layer
    arounds = {type(around) for around in _arounds(model.decoder)}
    return (
        not observer.observing
        and can_inspect_values(weight)
        and not torch.is_autocast_enabled("cpu")
        and weight.dtype in (torch.float32, torch.float64)
        and kernels.available(weight)
        and all(p.dtype == weight.dtype and p.device == weight.device for p in model.parameters())
        and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        and all(type(layer) is DecoderLayer for layer in model.decoder.layers)
        and all(map(_is_plain, model.decoder.layers))
        and arounds <= set(norm)
        and {type(model.decoder.norm)} == {norm[around] for around in arounds}
        and all(type(n) is nn.LayerNorm and n.bias is not None for n in _norms(model.decoder))
    )


class CompiledDecoder:
    """A Transformer that takes compiled steps, for searches.

    Args:
        model: one that `can_compile`, in eval mode
        return_map: whether to keep the weights of the encoder–decoder attention of a step
    """

    def __init__(self, model: Transformer, *, return_map: bool = False) -> None:
        limit_threads_after_fork()
        self.model, self.return_map = model, return_map
        self.output, self.encode = model.output, model.encode
        self.target_position = model.target_position
        self.layers = [_Layer.of(layer) for layer in model.decoder.layers]  # type: ignore
        self.norms = _norms(model.decoder)
        self.first_norm = self.norms.pop(0) if type(model.decoder.norm) is nn.LayerNorm else None
        self.weights: list[Tensor] = []  # of the last step, (batch, heads, S) of each layer

    def start(self, memory: Memory) -> "DecoderRows":
        """The state before the first step; the memory is projected here, once."""
        states = memory.states.flatten(0, 1)
        rows = [F.linear(states, *layer.memory) for layer in self.layers]
        past = [states.new_empty(0, layer.past_width) for layer in self.layers]
        return DecoderRows(rows, past, memory.lengths.numpy())

    def step(self, tokens: Tensor, state: "DecoderRows") -> tuple[Tensor, "DecoderRows"]:
        """Features (batch, dim) after tokens (batch,), and the state, which is overwritten."""
        from regard.paths.kernels.loops.decoder_step import add_norm, attend_memory, attend_past

        batch, step, source = len(tokens), state.length, state.source_length
        x = self.model.target(tokens.unsqueeze(1))
        x = self.target_position(x, step).squeeze(1)
        h = x if self.first_norm is None else self.first_norm(x)
        norms = iter(self.norms)

        def add(y: Tensor) -> None:
            """Leave a sublayer: x += y, and h becomes the input of the next one."""
            norm = next(norms)
            arrays = (tensor.detach().numpy() for tensor in (x, y, norm.weight, norm.bias))
            add_norm(NORM_WORK * x.numel(), *arrays, norm.eps, h.numpy())

        first = state.extend(batch)
        self.weights = []
        for layer, past, memory in zip(self.layers, state.past, state.memory, strict=True):
            projected = F.linear(h, *layer.projection)
            context = h.new_empty(batch, projected.shape[1] // 3)
            attend_past(
                context.numel() * (step + 1),
                *(projected.numpy(), past.numpy(), state.rows, step, first, layer.heads),
                context.numpy(),
            )
            add(layer.output(context))
            query = F.linear(h, *layer.query)
            context = torch.empty_like(query)
            kept = (batch, layer.memory_heads, source) if self.return_map else (0, 0, 0)
            weights = h.new_empty(kept)
            attend_memory(
                context.numel() * source,
                *(query.numpy(), memory.numpy(), state.owner, state.lengths, layer.memory_heads),
                *(context.numpy(), weights.numpy()),
            )
            self.weights.append(weights)
            add(layer.memory_output(context))
            add(layer.feed_forward(h))
        return h, state


class DecoderRows:
    """The state of a `CompiledDecoder`: keys and values as rows, and which entry has which.

    Args:
        memory: rows (key ; value) of all sentences, (sentences · S, 2 · inner) of each layer
        past: rows (key ; value) of the steps so far, (rows, 2 · inner) of each layer
        lengths: number of real rows of each sentence, (sentences,)
    """

    def __init__(self, memory: list[Tensor], past: list[Tensor], lengths: np.ndarray) -> None:
        self.memory, self.past, self.lengths = memory, past, lengths
        self.owner = np.arange(len(lengths))  # the sentence of each entry
        self.length = 0  # steps taken
        self.used = 0  # how many rows of the past are filled
        self.rows = np.empty((len(lengths), ROOM), np.int64)  # of each entry at each step

    @property
    def source_length(self) -> int:
        """The length of the longest source, S."""
        return len(self.memory[0]) // max(1, len(self.lengths))

    def extend(self, batch: int) -> int:
        """Make room for a step; return its first row."""
        first, self.used = self.used, self.used + batch
        self.length += 1
        if self.length > self.rows.shape[1]:
            self.rows = np.concatenate((self.rows, np.empty_like(self.rows)), 1)
        if self.used > len(self.past[0]):
            # a beam search begins with one entry for each sentence: room for the first step alone
            room = self.used + (max(first, batch * ROOM) if first else 0)
            self.past = [_enlarged(rows, first, room) for rows in self.past]
        return first

    def reorder(self, index: Tensor | BatchReorder) -> "DecoderRows":
        """The state of other beams: entry i becomes what entry index[i] was."""
        order = as_reorder(index, len(self.owner))
        if order.is_identity:
            return self
        numbers = order.index.numpy()
        self.owner, self.rows = self.owner[numbers], self.rows[numbers]
        if len(order) < order.batch:  # forget the rows of those that are gone
            kept = self.rows[:, : self.length]
            self.past = [past[torch.from_numpy(kept.reshape(-1))] for past in self.past]
            self.used = kept.size
            kept[:] = np.arange(kept.size).reshape(kept.shape)
        return self


def _enlarged(rows: Tensor, used: int, room: int) -> Tensor:
    """Room for more rows, of which the first `used` are these."""
    new = rows.new_empty(room, rows.shape[1])
    new[:used] = rows[:used]
    return new


class _Linear(NamedTuple):
    weight: Tensor
    bias: Tensor


class _Layer(NamedTuple):
    """The parts of a layer: products of the same input are one, and queries are scaled."""

    heads: int
    memory_heads: int
    projection: _Linear  # of query, key and value, (3 · inner, dim)
    output: nn.Module
    query: _Linear
    memory: _Linear  # of keys and values, (2 · inner, dim of the memory)
    memory_output: nn.Module
    feed_forward: FeedForward

    @property
    def past_width(self) -> int:
        """Of key and value of a position."""
        return len(self.projection.bias) // 3 * 2

    @classmethod
    def of(cls, layer: DecoderLayer) -> "_Layer":
        own, other = layer.attention, layer.memory_attention
        return cls(
            own.heads,
            other.heads,
            _join(_queries(own), own.key_projection, own.value_projection),
            own.output_projection,
            _queries(other),
            _join(other.key_projection, other.value_projection),
            other.output_projection,
            layer.feed_forward,
        )


def _queries(attention: MultiHeadAttention) -> _Linear:
    """The projection of queries, divided by the root of a head's width."""
    weight, bias = _join(attention.query_projection)
    scale = (len(weight) // attention.heads) ** -0.5
    return _Linear(weight * scale, bias * scale)


def _join(*parts: nn.Linear | _Linear) -> _Linear:
    """Several linear layers as one, whose outputs are side by side."""
    weights = [part.weight.detach() for part in parts]
    biases = [
        w.new_zeros(len(w)) if p.bias is None else p.bias.detach()
        for p, w in zip(parts, weights, strict=True)
    ]
    return _Linear(torch.cat(weights), torch.cat(biases))


def _arounds(decoder: Stack) -> list[Any]:
    """Every Add & Norm, in the order of the computation."""
    names = "around_attention", "around_memory_attention", "around_feed_forward"
    return [getattr(layer, name, None) for layer in decoder.layers for name in names]


def _norms(decoder: Stack) -> list[Any]:
    """Every norm, in the same order."""
    last = [] if type(decoder.norm) is nn.Identity else [decoder.norm]
    return [*(around.norm for around in _arounds(decoder)), *last]


def _is_plain(layer: Any) -> bool:
    """Whether a decoder layer has ordinary scaled dot-product attention, in whole vectors."""
    return all(
        type(attention) is MultiHeadAttention
        and attention.score == "scaled_dot"
        and attention.normalize is softmax
        and attention.kv_heads == attention.heads
        and type(attention.position) is Position
        and type(attention.query_norm) is type(attention.key_norm) is nn.Identity
        and all(
            type(part) is nn.Linear and part.out_features % (LANES * attention.heads) == 0
            for part in (
                attention.query_projection,
                attention.key_projection,
                attention.value_projection,
            )
        )
        and attention.dim % LANES == 0
        for attention in (layer.attention, layer.memory_attention)
    )
