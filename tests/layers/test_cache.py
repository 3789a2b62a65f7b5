"""Decoding states are values: stepping, branching and reordering never change another state."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers import DifferentialAttention, LatentAttention, MultiHeadAttention
from regard.layers.cache import Past, SharedMemory, start
from regard.layers.reorder import BatchReorder


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


# ------------------------------------------------------------------ reordering

orders = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@given(orders, st.booleans())
def test_reordering_is_indexing(order, in_place):
    tensor = torch.arange(10.0).view(5, 2)
    expected = tensor[order]
    reorder = BatchReorder(torch.tensor(order), 5, in_place=in_place)
    assert torch.equal(reorder.apply(tensor), expected)
    assert reorder.is_identity == (order == [0, 1, 2, 3, 4])
    assert all(order[place] != place for place in reorder.changed.tolist())


@given(orders)
def test_what_is_not_spent_stays_as_it_was(order):
    tensor = torch.arange(10.0).view(5, 2)
    BatchReorder(torch.tensor(order), 5).apply(tensor)
    assert torch.equal(tensor, torch.arange(10.0).view(5, 2))


def test_what_stays_in_its_place_is_not_copied():
    tensor = torch.arange(10.0).view(5, 2)
    moved = BatchReorder(torch.tensor([0, 3, 2]), 5, in_place=True).apply(tensor)
    assert moved.data_ptr() == tensor.data_ptr()
    assert moved.tolist() == [[0.0, 1.0], [6.0, 7.0], [4.0, 5.0]]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_a_spent_past_goes_on_like_a_copied_one(order):
    def grown() -> Past:
        past = Past(6)
        for number in range(3):
            past = past.append(torch.arange(6.0).view(6, 1, 1) + 10 * number)
        return past

    index = torch.tensor(order)
    copied, in_place = (
        grown().reorder(index),
        grown().reorder(BatchReorder(index, 6, in_place=True)),
    )
    new = torch.full((len(order), 1, 1), 99.0)
    assert torch.equal(copied.append(new).tensors[0], in_place.append(new).tensors[0])


def test_a_memory_is_shared_and_therefore_never_written_over():
    states = torch.arange(6.0).view(3, 1, 2)
    memory = SharedMemory((states,), None, beams=2)
    moved = memory.reorder(BatchReorder(torch.tensor([4, 5, 2, 3]), 6, in_place=True))
    assert moved.tensors[0][:, 0, 0].tolist() == [4.0, 2.0]
    assert states.tolist() == torch.arange(6.0).view(3, 1, 2).tolist()


@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(12, 2),
        DifferentialAttention(12, 2),
        LatentAttention(12, 2, latent=5, rotary=2),
    ],
    ids=lambda layer: type(layer).__name__,
)
@pytest.mark.parametrize("grad", [False, True])
def test_a_step_of_another_batch_than_the_state_is_an_error(layer, grad):
    with torch.set_grad_enabled(grad):
        first, second = layer.start(2), layer.step(torch.randn(2, 1, 12), layer.start(2))[1]
        for state in (first, second):
            with pytest.raises(ValueError, match=r"\(2, .*got \(1, "):
                layer.step(torch.randn(1, 1, 12), state)
