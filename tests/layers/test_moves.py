"""A new order of a batch: against plain indexing, written over or not."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers.cache import Past, SharedMemory
from regard.layers.moves import Moves

orders = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@given(orders, st.booleans())
def test_moving_is_indexing(order, spent):
    tensor = torch.arange(10.0).view(5, 2)
    expected = tensor[order]
    moves = Moves(torch.tensor(order), 5, spent=spent)
    assert torch.equal(moves.of(tensor), expected)
    assert moves.stays == (order == [0, 1, 2, 3, 4])
    assert all(order[place] != place for place in moves.places.tolist())


@given(orders)
def test_what_is_not_spent_stays_as_it_was(order):
    tensor = torch.arange(10.0).view(5, 2)
    Moves(torch.tensor(order), 5).of(tensor)
    assert torch.equal(tensor, torch.arange(10.0).view(5, 2))


def test_what_stays_in_its_place_is_not_copied():
    tensor = torch.arange(10.0).view(5, 2)
    moved = Moves(torch.tensor([0, 3, 2]), 5, spent=True).of(tensor)
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
    copied, spent = grown().reorder(index), grown().reorder(Moves(index, 6, spent=True))
    new = torch.full((len(order), 1, 1), 99.0)
    assert torch.equal(copied.append(new).tensors[0], spent.append(new).tensors[0])


def test_a_memory_is_shared_and_therefore_never_written_over():
    states = torch.arange(6.0).view(3, 1, 2)
    memory = SharedMemory((states,), None, beams=2)
    moved = memory.reorder(Moves(torch.tensor([4, 5, 2, 3]), 6, spent=True))
    assert moved.tensors[0][:, 0, 0].tolist() == [4.0, 2.0]
    assert states.tolist() == torch.arange(6.0).view(3, 1, 2).tolist()
