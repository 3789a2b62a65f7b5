"""Sequence to sequence: an encoder and a decoder behind one interface."""

from collections.abc import Callable
from typing import Literal, overload

from torch import Tensor, nn

from regard.models.aligner import find_aligner
from regard.models.bahdanau import Bahdanau
from regard.models.embedding import Tokens, reader, tied
from regard.models.encoder import Encoder
from regard.models.gnmt import GNMT
from regard.models.join import Concatenation
from regard.models.luong import Luong
from regard.models.memory import Maps, Memory
from regard.models.plain import Plain
from regard.models.state import State
from regard.models.summary import summary

Decoder = Bahdanau | Luong | GNMT | Plain


class Seq2Seq(nn.Module):
    """An encoder, a decoder, and the output that turns features into scores of tokens.

    `decode` goes over a whole target, `start` and `step` over one token at a time; they agree.
    Features are what the output takes: `logits = model.output(features)` is left to the caller,
    who may want it for some positions only.

    >>> import torch
    >>> encoder = Encoder(Tokens(13, 3), hidden=5)
    >>> model = Seq2Seq(encoder, Luong(encoder, Tokens(17, 3), hidden=5))
    >>> source, target = torch.randint(13, (2, 7)), torch.randint(17, (2, 4))
    >>> memory = model.encode(source, torch.tensor([7, 4]))
    >>> features = model.decode(memory, target)
    >>> first, state = model.step(target[:, 0], model.start(memory))
    >>> torch.allclose(first, features[:, 0], atol=1e-6), model.output(features).shape
    (True, torch.Size([2, 4, 17]))

    Args:
        encoder: source to `Memory`
        decoder: built on that encoder
        tie: whether the output shares the matrix of the target's embedding
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, tie: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.output = nn.Linear(decoder.width, len(decoder.reader.weight))
        if tie:
            tied(self.output, decoder.reader)

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Memory:
        """Read the source: ids (batch, S) or frames (batch, S, width), with lengths (batch,)."""
        return self.encoder(source, source_lengths)

    @overload
    def decode(
        self, memory: Memory, target: Tensor, *, return_map: Literal[False] = ...
    ) -> Tensor: ...

    @overload
    def decode(
        self, memory: Memory, target: Tensor, *, return_map: Literal[True]
    ) -> tuple[Tensor, Maps]: ...

    def decode(
        self, memory: Memory, target: Tensor, *, return_map: bool = False
    ) -> Tensor | tuple[Tensor, Maps]:
        """Teacher forced: features (batch, T, D) after each of the target ids (batch, T).

        With `return_map` also the maps by the name of their module, (batch, 1, T, S) each.
        """
        features, maps = self.decoder(memory, target, return_map=return_map)
        return (features, _named(maps)) if return_map else features

    def start(self, memory: Memory, *, return_map: bool = False) -> State:
        """The state before the first step; with `return_map` steps leave their weights in it."""
        return self.decoder.start(memory, return_map=return_map)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, D) after tokens (batch,), and the new state.

        `state.weights`, if asked for at the start, are by name, (batch, 1, S) each.
        """
        features, state = self.decoder.step(tokens, state)
        if state.weights:
            state = state._replace(weights=_named(state.weights))
        return features, state

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        *,
        return_map: bool = False,
    ) -> Tensor | tuple[Tensor, Maps]:
        """`encode`, then `decode`."""
        memory = self.encode(source, source_lengths)
        if return_map:
            return self.decode(memory, target, return_map=True)
        return self.decode(memory, target)

    def summary(self) -> str:
        """Its parts with their numbers of parameters, as a table."""
        return summary(self)


class AttentionSeq2Seq(Seq2Seq):
    """The textbook model: an LSTM asks the states of another, and [c ; h] goes to the output.

        hs = encoder(source),  hₜ = LSTM(yₜ₋₁),  cₜ = Σ softmax(hₜ · hs) hs,  logits = W [cₜ ; hₜ]

    >>> import torch
    >>> model = AttentionSeq2Seq(13, 17, embedding=3, hidden=5)
    >>> model(torch.ones(2, 7, dtype=torch.long), None, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 10])

    Args:
        source_vocabulary: number of source tokens; None with `frames`
        target_vocabulary: number of target tokens
        embedding: width of the embeddings
        hidden: width of the states
        frames: width of float frames, for a source that is not tokens
        cell: "gru" or "lstm"
        bidirectional: which layers of the encoder read in both directions
        score: a name, a module, or what makes a score from two widths
        dropout: of embeddings and features, in train mode
    """

    def __init__(
        self,
        source_vocabulary: int | None,
        target_vocabulary: int,
        *,
        embedding: int = 16,
        hidden: int = 256,
        frames: int | None = None,
        cell: str = "lstm",
        bidirectional: str = "none",
        score: str | Callable = "dot",
        dropout: float = 0.0,
    ) -> None:
        source = reader(source_vocabulary, frames, embedding, dropout=dropout)
        encoder = Encoder(source, hidden, cell=cell, bidirectional=bidirectional)
        decoder = Luong(
            encoder,
            Tokens(target_vocabulary, embedding, dropout=dropout),
            hidden,
            attention=find_aligner("global", score=score),
            join=Concatenation,
            dropout=dropout,
        )
        super().__init__(encoder, decoder)


def _named(maps: dict) -> dict:
    """Maps by the name of the module in the whole model."""
    return {f"decoder.{name.removeprefix('decoder.')}": map for name, map in maps.items()}
