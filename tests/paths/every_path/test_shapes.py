"""Any leading dimensions and sizes, on every path."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from tests.paths.every_path.cases import PATH_SCORE, SCORES, D, E, M, N


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
@pytest.mark.parametrize(
    "sizes",
    [
        ((5, D), (7, D), (7, E)),
        ((2, 5, D), (2, 7, D), (2, 7, E)),
        ((2, 1, 5, D), (1, 3, 7, D), (3, 7, E)),
        ((2, 3, 5, D), (2, 1, 7, D), (2, 1, 7, E)),
        ((2, 3, 4, 5, D), (2, 3, 1, 7, D), (2, 3, 1, 7, E)),
        ((2, 3, 4, 5, D), (7, D), (4, 7, E)),
        ((3, 3, 1, D), (3, 3, 7, D), (3, 3, 7, E)),
    ],
)
def test_any_leading_dimensions_broadcast(path: str, score: str, sizes: tuple) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    if isinstance(module, torch.nn.Module):
        module = module.double()
    q, k, v = (torch.randn(*size, dtype=torch.float64) for size in sizes)
    mask = regard.window(4, 0)
    truth = regard.attend(q, k, v, score=module, mask=mask, path="reference")  # type: ignore
    found = regard.attend(q, k, v, score=module, mask=mask, path=path)  # type: ignore
    leading = torch.broadcast_shapes(*(size[:-2] for size in sizes))
    assert found.shape == (*leading, sizes[0][-2], E)
    torch.testing.assert_close(found, truth, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_lengths_belong_to_sequences_even_with_as_many_heads(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(3, 3, M, D), torch.randn(3, 3, N, D), torch.randn(3, 3, N, E)
    sizes = torch.tensor([2, 11, N])
    found = regard.attend(q, k, v, score=module, mask=regard.lengths(sizes), path=path)  # type: ignore
    for b, size in enumerate(sizes.tolist()):
        if score == "location":
            continue
        alone = regard.attend(
            q[b],
            k[b, :, :size],
            v[b, :, :size],
            score=module,
            path="reference",  # type: ignore
        )
        torch.testing.assert_close(found[b], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0), (1, 1), (1, 11)])
def test_empty_and_single_sizes(score: str, m: int, n: int) -> None:
    module = SCORES[score]()
    q = torch.randn(2, m, D, requires_grad=True)
    k, v = torch.randn(2, n, D, requires_grad=True), torch.randn(2, n, E, requires_grad=True)
    out, map = regard.attend(q, k, v, score=module, mask=regard.causal(), return_map=True)  # type: ignore
    assert out.shape == (2, m, E)
    assert map.dense().shape == (2, m, n)
    if n == 0:
        assert torch.count_nonzero(out) == 0
    out.sum().backward()
    assert k.grad is None or torch.isfinite(k.grad).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_and_mask_agrees_with_the_formula(data: st.DataObject) -> None:
    draw = data.draw
    b, h = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    m, n = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    d, e = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    numbers = st.lists(st.integers(0, n), min_size=b, max_size=b)
    makers = {
        "causal": lambda: regard.causal(),
        "window": lambda: regard.window(draw(st.integers(0, 9)), draw(st.integers(0, 9))),
        "lengths": lambda: regard.lengths(torch.tensor(draw(numbers))),
        "visible": lambda: regard.visible(torch.rand(m, n, generator=generator) > 0.5),
        "segments": lambda: regard.segments(
            torch.randint(3, (b, m), generator=generator).sort(-1).values,
            torch.randint(3, (b, n), generator=generator).sort(-1).values,
        ),
    }
    mask = makers[draw(st.sampled_from(sorted(makers)))]()
    for sign in draw(st.lists(st.sampled_from("&|~"), max_size=2)):
        other = makers[draw(st.sampled_from(sorted(makers)))]()
        mask = mask & other if sign == "&" else mask | other if sign == "|" else ~mask
    q = torch.randn(b, h, m, d, dtype=torch.float64, generator=generator)
    k = torch.randn(b, h, n, d, dtype=torch.float64, generator=generator)
    v = torch.randn(b, h, n, e, dtype=torch.float64, generator=generator)
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    seen = mask.dense(m, n, leading=2)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
    for path in ("auto", "reference", "fused", "banded", "blockwise"):
        found = regard.attend(q, k, v, mask=mask, path=path)
        torch.testing.assert_close(found, weights @ v, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("path", ["auto", "fused", "blockwise", "banded"])
def test_a_score_that_ignores_the_keys_gives_all_leading_dimensions(path: str) -> None:
    score = regard.Location(D, 64)
    q, k, v = torch.randn(2, 3, M, D), torch.randn(2, 3, N, D), torch.randn(2, 3, N, D)
    mask = regard.lengths(torch.tensor([N, 3])) & regard.window(9, 9)
    for query in (q, q[:1, :1]):
        pairs = product((k, k[:, :1], k[:1, :1], k[0, 0]), (v, v[:, :1], v[:1, :1], v[0, 0]))
        for key, value in pairs:
            if value.shape[:1] == (1,) and key.shape[:1] == (2,):
                continue  # refused: a value of batch 1 for keys of batch 2
            found = regard.attend(query, key, value, score=score, mask=mask, path=path)
            whole = regard.attend(
                query, key, value, score=score, mask=mask, path="reference", return_map=True
            )
            assert found.shape == whole.output.shape
            assert found.shape[:-1] == whole.map.shape[:-1]
            torch.testing.assert_close(found, whole.output, atol=1e-5, rtol=1e-5)
