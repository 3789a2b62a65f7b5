import pytest
import torch

from regard.data.sequences import BIT_TASKS, MARKS, draw_bits, marked_digits


@pytest.mark.parametrize("name", BIT_TASKS)
def test_channels_are_as_said_and_nothing_is_shown_while_answering(name: str) -> None:
    bits = draw_bits(name, 3, 5, seed=1)
    task = BIT_TASKS[name]
    assert bits.inputs.shape == (3, len(bits.due), task.channels)
    assert bits.targets.shape == (3, len(bits.due), task.out)
    assert (bits.inputs[:, bits.due] == 0).all()
    assert (bits.targets[:, ~bits.due] == 0).all()
    assert set(bits.targets.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(bits.inputs, draw_bits(name, 3, 5, seed=1).inputs)
    assert not torch.equal(bits.inputs[:, :4], draw_bits(name, 3, 5, seed=2).inputs[:, :4])


def test_a_copy_is_what_was_shown_before_the_sign() -> None:
    bits = draw_bits("copy", 2, 7, seed=3)
    assert bits.inputs[:, :, -1].nonzero()[:, 1].tolist() == [7, 7]
    assert torch.equal(bits.targets[:, 8:], bits.inputs[:, :7, :8])


def test_copies_are_repeated_and_end() -> None:
    seen = set()
    for seed in range(40):
        bits = draw_bits("repeat_copy", 2, 3, seed=seed)
        answer = bits.targets[:, bits.due]
        repeats, rest = divmod(answer.shape[1] - 1, 3)
        seen.add(repeats)
        assert rest == 0
        assert torch.equal(answer[:, :-1, :8], bits.inputs[:, :3, :8].repeat(1, repeats, 1))
        assert answer[:, :, -1].nonzero()[:, 1].tolist() == [3 * repeats] * 2
        shown = float(bits.inputs[0, 3, -1])
        assert shown == pytest.approx((repeats - 5.5) / 2.9)
    assert seen == set(range(1, 11))


def test_the_item_after_the_one_asked_for_is_recalled() -> None:
    bits = draw_bits("recall", 11, 5, seed=2)
    for row, answer in zip(bits.inputs, bits.targets[:, bits.due], strict=True):
        items = [row[4 * i + 1 : 4 * i + 4, :6] for i in range(5)]
        assert row[:, -2].nonzero().flatten().tolist() == [0, 4, 8, 12, 16]
        assert row[:, -1].nonzero().flatten().tolist() == [20, 24]
        question = row[21:24, :6]
        place = next(i for i, item in enumerate(items) if torch.equal(item, question))
        assert torch.equal(items[place + 1], answer)


def test_bad_requests_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="unknown task 'copi'; did you mean 'copy'"):
        draw_bits("copi", 2, 3, seed=1)
    with pytest.raises(ValueError, match="count and size must be 1 or more, got 2 and 0"):
        draw_bits("copy", 2, 0, seed=1)
    with pytest.raises(ValueError, match="at least 2 items, got 1"):
        draw_bits("recall", 2, 1, seed=1)


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
    with pytest.raises(ValueError, match="shortest ≤ longest, got 3, 5 and 2"):
        marked_digits(3, shortest=5, longest=2)
    with pytest.raises(ValueError, match="unknown split 'tain'; did you mean 'train'"):
        marked_digits(3, "tain")
