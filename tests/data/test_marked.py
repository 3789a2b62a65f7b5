import pytest
import torch

from regard.data.marked import MARKS, marked_digits


def test_each_row_has_one_marked_digit_inside_its_length() -> None:
    rows = marked_digits(211, shortest=2, longest=11, seed=3)
    assert rows.digits.shape == rows.marks.shape == (211, 11)
    assert torch.equal((rows.marks == 0).sum(1), torch.ones(211, dtype=torch.long))
    assert torch.equal(rows.marks.argmin(1), rows.position)
    assert (rows.position < rows.lengths).all()
    assert torch.equal(rows.digits[torch.arange(211), rows.position], rows.digit)
    assert (int(rows.lengths.min()), int(rows.lengths.max())) == (2, 11)
    beyond = torch.arange(11) >= rows.lengths.unsqueeze(1)
    assert (rows.digits[beyond] == 0).all()
    assert (rows.marks[beyond] == MARKS - 1).all()


def test_splits_and_seeds_differ_and_repeat() -> None:
    one, same = marked_digits(7, seed=2), marked_digits(7, seed=2)
    assert torch.equal(one.digits, same.digits)
    for other in (marked_digits(7, "valid", seed=2), marked_digits(7, seed=3)):
        assert not torch.equal(one.digits, other.digits)


def test_impossible_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="longest no less than shortest, got 3, 5 and 2"):
        marked_digits(3, shortest=5, longest=2)
    with pytest.raises(ValueError, match="unknown split 'tain'; did you mean 'train'"):
        marked_digits(3, "tain")
