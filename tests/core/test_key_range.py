"""The algebra of intervals, exhaustively: every pair of rows of five keys."""

import itertools

import pytest
import torch
from torch import Tensor

from regard.core import key_range
from regard.core.key_range import KeyRange

N = 5
INTERVALS = [(0, 0)] + [(a, b) for a in range(N) for b in range(a + 1, N + 1)]
ROWS = torch.tensor(list(itertools.product([False, True], repeat=N)))  # (32, N)


def intervals(full: bool) -> list[KeyRange]:
    """Each interval as the key range of one query."""
    flags = torch.tensor([full])
    return [
        KeyRange(torch.tensor([a]), torch.tensor([b]), flags | torch.tensor([a == b]))
        for a, b in INTERVALS
    ]


def keys(found: KeyRange) -> set[int]:
    return set(range(int(found.low), int(found.high)))


def hull(seen: set[int]) -> tuple[int, int]:
    return (min(seen), max(seen) + 1) if seen else (0, 0)


def bounds(found: KeyRange) -> tuple[int, int]:
    return int(found.low), int(found.high)


def test_rows_of_a_tensor_reach_from_their_first_to_their_last_visible_key() -> None:
    found = key_range.of_rows(ROWS)
    for row, low, high, full in zip(ROWS.tolist(), *map(Tensor.tolist, found), strict=True):
        visible = {j for j in range(N) if row[j]}
        assert (low, high) == hull(visible)
        assert full == (len(visible) == high - low)


def test_rows_without_keys_reach_nothing() -> None:
    low, high, full = key_range.of_rows(torch.zeros(3, 0, dtype=torch.bool))
    assert low.tolist() == high.tolist() == [0, 0, 0]
    assert full is True


def test_an_interval_is_cut_at_the_ends_and_written_one_way_if_empty() -> None:
    low, high = torch.tensor([-3, 2, 4, 7, 3]), torch.tensor([2, 9, 3, 9, 3])
    found = key_range.interval(low, high, N)
    assert found.low.tolist() == [0, 2, 0, 0, 0]
    assert found.high.tolist() == [2, 5, 0, 0, 0]
    assert found.full is True


def test_and_of_whole_intervals_is_exactly_their_overlap() -> None:
    for a, b in itertools.product(intervals(True), repeat=2):
        found = key_range.both(a, b)
        assert bounds(found) == hull(keys(a) & keys(b))
        assert bool(found.full)


def test_or_of_whole_intervals_is_their_hull_and_full_unless_there_is_a_gap() -> None:
    for a, b in itertools.product(intervals(True), repeat=2):
        found = key_range.either(a, b)
        together = keys(a) | keys(b)
        assert bounds(found) == hull(together)
        assert bool(found.full) == (keys(found) == together)


def test_or_with_a_whole_interval_that_covers_the_other_is_full() -> None:
    for a, b in itertools.product(intervals(True), intervals(False)):
        for found in (key_range.either(a, b), key_range.either(b, a)):
            assert bounds(found) == hull(keys(a) | keys(b))
            assert bool(found.full) == (keys(b) <= keys(a))


def test_not_of_a_whole_interval_is_exact_if_one_piece_is_left() -> None:
    for a in intervals(True):
        rest = set(range(N)) - keys(a)
        found = key_range.neither(a, N)
        one_piece = hull(rest)[1] - hull(rest)[0] == len(rest)
        assert bounds(found) == (hull(rest) if one_piece else (0, N))
        assert bool(found.full) == one_piece


def test_not_of_a_patchy_interval_promises_nothing() -> None:
    for a in intervals(False):
        if not keys(a):
            continue
        found = key_range.neither(a, N)
        assert bounds(found) == (0, N)
        assert not bool(found.full)


@pytest.mark.parametrize("operation", ["and", "or"])
def test_two_rows_together_stay_within_reach(operation: str) -> None:
    a, b = ROWS.repeat_interleave(32, 0), ROWS.repeat(32, 1)
    joined = key_range.both if operation == "and" else key_range.either
    truth = a & b if operation == "and" else a | b
    low, high, full = joined(key_range.of_rows(a), key_range.of_rows(b))
    key = torch.arange(N)
    inside = (key >= low[:, None]) & (key < high[:, None])
    assert not (truth & ~inside).any()
    assert not (inside & ~truth & torch.as_tensor(full)[:, None]).any()


def test_one_interval_for_all_queries_meets_one_for_each() -> None:
    shared = KeyRange(torch.tensor([[0], [0]]), torch.tensor([[3], [5]]), True)  # (B, 1)
    each = KeyRange(torch.tensor([0, 1, 2]), torch.tensor([2, 3, 5]), True)  # (M,)
    found = key_range.both(shared, each)
    assert found.low.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert found.high.tolist() == [[2, 3, 3], [2, 3, 5]]
    assert key_range.either(shared, each).high.tolist() == [[3, 3, 5], [5, 5, 5]]
    assert key_range.either(shared, each).full.tolist() == [[True] * 3] * 2  # type: ignore[union-attr]


def test_seen_keys_are_the_union_of_intervals() -> None:
    for a, b in itertools.product(INTERVALS, repeat=2):
        both = KeyRange(torch.tensor([a[0], b[0]]), torch.tensor([a[1], b[1]]), True)
        union = set(range(*a)) | set(range(*b))
        found = key_range.seen_keys(both, N, 2)
        assert found.tolist() == [j in union for j in range(N)]
    no_query = KeyRange(torch.tensor([0]), torch.tensor([N]), True)  # one interval for no query
    assert not key_range.seen_keys(no_query, N, 0).any()
