"""Rows of digits, one of them marked: which digit is it? Made to be solved by looking once."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.generated import SPLITS, check_split

DIGITS, MARKS = 10, 5
"""Digits are 0 to 9; marks are 0 to 4, and 0 is the one to look for."""


class Marked(NamedTuple):
    """Rows of digits of different lengths, of which one each has mark 0."""

    digits: Tensor  # (B, N), 0 beyond the length
    marks: Tensor  # (B, N), the last mark beyond the length
    lengths: Tensor  # (B,)
    position: Tensor  # (B,), where the marked digit is
    digit: Tensor  # (B,), which it is


def marked_digits(
    count: int, split: str = "train", *, shortest: int = 5, longest: int = 17, seed: int = 0
) -> Marked:
    """Make rows of digits; the same arguments give the same rows.

    >>> row = marked_digits(1, seed=3)
    >>> int(row.marks[0, row.position[0]]), bool(row.digits[0, row.position[0]] == row.digit[0])
    (0, True)

    Args:
        count: how many
        split: "train", "valid" or "test", drawn apart
        shortest, longest: digits of a row
        seed: everything depends on it
    """
    check_split(split)
    if count < 1 or not 1 <= shortest <= longest:
        raise ValueError(
            "count and shortest must be 1 or more and longest no less than shortest, got "
            f"{count}, {shortest} and {longest}"
        )
    draw = torch.Generator().manual_seed(seed * len(SPLITS) + SPLITS.index(split))
    lengths = torch.randint(shortest, longest + 1, (count,), generator=draw)
    place = torch.arange(longest)
    beyond = place >= lengths.unsqueeze(1)  # (B, N)
    digits = torch.randint(DIGITS, (count, longest), generator=draw).masked_fill(beyond, 0)
    marks = torch.randint(1, MARKS, (count, longest), generator=draw).masked_fill(beyond, MARKS - 1)
    position = (torch.rand(count, generator=draw) * lengths).long()
    marks.scatter_(1, position.unsqueeze(1), 0)
    return Marked(digits, marks, lengths, position, digits.gather(1, position[:, None]).squeeze(1))
