"""Noise as a function of seed and position: the same in any block, and random enough."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.core import noise

SEED = torch.tensor(20150517)


def uniform(leading: tuple[int, ...], queries: int, keys: int, seed: Tensor = SEED) -> Tensor:
    return noise.uniform(seed, leading, slice(0, queries), (queries, keys))


def kept(
    p: float, leading: tuple[int, ...], queries: int, keys: int, seed: Tensor = SEED
) -> Tensor:
    return noise.kept(seed, p, leading, slice(0, queries), (queries, keys))


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]).double())[0, 1])


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.integers(0, 23),
    st.integers(0, 7),
    st.data(),
)
def test_a_block_is_those_rows_of_the_whole(
    leading: tuple[int, ...], queries: int, keys: int, data: st.DataObject
) -> None:
    ends = st.tuples(st.integers(0, queries), st.integers(0, queries))
    rows = slice(*sorted(data.draw(ends)))
    whole = uniform(leading, queries, keys)
    assert whole.shape == (*leading, queries, keys)
    block = noise.uniform(SEED, leading, rows, (queries, keys))
    assert torch.equal(block, whole[..., rows, :])
    block = noise.kept(SEED, 0.4, leading, rows, (queries, keys))
    assert torch.equal(block, kept(0.4, leading, queries, keys)[..., rows, :])


@pytest.mark.parametrize("p", [1e-3, 0.1, 0.5, 0.9, 0.999])
def test_dropout_keeps_its_share(p: float) -> None:
    found = kept(p, (2, 3), 401, 503)
    deviation = math.sqrt(p * (1 - p) / found.numel())
    assert abs(float(found.double().mean()) - (1 - p)) < 4.5 * deviation


def test_dropout_of_nothing_keeps_all_and_of_nearly_all_hardly_any() -> None:
    assert kept(0.0, (), 301, 307).all()
    assert not kept(1 - 1e-12, (), 301, 307).any()


def test_no_row_column_or_head_is_spared_or_struck() -> None:
    dropped = ~kept(0.3, (2, 5), 400, 300)
    share = dropped.double()
    for dims, count in (((0, 1, 3), 3000), ((0, 1, 2), 4000), ((2, 3), 120000)):
        deviation = math.sqrt(0.21 / count)
        assert float((share.mean(dims) - 0.3).abs().max()) < 5 * deviation


def test_uniform_is_uniform() -> None:
    found = uniform((3,), 307, 311).flatten().double().sort().values
    n = found.numel()
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    distance = max(float((steps - found).max()), float((found - steps + 1 / n).max()))
    assert distance < 1.95 / math.sqrt(n)  # Kolmogorov-Smirnov, one in a thousand


@pytest.mark.parametrize("bits", [-(2**31), -1, 0, 2**31 - 1])
def test_uniform_never_reaches_an_end(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(
        noise, "_hashed", lambda *args: args[-1](torch.tensor([bits], dtype=torch.int32))
    )
    found = uniform((), 1, 1)
    assert found.dtype == torch.float32
    assert 0.0 < float(found) < 1.0
    assert math.isfinite(-math.log(-math.log(float(found))))


def test_neighbours_know_nothing_of_each_other() -> None:
    u = uniform((3, 4), 200, 210)
    i, j = torch.triu_indices(200, 200, offset=1)
    pairs = {
        "rows": (u[:, :, 1:], u[:, :, :-1]),
        "columns": (u[..., 1:], u[..., :-1]),
        "heads": (u[:, 1:], u[:, :-1]),
        "sequences": (u[1:], u[:-1]),
        "diagonals": (u[:, :, 1:, 1:], u[:, :, :-1, :-1]),
        "transposed": (u[..., i, j], u[..., j, i]),
        "seeds": (u, uniform((3, 4), 200, 210, SEED + 1)),
    }
    for name, (a, b) in pairs.items():
        assert abs(correlation(a, b)) < 4.5 / math.sqrt(a.numel()), name


def test_the_four_corners_of_a_rectangle_are_independent() -> None:
    """One hash for the row plus one for the column: their sum alone would give this away."""
    u = uniform((), 601, 607) - 0.5
    product = u[:-1, :-1] * u[:-1, 1:] * u[1:, :-1] * u[1:, 1:]
    deviation = (1 / 12) ** 2 / math.sqrt(product.numel())
    assert abs(float(product.double().mean())) < 4.5 * deviation


def test_another_seed_is_another_draw() -> None:
    one = uniform((2,), 101, 103)
    for seed in (0, 1, 2**62 - 1, int(SEED) ^ 1, int(SEED) + 2**40):
        other = uniform((2,), 101, 103, torch.tensor(seed))
        assert float((one == other).double().mean()) < 1e-3
        assert abs(correlation(one, other)) < 4.5 / math.sqrt(one.numel())


def test_dropout_and_gumbel_of_one_call_are_independent() -> None:
    u = uniform((2,), 301, 307)
    for threshold in (0.1, 0.5):
        dropped = ~kept(threshold, (2,), 301, 307)
        assert abs(correlation(dropped, u)) < 4.5 / math.sqrt(u.numel())


def test_seeds_come_from_torch() -> None:
    torch.manual_seed(5)
    one, two = noise.draw_seed(torch.device("cpu")), noise.draw_seed(torch.device("cpu"))
    torch.manual_seed(5)
    assert torch.equal(noise.draw_seed(torch.device("cpu")), one)
    assert not torch.equal(one, two)
    assert one.shape == ()
