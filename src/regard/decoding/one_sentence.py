"""Greedy search of one sentence by a recurrent model, all steps in one compiled loop.

Step by step, most of the time of a single sentence would be spent between the operations.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import observer
from regard.core.normalize import softmax
from regard.core.score import Additive, Dot, General, ScaledDot
from regard.data.batch import BOS, EOS
from regard.decoding.search import (
    Hypothesis,
    Limits,
    encoder_decoder_attentions,
    evaluating,
    forbidden,
)
from regard.layers.recurrence import LANES, can_unroll
from regard.models.aligner import GlobalAligner
from regard.models.bahdanau import Bahdanau
from regard.models.gnmt import GNMT
from regard.models.luong import Attentional, Luong
from regard.models.memory import Memory
from regard.models.seq2seq import AttentionSeq2Seq, Seq2Seq

SCORES = (Additive, Dot, ScaledDot, General)
"""Additive, or linear in the query."""

_sentences = itertools.count()


class Plan(NamedTuple):
    """What happens at each step, see `regard.paths.kernels.loops.greedy`."""

    layers: list[nn.RNNBase]
    attends: int  # how many layers have taken their step when the state attends
    residual: int  # the first layer that adds its input
    kind: int  # how features are made
    join: nn.Linear | None
    feeding: bool


def can_loop(model: Any, source: Tensor) -> bool:
    """Whether the compiled loop can run a model on a source of one sentence.

    Not for the first sentence of a process: it would wait for seconds until the loop is compiled.
    """
    if type(model) not in (Seq2Seq, AttentionSeq2Seq) or len(source) != 1:
        return False
    decoder, weight = model.decoder, model.output.weight
    aligner = getattr(decoder, "attention", None)
    return (
        type(decoder) in (Luong, Bahdanau, GNMT)
        and type(aligner) is GlobalAligner
        and aligner.evaluate is softmax
        and type(aligner.score) in SCORES
        and not observer.observing
        and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        and all(p.dtype == weight.dtype for p in model.parameters())
        and all(p.shape[-1] % LANES == 0 for p in decoder.parameters())
        and can_unroll(_plan(decoder).layers[0], weight)
        and next(_sentences) > 0
    )


def greedy_sentence(
    model: Seq2Seq,
    source: Tensor,
    source_lengths: Tensor | None,
    *,
    limits: Limits,
    forbid: Sequence[int],
    return_map: bool,
) -> Hypothesis:
    """`greedy` of one sentence, not empty, by a model that `can_loop`."""
    from regard.paths.kernels.loops.greedy import greedy

    decoder, output = model.decoder, model.output
    plan = _plan(decoder)
    with evaluating(model):
        memory = model.encode(source, source_lengths)
        like = memory.states
        state = torch.cat(decoder.bridge(memory)).unflatten(0, (-1, len(plan.layers)))
        most = int(limits.of(memory.lengths, model)[0])
        tokens, scores = torch.empty(most, dtype=torch.int64), torch.empty(most).double()
        weights = like.new_empty(most if return_map else 1, int(memory.lengths[0]))
        join, nothing = plan.join, like.new_empty(0, 0)
        tensors = (
            decoder.embedding.weight,
            *_parameters(plan.layers),
            state[0],
            state[1] if len(state) == 2 else nothing,
            *_attended(decoder.attention.score, memory),
            nothing if join is None else join.weight,
            nothing.flatten() if join is None or join.bias is None else join.bias,
            output.weight,
            output.bias,
            forbidden(forbid, model, source.device),
        )
        length = greedy(
            output.weight.numel(),
            *(tensor.detach().contiguous().numpy() for tensor in tensors),
            *(decoder.embedding.scale, plan.attends, plan.residual, plan.kind, plan.feeding),
            *(BOS, EOS, tokens.numpy(), scores.numpy(), weights.numpy()),
        )
        maps = None
        if return_map:
            (name,) = encoder_decoder_attentions(model).values()
            maps = {name: weights[None, :length].clone()}
        return Hypothesis(tuple(tokens[:length].tolist()), float(scores[:length].sum()), maps)


def _plan(decoder: nn.Module) -> Plan:
    from regard.paths.kernels.loops.greedy import CONCATENATION, MAXOUT, STATE, TANH

    if isinstance(decoder, GNMT):
        both: Any = [*decoder.bottom.layers, *decoder.upper.layers]
        return Plan(both, 1, 2, STATE, None, False)
    assert isinstance(decoder, Luong | Bahdanau)
    layers: Any = list(decoder.recurrent.layers)
    residual = 1 if any(decoder.recurrent.residual) else len(layers)
    if isinstance(decoder, Bahdanau):
        return Plan(layers, 0, residual, MAXOUT, decoder.join.projection, False)
    join = decoder.join.projection if isinstance(decoder.join, Attentional) else None
    kind = CONCATENATION if join is None else TANH
    return Plan(layers, len(layers), residual, kind, join, decoder.feeding)


def _parameters(layers: Sequence[nn.RNNBase]) -> list[Tensor]:
    """Matrices of inputs, of the first layer and of the others; matrices of states; biases."""
    into, given, bias, given_bias = zip(*(layer.all_weights[0] for layer in layers), strict=True)
    own = _stacked(given_bias)
    if isinstance(layers[0], nn.GRU):  # the loop has the gate n first
        own = own.roll(layers[0].hidden_size, 1)
    return [into[0], _stacked(into[1:] or [into[0][:0]]), _stacked(given), _stacked(bias), own]


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def _attended(score: Any, memory: Memory) -> list[Tensor]:
    """The matrix of the query, keys, the vector of an additive score, and values."""
    states = memory.states[0, : int(memory.lengths[0])]
    if isinstance(score, Additive):
        return [score.query_weight, score.project(states), score.vector, states]
    nothing, key = states.new_empty(0, 0), states  # scores are linear in the query
    if isinstance(score, General):
        key = states @ (score.scale * score.weight.mT)
    elif isinstance(score, ScaledDot):
        key = states / math.sqrt(states.shape[1])
    return [nothing, key, nothing.flatten(), states]
