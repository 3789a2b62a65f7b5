"""What every search starts from: hypotheses, length limits, and encoded sources with prefixes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.observer import record
from regard.attention.record import CallRecord
from regard.data.batch import BOS, EOS, PAD
from regard.decoding.beam_slots import Weights
from regard.decoding.transformer_step import CompiledDecoder, can_compile
from regard.layers.position import Learned
from regard.layers.role import ENCODER_DECODER

NEVER_EMITTED = (PAD, BOS)

OnStep = Callable[[np.ndarray, np.ndarray], None]
"""(sentences of the batch, their newest and most likely tokens): called after each step"""


class Hypothesis(NamedTuple):
    """One continuation of a sentence.

    >>> best = Hypothesis((7, 5, 2), -1.5)
    >>> best.finished, round(best.ranked(penalty=1.0), 3)
    (True, -1.125)
    """

    tokens: tuple[int, ...]  # what was emitted; the last is the end token, if it was reached
    score: float  # the model's log-probability of these tokens, in nats
    maps: Weights | None = None  # by module, (heads, len(tokens), S); None without return_map

    @property
    def finished(self) -> bool:
        """Whether the end token was reached before the length limit."""
        return bool(self.tokens) and self.tokens[-1] == EOS

    def ranked(self, penalty: float) -> float:
        """The score that a beam sorts by: score / ((5 + length) / 6)^penalty. Wu 2016, eq. 14."""
        return self.score / length_penalty(len(self.tokens), penalty)

    def alignment(self, source: int) -> Tensor:
        """One map (tokens, source): the mean over all heads; zeros without attention."""
        if not self.maps:
            return torch.zeros(len(self.tokens), source)
        return torch.cat(list(self.maps.values())).mean(0)


EMPTY = Hypothesis((), 0.0)
"""The hypothesis of an empty source."""


def length_penalty(length: float, exponent: float) -> float:
    """The divisor of a score, ((5 + length) / 6)^exponent. Wu et al. 2016, eq. 14.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5.0 + length) / 6.0) ** exponent


class Limits(NamedTuple):
    """At most `ratio` · S + `extra` tokens for a source of S, the end token included.

    >>> Limits(ratio=2.0, extra=5).of(torch.tensor([3, 7])).tolist()
    [11, 19]
    """

    ratio: float = 2.0
    extra: int = 50

    def of(self, source_lengths: Tensor, model: object = None) -> Tensor:
        """The most tokens for each source (batch,), within the learned positions of a model."""
        if self.ratio < 0 or self.ratio + self.extra < 1:
            raise ValueError(
                f"limits should allow 1 token or more, got ratio={self.ratio} and "
                f"extra={self.extra}"
            )
        most = (source_lengths * self.ratio).long().clamp(min=0) + self.extra
        position = getattr(model, "target_position", None)
        if isinstance(position, Learned):
            most = most.clamp(max=len(position.weight))
        return most.clamp(min=1)


class Stepper(Protocol):
    """What a search needs at each step."""

    output: nn.Linear

    def encode(self, source: Tensor, source_lengths: Tensor | None = ..., /) -> Any: ...

    def start(self, memory: Any, /) -> Any: ...

    def step(self, tokens: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...


class Model(Stepper, Protocol):
    """The interface of models that can be searched, such as `Seq2Seq` and `Transformer`."""

    training: bool

    def train(self, mode: bool = ..., /) -> Any: ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...


class Search(NamedTuple):
    """The sentences of a batch whose source is not empty, encoded."""

    state: Any  # of the model, one entry for each sentence
    first: Tensor  # (sentences,) begin tokens
    numbers: np.ndarray  # (sentences,) their indices in the batch
    lengths: np.ndarray  # (sentences,) of the sources
    limits: np.ndarray  # (sentences,) maximal numbers of tokens
    prefixes: list[Sequence[int]]  # ids that each output must begin with

    def forced(self, owner: np.ndarray, step: int) -> tuple[Tensor, Tensor] | None:
        """Entries whose sentence has a longer prefix than `step`, and their next tokens.

        Args:
            owner: the sentence of each entry
            step: number of tokens so far
        """
        if step >= self.longest:
            return None
        own = [(e, self.prefixes[s]) for e, s in enumerate(owner) if step < len(self.prefixes[s])]
        if not own:
            return None
        entries = torch.tensor([entry for entry, _ in own], device=self.first.device)
        return entries, torch.tensor([p[step] for _, p in own], device=self.first.device)

    @property
    def longest(self) -> int:
        """Tokens of the longest prefix."""
        return max(map(len, self.prefixes))


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """The model in eval mode and without gradients; its mode is restored afterwards."""
    training = model.training
    switched = any(module.training for _, module in model.named_modules())
    if switched:
        model.train(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        if switched:
            model.train(training)


def encoder_decoder_attentions(model: Any) -> dict[nn.Module, str]:
    """The modules of a model that attend to the encoder, in order, and their names."""
    return {
        module: name
        for name, module in model.named_modules()
        if getattr(module, "role", None) == ENCODER_DECODER
    }


@contextmanager
def recording(model: Model, active: bool) -> Iterator[Callable[[], Weights | None]]:
    """Record the encoder–decoder attention of a model, step by step.

    Yields: a function that returns the weights of the last step by the name of the module,
        (entries, heads, S) each; it returns None unless wanted
    """
    if not active:
        yield lambda: None
        return
    names = encoder_decoder_attentions(model)
    with record() as calls:

        def last_step() -> Weights:
            # by role and order: where modules are shared, torch.export calls stand-ins of them
            own = [c for c in calls if getattr(c.module, "role", None) == ENCODER_DECODER]
            found = dict(zip(names.values(), map(_weights, own), strict=True))
            calls.clear()
            return found

        yield last_step


@contextmanager
def stepping(
    model: Model, return_map: bool
) -> Iterator[tuple[Stepper, Callable[[], Weights | None]]]:
    """Yield what takes the steps of a search, the model or its compiled decoder.

    With it comes the function of `recording`.
    """
    if can_compile(model):
        compiled = CompiledDecoder(model, return_map=return_map)  # type: ignore[arg-type]
        names = encoder_decoder_attentions(model).values()

        def last_step() -> Weights | None:
            return dict(zip(names, compiled.weights, strict=True)) if return_map else None

        yield compiled, last_step
    else:
        with recording(model, return_map) as recorded:
            yield model, recorded


def _weights(call: CallRecord) -> Tensor:
    """The weights of one step, (entries, heads, S); beams are the queries of their sentence."""
    weights = call.map.dense() if call.weights is None else call.weights
    sentences, *_, beams, keys = weights.shape
    return weights.reshape(sentences, -1, beams, keys).transpose(1, 2).flatten(0, 1)


def begin(
    model: Stepper,
    source: Tensor,
    source_lengths: Tensor | None,
    *,
    limits: Limits,
    prefix: Sequence[Sequence[int]] | None,
) -> Search | None:
    """Encode the sources; None if all of them are empty."""
    batch = len(source)
    if prefix is not None and len(prefix) != batch:
        raise ValueError(
            f"prefix should be {batch} lists of ids, one per source, got {len(prefix)}"
        )
    lengths = source_lengths
    if lengths is None:
        lengths = torch.full((batch,), source.shape[1], device=source.device)
    real = lengths.nonzero().squeeze(1)
    if len(real) == 0:
        return None
    if len(real) < batch:
        source, lengths = source[real], lengths[real]
    memory = model.encode(source, lengths)
    numbers = real.cpu().numpy()
    most = limits.of(lengths, model).cpu().numpy()
    prefixes: list[Sequence[int]] = [prefix[n] if prefix else () for n in numbers]
    for own, longest in zip(prefixes, most, strict=True):
        _check_prefix(own, int(longest), model.output.out_features)
    first = torch.full((len(real),), BOS, dtype=torch.long, device=source.device)
    return Search(model.start(memory), first, numbers, lengths.cpu().numpy(), most, prefixes)


def forbidden(forbid: Sequence[int], model: Stepper, device: torch.device) -> Tensor:
    """Ids that may not be emitted, (n,)."""
    size = model.output.out_features
    for token in forbid:
        if not 0 <= token < size:
            raise ValueError(f"forbid should be ids from 0 to {size - 1}, got {token}")
    if EOS in forbid:
        raise ValueError(f"forbid may not contain the end token, {EOS}")
    return torch.tensor(sorted({*NEVER_EMITTED, *forbid}), device=device)


def _check_prefix(prefix: Sequence[int], longest: int, size: int) -> None:
    if len(prefix) > longest:
        raise ValueError(f"prefix has {len(prefix)} tokens, more than the limit of {longest}")
    for token in prefix:
        if not 0 <= token < size or token in (*NEVER_EMITTED, EOS):
            raise ValueError(
                f"prefix should be ids below {size}, no padding, begin or end token, got {token}"
            )
