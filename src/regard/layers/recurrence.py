"""Recurrent layers over whole sentences, with or without attention at every step.

Where the compiled loops can run, all steps are one operation; elsewhere torch runs them.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.core.blocks import can_inspect_values
from regard.core.score import Additive
from regard.paths import kernels
from regard.system.process import limit_threads_after_fork

LANES = 16  # numbers of a vector
NAMES = "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"


def recur(
    layer: nn.RNNBase, x: Tensor, first: Sequence[Tensor] = (), counts: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """`layer(x, first)`, where the first `counts[b]` positions of sentence b are real.

    >>> layer, x = nn.GRU(3, 5, batch_first=True, bidirectional=True), torch.randn(2, 7, 3)
    >>> states, (last,) = recur(layer, x, counts=torch.tensor([7, 4]))
    >>> states.shape, last.shape, torch.allclose(last[1, :5], states[1, 3, :5])
    (torch.Size([2, 7, 10]), torch.Size([2, 10]), True)

    Args:
        layer: one `nn.GRU` or `nn.LSTM`, batch first, in one direction or in both; any other
            module, such as one that is exported, is called with the other arguments
        x: (B, T, D)
        first: the state before the first step, (B, H), and for an LSTM its cell; zero if not given
        counts: (B,), all T positions if None

    Returns: states (B, T, directions · H), undefined at padding, and the last state,
        (B, directions · H), and for an LSTM its cell
    """
    if not isinstance(layer, nn.RNNBase):
        return layer(x, first, counts)
    if not can_unroll(layer, x, *first):
        return _by_torch(layer, x, first, counts)
    runs = [
        _run(layer, x, first, counts, back) for back in (False, True)[: 1 + layer.bidirectional]
    ]
    states, ends = zip(*runs, strict=True)
    if len(runs) == 1:
        return states[0], ends[0]
    return torch.cat(states, -1), [torch.cat(parts, -1) for parts in zip(*ends, strict=True)]


def recur_attending(
    layer: nn.RNNBase,
    x: Tensor,
    first: Sequence[Tensor],
    score: Additive,
    memory: Tensor,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """States that attend with the previous state and take in the context. Bahdanau et al. 2015.

        αᵢ = softmax(score(sᵢ₋₁, h)),  sᵢ = layer([xᵢ ; Σⱼ αᵢⱼ hⱼ], sᵢ₋₁)

    The context enters the gates linearly, so the memory is projected once, before the first step:
    W (Σⱼ αⱼ hⱼ) = Σⱼ αⱼ (W hⱼ). The inputs must satisfy `can_unroll`.

    Args:
        layer: one `nn.GRU` or `nn.LSTM` of one direction, batch first, for inputs D + E wide
        x: (B, T, D)
        first: the state before the first step, (B, H), and for an LSTM its cell
        score: additive, of states and memory
        memory: (B, N, E), keys and values
        lengths: (B,), how many of them are real; all if None

    Returns: states (B, T, H) and weights (B, T, N)
    """
    from regard.paths.kernels.recurrence import Recurrence

    limit_threads_after_fork()
    (into, given, bias, given_bias), hidden = _parameters(layer), layer.hidden_size
    start = [_padded(part) for part in first]
    query = _padded(_padded(score.query_weight), 0)
    # split, not slices: its backward is one concatenation, not two matrices filled with zeros
    from_x, from_context = into.split([x.shape[2], memory.shape[2]], dim=1)
    states, _, _, weights = Recurrence.apply(
        F.linear(x, from_x, bias),
        start[0],
        start[1] if len(start) == 2 else x.new_empty(len(x), 0),
        torch.cat((query, given)),
        given_bias,
        _padded(score.project(memory)),
        F.linear(memory, from_context),
        _padded(score.vector),
        _counted(None, x),
        _counted(lengths, memory),
        False,
    )
    return states[..., :hidden], weights


def can_unroll(layer: nn.RNNBase, *tensors: Tensor) -> bool:
    """Whether the compiled loops can run a layer on tensors."""
    weight = layer.all_weights[0][1]
    dtype = weight.dtype
    return (
        can_inspect_values()
        and not torch.is_autocast_enabled("cpu")
        and dtype in (torch.float32, torch.float64)
        and kernels.available(weight)
        and all(
            tensor.dtype == dtype and tensor.device.type == "cpu" and tensor.numel() > 0
            for tensor in tensors
        )
    )


def _run(
    layer: nn.RNNBase, x: Tensor, first: Sequence[Tensor], counts: Tensor | None, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """States (B, T, H) and the last one, of one direction."""
    from regard.paths.kernels.recurrence import Recurrence

    limit_threads_after_fork()
    (into, given, bias, given_bias), hidden = _parameters(layer, reverse), layer.hidden_size
    start = [_padded(part) for part in first] or [x.new_zeros(len(x), given.shape[1])] * 2
    empty = x.new_empty(len(x), 0, 0)  # no memory to attend to
    steps = _counted(counts, x)
    states, last, cell, _ = Recurrence.apply(
        F.linear(x, into, bias),
        start[0],
        start[1] if isinstance(layer, nn.LSTM) else empty.flatten(1),
        given,
        given_bias,
        empty,
        empty,
        empty.flatten(),
        steps,
        steps,
        reverse,
    )
    ends = [last, cell] if isinstance(layer, nn.LSTM) else [last]
    return states[..., :hidden], [end[:, :hidden] for end in ends]


def _parameters(layer: nn.RNNBase, reverse: bool = False) -> list[Tensor]:
    """Weights and biases of inputs and of states, each gate padded to whole vectors.

    Those of the states begin, for a GRU, with the last gate, n.
    """
    gates = 4 if isinstance(layer, nn.LSTM) else 3
    parts = [
        getattr(layer, name + ("_reverse" if reverse else "")).unflatten(0, (gates, -1))
        for name in NAMES
    ]
    if gates == 3:
        parts[1], parts[3] = parts[1].roll(1, 0), parts[3].roll(1, 0)
    parts[1] = _padded(parts[1])
    return [_padded(part, 1).flatten(0, 1) for part in parts]


def _padded(tensor: Tensor, dim: int = -1) -> Tensor:
    """The tensor, padded with zeros along a dimension to whole vectors."""
    missing = -tensor.shape[dim] % LANES
    behind = tensor.dim() - 1 - dim % tensor.dim()
    return F.pad(tensor, (0, 0) * behind + (0, missing)) if missing else tensor


def _counted(counts: Tensor | None, x: Tensor) -> Tensor:
    return torch.full((len(x),), x.shape[1]) if counts is None else counts.long()


def _by_torch(
    layer: nn.RNNBase, x: Tensor, first: Sequence[Tensor], counts: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """The same by torch, with packed sentences, so that padding does not reach the last state."""
    if counts is not None and not can_inspect_values(counts):
        counts = None  # torch packs by their values
    start = [part.unsqueeze(0) for part in first]
    hidden = tuple(start) if len(start) == 2 else start[0] if start else None
    packed: Tensor | PackedSequence = x
    if counts is not None:
        lengths = counts.clamp(min=1).cpu()  # torch packs no empty sentences
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, last = layer(packed, hidden)
    if counts is not None:
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
    ends = list(last) if isinstance(last, tuple) else [last]
    return states, [end.transpose(0, 1).flatten(1) for end in ends]
