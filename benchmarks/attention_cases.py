"""The cases of `benchmarks.attention`: each makes its tensors and lists who computes them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from benchmarks.contest import Contest, Job
from regard.attention import prepare


@dataclass(frozen=True)
class Case:
    """A contest with a name and what to measure; `quick` ones take a second or two."""

    name: str
    make: Callable[[], Contest]
    backward: bool
    quick: bool = True
    only_memory: bool = False


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def compiled(job: Callable[..., Tensor], *args: Tensor) -> Job:
    """A job through torch.compile, which needs a C++ compiler."""
    fast = torch.compile(job)
    return lambda: fast(*args)


# ------------------------------------------------------------------ additive and feature-wise


class Projected(nn.Module):
    """w · tanh(q + k) for queries and keys that are projected already."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden) / hidden**0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ self.weight

    def as_additive(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, self.weight


def additive(batch: int, length: int, hidden: int, *, peers: bool = True) -> Contest:
    """Attention after the projections, which cost everybody the same."""
    q, k, v = tensors(*[(batch, length, hidden)] * 3)
    score = Projected(hidden)

    def textbook(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(score(q, k), dim=-1) @ v  # holds (B, M, N, H)

    others = {"textbook": lambda: textbook(q, k, v), "torch.compile": compiled(textbook, q, k, v)}
    return Contest(
        ours=lambda: regard.attend(q, k, v, score=score),
        peers=others if peers else {},
        leaves=[q, k, v, *score.parameters()],
        tolerance=1e-3,
    )


def bahdanau(batch: int, length: int, hidden: int) -> Contest:
    """The whole module, with both projections."""
    q, k, v = tensors(*[(batch, length, hidden)] * 3)
    score = regard.Additive(hidden, hidden, hidden)

    def textbook() -> Tensor:
        projected_q, projected_k = q @ score.query_weight.T, k @ score.key_weight.T
        hidden = torch.tanh(projected_q.unsqueeze(2) + projected_k.unsqueeze(1))
        return torch.softmax(hidden @ score.vector, dim=-1) @ v

    return Contest(
        ours=lambda: regard.attend(q, k, v, score=score),
        peers={"textbook": textbook},
        leaves=[q, k, v, *score.parameters()],
        tolerance=1e-3,
    )


def decoding(batch: int, length: int, hidden: int) -> Contest:
    """One query against keys that were prepared before."""
    q, k, v = tensors((batch, 1, hidden), (batch, length, hidden), (batch, length, hidden))
    score = regard.Additive(hidden, hidden, hidden)
    keys, prepared = score.project(k).detach(), prepare(score, k, v)

    def textbook() -> Tensor:
        hidden = torch.tanh((q @ score.query_weight.T).unsqueeze(2) + keys.unsqueeze(1))
        return torch.softmax(hidden @ score.vector, dim=-1) @ v

    return Contest(ours=lambda: prepared.attend(q), peers={"textbook": textbook}, tolerance=1e-3)


def decoder(batch: int, length: int, hidden: int) -> Contest:
    """As many steps as keys; the query of each is the output of the one before."""
    k, v = tensors(*[(batch, length, hidden)] * 2)
    first = torch.randn(batch, hidden)
    score = regard.Additive(hidden, hidden, hidden)

    def unrolled(attend: Callable[[Tensor], Tensor]) -> Tensor:
        query, contexts = first, []
        for _ in range(length):
            contexts.append(attend(query))
            query = first + contexts[-1]
        return torch.stack(contexts, 1)

    def textbook() -> Tensor:
        keys = k @ score.key_weight.T

        def attend(query: Tensor) -> Tensor:
            hidden = torch.tanh((query @ score.query_weight.T).unsqueeze(1) + keys)
            return (torch.softmax(hidden @ score.vector, -1).unsqueeze(1) @ v).squeeze(1)

        return unrolled(attend)

    return Contest(
        ours=lambda: unrolled(prepare(score, k, v).attend),
        peers={"textbook": textbook},
        leaves=[k, v, *score.parameters()],
        tolerance=1e-3,
    )


def featurewise(batch: int, length: int, width: int) -> Contest:
    q, k, v = tensors(*[(batch, length, width)] * 3)

    def textbook() -> Tensor:
        weights = torch.softmax(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)), dim=2)
        return (weights * v.unsqueeze(1)).sum(2)

    return Contest(
        ours=lambda: regard.attend_features(q, k, v), peers={"textbook": textbook}, leaves=[q, k, v]
    )


# ------------------------------------------------------------------ masks


def window(length: int, size: int, *, flex: bool) -> Contest:
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)
    mask = regard.window(size, size)
    dense = mask.dense(length, length)
    peers: dict[str, Job] = {
        "SDPA + dense mask": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    }
    if flex:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i - j).abs() <= size

        blocks = create_block_mask(near, None, None, length, length, device="cpu")
        fast = torch.compile(flex_attention)
        frozen = [t.detach() for t in (q, k, v)]  # it refuses what might need a gradient
        peers["compiled flex_attention"] = lambda: fast(*frozen, block_mask=blocks)
    return Contest(ours=lambda: regard.attend(q, k, v, mask=mask), peers=peers, leaves=[q, k, v])


def causal(batch: int, length: int) -> Contest:
    q, k, v = tensors(*[(batch, 8, length, 64)] * 3)
    peers: dict[str, Job] = {
        "SDPA is_causal": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    }
    if length == 1024:
        peers |= _x_transformers(q, k, v)
    return Contest(
        ours=lambda: regard.attend(q, k, v, mask=regard.causal()), peers=peers, leaves=[q, k, v]
    )


def _x_transformers(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Job]:
    try:
        from x_transformers.attend import Attend
    except ImportError:
        return {}
    attend = Attend(causal=True, flash=True)
    return {"x-transformers": lambda: attend(q, k, v)[0]}


def padded(batch: int, length: int) -> Contest:
    q, k, v = tensors(*[(batch, 8, length, 64)] * 3)
    sizes = torch.randint(1, length + 1, (batch,), generator=torch.Generator().manual_seed(3))
    mask = (torch.arange(length) < sizes[:, None])[:, None, None, :]
    return Contest(
        ours=lambda: regard.attend(q, k, v, mask=regard.lengths(sizes)),
        peers={
            "SDPA + padding mask": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        },
        leaves=[q, k, v],
    )


def boolean(shape: tuple[int, int, int, int]) -> Contest:
    """A mask without any structure."""
    q, k, v = tensors(*[shape] * 3)
    size = (shape[2], shape[2])
    mask = torch.rand(size, generator=torch.Generator().manual_seed(3)) > 0.3
    return _dense(q, k, v, mask, mask)


def tiny_padded() -> Contest:
    q, k, v = tensors(*[(8, 8, 32, 64)] * 3)
    sizes = torch.randint(1, 33, (8,), generator=torch.Generator().manual_seed(3))
    dense = (torch.arange(32) < sizes[:, None])[:, None, None, :]
    return _dense(q, k, v, regard.lengths(sizes), dense)


def global_window(length: int) -> Contest:
    """A window and global tokens: a tenth of the cells is visible."""
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)
    mask = regard.window(length // 24, length // 24) | regard.global_tokens(length // 128)
    return _dense(q, k, v, mask, mask.dense(length, length))


def block_sparse(length: int) -> Contest:
    """Random blocks of 64 queries and keys and the diagonal: a tenth of the cells is visible."""
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)
    blocks = length // 64
    pattern = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(3)) < 0.093
    mask = regard.block_sparse(pattern | torch.eye(blocks, dtype=torch.bool), 64)
    return _dense(q, k, v, mask, mask.dense(length, length))


def _dense(q: Tensor, k: Tensor, v: Tensor, mask: regard.Mask | Tensor, dense: Tensor) -> Contest:
    return Contest(
        ours=lambda: regard.attend(q, k, v, mask=mask),
        peers={
            "SDPA + dense mask": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
        },
        leaves=[q, k, v],
    )


def dropout() -> Contest:
    """Dropout of the weights; everybody draws other noise, so that outputs are not compared."""
    q, k, v = tensors(*[(1, 8, 1024, 64)] * 3)

    def textbook() -> Tensor:
        return F.dropout(torch.softmax(q @ k.transpose(-1, -2) / 8, dim=-1), 0.1) @ v

    return Contest(
        ours=lambda: regard.attend(q, k, v, dropout=0.1),
        peers={},
        others={
            "textbook": textbook,
            "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        },
        leaves=[q, k, v],
    )


# ------------------------------------------------------------------ lowered to dot products


def lowered(name: str) -> Contest:
    """Against the bare SDPA call on queries and keys that are already in dot form."""
    q, k, v = tensors(*[(1, 8, 1024, 64)] * 3)
    score = {
        "general": lambda: regard.General(64, 64),
        "biased general": lambda: regard.BiasedGeneral(64, 64),
        "cosine": lambda: regard.Cosine(5.0),
    }[name]()
    query, key, _ = score.as_dot(q, k)
    query, key = query.detach(), key.detach()
    return Contest(
        ours=lambda: regard.attend(q, k, v, score=score),
        peers={"SDPA alone": lambda: F.scaled_dot_product_attention(query, key, v, scale=1.0)},
        leaves=[v],
    )


def small(shape: tuple[int, int, int, int]) -> Contest:
    q, k, v = tensors(*[shape] * 3)
    return Contest(
        ours=lambda: regard.attend(q, k, v),
        peers={"SDPA alone": lambda: F.scaled_dot_product_attention(q, k, v)},
        leaves=[q, k, v],
    )


# ------------------------------------------------------------------ sinks and soft caps


def sink(length: int) -> Contest:
    """A learned sink for each head, against SDPA, which has none."""
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)
    normalize = regard.Normalizer(sink=nn.Parameter(torch.zeros(8)))

    def textbook() -> Tensor:
        scores = q @ k.transpose(-1, -2) / 8
        column = normalize.sink.view(8, 1, 1).expand(1, 8, length, 1)
        return torch.softmax(torch.cat((scores, column), -1), -1)[..., :-1] @ v

    return Contest(
        ours=lambda: regard.attend(q, k, v, normalize=normalize),
        peers={"textbook": textbook},
        others={"SDPA (no sink)": lambda: F.scaled_dot_product_attention(q, k, v)},
        leaves=[q, k, v],
    )


def softcap(length: int) -> Contest:
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)
    score = regard.SoftCap(50.0)

    def textbook() -> Tensor:
        scores = q @ k.transpose(-1, -2) / 8
        return torch.softmax(50 * torch.tanh(scores / 50), -1) @ v

    return Contest(
        ours=lambda: regard.attend(q, k, v, score=score),
        peers={"textbook": textbook},
        others={"SDPA (no cap)": lambda: F.scaled_dot_product_attention(q, k, v)},
        leaves=[q, k, v],
    )


# ------------------------------------------------------------------ linear, hard, one's own


def efficient(length: int) -> Contest:
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)

    def textbook() -> Tensor:
        return torch.softmax(q, -1) @ (torch.softmax(k, -2).transpose(-1, -2) @ v)

    return Contest(
        ours=lambda: regard.attend_linear(q, k, v),
        peers={"textbook efficient": textbook},
        others={"SDPA (softmax)": lambda: F.scaled_dot_product_attention(q, k, v)},
        leaves=[q, k, v],
    )


def hard(length: int) -> Contest:
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)

    def textbook() -> Tensor:
        best = (q @ k.transpose(-1, -2)).argmax(-1)
        return F.one_hot(best, length).to(v.dtype) @ v

    return Contest(
        ours=lambda: regard.attend(q, k, v, score="dot", normalize="hard"),
        peers={"textbook": textbook},
    )


def own_callable(length: int) -> Contest:
    q, k, v = tensors(*[(1, 8, length, 64)] * 3)

    def negative_distance(query: Tensor, key: Tensor) -> Tensor:
        return -torch.cdist(query, key)

    return Contest(
        ours=lambda: regard.attend(q, k, v, score=negative_distance),
        peers={"textbook": lambda: torch.softmax(negative_distance(q, k), -1) @ v},
        leaves=[q, k, v],
    )


def both(name: str, make: Callable[[], Contest], **more: bool) -> list[Case]:
    """A case forward, and forward + backward."""
    return [
        Case(f"{name}, forward", make, backward=False, **more),
        Case(f"{name}, forward + backward", make, backward=True, **more),
    ]


CASES: list[Case] = [
    *both("additive (8,256,256,128)", lambda: additive(8, 256, 128)),
    *both("additive (32,50,50,256)", lambda: additive(32, 50, 256)),
    *both("Additive module (32,50,50,256)", lambda: bahdanau(32, 50, 256)),
    Case("additive step (1,1,50,256)", lambda: decoding(1, 50, 256), backward=False),
    Case("additive step (32,1,50,256)", lambda: decoding(32, 50, 256), backward=False),
    *both("50 additive steps (32,1,50,256)", lambda: decoder(32, 50, 256)),
    Case(
        "additive (1,8192,8192,64), forward + backward",
        lambda: additive(1, 8192, 64, peers=False),
        backward=True,
        quick=False,
        only_memory=True,
    ),
    *both("feature-wise (8,256,256,128)", lambda: featurewise(8, 256, 128)),
    Case("window ±128, L=8192, forward", lambda: window(8192, 128, flex=True), False, quick=False),
    Case(
        "window ±128, L=8192, forward + backward",
        lambda: window(8192, 128, flex=False),
        True,
        quick=False,
    ),
    Case("window ±128, L=2048, forward", lambda: window(2048, 128, flex=False), False),
    *both("causal (8,8,256,64)", lambda: causal(8, 256)),
    *both("causal (1,8,1024,64)", lambda: causal(1, 1024)),
    *both("causal (1,8,4096,64)", lambda: causal(1, 4096), quick=False),
    *both("causal (1,8,8192,64)", lambda: causal(1, 8192), quick=False),
    *both("padded (64,8,256,64)", lambda: padded(64, 256)),
    *both("boolean mask (8,8,32,64)", lambda: boolean((8, 8, 32, 64))),
    *both("boolean mask (1,8,1024,64)", lambda: boolean((1, 8, 1024, 64))),
    *both("padded (8,8,32,64)", tiny_padded),
    *both("dropout (1,8,1024,64)", dropout),
    *both("window and global tokens, L=8192", lambda: global_window(8192), quick=False),
    *both("blocks, L=8192", lambda: block_sparse(8192), quick=False),
    *both("general (1,8,1024,64)", lambda: lowered("general")),
    *both("biased general (1,8,1024,64)", lambda: lowered("biased general")),
    *both("cosine (1,8,1024,64)", lambda: lowered("cosine")),
    *both("plain (8,8,32,64)", lambda: small((8, 8, 32, 64))),
    *both("plain (64,4,16,32)", lambda: small((64, 4, 16, 32))),
    *both("sink (1,8,4096,64)", lambda: sink(4096), quick=False),
    *both("soft cap (1,8,4096,64)", lambda: softcap(4096), quick=False),
    *both("efficient (1,8,8192,64)", lambda: efficient(8192)),
    Case("hard (1,8,2048,64), forward", lambda: hard(2048), backward=False),
    Case(
        "negative distance (1,8,4096,64), forward + backward",
        lambda: own_callable(4096),
        True,
        quick=False,
    ),
]

SCALING = [2**power for power in range(10, 17)]
"""Lengths over which the exponent of linear attention is fitted, 1k to 64k."""


def linear_forms(length: int) -> dict[str, Job]:
    """Every form of `attend_linear` on one head, whose time should grow with the length alone."""
    q, k, v = (t.detach() for t in tensors(*[(1, 1, length, 64)] * 3))
    keys, decay = F.normalize(k, dim=-1), torch.full((length, 1), -0.01)
    beta = torch.full((length, 1), 0.5)
    return {
        "efficient": lambda: regard.attend_linear(q, k, v),
        "efficient, causal": lambda: regard.attend_linear(q, k, v, causal=True),
        "retention": lambda: regard.attend_linear(q, keys, v, causal=True, log_decay=-0.01),
        "gated delta": lambda: regard.attend_linear(
            q, keys, v, causal=True, log_decay=decay, beta=beta
        ),
    }


def curves(length: int) -> dict[str, Job]:
    """One forward pass of each curve of the chart."""
    q, k, v = (t.detach() for t in tensors(*[(1, 8, length, 64)] * 3))
    return {
        "textbook softmax": lambda: torch.softmax(q @ k.transpose(-1, -2) / 8, dim=-1) @ v,
        "torch SDPA": lambda: F.scaled_dot_product_attention(q, k, v),
        "regard": lambda: regard.attend(q, k, v),
        "regard, causal": lambda: regard.attend(q, k, v, mask=regard.causal()),
        "regard, window ±128": lambda: regard.attend(q, k, v, mask=regard.window(128, 128)),
        "regard, linear": lambda: regard.attend_linear(q, k, v),
    }


def exponent(lengths: list[int], seconds: list[float]) -> float:
    """The slope of log seconds against log length: 1 is linear, 2 is quadratic."""
    x = [math.log(length) for length in lengths]
    y = [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)
