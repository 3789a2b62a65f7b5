"""Local attention against Luong's equations written out over the whole map."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.core import blocks
from regard.layers import LocalAttention, PredictedCenter, windows
from regard.paths import fused

B, DIM, KEY, VALUE = 3, 5, 7, 11
SIZES = [(7, 7, 2), (7, 13, 2), (13, 7, 3), (3, 2, 5), (67, 71, 3), (1, 29, 1), (29, 31, 0)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders of chunks and blocks every few rows, so that small inputs cross several."""
    monkeypatch.setattr(windows, "CHUNK", 5)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 2000)
    monkeypatch.setattr(fused, "TINY", 0)


def double(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key[..., :DIM].unsqueeze(-3)).square().sum(-1)


def monotonic(window: int, **options) -> LocalAttention:
    return LocalAttention(DIM, window, **options).double()


def predictive(window: int, **options) -> LocalAttention:
    center = PredictedCenter(DIM, 3)
    nn.init.normal_(center.outer.weight, std=3.0)  # centres all over the sentence
    return LocalAttention(DIM, window, center=center, **options).double()


class Opaque(nn.Module):
    """A score into which nobody can look: its windows go in chunks."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(query_dim, key_dim))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ self.weight @ key.transpose(-1, -2)


def in_chunks(window: int, key_dim: int = DIM, **options) -> LocalAttention:
    options = {"score": Opaque(DIM, key_dim), **options}
    return LocalAttention(DIM, window, key_dim=key_dim, **options).double()


KINDS = {"monotonic": monotonic, "in chunks": in_chunks, "predictive": predictive}


def longhand(
    layer: LocalAttention,
    query: Tensor,
    key: Tensor,
    visible: Tensor,
    ends: Tensor,
    offset: int = 0,
) -> Tensor:
    """The map of eq. 7 to 10, (B, M, N), one cell at a time in spirit: everything is M × N.

    Args:
        ends: S, how far each query may see, (B, M)
    """
    M, N, D = query.shape[1], key.shape[1], layer.window
    place = torch.arange(N)
    if layer.center is None:
        p = (torch.arange(M) + offset).double().view(1, M, 1)
    else:
        hidden = torch.tanh(query @ layer.center.inner.weight.T)
        p = ends.unsqueeze(-1) * torch.sigmoid(hidden @ layer.center.outer.weight.T)
    scores = layer.score(query, key)
    seen = visible & (place >= p - D) & (place <= p + D)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    weights = weights.masked_fill(~seen, 0.0)  # a row that sees nothing is zero, not NaN
    if layer.center is not None:
        weights = weights * torch.exp(-((place - p) ** 2) / (2 * (D / 2) ** 2))
    return weights


@pytest.mark.parametrize(("M", "N", "D"), SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_output_and_the_map_are_those_of_the_equations(kind, M, N, D):
    layer = KINDS[kind](max(D, 1) if kind == "predictive" else D, key_dim=KEY)
    query, key = double(B, M, DIM), double(B, N, KEY, seed=1)
    value = double(B, N, VALUE, seed=2)
    lengths = torch.tensor([N, N // 2, 0])
    visible = (torch.arange(N) < lengths[:, None])[:, None].expand(B, M, N)
    weights = longhand(layer, query, key, visible, lengths[:, None].expand(B, M))
    output, map = layer(query, key, value, mask=regard.lengths(lengths), return_map=True)
    torch.testing.assert_close(output, weights @ value)
    torch.testing.assert_close(map.dense(), weights)
    torch.testing.assert_close(map[..., -1, :], weights[..., -1, :])


@pytest.mark.parametrize("kind", KINDS)
def test_any_mask_narrows_the_window(kind):
    M, N = 23, 29
    layer = KINDS[kind](4, key_dim=KEY)
    query, key = double(B, M, DIM), double(B, N, KEY, seed=1)
    dense = torch.rand(B, M, N, generator=torch.Generator().manual_seed(0)) > 0.5
    masks = {
        "none": None,
        "dense": dense,
        "for all sequences": dense[0],
        "causal": regard.causal(offset=0),
        "causal and padded": regard.causal(offset=0) & regard.lengths([N, 11, 3]),
        "not a window": ~regard.window(1, 1, offset=0),
        "both lengths": regard.lengths([N, 11, 3], [M, 20, 0]),
    }
    for name, mask in masks.items():
        every = torch.ones(B, M, N, dtype=torch.bool)
        if isinstance(mask, regard.Mask):
            every = every & mask.dense(M, N, leading=1)
        elif mask is not None:
            every = every & mask
        reach = torch.arange(1, N + 1) * every
        ends = reach.amax(-1)  # one behind the last key that a query sees
        weights = longhand(layer, query, key, every, ends)
        output, map = layer(query, key, mask=mask, return_map=True)
        torch.testing.assert_close(output, weights @ key, msg=name)
        torch.testing.assert_close(map.dense(), weights, msg=name)


@pytest.mark.parametrize("offset", [-3, 2, 11, 60])
@pytest.mark.parametrize("make", [monotonic, in_chunks])
def test_an_offset_moves_the_monotonic_window(make, offset):
    layer = make(2)
    query, key = double(B, 7, DIM), double(B, 13, DIM, seed=1)
    every = torch.ones(B, 7, 13, dtype=torch.bool)
    weights = longhand(layer, query, key, every, torch.zeros(B, 7), offset)
    torch.testing.assert_close(layer(query, key, offset=offset), weights @ key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "score",
    [None, "callable", "additive", "location"],
)
def test_gradients_are_those_of_the_equations(kind, score):
    M, N = 17, 19
    makers = {
        "callable": lambda: negative_distance,
        "additive": lambda: regard.Additive(DIM, KEY, 3),
        "location": lambda: regard.Location(DIM, N),  # it scores positions, not keys
    }
    layer = KINDS[kind](3, key_dim=KEY, score=makers[score]() if score else None)
    query = double(B, M, DIM).requires_grad_()
    key = double(B, N, KEY, seed=1).requires_grad_()
    value = double(B, N, VALUE, seed=2).requires_grad_()
    lengths = torch.tensor([N, 11, 0])
    visible = (torch.arange(N) < lengths[:, None])[:, None].expand(B, M, N)
    weights = longhand(layer, query, key, visible, lengths[:, None].expand(B, M))
    inputs = [query, value, *layer.parameters()] + ([] if score == "location" else [key])
    wanted = torch.autograd.grad((weights @ value).square().sum(), inputs)
    output = layer(query, key, value, mask=regard.lengths(lengths))
    found = torch.autograd.grad(output.square().sum(), inputs)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_through_the_map(kind):
    layer = KINDS[kind](2)
    map = layer(double(B, 7, DIM), return_map=True).map
    gradients = torch.autograd.grad(map[..., 3:5, :].square().sum(), list(layer.parameters()))
    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_the_map_keeps_the_parameters_that_made_the_output():
    layer = monotonic(2)
    x = double(B, 7, DIM)
    output, map = layer(x, return_map=True)
    with torch.no_grad():
        layer.score.weight.zero_()
    torch.testing.assert_close(map.dense() @ x, output)


# ------------------------------------------------------------------ decoding


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("score", [None, regard.Location(DIM, 23)], ids=["general", "location"])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_the_causal_pass(kind, score, grad):
    layer = KINDS[kind](3, score=score)
    x = double(B, 23, DIM)
    with torch.set_grad_enabled(grad):
        full = layer(x, mask=regard.causal())
        state, outputs = layer.start(B), []
        for t in range(x.shape[1]):
            y, state = layer.step(x[:, t : t + 1], state)
            outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), full)


def test_a_monotonic_past_does_not_grow_beyond_the_window():
    layer = monotonic(2)
    state = layer.start(B)
    with torch.no_grad():
        for t in range(100):
            _, state = layer.step(double(B, 1, DIM, seed=t), state)
    assert state.buffers[0].shape[1] <= 16
    assert state.tensors[0].shape[1] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_steps_over_a_memory_equal_the_full_pass_under_beam_reordering(kind):
    layer = KINDS[kind](2, key_dim=KEY)
    sentences, beams, N = 2, 3, 11
    memory, lengths = double(sentences, N, KEY, seed=1), torch.tensor([N, 6])
    state = layer.start(sentences * beams, memory, regard.lengths(lengths))
    wide = memory.repeat_interleave(beams, 0)
    mask = regard.lengths(lengths.repeat_interleave(beams))
    generator = torch.Generator().manual_seed(0)
    history = double(sentences * beams, 0, DIM)
    for t in range(N + 3):
        x = double(sentences * beams, 1, DIM, seed=10 + t)
        history = torch.cat([history, x], 1)
        full, map = layer(history, wide, mask=mask, return_map=True)
        (y, row), state = layer.step(x, state, return_map=True)
        torch.testing.assert_close(y, full[:, -1:])
        torch.testing.assert_close(row.dense(), map[..., -1:, :])
        own = torch.randint(beams, (sentences, beams), generator=generator)
        index = (own + beams * torch.arange(sentences)[:, None]).flatten()
        state, history = state.reorder(index), history[index]
    assert state.tensors[0].data_ptr() == memory.data_ptr() or state.visible is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_may_be_stepped_twice(kind):
    layer = KINDS[kind](2)
    x = double(B, 4, DIM)
    with torch.no_grad():
        _, shared = layer.step(x[:, :1], layer.start(B))
        once, _ = layer.step(x[:, 1:2], shared)
        layer.step(x[:, 2:3], shared)
        again, _ = layer.step(x[:, 1:2], shared)
    assert torch.equal(once, again)


# ------------------------------------------------------------------ a good citizen


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_a_batch_do_not_influence_each_other(kind):
    layer = KINDS[kind](2, dropout=0.5).float()
    x = torch.randn(B, 33, DIM)
    changed = x.clone()
    changed[1] = torch.randn(33, DIM) * 100
    for mask in (None, regard.lengths([33, 20, 5])):
        outputs = []
        for inputs in (x, changed):
            torch.manual_seed(1)
            outputs.append(layer(inputs, mask=mask))
        assert torch.equal(outputs[0][[0, 2]], outputs[1][[0, 2]])


@pytest.mark.parametrize("kind", KINDS)
def test_nan_in_padding_reaches_no_output_and_no_gradient(kind):
    layer = KINDS[kind](2, key_dim=KEY)
    query, key = double(B, 11, DIM), double(B, 13, KEY, seed=1)
    key[0, 5:] = math.nan
    key[2] = math.inf
    mask = regard.lengths([5, 13, 0])
    output = layer(query, key, mask=mask)
    output.sum().backward()
    torch.testing.assert_close(output, layer(query, key.nan_to_num(7.0, 7.0), mask=mask))
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("make", [monotonic, in_chunks])
def test_keys_outside_of_every_window_may_hold_anything(make):
    layer = make(2)
    query, key = double(B, 3, DIM), double(B, 50, DIM, seed=1).requires_grad_()
    with torch.no_grad():
        key[:, 5:] = math.nan
    layer(query, key).sum().backward()
    assert key.grad.isfinite().all()
    assert layer.score.weight.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_comes_out_as_it_went_in(kind, dtype):
    torch.manual_seed(0)
    layer = KINDS[kind](3)
    x = double(B, 300, DIM)  # bfloat16 cannot count that far
    low = copy.deepcopy(layer).to(dtype)
    output = low(x.to(dtype))
    exact = low.double()(x.to(dtype).double())
    assert output.dtype == dtype
    error = (output.double() - exact).abs()
    assert error.mean() < 8 * torch.finfo(dtype).eps  # a rounded score may move a centre


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_on_the_layer_and_copies_agree(kind):
    layer = KINDS[kind](2)
    before = {name: set(vars(module)) for name, module in layer.named_modules()}
    x = double(B, 13, DIM)
    output, map = layer(x, return_map=True)
    map.dense()
    layer.step(x[:, :1], layer.start(B))
    assert {name: set(vars(module)) for name, module in layer.named_modules()} == before
    assert torch.equal(copy.deepcopy(layer)(x), output)
    other = KINDS[kind](2)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), output)


@pytest.mark.parametrize("kind", KINDS)
def test_it_compiles_without_a_break_and_exports(kind, monkeypatch):
    monkeypatch.undo()
    layer = KINDS[kind](2).eval()
    x = double(B, 80, DIM)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_falls_on_the_weights_in_train_mode_only(kind, monkeypatch):
    monkeypatch.undo()
    torch.manual_seed(0)
    layer = KINDS[kind](20, dropout=0.5)
    x, ones = double(1, 64, DIM), torch.ones(1, 64, 1, dtype=torch.float64)
    sums = layer.eval()(x, x, ones)
    torch.testing.assert_close(layer(x, x, ones), sums)
    dropped = layer.train()(x, x, ones)
    assert not torch.allclose(dropped, sums)
    mean = torch.stack([layer(x, x, ones) for _ in range(10)]).mean()
    torch.testing.assert_close(mean, sums.mean(), atol=0.05, rtol=0.0)


def test_chunks_with_dropout_and_padding_stay_off_the_reference_path():
    q, k = torch.randn(4, 8, 64, 16), torch.randn(4, 8, 64 + 2 * 16, 16)
    visible = torch.rand(4, 8, 64, 96) > 0.5
    score = regard.General(16, 16)
    for dropout in (0.0, 0.1):
        plan = regard.explain(q, k, k, score=score, mask=visible, dropout=dropout)
        assert plan.path != "reference"
    one, near = torch.randn(4, 512, 1, 16), torch.randn(4, 512, 33, 16)
    visible = torch.rand(4, 512, 1, 33) > 0.5
    for dropout in (0.0, 0.1):
        plan = regard.explain(one, near, near, score=score, mask=visible, dropout=dropout)
        assert plan.path != "reference"


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_that_of_the_window(kind, monkeypatch):
    """Ten times the length costs ten times the multiplications, not a hundred times."""
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.undo()

    def product(query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-1, -2)

    def flops(length: int) -> int:
        layer = KINDS[kind](4, score=product, dropout=0.1)
        x = double(1, length, DIM).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            layer(x).sum().backward()
        return counter.get_total_flops()

    assert 0 < flops(2000) < 11 * flops(200)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LocalAttention(5, -1), "must be 0 or more, got -1"),
        (
            lambda: LocalAttention(5, 0, center=PredictedCenter(5)),
            "1 or more for a predicted centre, got 0",
        ),
        (lambda: LocalAttention(0, 1), "dim and key_dim must be 1 or more"),
        (lambda: LocalAttention(5, 1, dropout=-0.1), "dropout is a probability"),
        (lambda: LocalAttention(5, 1, score="generall"), "did you mean 'general'"),
    ],
)
def test_a_bad_configuration_is_told_what_to_change(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_bad_inputs_are_told_what_to_change():
    layer = LocalAttention(DIM, 2)
    x = torch.randn(B, 7, DIM)
    with pytest.raises(ValueError, match=r"query should be \(batch, length, 5\), got \(7, 5\)"):
        layer(x[0])
    with pytest.raises(ValueError, match="local attention has no heads"):
        layer(x, mask=torch.ones(B, B, 7, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"x should be \(3, 1, 5\)"):
        layer.step(x, layer.start(B))
