"""Recurrent layers over whole sentences, against torch's own and against steps written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.layers.recurrence import can_unroll, recur, recur_attending
from regard.system import process

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
B, T, D, H, N, E, A = 5, 7, 3, 11, 13, 2, 17


@pytest.fixture(autouse=True)
def _numba():
    pytest.importorskip("numba")


@pytest.fixture
def forked(monkeypatch):
    """Where the loops may not run, as in a forked child."""
    monkeypatch.setattr(process, "_forked", True)


def by_torch(layer, x: Tensor, first, counts: Tensor | None):
    """The same where the loops may not run."""
    process._forked = True
    try:
        return recur(layer, x, first, counts)
    finally:
        process._forked = False


def real(states: Tensor, counts: Tensor | None) -> Tensor:
    """States with zeros where nothing is real."""
    if counts is None:
        return states
    return torch.where((torch.arange(states.shape[1]) < counts[:, None])[..., None], states, 0.0)


def gradients(outputs: list[Tensor], leaves: list[Tensor], **options) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    upstream = [
        torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype) for o in outputs
    ]
    return list(torch.autograd.grad(outputs, leaves, upstream, **options))


def assert_close(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * b.abs().max().clamp(min=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    cell=st.sampled_from(["gru", "lstm"]),
    batch=st.integers(1, 9),
    steps=st.integers(1, 6),
    hidden=st.sampled_from([1, 5, 16, 37]),
    both=st.booleans(),
    started=st.booleans(),
    uneven=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_gives_what_torch_gives(cell, batch, steps, hidden, both, started, uneven, seed):
    torch.manual_seed(seed)
    layer = CELLS[cell](D, hidden, batch_first=True, bidirectional=both).double()
    x = torch.randn(batch, steps, D, dtype=torch.float64, requires_grad=True)
    first = []
    if started and not both:
        parts = 2 if cell == "lstm" else 1
        first = list(torch.randn(parts, batch, hidden, dtype=torch.float64).requires_grad_())
    counts = torch.randint(1, steps + 1, (batch,)) if uneven else None
    answers = []
    for way in (recur, by_torch):
        states, ends = way(layer, x, first, counts)
        outputs = [real(states, counts), *ends]
        answers.append(outputs + gradients(outputs, [x, *first, *layer.parameters()]))
    assert_close(*answers, 1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_single_precision_is_as_exact_as_torch(cell):
    torch.manual_seed(0)
    exact = CELLS[cell](19, 128, batch_first=True, bidirectional=True).double()
    layer = CELLS[cell](19, 128, batch_first=True, bidirectional=True)
    layer.load_state_dict(exact.state_dict())
    x = torch.randn(11, 23, 19, dtype=torch.float64)
    answers = []
    for own, given_ in ((layer, x.float()), (exact, x)):
        states, ends = recur(own, given_.requires_grad_())
        answers.append([states, *gradients([states, *ends], [given_, *own.parameters()])])
    assert_close(*answers, 3e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_an_empty_sentence_ends_with_zeros(cell):
    layer = CELLS[cell](D, H, batch_first=True, bidirectional=True).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    _, ends = recur(layer, x, counts=torch.tensor([7, 0, 1, 4, 2]))
    assert all(not end[1].any() and end[0].all() for end in ends)


@pytest.mark.parametrize("cell", CELLS)
def test_gates_that_are_fully_open_or_shut_leave_no_nan(cell):
    layer = CELLS[cell](D, H, batch_first=True)
    x = 1e4 * torch.randn(B, T, D)
    states, ends = recur(layer, x.requires_grad_())
    assert states.isfinite().all()
    assert all(g.isfinite().all() for g in gradients([states, *ends], [x, *layer.parameters()]))


# ------------------------------------------------------------------ with attention


def setting(cell: str, *, hidden: int = H, dtype=torch.float64, scale: float = 1.0):
    torch.manual_seed(1)
    layer = CELLS[cell](D + E, hidden, batch_first=True).to(dtype)
    score = regard.Additive(hidden, E, A).to(dtype)
    with torch.no_grad():
        score.key_weight *= scale
    x, memory = (torch.randn(B, n, d, dtype=dtype) for n, d in ((T, D), (N, E)))
    first = [torch.randn(B, hidden, dtype=dtype) for _ in range(2 if cell == "lstm" else 1)]
    leaves = [tensor.requires_grad_() for tensor in (x, memory, *first)]
    return layer, score, leaves


def steps(layer, x, first, score, memory, lengths):
    """Bahdanau's loop, written out."""
    own, states, maps = list(first), [], []
    seen = torch.arange(memory.shape[1]) < lengths[:, None]
    key = memory @ score.key_weight.T
    for now in x.unbind(1):
        scores = torch.tanh((own[0] @ score.query_weight.T)[:, None] + key) @ score.vector
        weights = scores.masked_fill(~seen & seen.any(1, keepdim=True), -torch.inf).softmax(-1)
        weights = weights * seen
        joined = torch.cat((now, (weights[..., None] * memory).sum(1)), -1)
        if len(own) == 1:
            own = [torch.gru_cell(joined, own[0], *layer.all_weights[0])]
        else:
            own = list(torch.lstm_cell(joined, own, *layer.all_weights[0]))
        states.append(own[0])
        maps.append(weights)
    return torch.stack(states, 1), torch.stack(maps, 1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [[13] * B, [13, 1, 4, 13, 9], [2, 0, 4, 8, 3]])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e3])
def test_asking_gives_what_the_steps_give(cell, lengths, scale):
    layer, score, leaves = setting(cell, scale=scale)
    x, memory, *first = leaves
    lengths = torch.tensor(lengths)
    answers = []
    for way in (recur_attending, steps):
        outputs = list(way(layer, x, first, score, memory, lengths))
        wanted = [*leaves, *layer.parameters(), *score.parameters()]
        answers.append(outputs + gradients(outputs, wanted))
    assert_close(*answers, 1e-11 * max(1.0, scale))


@pytest.mark.parametrize("cell", CELLS)
def test_asking_in_single_precision(cell):
    answers = []
    for way, dtype in ((recur_attending, torch.float32), (steps, torch.float64)):
        layer, score, leaves = setting(cell, hidden=48)
        layer, score = layer.to(dtype), score.to(dtype)
        x, memory, *first = leaves = [t.detach().to(dtype).requires_grad_() for t in leaves]
        outputs = list(way(layer, x, first, score, memory, torch.tensor([13, 1, 4, 13, 9])))
        wanted = [*leaves, *layer.parameters(), *score.parameters()]
        answers.append(outputs + gradients(outputs, wanted))
    assert_close(*answers, 1e-5)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("asking", [True, False])
def test_second_derivatives(cell, asking):
    layer, score, leaves = setting(cell)
    lengths = torch.tensor([13, 1, 4, 0, 9])
    answers = []
    for mine in (True, False):
        x, memory, *first = leaves
        if asking:
            way = recur_attending if mine else steps
            outputs = list(way(layer, x, first, score, memory, lengths))
        else:
            x = torch.cat((x, x[..., :E]), -1)
            states, ends = (recur if mine else by_torch)(layer, x, first, lengths.clamp(1, T))
            outputs = [real(states, lengths.clamp(1, T)), *ends]
        own = [*leaves, *layer.parameters(), *(score.parameters() if asking else ())]
        own = [tensor for tensor in own if asking or tensor is not memory]
        slopes = gradients(outputs, own, create_graph=True)
        answers.append(slopes + gradients(slopes, own))
    assert_close(*answers, 1e-9)


def test_the_graph_can_be_walked_twice_with_the_same_bits():
    layer, score, leaves = setting("gru", dtype=torch.float32)
    x, memory, *first = leaves
    wanted = [*leaves, *layer.parameters(), *score.parameters()]
    outputs = list(recur_attending(layer, x, first, score, memory))
    once = gradients(outputs, wanted, retain_graph=True)
    again = gradients(outputs, wanted)
    anew = list(recur_attending(layer, x, first, score, memory))
    for a, b, c in zip(once, again, gradients(anew, wanted), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert all(map(torch.equal, outputs, anew))


# ------------------------------------------------------------------ where the loops cannot run


def test_what_the_loops_cannot_take():
    layer, x = nn.GRU(D, H, batch_first=True), torch.zeros(B, T, D)
    assert can_unroll(layer, x)
    assert not can_unroll(layer, x.double())
    assert not can_unroll(layer, x[:0])
    assert not can_unroll(layer.bfloat16(), x.bfloat16())
    with torch.autocast("cpu"):
        assert not can_unroll(layer.float(), x)


def test_in_a_forked_child_it_is_torch(forked):
    layer, x = nn.GRU(D, H, batch_first=True), torch.randn(B, T, D)
    assert not can_unroll(layer, x)
    states, (last,) = recur(layer, x, counts=torch.tensor([7, 1, 2, 3, 4]))
    assert torch.allclose(states[0], layer(x)[0][0], atol=1e-6)
    assert torch.equal(last[1], states[1, 0])


def test_under_torch_compile_it_is_torch():
    layer, x = nn.GRU(D, H, batch_first=True), torch.randn(B, T, D)
    found = torch.compile(lambda x: recur(layer, x)[0], backend="aot_eager")(x)
    assert torch.allclose(found, layer(x)[0], atol=1e-6)
