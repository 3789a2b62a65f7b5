"""Sequence to sequence: an encoder and a decoder behind one interface."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.models.aligner import find_aligner
from regard.models.decoder import RecurrentDecoder, State
from regard.models.embedding import Tokens, source_embedding, tie_weights
from regard.models.luong import Concatenation, Luong
from regard.models.memory import Memory
from regard.models.recurrent import Encoder


class Seq2Seq(nn.Module):
    """An encoder, a decoder, and the output that turns features into logits of tokens.

    `decode` goes over a whole target, `start` and `step` over one token at a time; they agree.
    Features are the input of `model.output`: computing `logits = model.output(features)` is left
    to the caller, who may need it for some positions only.

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

    def __init__(self, encoder: Encoder, decoder: RecurrentDecoder, *, tie: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.output = nn.Linear(decoder.width, len(decoder.embedding.weight))
        if tie:
            tie_weights(self.output, decoder.embedding)

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Memory:
        """Encode the source: ids (batch, S) or frames (batch, S, width), with lengths (batch,)."""
        return self.encoder(source, source_lengths)

    def decode(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, D) after each of the target ids (batch, T)."""
        return self.decoder(memory, target)

    def start(self, memory: Memory) -> State:
        """The state before the first step."""
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Features (batch, D) after tokens (batch,), and the new state."""
        return self.decoder.step(tokens, state)

    def forward(self, source: Tensor, source_lengths: Tensor | None, target: Tensor) -> Tensor:
        """`encode`, then `decode`."""
        return self.decode(self.encode(source, source_lengths), target)


class AttentionSeq2Seq(Seq2Seq):
    """The textbook model: an LSTM attends to the states of another; [c ; h] goes to the output.

        hs = encoder(source),  hₜ = LSTM(yₜ₋₁),  cₜ = Σ softmax(hₜ · hs) hs,  logits = W [cₜ ; hₜ]

    >>> import torch
    >>> model = AttentionSeq2Seq(13, 17, embedding=3, hidden=5)
    >>> model(torch.ones(2, 7, dtype=torch.long), None, torch.ones(2, 4, dtype=torch.long)).shape
    torch.Size([2, 4, 10])

    Args:
        source_vocabulary: number of source tokens; None with `frames`
        target_vocabulary: number of target tokens
        embedding: width of the embeddings
        hidden, cell, bidirectional: of the encoder, see `Recurrent`
        frames: width of float frames, for a source that is not tokens
        reverse_source: whether the encoder reads the source backwards
        score: a name, a module, or a function (query_dim, key_dim) -> score
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
        reverse_source: bool = False,
        score: str | Callable = "dot",
        dropout: float = 0.0,
    ) -> None:
        source = source_embedding(source_vocabulary, frames, embedding, dropout=dropout)
        encoder = Encoder(
            source, hidden, cell=cell, bidirectional=bidirectional, reverse_source=reverse_source
        )
        decoder = Luong(
            encoder,
            Tokens(target_vocabulary, embedding, dropout=dropout),
            hidden,
            attention=find_aligner("global", score=score),
            join=Concatenation,
            dropout=dropout,
        )
        super().__init__(encoder, decoder)
