"""Generated sequences: bits to be remembered (copy, repeat-copy, recall), and marked digits.

The tasks with bits are those of Graves et al. 2014, sections 4.1 to 4.3. All sequences of a batch
have one size, without padding: first the bits, then the query, then zeros while the answer is due.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.names import check_name
from regard.data.generated import SPLITS, check_split

COPY_WIDTH, RECALL_WIDTH = 8, 6
ITEM = 3  # vectors of an item that is recalled
MOST_REPEATS = 10


class Bits(NamedTuple):
    """Inputs, targets, and the steps at which the answer is due."""

    inputs: Tensor  # (B, T, channels)
    targets: Tensor  # (B, T, out), zeros and ones
    due: Tensor  # (T,), bool


class BitTask(NamedTuple):
    """A task with bits."""

    about: str
    channels: int
    out: int
    draw: Callable[..., Bits]  # (count, size, generator)
    size: str  # what the size counts


def copy(count: int, size: int, rng: torch.Generator) -> Bits:
    """`size` vectors of eight bits and a delimiter → the same vectors. Section 4.1."""
    bits = _random(count, size, COPY_WIDTH, rng)
    inputs = torch.zeros(count, 2 * size + 1, COPY_WIDTH + 1)
    inputs[:, :size, :-1] = bits
    inputs[:, size, -1] = 1.0
    return _answered(inputs, bits)


def repeat_copy(count: int, size: int, rng: torch.Generator, repeats: int | None = None) -> Bits:
    """`size` vectors and a number → as many copies and an end marker. Section 4.2.

    The number of copies, drawn from 1 to 10 if not given, is the same for the whole batch, and is
    normalised.
    """
    bits = _random(count, size, COPY_WIDTH, rng)
    if repeats is None:
        repeats = int(torch.randint(1, MOST_REPEATS + 1, (), generator=rng))
    copies = torch.zeros(count, size * repeats + 1, COPY_WIDTH + 1)
    copies[:, :-1, :-1] = bits.repeat(1, repeats, 1)
    copies[:, -1, -1] = 1.0  # the end
    inputs = torch.zeros(count, size + 1 + copies.shape[1], COPY_WIDTH + 2)
    inputs[:, :size, :COPY_WIDTH] = bits
    inputs[:, size, -2] = 1.0
    inputs[:, size, -1] = (repeats - (MOST_REPEATS + 1) / 2) / 2.9  # mean 0, deviation 1
    return _answered(inputs, copies)


def recall(count: int, size: int, rng: torch.Generator) -> Bits:
    """`size` items of three vectors of six bits and one of them again → the item after it.

    Every item follows a delimiter; the query is enclosed by another one. Section 4.3.
    """
    if size < 2:
        raise ValueError(f"recall needs at least 2 items, got {size}")
    items = _random(count, size * ITEM, RECALL_WIDTH, rng).view(count, size, ITEM, RECALL_WIDTH)
    query = torch.randint(size - 1, (count,), generator=rng)
    row = torch.arange(count)
    listed = torch.zeros(count, size, ITEM + 1, RECALL_WIDTH + 2)
    listed[:, :, 0, -2] = 1.0
    listed[:, :, 1:, :-2] = items
    question = torch.zeros(count, ITEM + 2, RECALL_WIDTH + 2)
    question[:, 0, -1] = question[:, -1, -1] = 1.0
    question[:, 1:-1, :-2] = items[row, query]
    silence = torch.zeros(count, ITEM, RECALL_WIDTH + 2)
    return _answered(torch.cat((listed.flatten(1, 2), question, silence), 1), items[row, query + 1])


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


def draw_bits(name: str, count: int, size: int, *, seed: int, repeats: int | None = None) -> Bits:
    """Generate a batch; the same arguments give the same bits.

    >>> bits = draw_bits("copy", 2, 5, seed=1)
    >>> bits.inputs.shape, int(bits.due.sum())
    (torch.Size([2, 11, 9]), 5)
    >>> torch.equal(bits.targets[:, bits.due], bits.inputs[:, :5, :8])
    True

    Args:
        name: "copy", "repeat_copy" or "recall"
        count: number of sequences
        size: number of vectors or items
        seed: of the bits
        repeats: the number of copies of "repeat_copy", from 1 to 10; drawn if not given
    """
    check_name("task", name, BIT_TASKS)
    if count < 1 or size < 1:
        raise ValueError(f"count and size must be 1 or more, got {count} and {size}")
    options = {"repeats": repeats} if name == "repeat_copy" else {}
    return BIT_TASKS[name].draw(count, size, torch.Generator().manual_seed(seed), **options)


def _random(count: int, length: int, width: int, rng: torch.Generator) -> Tensor:
    return torch.randint(2, (count, length, width), generator=rng).float()


def _answered(inputs: Tensor, answer: Tensor) -> Bits:
    """Inputs and targets, with the answer due at the end."""
    before = inputs.shape[1] - answer.shape[1]
    targets = F.pad(answer, (0, 0, before, 0))
    return Bits(inputs, targets, torch.arange(inputs.shape[1]) >= before)


# Marked digits -------------------------------------------------------------------------------
DIGITS, MARKS = 10, 5
"""Digits are 0 to 9; marks are 0 to 4, and the digit with mark 0 is the answer."""


class Marked(NamedTuple):
    """Rows of digits of different lengths; one digit in each row has mark 0."""

    digits: Tensor  # (B, N), 0 beyond the length
    marks: Tensor  # (B, N), the last mark beyond the length
    lengths: Tensor  # (B,)
    position: Tensor  # (B,), of the marked digit
    digit: Tensor  # (B,), the marked digit


def marked_digits(
    count: int, split: str = "train", *, shortest: int = 5, longest: int = 17, seed: int = 0
) -> Marked:
    """Generate rows of digits; the same arguments give the same rows.

    >>> row = marked_digits(1, seed=3)
    >>> int(row.marks[0, row.position[0]]), bool(row.digits[0, row.position[0]] == row.digit[0])
    (0, True)

    Args:
        count: number of rows
        split: "train", "valid" or "test", generated independently
        shortest, longest: number of digits in a row
        seed: of the digits
    """
    check_split(split)
    if count < 1 or not 1 <= shortest <= longest:
        raise ValueError(
            f"expected count ≥ 1 and 1 ≤ shortest ≤ longest, got {count}, {shortest} and {longest}"
        )
    rng = torch.Generator().manual_seed(seed * len(SPLITS) + SPLITS.index(split))
    lengths = torch.randint(shortest, longest + 1, (count,), generator=rng)
    place = torch.arange(longest)
    beyond = place >= lengths.unsqueeze(1)  # (B, N)
    digits = torch.randint(DIGITS, (count, longest), generator=rng).masked_fill(beyond, 0)
    marks = torch.randint(1, MARKS, (count, longest), generator=rng).masked_fill(beyond, MARKS - 1)
    position = (torch.rand(count, generator=rng) * lengths).long()
    marks.scatter_(1, position.unsqueeze(1), 0)
    return Marked(digits, marks, lengths, position, digits.gather(1, position[:, None]).squeeze(1))
