"""The Transformer, encoder and decoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.names import check_name
from regard.core.score import Score
from regard.layers.checks import check_dropout
from regard.layers.dropout import Dropout
from regard.layers.masking import padding_mask, zero_padding
from regard.layers.multi_head import MultiHeadAttention
from regard.layers.role import ENCODER_SELF
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.embedding import Frames, Tokens, source_embedding, tie_weights
from regard.models.memory import Memory, check_lengths
from regard.models.options import find_positions, find_self_attention
from regard.models.stack import Stack, StackState

TIES = ("none", "output", "all")


class Transformer(nn.Module):
    """The encoder–decoder of Vaswani et al. 2017.

    The defaults are the paper's base model: 6 + 6 layers, width 512, 8 heads, 2048 hidden units,
    post-norm, sinusoids, and embeddings multiplied by √dim.

    >>> model = Transformer(13, 17, dim=12, heads=3, hidden=24, layers=2, dropout=0.0)
    >>> source, target = torch.randint(13, (2, 7)), torch.randint(17, (2, 4))
    >>> memory = model.encode(source, torch.tensor([7, 4]))
    >>> features = model.decode(memory, target)
    >>> first, state = model.step(target[:, 0], model.start(memory))
    >>> torch.allclose(first, features[:, 0], atol=1e-5), model.output(features).shape
    (True, torch.Size([2, 4, 17]))

    Args:
        source_vocabulary: number of source tokens; None with `frames`
        target_vocabulary: number of target tokens
        dim: width of the layers
        heads: number of heads, a divisor of `dim`
        hidden: width inside the feed-forward networks
        layers: number of layers of the encoder, and of the decoder
        decoder_layers: number of layers of the decoder, `layers` if None
        frames: width of float frames, for a source that is not tokens
        norm: "post" or "pre"
        position: "sinusoidal", "learned", "rotary", "alibi", "relative" (T5's) or "none"
        max_length: number of learned positions
        tie: "none"; "output", where the output shares the matrix of the target's embedding; or
            "all", where the source's embedding does, too (section 3.4)
        dropout: of embeddings, hidden units, and the output of each sublayer
        attention_dropout: of the attention weights; `dropout` if None
        encoder_attention: "dot", or "efficient", which is linear in the length of the source and
            takes positions that are added to embeddings only. Shen et al. 2018
        kv_heads, score: of the layers with dot-product attention
        activation: of the layers
    """

    def __init__(
        self,
        source_vocabulary: int | None,
        target_vocabulary: int,
        *,
        dim: int = 512,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 6,
        decoder_layers: int | None = None,
        frames: int | None = None,
        norm: str = "post",
        position: str = "sinusoidal",
        max_length: int = 512,
        tie: str = "none",
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        encoder_attention: str = "dot",
        kv_heads: int | None = None,
        score: str | Score = "scaled_dot",
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        check_dropout(dropout if attention_dropout is None else attention_dropout)
        self.source = source_embedding(source_vocabulary, frames, dim, scale=math.sqrt(dim))
        self.target = Tokens(target_vocabulary, dim, scale=math.sqrt(dim))
        options: dict[str, Any] = {
            "heads": heads,
            "hidden": hidden,
            "norm": norm,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": activation,
        }
        self.source_position, own = find_positions(position, dim, heads, max_length)
        self.target_position, causal = find_positions(position, dim, heads, max_length, causal=True)
        dot: dict[str, Any] = {"kv_heads": kv_heads, "score": score}
        make = find_self_attention(encoder_attention)
        if make is not MultiHeadAttention and own is not None:
            raise ValueError(
                f"position={position!r} changes dot-product scores, which "
                f"encoder_attention={encoder_attention!r} does not have; use position='sinusoidal'"
            )
        inner = {**dot, "position": own} if make is MultiHeadAttention else {"attention": make}
        self.encoder = Stack(EncoderLayer, layers, dim, role=ENCODER_SELF, **inner, **options)
        count = layers if decoder_layers is None else decoder_layers
        self.decoder = Stack(DecoderLayer, count, dim, position=causal, **dot, **options)
        self.output = nn.Linear(dim, target_vocabulary)
        self.drop = Dropout(dropout)
        self._tie(tie)

    @classmethod
    def from_torch(
        cls, model: nn.Transformer, source_vocabulary: int, target_vocabulary: int, **options: Any
    ) -> "Transformer":
        """A model with a copy of the weights of `nn.Transformer`, which gives the same numbers.

        Torch's model has no embeddings, positions or output: those are new, by `options`.
        """
        first = model.encoder.layers[0].self_attn
        options = {"dropout": 0.0, **options, "dim": first.embed_dim, "heads": first.num_heads}
        new = cls(source_vocabulary, target_vocabulary, layers=1, hidden=1, **options)
        new = new.to(first.out_proj.weight)
        new.encoder = Stack.from_torch(model.encoder, ENCODER_SELF)
        new.decoder = Stack.from_torch(model.decoder)
        return new.train(model.training)

    def encode(self, source: Tensor, source_lengths: Tensor | None = None) -> Memory:
        """Encode the source: ids (batch, S) or frames (batch, S, width), with lengths (batch,)."""
        counts = check_lengths(source, source_lengths)
        if source.is_floating_point():
            source = zero_padding(source, padding_mask(counts, source))
        x = self.drop(self.source_position(self.source(source)))
        mask = Memory(x, counts, None).mask()
        x = self.encoder(x, mask=mask)
        return Memory(x if mask is None else zero_padding(x, mask), counts, None)

    def decode(self, memory: Memory, target: Tensor) -> Tensor:
        """Teacher forced: features (batch, T, dim) after each of the target ids (batch, T)."""
        x = self.drop(self.target_position(self.target(target)))
        return self.decoder(x, memory.states, memory_mask=memory.mask())

    def start(self, memory: Memory) -> StackState:
        """The state before the first step."""
        return self.decoder.start(memory.states.shape[0], memory.states, memory.mask())

    def step(self, tokens: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        """Features (batch, dim) after tokens (batch,), and the new state."""
        x = self.target_position(self.target(tokens.unsqueeze(1)), state.length)
        x, state = self.decoder.step(self.drop(x), state)
        return x.squeeze(1), state

    def forward(self, source: Tensor, source_lengths: Tensor | None, target: Tensor) -> Tensor:
        """`encode`, then `decode`."""
        return self.decode(self.encode(source, source_lengths), target)

    def _tie(self, tie: str) -> None:
        check_name("tie", tie, TIES)
        if tie != "none":
            tie_weights(self.output, self.target)
        if tie == "all":
            if isinstance(self.source, Frames):
                raise ValueError("tie='all' needs a source of tokens, got frames")
            if self.source.weight.shape != self.target.weight.shape:
                raise ValueError(
                    "tie='all' needs one vocabulary for both sides, got "
                    f"{len(self.source.weight)} source and {len(self.target.weight)} target "
                    "tokens; use a joint tokenizer, or tie='output'"
                )
            self.source.weight = self.target.weight
