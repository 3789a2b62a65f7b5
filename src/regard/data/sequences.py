"""Sequences of random bits to be remembered: copy, repeat-copy and associative recall.

The tasks of Graves et al. 2014, sections 4.1 to 4.3. A batch has one size, so that there is no
padding; the bits come first, then what is to be done with them, then silence in which to answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.names import did_you_mean
from regard.data.generated import SPLITS, check_split

COPY_WIDTH, RECALL_WIDTH = 8, 6
ITEM = 3  # vectors of an item that is recalled
MOST_REPEATS = 10


class Bits(NamedTuple):
    """What is heard at each step, what should be answered, and when an answer counts."""

    inputs: Tensor  # (B, T, channels)
    targets: Tensor  # (B, T, out), zeros and ones
    asked: Tensor  # (T,), bool


class BitTask(NamedTuple):
    """A way of asking for bits."""

    about: str
    channels: int
    out: int
    draw: Callable[[int, int, torch.Generator], Bits]  # (count, size, generator)
    size: str  # what the size is of


def copy(count: int, size: int, draw: torch.Generator) -> Bits:
    """`size` vectors of eight bits, a sign, and then the same vectors again. Section 4.1."""
    bits = _random(count, size, COPY_WIDTH, draw)
    inputs = torch.zeros(count, 2 * size + 1, COPY_WIDTH + 1)
    inputs[:, :size, :-1] = bits
    inputs[:, size, -1] = 1.0
    return _answered(inputs, bits)


def repeat_copy(count: int, size: int, draw: torch.Generator) -> Bits:
    """`size` vectors, how often to say them, and then that many copies and an end. Section 4.2.

    The number of copies is the same for the whole batch, and is heard as a number around zero.
    """
    bits = _random(count, size, COPY_WIDTH, draw)
    repeats = int(torch.randint(1, MOST_REPEATS + 1, (), generator=draw))
    copies = torch.zeros(count, size * repeats + 1, COPY_WIDTH + 1)
    copies[:, :-1, :-1] = bits.repeat(1, repeats, 1)
    copies[:, -1, -1] = 1.0  # the end
    inputs = torch.zeros(count, size + 1 + copies.shape[1], COPY_WIDTH + 2)
    inputs[:, :size, :COPY_WIDTH] = bits
    inputs[:, size, -2] = 1.0
    inputs[:, size, -1] = (repeats - (MOST_REPEATS + 1) / 2) / 2.9  # mean 0, deviation 1
    return _answered(inputs, copies)


def recall(count: int, size: int, draw: torch.Generator) -> Bits:
    """`size` items of three vectors of six bits, one of them again, and then the one after it.

    Every item has a sign before it; the one that is asked for has another sign on both sides.
    Section 4.3.
    """
    if size < 2:
        raise ValueError(f"the item after another is asked for, so there must be 2, got {size}")
    items = _random(count, size * ITEM, RECALL_WIDTH, draw).view(count, size, ITEM, RECALL_WIDTH)
    asked = torch.randint(size - 1, (count,), generator=draw)
    row = torch.arange(count)
    told = torch.zeros(count, size, ITEM + 1, RECALL_WIDTH + 2)
    told[:, :, 0, -2] = 1.0
    told[:, :, 1:, :-2] = items
    question = torch.zeros(count, ITEM + 2, RECALL_WIDTH + 2)
    question[:, 0, -1] = question[:, -1, -1] = 1.0
    question[:, 1:-1, :-2] = items[row, asked]
    silence = torch.zeros(count, ITEM, RECALL_WIDTH + 2)
    return _answered(torch.cat((told.flatten(1, 2), question, silence), 1), items[row, asked + 1])


BIT_TASKS = {
    "copy": BitTask("vectors of bits → the same", COPY_WIDTH + 1, COPY_WIDTH, copy, "vectors"),
    "repeat_copy": BitTask(
        "vectors of bits and a number → as many copies",
        COPY_WIDTH + 2,
        COPY_WIDTH + 1,
        repeat_copy,
        "vectors",
    ),
    "recall": BitTask(
        "items and one of them again → the next item",
        RECALL_WIDTH + 2,
        RECALL_WIDTH,
        recall,
        "items",
    ),
}


def draw_bits(name: str, count: int, size: int, *, seed: int) -> Bits:
    """Make a batch; the same arguments give the same bits.

    >>> bits = draw_bits("copy", 2, 5, seed=1)
    >>> bits.inputs.shape, int(bits.asked.sum())
    (torch.Size([2, 11, 9]), 5)
    >>> torch.equal(bits.targets[:, bits.asked], bits.inputs[:, :5, :8])
    True

    Args:
        name: "copy", "repeat_copy" or "recall"
        count: sequences
        size: vectors to be copied, or items
        seed: everything depends on it
    """
    if name not in BIT_TASKS:
        raise ValueError(f"unknown bits {name!r}{did_you_mean(name, BIT_TASKS)}")
    if count < 1 or size < 1:
        raise ValueError(f"count and size must be 1 or more, got {count} and {size}")
    return BIT_TASKS[name].draw(count, size, torch.Generator().manual_seed(seed))


def _random(count: int, length: int, width: int, draw: torch.Generator) -> Tensor:
    return torch.randint(2, (count, length, width), generator=draw).float()


def _answered(inputs: Tensor, answer: Tensor) -> Bits:
    """The answer is due at the end."""
    before = inputs.shape[1] - answer.shape[1]
    targets = F.pad(answer, (0, 0, before, 0))
    return Bits(inputs, targets, torch.arange(inputs.shape[1]) >= before)


# Marked digits -------------------------------------------------------------------------------
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
