"""Decoding states are values: stepping, branching and reordering never change another state."""

import torch

from regard.layers.cache import Past, SharedMemory, start


def grown(past: Past, *numbers: int) -> Past:
    for number in numbers:
        past = past.append(torch.full((past.batch, 1, 2), float(number)))
    return past


def remembered(past: Past) -> list[int]:
    return past.tensors[0][0, :, 0].int().tolist()


def test_a_past_remembers_everything_in_order():
    past = grown(Past(3), *range(50))
    assert remembered(past) == list(range(50))
    assert past.length == 50
    assert past.tensors[0].shape == (3, 50, 2)


def test_appending_moves_the_past_a_logarithmic_number_of_times():
    past, places = Past(1), set()
    for number in range(1000):
        past = grown(past, number)
        places.add(past.buffers[0].data_ptr())
    assert len(places) <= 8


def test_two_continuations_of_one_past_do_not_disturb_each_other():
    shared = grown(Past(1), 0, 1, 2)
    left = grown(shared, 3, 4)
    right = grown(shared, 5, 6)
    again = grown(left, 7)
    assert remembered(shared) == [0, 1, 2]
    assert remembered(left) == [0, 1, 2, 3, 4]
    assert remembered(right) == [0, 1, 2, 5, 6]
    assert remembered(again) == [0, 1, 2, 3, 4, 7]


def test_a_past_with_a_limit_keeps_the_latest_and_stays_small():
    past = Past(1, keep=3)
    for number in range(500):
        past = grown(past, number)
        assert remembered(past) == list(range(max(0, number - 2), number + 1))
    assert past.length == 500
    assert past.buffers[0].shape[1] <= 16


def test_a_past_that_needs_a_gradient_is_not_written_in_place():
    x = torch.randn(1, 4, 2, requires_grad=True)
    past = Past(1)
    for t in range(4):
        past = past.append(x[:, t : t + 1] * 2)
        past.tensors[0].square().sum().backward(retain_graph=True)
    expected = (
        8 * x.detach() * torch.arange(4, 0, -1).view(1, -1, 1)
    )  # position t was used 4 − t times
    torch.testing.assert_close(x.grad, expected)


def test_a_past_made_in_inference_mode_can_go_on_outside_of_it():
    with torch.inference_mode():
        past = grown(Past(1), 0, 1)
    assert remembered(grown(past, 2)) == [0, 1, 2]


def test_reordering_a_past_picks_rows_and_leaves_the_old_one_alone():
    rows = torch.arange(3.0).view(3, 1, 1).expand(3, 1, 2)
    past = Past(3).append(rows).append(rows)
    picked = past.reorder(torch.tensor([2, 2, 0, 1]))
    assert picked.batch == 4
    assert picked.tensors[0][..., 0].tolist() == [[2, 2], [2, 2], [0, 0], [1, 1]]
    picked = picked.append(torch.zeros(4, 1, 2))
    assert past.tensors[0][..., 0].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert past.append(rows).tensors[0][..., 0].tolist() == [[0] * 3, [1] * 3, [2] * 3]


def test_reordering_where_everything_stays_copies_nothing():
    past = grown(Past(3), 1)
    assert past.reorder(torch.arange(3)) is past


def memory_of(sentences: int, beams: int) -> SharedMemory:
    tensor = torch.arange(float(sentences)).view(-1, 1, 1).expand(-1, 5, 2).clone()
    visible = (torch.arange(5) <= torch.arange(sentences).view(-1, 1)).view(sentences, 1, 1, 5)
    return SharedMemory((tensor,), visible, beams)


def owners(memory: SharedMemory) -> list[int]:
    """Which sentence each entry of the batch attends to, by the values and by the mask."""
    by_value = memory.tensors[0][:, 0, 0].repeat_interleave(memory.beams)
    by_mask = memory.visible[:, 0, 0].sum(-1).repeat_interleave(memory.beams) - 1
    assert by_value.tolist() == by_mask.tolist()
    return by_value.int().tolist()


def test_beams_that_trade_places_within_a_sentence_copy_nothing():
    memory = memory_of(sentences=2, beams=3)
    assert owners(memory) == [0, 0, 0, 1, 1, 1]
    moved = memory.reorder(torch.tensor([2, 2, 0, 3, 5, 5]))
    assert moved.tensors[0] is memory.tensors[0]
    assert owners(moved) == [0, 0, 0, 1, 1, 1]


def test_widening_a_memory_to_beams_copies_nothing():
    memory = memory_of(sentences=3, beams=1)
    wide = memory.reorder(torch.arange(3).repeat_interleave(5))
    assert wide.tensors[0] is memory.tensors[0]
    assert (wide.beams, wide.batch) == (5, 15)


def test_a_memory_follows_any_index():
    memory = memory_of(sentences=3, beams=2)
    entries = torch.tensor([0, 0, 1, 1, 2, 2])
    for index in ([4, 5, 0, 1], [0, 2, 4], [0, 1, 2], [5, 5, 5, 0], [3], [2, 3, 0, 1, 2, 3], []):
        picked = memory.reorder(torch.tensor(index, dtype=torch.long))
        assert picked.batch == len(index)
        assert owners(picked) == entries[index].tolist()


def test_beams_become_queries_of_their_sentence_and_come_back():
    memory = memory_of(sentences=2, beams=3)
    query = torch.randn(6, 4, 1, 7)  # (batch, heads, steps, width)
    grouped = memory.grouped(query)
    assert grouped.shape == (2, 4, 3, 7)
    torch.testing.assert_close(grouped[1, :, 2], query[5, :, 0])
    torch.testing.assert_close(memory.ungrouped(grouped), query)


def test_a_memory_without_padding_needs_no_mask():
    memory = torch.randn(2, 5, 3)
    state = start(2, memory, torch.ones(2, 5, dtype=torch.bool), lambda m: (m,))
    assert state.visible is None
