"""Random calls of `attend` against the formula written out in float64, on every path and dtype."""

import math
import random

import torch
from torch import Tensor

import regard
from regard.core import blocks
from regard.paths.choice import PATHS

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 1e-2}
BIG = 1e4  # in half precision, products of this are far from the range of float32


def leading(rng: random.Random, whole: list[int]) -> list[int]:
    """Leading dimensions that broadcast to `whole`: some of them 1, the first ones missing."""
    return [rng.choice((size, size, 1)) for size in whole][rng.choice((0, 0, 0, 1)) :]


def random_mask(rng: random.Random, whole: list[int], M: int, N: int) -> regard.Mask | None:
    batch = whole[:1]
    counts = [torch.randint(0, length + 1, batch) for length in (N, M)]
    ids = [torch.randint(0, 3, (length,)).sort().values for length in (M, N)]
    kinds = [
        lambda: None,
        regard.causal,
        lambda: regard.window(rng.randrange(N + 3), rng.choice((0, 1, N, 2**63))),
        lambda: regard.causal(offset=rng.randrange(-M, N)),
        lambda: regard.visible(torch.rand(*leading(rng, whole), M, N) > rng.random()),
        lambda: regard.visible(torch.rand(N) > 0.3),
        lambda: regard.segments(*ids),
    ]
    if whole:
        kinds += [lambda: regard.lengths(counts[0]), lambda: regard.lengths(*counts)]
    mask = rng.choice(kinds)()
    for _ in range(rng.choice((0, 0, 1, 2))):
        other = rng.choice(kinds)()
        if mask is None or other is None:
            continue
        mask = rng.choice((mask & other, mask | other, ~mask, mask & ~other))
    return mask


def longhand(
    q: Tensor, k: Tensor, v: Tensor, score: str, visible: Tensor | None, bias, normalize: str
) -> Tensor:
    """normalize(score(Q, K) + bias, mask) V, one query at a time."""
    q, k, v = (t.double() for t in (q, k, v))
    if score == "cosine":
        q, k = (t / t.norm(dim=-1, keepdim=True).clamp(min=1e-300) for t in (q, k))
    scores = torch.einsum("...md,...nd->...mn", q, k)
    scores = scores / math.sqrt(q.shape[-1]) if score == "scaled_dot" else scores
    scores = scores if bias is None else scores + bias.double()
    hidden = scores == -math.inf
    if visible is not None:
        hidden = hidden | ~visible
        scores = scores.expand(torch.broadcast_shapes(scores.shape, hidden.shape))
    weights = scores.new_zeros(scores.shape)
    flat, shown = scores.reshape(-1, scores.shape[-1]), ~hidden.expand(scores.shape)
    rows = zip(flat, shown.reshape(flat.shape), weights.view(flat.shape), strict=True)
    for row, seen, out in rows:
        if not seen.any():
            continue
        s = row[seen]
        if normalize == "softmax":
            out[seen] = (s - s.max()).exp() / (s - s.max()).exp().sum()
        elif normalize == "hard":
            out[seen.nonzero()[s.argmax()]] = 1.0
        else:  # sparsemax by bisection on its threshold
            low, high = s.max() - 1, s.max()
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (middle, high) if (s - middle).clamp(0).sum() > 1 else (low, middle)
            out[seen] = (s - low).clamp(0)
    return weights @ v


def test_every_path_gives_the_formula(attempts, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 200)
    for rng in attempts(60):
        torch.manual_seed(rng.randrange(2**31))
        whole = [rng.choice((1, 2, 3)) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
        M, N, D, E = (
            rng.randrange(1, 24),
            rng.randrange(1, 24),
            rng.randrange(1, 9),
            rng.choice((3, 8)),
        )
        dtype = rng.choice(DTYPES)
        q, k = (torch.randn(*leading(rng, whole), n, D).to(dtype) for n in (M, N))
        q = q[
            (None,) * (k.dim() - q.dim())
        ]  # a query with fewer dimensions than the key is refused
        v = torch.randn(*leading(rng, whole), N, E).to(dtype)
        if k.dim() == v.dim() > 2 and v.shape[0] == 1 < k.shape[0]:
            v = v[0]  # a value of batch 1 for keys of a larger one is refused
        if rng.random() < 0.2:  # no memory layout matters
            q, k = (t.mT.contiguous().mT for t in (q, k))
        mask = random_mask(rng, whole, M, N)
        score = rng.choice(("dot", "scaled_dot", "cosine"))
        normalize = rng.choice(("softmax", "softmax", "sparsemax", "hard"))
        bias = None
        if rng.random() < 0.3:
            bias = torch.randn(*leading(rng, whole), M, N, dtype=rng.choice(DTYPES[:2]))
            bias = torch.where(torch.rand_like(bias) < 0.2, -math.inf, bias)
        visible, named = None, {"score": score, "normalize": normalize}
        if mask is not None:
            full = torch.broadcast_shapes(
                *(t.shape[:-2] for t in (q, k, v)), *([] if bias is None else [bias.shape[:-2]])
            )
            if mask.leading > len(full):
                continue  # an error, tested elsewhere
            try:
                visible = mask.dense(M, N, leading=len(full))
                torch.broadcast_shapes(visible.shape[:-2], full)
            except (RuntimeError, ValueError):
                continue
        wanted = longhand(q, k, v, score, visible, bias, normalize)
        for path in ("auto", *PATHS):
            try:
                with torch.no_grad():
                    found = regard.attend(q, k, v, mask=mask, bias=bias, path=path, **named)
            except ValueError as error:
                if f"path {path!r} cannot do this" in str(error):
                    continue
                raise
            case = f"{path} {named} {dtype} {mask} q{tuple(q.shape)} k{tuple(k.shape)}"
            assert found.shape == wanted.shape, case
            if normalize == "hard" and (dtype in DTYPES[2:] or D == 1):
                continue  # among near ties, rounding may choose another key
            error = (found.double() - wanted).abs().max() if found.numel() else 0.0
            assert error <= TOLERANCE[dtype] * max(1.0, float(v.abs().max())), (case, float(error))


def test_what_is_hidden_never_matters(attempts, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 200)
    for rng in attempts(25):
        torch.manual_seed(rng.randrange(2**31))
        B, H, M, N, D = 2, 2, rng.randrange(4, 20), rng.randrange(4, 20), 4
        mask = regard.lengths(torch.randint(0, N + 1, (B,)), torch.randint(0, M + 1, (B,)))
        if rng.random() < 0.5:
            mask = mask & regard.causal()
        score = rng.choice(("scaled_dot", "dot", "cosine", regard.General(D, D)))
        tensors = [torch.randn(B, H, n, D) for n in (M, N, N)]
        shown = mask.dense(M, N, leading=2).expand(B, H, M, N)
        seeing, seen = shown.any(-1, keepdim=True), shown.any(-2).unsqueeze(-1)
        bad = rng.choice((math.nan, math.inf, -math.inf, 1e18, 1e25, 1e37, -3e38))
        spoilt = [
            torch.where(known, t, bad).requires_grad_()
            for t, known in zip(tensors, (seeing, seen, seen), strict=True)
        ]
        clean = [t.clone().requires_grad_() for t in tensors]
        path = rng.choice(("auto", "reference", "fused", "blockwise", "banded", "block_sparse"))
        found = regard.attend(*spoilt, mask=mask, score=score, path=path)
        wanted = regard.attend(*clean, mask=mask, score=score, path="reference")
        upstream = torch.randn(found.shape)
        ours = torch.autograd.grad(found, spoilt, upstream)
        theirs = torch.autograd.grad(wanted, clean, upstream)
        for a, b in zip((found, *ours), (wanted, *theirs), strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4, msg=f"{path} {bad} {mask}")


def test_padding_of_any_size_leaves_the_gradients_of_a_layer_finite(attempts):
    for rng in attempts(10):
        torch.manual_seed(rng.randrange(2**31))
        layer = regard.layers.MultiHeadAttention(8, heads=2)
        counts = torch.tensor([20, rng.randrange(1, 20)])
        x = torch.randn(2, 20, 8)
        x[1, counts[1] :] = rng.choice((math.nan, math.inf, 1e18, 1e25, 1e37))
        x.requires_grad_()
        layer(x, mask=regard.lengths(counts, counts)).sum().backward()
        assert x.grad is not None
        assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()))
