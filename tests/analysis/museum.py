"""Small models that are broken on purpose, one mistake each, and the same without it."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD = 0


class Attention(nn.Module):
    """Self-attention written out by hand, with one mistake or none."""

    def __init__(self, dim: int = 32, heads: int = 2, mistake: str = "") -> None:
        super().__init__()
        self.heads, self.mistake = heads, mistake
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, hidden: Tensor, past: Tensor | None = None) -> Tensor:
        """x (B, M, dim), hidden (B or 1, M, N) with True = hidden, past (B, N - M, dim)."""
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            _, earlier_k, earlier_v = self.qkv(past).chunk(3, -1)
            k, v = torch.cat((earlier_k, k), 1), torch.cat((earlier_v, v), 1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        scale = q.shape[-1] ** (1.5 if self.mistake == "large scores" else -0.5)
        scores = q @ k.mT * scale
        if self.mistake == "inverted":
            hidden = ~hidden
        if self.mistake == "large negative":
            scores = scores.masked_fill(hidden.unsqueeze(1), -1e9)
        elif self.mistake != "nan":
            scores = scores.masked_fill(hidden.unsqueeze(1), torch.finfo(scores.dtype).min)
        else:
            scores = scores.masked_fill(hidden.unsqueeze(1), -math.inf)
        weights = scores.softmax(-2 if self.mistake == "wrong axis" else -1)
        return self.out((weights @ v).transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a residual connection."""

    def __init__(self, dim: int = 32, mistake: str = "") -> None:
        super().__init__()
        self.attention = Attention(dim, mistake=mistake)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.norm, self.mistake = nn.LayerNorm(dim), mistake
        if mistake == "batch norm":
            self.norm = nn.BatchNorm1d(dim, track_running_stats=False)

    def forward(self, x: Tensor, hidden: Tensor, past: Tensor | None = None) -> Tensor:
        y = self.norm(x.mT).mT if self.mistake == "batch norm" else self.norm(x)
        earlier = None if past is None else self.norm(past)
        x = x + self.attention(y, hidden, earlier)
        return x + self.mlp(x)


class Encoder(nn.Module):
    """Tokens with a mask to a vector for each token, or to classes."""

    def __init__(self, mistake: str = "", pooled: bool = False) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(29, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList([Block(mistake=mistake), Block()])
        self.head = nn.Linear(32, 5)
        self.mistake, self.pooled = mistake, pooled

    def forward(self, ids: Tensor, attention_mask: Tensor, return_weights: bool = False) -> Tensor:
        x = self.tokens(ids)
        if self.mistake != "no positions":
            x = x + self.positions(torch.arange(ids.shape[1]))
        hidden = attention_mask.unsqueeze(1) == 0
        if self.mistake == "no padding mask":
            hidden = torch.zeros_like(hidden)
        for block in self.blocks:
            x = block(x, hidden)
        if return_weights and self.mistake == "asked":
            x = x * 1.01
        if not self.pooled:
            return self.head(x)
        if self.mistake == "padding averaged":
            return self.head(x.mean(1))
        real = attention_mask.unsqueeze(-1)
        return self.head((x * real).sum(1) / real.sum(1).clamp_min(1))


class PaddingByIds(nn.Module):
    """A mask made of the ids themselves, or forgotten."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.tokens = nn.Embedding(29, 32, padding_idx=PAD)
        self.positions = nn.Embedding(64, 32)
        self.block, self.mistake = Block(), mistake

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        hidden = (ids == PAD).unsqueeze(1)
        if self.mistake == "no padding mask":
            hidden = torch.zeros_like(hidden)
        return self.block(x, hidden)


class CausalModel(nn.Module):
    """A language model with a buffer as its mask, and a cache of the inputs of its one block."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(29, 32), nn.Embedding(64, 32)
        self.block, self.head, self.mistake = Block(mistake=mistake), nn.Linear(32, 29), mistake
        offset = 2 if mistake == "diagonal off by one" else 1
        self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool).triu(offset))

    def forward(self, ids: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        M, begin = ids.shape[1], 0 if past is None else past.shape[1]
        N = begin + M
        first = 0 if self.mistake == "positions of a cache" else begin
        x = self.tokens(ids)
        if self.mistake != "no positions":
            x = x + self.positions(torch.arange(first, first + M))
        rows = slice(0, M) if self.mistake == "mask of a cache" else slice(begin, N)
        hidden = self.mask[rows, :N].unsqueeze(0)
        y = self.block(x, hidden, past)
        return self.head(y), x if past is None else torch.cat((past, x), 1)


class TorchLayers(nn.Module):
    """Torch's own layers, whose batch comes second unless they are told otherwise."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(29, 32), nn.Embedding(64, 32)
        self.attention = nn.MultiheadAttention(32, 2, batch_first=batch_first)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return x + self.attention(x, x, x)[0]


class FusedAligned(nn.Module):
    """SDPA with `is_causal`, which aligns the first query with the first key."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(29, 32), nn.Embedding(64, 32)
        self.qkv, self.mistake = nn.Linear(32, 96), mistake

    def forward(
        self, ids: Tensor, kv_cache: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        begin = 0 if kv_cache is None else kv_cache[0].shape[1]
        steps = torch.arange(begin, begin + ids.shape[1])
        x = self.tokens(ids) + self.positions(steps)
        q, k, v = self.qkv(x).chunk(3, -1)
        if kv_cache is not None:
            k, v = torch.cat((kv_cache[0], k), 1), torch.cat((kv_cache[1], v), 1)
        if self.mistake:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            visible = torch.arange(k.shape[1]) <= steps.unsqueeze(1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return x + y, (k, v)


class ConstantQuery(nn.Module):
    """Attention whose query is lost."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(29, 32), nn.Embedding(64, 32)
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.mistake = mistake

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        q = self.q(x.mean(1, keepdim=True).expand_as(x) if self.mistake else x)
        return x + F.scaled_dot_product_attention(q, self.k(x), self.v(x))


IDS = torch.randint(1, 29, (3, 9), generator=torch.Generator().manual_seed(5))
REAL = torch.arange(9) < torch.tensor([[9], [6], [4]])
TEXT = {"ids": IDS, "attention_mask": REAL.long()}

BROKEN = {  # the kinds that are found, its own first; the module; the model; its inputs
    "mask of padding inverted": (
        "inverted", "blocks.0.attention", lambda: Encoder("inverted"), TEXT,
    ),
    "causal mask inverted": ("inverted", "block.attention", lambda: CausalModel("inverted"), IDS),
    "causal mask off by one": (
        "future", "block.attention", lambda: CausalModel("diagonal off by one"), IDS,
    ),
    "padding is attended to": (
        "padding", "blocks.0.attention", lambda: Encoder("no padding mask"), TEXT,
    ),
    "padding is averaged": (
        "padding", "Encoder", lambda: Encoder("padding averaged", pooled=True), TEXT,
    ),
    "padding by ids is attended to": (
        "padding", "PaddingByIds", lambda: PaddingByIds("no padding mask"), IDS,
    ),
    "softmax of -inf alone": ("empty", "blocks.0.attention", lambda: Encoder("nan"), TEXT),
    "positions of a cache": (
        "cache", "CausalModel", lambda: CausalModel("positions of a cache"), IDS,
    ),
    "mask of a cache": ("cache", "CausalModel", lambda: CausalModel("mask of a cache"), IDS),
    "is_causal with a cache": ("cache", "FusedAligned", lambda: FusedAligned("aligned"), IDS),
    "weights change the result": ("asking", "Encoder", lambda: Encoder("asked"), TEXT),
    "statistics over the batch": (  # which is padding, too
        "batch padding", "blocks.0.norm", lambda: Encoder("batch norm"), TEXT,
    ),
    "batch and length swapped": (
        "batch", "attention", lambda: TorchLayers(batch_first=False), IDS,
    ),
    "positions forgotten": ("order", "Encoder", lambda: Encoder("no positions"), TEXT),
    "positions of a causal model": (
        "order", "CausalModel", lambda: CausalModel("no positions"), IDS,
    ),
    "softmax over the queries": (  # of which some are padding
        "rows padding", "blocks.0.attention", lambda: Encoder("wrong axis"), TEXT,
    ),
    "scores far too large": ("heads", "blocks.0.attention", lambda: Encoder("large scores"), TEXT),
    "the query is lost": ("heads", "ConstantQuery", lambda: ConstantQuery("lost"), IDS),
}  # fmt: skip
"""One mistake each."""

SOUND = {
    "encoder": (Encoder, TEXT),
    "pooled encoder": (lambda: Encoder(pooled=True), TEXT),
    "padding by ids": (PaddingByIds, IDS),
    "causal": (CausalModel, IDS),
    "torch": (lambda: TorchLayers(batch_first=True), IDS),
    "fused": (FusedAligned, IDS),
    "query": (ConstantQuery, IDS),
}
