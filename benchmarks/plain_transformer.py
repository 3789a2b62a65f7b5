"""The Transformer as one would write it with `torch.nn` alone, and a plain step of training."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data import Batch
from regard.models import Stack, Transformer


class PlainTransformer(nn.Module):
    """Torch's own layers, `nn.Dropout`, sinusoids, and one embedding for both sides and output.

    Args:
        vocabulary: number of tokens of both sides
        dim, heads, hidden, layers, dropout: as in Vaswani et al. 2017
    """

    def __init__(
        self, vocabulary: int, *, dim: int, heads: int, hidden: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.register_buffer("waves", _sinusoids(512, dim))
        options: dict[str, Any] = {"dropout": dropout, "batch_first": True}
        encoder = nn.TransformerEncoderLayer(dim, heads, hidden, **options)
        decoder = nn.TransformerDecoderLayer(dim, heads, hidden, **options)
        self.encoder = nn.TransformerEncoder(encoder, layers, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, layers)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(dim, vocabulary)
        self.output.weight = self.embedding.weight

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Scores of all tokens after each target token, (batch, T, vocabulary)."""
        memory, hidden = self.encode(source, lengths)
        return self.output(self.decode(memory, hidden, target))

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The memory (batch, S, dim), and what of it may not be seen, (batch, S)."""
        hidden = torch.arange(source.shape[1]) >= lengths[:, None]  # True: may not be seen
        return self.encoder(self._embed(source), src_key_padding_mask=hidden), hidden

    def decode(self, memory: Tensor, hidden: Tensor, target: Tensor) -> Tensor:
        """Features after each target token, (batch, T, dim)."""
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.decoder(
            self._embed(target),
            memory,
            tgt_mask=future,
            tgt_is_causal=True,
            memory_key_padding_mask=hidden,
        )

    def loss(self, batch: Batch) -> Tensor:
        """Label-smoothed cross entropy over all scores, padding ignored, summed."""
        scores = self(batch.source, batch.source_lengths, batch.target[:, :-1])
        return F.cross_entropy(
            scores.flatten(0, 1),
            batch.target[:, 1:].flatten(),
            ignore_index=0,
            label_smoothing=0.1,
            reduction="sum",
        )

    def _embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.drop(x + self.waves[: ids.shape[1]])  # type: ignore[index]


def same_model(plain: PlainTransformer, like: Transformer) -> Transformer:
    """Ours with the plain model's weights."""
    with torch.no_grad():
        like.target.weight.copy_(plain.embedding.weight)  # tied: source and output too
        like.output.bias.copy_(plain.output.bias)
    like.encoder = Stack.from_torch(plain.encoder)
    like.decoder = Stack.from_torch(plain.decoder)
    return like


@torch.no_grad()
def plain_model(model: Transformer, **sizes: Any) -> PlainTransformer:
    """The plain model with our post-norm model's weights.

    Args:
        sizes: dim, heads, hidden, layers, dropout
    """
    plain = PlainTransformer(len(model.target.weight), **sizes)
    plain.embedding.weight.copy_(model.target.weight)
    plain.output.bias.copy_(model.output.bias)
    ours: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    theirs: list[Any] = [*plain.encoder.layers, *plain.decoder.layers]
    for mine, torchs in zip(ours, theirs, strict=True):
        pairs = [
            (mine.feed_forward.inner, torchs.linear1),
            (mine.feed_forward.outer, torchs.linear2),
        ]
        norms = [mine.around_attention, mine.around_feed_forward]
        _copy_attention(mine.attention, torchs.self_attn)
        if isinstance(torchs, nn.TransformerDecoderLayer):
            _copy_attention(mine.memory_attention, torchs.multihead_attn)
            norms.insert(1, mine.around_memory_attention)
        for number, around in enumerate(norms, 1):
            pairs.append((around.norm, getattr(torchs, f"norm{number}")))
        for one, other in pairs:
            other.load_state_dict(one.state_dict())
    return plain


def _copy_attention(mine: Any, torchs: nn.MultiheadAttention) -> None:
    parts = (mine.query_projection, mine.key_projection, mine.value_projection)
    assert torchs.in_proj_weight is not None
    torchs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    torchs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    torchs.out_proj.load_state_dict(mine.output_projection.state_dict())


def _sinusoids(length: int, dim: int) -> Tensor:
    """sin and cos of position / 10000^(2i / dim), in turns. Vaswani et al. 2017, section 3.5."""
    rate = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()
