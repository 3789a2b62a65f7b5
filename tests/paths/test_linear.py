"""Efficient attention against its definition, written out in float64."""

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from regard.paths import linear_op, linear_piece, linear_state, linear_sweep
from regard.paths.linear import linear, linear_context, linear_rows

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4 positions and pieces of 3 blocks at 6 heads: small inputs cross borders."""
    monkeypatch.setattr(linear_piece, "BLOCK", 4)
    monkeypatch.setattr(linear_sweep, "STEEP", 3)
    monkeypatch.setattr(linear_sweep, "ROWS", 72)
    monkeypatch.setattr(linear_op, "ROWS", 72)


def textbook_map(query: Tensor, key: Tensor, visible: Tensor) -> Tensor:
    """w_ij = Σ_f e^{q_if} / Σ_g e^{q_ig} · e^{k_jf} / Σ_{l visible to i} e^{k_lf}, (..., M, N)."""
    query, key = query.double(), key.double()
    rho_q = query.exp() / query.exp().sum(-1, keepdim=True)
    if not key.shape[-2]:
        return (rho_q @ key.mT) * 1.0
    each = key.unsqueeze(-3).masked_fill(~visible.unsqueeze(-1), -math.inf)  # (..., M, N, F)
    largest = each.detach().amax(-2, keepdim=True)
    power = (each - largest.masked_fill(largest == -math.inf, 0)).exp()
    total = power.sum(-2, keepdim=True)
    rho_k = power / total.masked_fill(total == 0, 1)
    return (rho_q.unsqueeze(-2) * rho_k).sum(-1)


def who_sees_whom(
    queries: int, keys: int, seen: Tensor | None, causal: bool, offset: int | None
) -> Tensor:
    visible = torch.ones(queries, keys, dtype=torch.bool)
    for i in range(queries):
        for j in range(keys):
            if causal:
                visible[i, j] = j <= i + (keys - queries if offset is None else offset)
    return visible if seen is None else visible & seen.unsqueeze(-2)


def textbook(query: Tensor, key: Tensor, value: Tensor, seen=None, causal=False, offset=None):
    visible = who_sees_whom(query.shape[-2], key.shape[-2], seen, causal, offset)
    if seen is not None:
        key = key.masked_fill(~seen.unsqueeze(-1), 0)
        value = value.masked_fill(~seen.unsqueeze(-1), 0)
    return textbook_map(query, key, visible) @ value.double()


def assert_close(ours: Tensor, exact: Tensor, least: float = 0.0) -> None:
    """Within the dtype's tolerance of the largest entry, or of ``least`` where that is more."""
    assert ours.shape == exact.shape
    if ours.numel():
        scale = max(exact.abs().max().item(), least)
        assert (ours.double() - exact).abs().max().item() <= TOLERANCE[ours.dtype] * scale


def assert_same_with_gradients(query, key, value, **options) -> None:
    """Value and gradients; a key's gradient is a difference of terms as large as g · v."""
    ours = [x.detach().clone().requires_grad_() for x in (query, key, value)]
    exact = [x.detach().double().requires_grad_() for x in (query, key, value)]
    output, expected = linear(*ours, **options), textbook(*exact, **options)
    assert_close(output, expected, 1e-30)
    grad = torch.randn(expected.shape, dtype=torch.float64).to(output.dtype)
    grads = torch.autograd.grad(output, ours, grad)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    for got, want in zip(grads, wanted, strict=True):
        assert_close(got, want, 1.0)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


@st.composite
def cases(draw):
    torch.manual_seed(draw(st.integers(0, 999)))
    leading = draw(st.sampled_from([(), (1,), (3,), (2, 3), (3, 3), (2, 1, 3)]))
    queries, keys = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    features, value_dim = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3, 7]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    scale = draw(st.sampled_from([1.0, 10.0, 300.0, 1e4]))

    def part(*size: int) -> Tensor:
        """Any of the leading sizes may be one, or missing: they broadcast."""
        cut = leading[draw(st.integers(0, len(leading))) :]
        cut = tuple(1 if draw(st.booleans()) else n for n in cut)
        return random(*cut, *size, dtype=dtype)

    query, key, value = part(queries, features), part(keys, features), part(keys, value_dim)
    causal = draw(st.booleans())
    options = {"causal": causal}
    if causal:
        options["offset"] = draw(st.one_of(st.none(), st.integers(-45, 45)))
    if draw(st.booleans()):
        options["seen"] = part(keys) < draw(st.sampled_from([-1.0, 0.0, 1.0]))
    return (query, scale * key, value), options


@given(cases(), st.sampled_from([None, 0.5]))
def test_equals_the_textbook_in_value_and_gradient(case, climb):
    """Also where, of moderate keys, none may share a maximum."""
    tensors, options = case
    with pytest.MonkeyPatch.context() as patch:
        if climb is not None:
            patch.setitem(linear_state.CLIMB, tensors[0].dtype, climb)
        assert_same_with_gradients(*tensors, **options)


@given(cases())
def test_the_map_is_the_one_that_made_the_output(case):
    (query, key, value), options = case
    weights = linear_rows(query, key, slice(None), **options)
    visible = who_sees_whom(
        query.shape[-2],
        key.shape[-2],
        *(options.get(name) for name in ("seen", "causal", "offset")),
    )
    assert_close(weights, textbook_map(query, key, visible).expand(weights.shape), 1.0)
    sums = weights.sum(-1)
    some = visible.any(-1).expand(sums.shape)
    assert torch.allclose(sums, some.to(sums.dtype), atol=1e-5)
    output = linear(query, key, value, **options)
    hidden = value if "seen" not in options else value * options["seen"].unsqueeze(-1)
    assert_close(output, weights.double() @ hidden.double(), 1.0)


@given(cases(), st.integers(-45, 45), st.integers(-45, 45), st.integers(1, 7))
def test_chosen_rows_are_rows_of_the_whole_map(case, start, stop, step):
    (query, key, _), options = case
    whole = linear_rows(query, key, slice(None), **options)
    rows = slice(start, stop, step)
    assert_close(linear_rows(query, key, rows, **options), whole[..., rows, :].double(), 1.0)


KEYS = {
    "rising": lambda n: torch.arange(n)[:, None] * torch.tensor([1e3, 30.0, -1e3]),
    "one peak": lambda n: torch.eye(n)[:, :1] * 2e4 - 1e4,
    "late peak": lambda n: torch.eye(n).flip(0)[:, :3] * 2e4 - 1e4,
    "steps": lambda n: (torch.arange(n)[:, None] // 5) * torch.tensor([25.0, 500.0, -90.0]),
    "all equal": lambda n: torch.full((n, 3), 1e4),
    "denormal": lambda n: torch.full((n, 3), 1e-40),
    "scattered": lambda n: torch.randn(n, 3) * 1e4,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_size_neither_overflow_nor_vanish(name, causal, dtype):
    torch.manual_seed(0)
    key = KEYS[name](53).to(dtype).expand(53, 3).contiguous()
    query, value = random(53, 3, dtype=dtype), random(53, 5, dtype=dtype)
    assert_same_with_gradients(query, key, value, causal=causal)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("later", [math.nan, math.inf, -1e4, 1e4])
def test_what_comes_later_never_reaches_what_was_before(dtype, later):
    torch.manual_seed(0)
    query, key, value = (random(2, 41, 3, dtype=dtype) for _ in range(3))
    before = textbook(query, key, value, causal=True)
    for at in (1, 13, 40):
        changed_key, changed_value = key.clone(), value.clone()
        changed_key[:, at] = later
        assert_close(linear(query, changed_key, value, causal=True)[:, :at], before[:, :at])
        changed_value[:, at] = later
        assert_close(linear(query, key, changed_value, causal=True)[:, :at], before[:, :at])


def test_a_spoiled_head_costs_the_others_nothing(monkeypatch):
    """After its first NaN a head is NaN; the sweep stops looking for more of them."""
    torch.manual_seed(0)
    query, key, value = (random(3, 72, 2) for _ in range(3))
    expected = textbook(query, key, value, causal=True)
    value[1, 5:] = math.nan
    pieces = []
    halves = linear_sweep._halves
    monkeypatch.setattr(
        linear_sweep, "_halves", lambda piece: pieces.append(piece) or halves(piece)
    )
    output = linear(query, key, value, causal=True)
    assert output[1, 5:].isnan().all()
    assert_close(output[1, :5], expected[1, :5])
    assert_close(output[::2], expected[::2])
    assert 0 < len(pieces) < 9


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_hidden_keys_and_values_reach_neither_output_nor_gradient(causal, bad):
    torch.manual_seed(0)
    query, key, value = random(2, 3, 17, 5), random(2, 3, 23, 5), random(2, 3, 23, 7)
    seen = torch.rand(2, 1, 23) < 0.6
    query.requires_grad_()
    clean = [key.requires_grad_(), value.requires_grad_()]
    hidden = ~seen.unsqueeze(-1)
    spoiled = [x.detach().masked_fill(hidden, bad).requires_grad_() for x in clean]

    outputs = [linear(query, *pair, seen=seen, causal=causal) for pair in (clean, spoiled)]
    assert torch.equal(*outputs)
    wanted = torch.autograd.grad(outputs[0].square().sum(), [query, *clean])
    grads = torch.autograd.grad(outputs[1].square().sum(), [query, *spoiled])
    assert all(torch.equal(got, want) for got, want in zip(grads, wanted, strict=True))
    assert not any(grad.masked_select(hidden).any() for grad in grads[1:])

    maps = [
        linear_rows(query, k, slice(1, 9), seen=seen, causal=causal) for k, _ in (clean, spoiled)
    ]
    assert torch.equal(*maps)
    (grad,) = torch.autograd.grad(maps[1].square().sum(), spoiled[:1])
    assert grad.isfinite().all()
    assert not grad.masked_select(hidden).any()
    assert torch.equal(*(linear_context(*pair, seen=seen) for pair in (clean, spoiled)))


def test_keys_beyond_the_last_query_reach_nothing():
    query, key, value = random(5, 3), random(11, 3), random(11, 2)
    spoiled = [x.clone().index_fill(0, torch.arange(8, 11), math.nan) for x in (key, value)]
    spoiled = [x.requires_grad_() for x in spoiled]
    output = linear(query, *spoiled, causal=True, offset=3)
    assert_close(output, textbook(query, key[:8], value[:8], causal=True))
    output.sum().backward()
    assert all(x.grad[:8].isfinite().all() and not x.grad[8:].any() for x in spoiled)
    rows = linear_rows(query, spoiled[0], slice(None), causal=True, offset=3)
    assert rows.isfinite().all()
    assert not rows[:, 8:].any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_sequence_without_visible_keys_gives_zeros_and_zero_gradients(causal):
    tensors = [random(2, 3, 19, 5).requires_grad_() for _ in range(3)]
    seen = torch.tensor([True, False])[:, None, None].expand(2, 1, 19)
    output = linear(*tensors, seen=seen, causal=causal)
    assert_close(output[:1], textbook(*(x[:1] for x in tensors), causal=causal))
    assert not output[1].any()
    output.sum().backward()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[1].any()
    assert not linear_context(*tensors[1:], seen=seen)[1].any()


def test_queries_before_the_first_key_give_zeros():
    query, key, value = random(7, 3).requires_grad_(), random(5, 3), random(5, 2)
    output = linear(query, key, value, causal=True)
    assert not output[:2].any()
    assert_close(output[2:], textbook(query[2:], key, value, causal=True))
    output.sum().backward()
    assert not query.grad[:2].any()


def test_the_last_query_sees_the_last_key():
    query, key, value = random(3, 2), random(7, 2), random(7, 5)
    assert_close(linear(query, key, value, causal=True)[-1:], textbook(query[-1:], key, value))


def test_the_context_is_what_the_queries_look_at():
    query, key, value = random(2, 3, 7, 5), random(2, 1, 11, 5), random(3, 11, 2)
    seen = torch.rand(2, 1, 11) < 0.7
    context = linear_context(key, value, seen=seen)
    assert context.shape == (2, 3, 5, 2)
    assert_close(query.softmax(-1) @ context, textbook(query, key, value, seen))
    assert linear_context(key[..., :0, :], value[..., :0, :]).eq(0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype, causal):
    torch.manual_seed(0)
    tensors = [random(2, 37, 5, dtype=dtype).requires_grad_() for _ in range(3)]
    raised = [x.detach().float().requires_grad_() for x in tensors]
    output, expected = linear(*tensors, causal=causal), linear(*raised, causal=causal)
    assert output.dtype == dtype
    assert torch.equal(output, expected.to(dtype))
    grad = torch.randn(2, 37, 5).to(dtype)
    grads = torch.autograd.grad(output, tensors, grad)
    for got, want in zip(grads, torch.autograd.grad(expected, raised, grad.float()), strict=True):
        assert torch.equal(got, want.to(dtype))
    context = linear_context(*tensors[1:])
    assert torch.equal(context, linear_context(*raised[1:]).to(dtype))


@pytest.mark.parametrize("causal", [False, True])
def test_mixed_precision_does_not_round_the_sums(causal):
    tensors = [random(2, 37, 5, dtype=torch.float32).requires_grad_() for _ in range(3)]
    expected = linear(*tensors, causal=causal)
    wanted = torch.autograd.grad(expected.sum(), tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = linear(*tensors, causal=causal)
        grads = torch.autograd.grad(output.sum(), tensors)
        rows = linear_rows(*tensors[:2], slice(3, 5), causal=causal)
    assert torch.equal(output, expected)
    assert all(torch.equal(got, want) for got, want in zip(grads, wanted, strict=True))
    assert torch.equal(rows, linear_rows(*tensors[:2], slice(3, 5), causal=causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("leading", "value_dim"), [((0,), 3), ((2, 0), 3), ((2,), 0)])
def test_empty_batches_and_values_stay_empty(leading, value_dim, causal):
    query, key, value = (
        random(*leading, 9, 2),
        random(*leading, 9, 2),
        random(*leading, 9, value_dim),
    )
    query.requires_grad_()
    output = linear(query, key, value, causal=causal)
    assert output.shape == (*leading, 9, value_dim)
    output.sum().backward()
    assert not query.grad.any()


@pytest.mark.parametrize("climb", [300.0, 0.5])
@pytest.mark.parametrize("causal", [False, True])
def test_first_and_second_derivatives_are_right(monkeypatch, causal, climb):
    monkeypatch.setitem(linear_state.CLIMB, torch.float64, climb)
    torch.manual_seed(0)
    query, key, value = random(2, 7, 2), random(2, 9, 2), random(2, 9, 2)
    seen = torch.rand(2, 9) < 0.8
    tensors = tuple(x.requires_grad_() for x in (query, key, value))

    def function(*tensors: Tensor) -> Tensor:
        return linear(*tensors, seen=seen, causal=causal)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


def test_second_derivatives_when_the_gradient_depends_on_the_inputs():
    torch.manual_seed(0)
    tensors = [random(1, 9, 2).requires_grad_() for _ in range(3)]

    def third_power(function) -> list[Tensor]:
        loss = function(*tensors, causal=True).pow(3).sum()
        first = torch.autograd.grad(loss, tensors, create_graph=True)
        second = torch.autograd.grad(
            sum(x.square().sum() for x in first), tensors, create_graph=True
        )
        return [*first, *second, *torch.autograd.grad(sum(x.sum() for x in second), tensors)]

    for got, want in zip(third_power(linear), third_power(textbook), strict=True):
        assert_close(got, want)


def test_gradients_flow_through_the_rows_of_the_map():
    query, key = random(2, 5, 2).requires_grad_(), random(2, 7, 2).requires_grad_()
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda q, k, causal=causal: linear_rows(q, k, slice(1, 4), causal=causal), (query, key)
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("causal", [False, True])
def test_torch_func_and_forward_mode_are_right(causal):
    torch.manual_seed(0)
    query, key, value = (random(2, 13, 3) for _ in range(3))
    key, direction = key * 200, random(2, 13, 3)

    def function(key: Tensor) -> Tensor:
        return linear(query, key, value, causal=causal)

    def exact(key: Tensor) -> Tensor:
        return textbook(query, key, value, causal=causal)

    leaf = key.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(exact(leaf).square().sum(), leaf)
    _, tangent = torch.autograd.functional.jvp(exact, key, direction)
    with forward_ad.dual_level():
        dual = function(forward_ad.make_dual(key, direction))
        assert_close(forward_ad.unpack_dual(dual).tangent, tangent, 1.0)
    assert_close(torch.func.jvp(function, (key,), (direction,))[1], tangent, 1.0)
    assert_close(torch.func.grad(lambda k: function(k).square().sum())(key), gradient, 1.0)
    assert_close(torch.func.jacfwd(function)(key), torch.func.jacrev(function)(key), 1.0)
    batched = torch.vmap(lambda q, k, v: linear(q, k, v, causal=causal))
    assert_close(batched(query, key, value), exact(key))
    each = torch.vmap(
        torch.func.grad(lambda k, q, v: linear(q, k, v, causal=causal).square().sum())
    )
    assert_close(each(key, query, value), gradient, 1.0)


@pytest.mark.parametrize("causal", [False, True])
def test_compiled_gives_the_same_answer(causal):
    torch.manual_seed(0)
    tensors = [random(2, 3, 29, 5).requires_grad_() for _ in range(3)]
    seen = torch.rand(2, 1, 29) < 0.8

    def function(*tensors: Tensor) -> Tensor:
        return linear(*tensors, seen=seen, causal=causal).square()

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    output, expected = compiled(*tensors), function(*tensors)
    assert torch.equal(output, expected)
    grads = torch.autograd.grad(output.sum(), tensors)
    for got, want in zip(grads, torch.autograd.grad(expected.sum(), tensors), strict=True):
        assert torch.equal(got, want)
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_compiled_forward_mode_keeps_its_tangents():
    query, key, value = (random(2, 13, 3) for _ in range(3))
    compiled = torch.compile(linear, backend="aot_eager")
    compiled(query, key, value)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(key, torch.ones_like(key).cumsum(-2))
        outputs = compiled(query, dual, value), linear(query, dual, value)
        assert_close(*(forward_ad.unpack_dual(output).tangent for output in outputs))
    torch.compiler.reset()


def test_heads_in_any_layout_give_the_same_answer():
    torch.manual_seed(0)
    apart = [random(2, 31, 3, 5).transpose(1, 2).requires_grad_() for _ in range(3)]
    close = [x.detach().contiguous().requires_grad_() for x in apart]
    for causal in (False, True):
        outputs = linear(*apart, causal=causal), linear(*close, causal=causal)
        assert_close(*outputs)
        pairs = (
            torch.autograd.grad(o.sum(), x) for o, x in zip(outputs, (apart, close), strict=True)
        )
        for got, want in zip(*pairs, strict=True):
            assert_close(got, want)


def test_eight_threads_at_once_get_the_same_answer():
    query, key, value = (random(3, 47, 5) for _ in range(3))
    expected = linear(query, key, value, causal=True)
    same: list[bool] = []

    def work() -> None:
        same.append(torch.equal(linear(query, key, value, causal=True), expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 8


def test_pieces_of_the_real_size_equal_the_textbook(monkeypatch):
    monkeypatch.undo()
    torch.manual_seed(0)
    assert linear_piece.BLOCK * 2 < 150
    query, key, value = random(2, 20, 150, 3), random(2, 20, 150, 3), random(2, 20, 150, 2)
    key[:, :, 100:] += 400  # one climb that the piece must be cut for
    for causal in (False, True):
        assert_same_with_gradients(query, key, value, causal=causal)


MEMORY = """
import sys, torch
from pathlib import Path
def peak():  # of this process alone; ru_maxrss begins with the parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
from regard.paths.linear import linear
length = 1 << 15
tensors = [torch.randn(length, 8, requires_grad=True) for _ in range(3)]
linear(*(x[:100] for x in tensors), causal=True).sum().backward()
before = peak()
linear(*tensors, causal=True).sum().backward()
linear(*tensors).sum().backward()
print(peak() - before)
"""


def test_memory_is_linear_in_the_length():
    """32,768 positions: one map of them would take 4 GB, one context for each of them 8 MB."""
    source = str(Path(linear_op.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert int(done.stdout) < 60_000  # kilobytes


def test_errors_say_what_came_and_what_to_do():
    query, key, value = random(3, 2), random(5, 2), random(5, 7)
    with pytest.raises(ValueError, match=r"same number of features.*\(3, 2\).*\(5, 1\)"):
        linear(query, key[:, :1], value)
    with pytest.raises(ValueError, match=r"one value.*\(5, 2\).*\(4, 7\)"):
        linear(query, key, value[:4])
    with pytest.raises(TypeError, match=r"one dtype.*float32"):
        linear(query.float(), key, value)
    with pytest.raises(TypeError, match=r"bool tensor.*float64.*seen != 0"):
        linear(query, key, value, seen=torch.ones(5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"\(\.\.\., 5\).*\(3,\)"):
        linear(query, key, value, seen=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"do not broadcast.*\(2, 3, 2\).*\(3, 5, 2\)"):
        linear(query.expand(2, 3, 2), key.expand(3, 5, 2), value)
    with pytest.raises(ValueError, match=r"offset=1.*causal=True"):
        linear(query, key, value, offset=1)
    with pytest.raises(ValueError, match=r"length and a feature"):
        linear(query[0], key, value)
    with pytest.raises(ValueError, match=r"step of 1 or more.*-1"):
        linear_rows(query, key, slice(None, None, -1))
