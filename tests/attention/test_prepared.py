"""Prepared keys against the formula written out: values, and gradients of everything."""

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import prepare
from regard.paths.kernels import prepared as kernel
from regard.system import process

B, M, N, Q, K, H, E = 3, 2, 11, 5, 7, 13, 19
COUNT = torch.tensor([N, 4, 1])


@pytest.fixture(params=["compiled", "formula"])
def way(request, monkeypatch):
    """The formula runs where the loops may not, as in a forked child."""
    if request.param == "formula":
        monkeypatch.setattr(process, "_forked", True)
    else:
        pytest.importorskip("numba")
    return request.param


def setting(dtype=torch.float64, *, hidden=H, keys=N, width=E):
    torch.manual_seed(0)
    score = regard.Additive(Q, K, hidden).to(dtype)
    key = torch.randn(B, keys, K, dtype=dtype, requires_grad=True)
    value = torch.randn(B, keys, width, dtype=dtype, requires_grad=True)
    return score, key, value


def textbook(score, query: Tensor, key: Tensor, value: Tensor, count: Tensor | None) -> Tensor:
    hidden = (query @ score.query_weight.T).unsqueeze(2) + (key @ score.key_weight.T).unsqueeze(1)
    scores = torch.tanh(hidden) @ score.vector
    if count is not None:
        seen = torch.arange(key.shape[1]) < count[:, None, None]
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.softmax(scores, -1) @ value


def decode(attend, first: Tensor, steps: int) -> Tensor:
    """Every query depends on the contexts before it, as in a decoder."""
    query, contexts = first, []
    for _ in range(steps):
        context = attend(query)
        contexts.append(context)
        query = torch.sin(first + context[..., :Q])
    return torch.stack(contexts)


def gradients(output: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad(output, leaves, upstream.to(output.dtype)))


def assert_close(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max().clamp(min=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0, 60.0, 1e3])
@pytest.mark.parametrize("count", [COUNT, None])
def test_steps_give_what_the_formula_gives(way, dtype, scale, count):
    score, key, value = setting(dtype, hidden=64, keys=17, width=16)
    with torch.no_grad():
        score.key_weight *= scale
    first = torch.randn(B, Q, dtype=dtype, requires_grad=True)
    leaves = [first, key, value, *score.parameters()]
    prepared = prepare(score, key, value, lengths=count)
    found = decode(prepared.attend, first, steps=3)
    exact = setting(hidden=64, keys=17, width=16)
    with torch.no_grad():
        exact[0].load_state_dict(score.state_dict())
        for mine, its in zip(exact[1:], (key, value), strict=True):
            mine.copy_(its)
    precise = first.detach().double().requires_grad_()
    wanted = decode(
        lambda query: textbook(exact[0], query.unsqueeze(1), *exact[1:], count).squeeze(1),
        precise,
        steps=3,
    )
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-11}[dtype] * max(1.0, scale)
    others = [precise, *exact[1:], *exact[0].parameters()]
    assert_close(
        [found, *gradients(found, leaves)], [wanted, *gradients(wanted, others)], tolerance
    )


def test_more_steps_than_are_added_up_together(way):
    score, key, value = setting()
    first = torch.randn(B, M, Q, dtype=torch.float64)
    leaves, steps = [key, value, *score.parameters()], kernel.TOGETHER + 3
    found = decode(prepare(score, key, value, lengths=COUNT).attend, first, steps)
    wanted = decode(lambda query: textbook(score, query, key, value, COUNT), first, steps)
    assert_close([found, *gradients(found, leaves)], [wanted, *gradients(wanted, leaves)], 1e-9)


def test_a_backward_pass_counts_only_the_steps_that_are_part_of_it(way):
    score, key, value = setting()
    prepared = prepare(score, key, value, lengths=COUNT)
    first = torch.randn(B, M, Q, dtype=torch.float64, requires_grad=True)
    one, two = prepared.attend(first), prepared.attend(torch.cos(first))
    torch.autograd.grad((one.sum() + two.sum()), first, retain_graph=True)  # of the queries alone
    found = torch.autograd.grad(two.sum(), key, retain_graph=True)
    again = torch.autograd.grad(two.sum(), key)
    wanted = torch.autograd.grad(textbook(score, torch.cos(first), key, value, COUNT).sum(), key)
    assert_close([*found, *again], [*wanted, *wanted], 1e-11)


def test_gradients_of_the_query_alone_when_nothing_else_needs_one(way):
    score, key, value = setting()
    score.requires_grad_(False)
    first = torch.randn(B, M, Q, dtype=torch.float64, requires_grad=True)
    found = prepare(score, key.detach(), value.detach()).attend(first)
    wanted = textbook(score, first, key, value, None)
    assert_close(gradients(found, [first]), gradients(wanted, [first]), 1e-11)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_behind_the_length_is_never_looked_at(way, bad):
    score, key, value = setting()
    spoilt = [key.detach().clone(), value.detach().clone()]
    for tensor in spoilt:
        tensor[1, 4:], tensor[2, 1:] = bad, bad
        tensor.requires_grad_()
    first = torch.randn(B, Q, dtype=torch.float64)
    found = decode(prepare(score, *spoilt, lengths=COUNT).attend, first, 3)
    wanted = decode(prepare(score, key, value, lengths=COUNT).attend, first, 3)
    mine = gradients(found, [*spoilt, score.query_weight, score.vector])
    its = gradients(wanted, [key, value, score.query_weight, score.vector])
    assert_close([found, mine[1], mine[2], mine[3]], [wanted, its[1], its[2], its[3]], 1e-12)


def test_a_sequence_without_keys_gives_zeros_and_no_gradient(way):
    score, key, value = setting()
    first = torch.randn(B, Q, dtype=torch.float64, requires_grad=True)
    count = torch.tensor([0, N, 5])
    found = prepare(score, key, value, lengths=count).attend(first)
    assert not found[0].any()
    for gradient in gradients(found, [first, key, value]):
        assert not gradient[0].any()
        assert gradient.isfinite().all()


def test_no_gradient_and_a_gradient_give_the_same_numbers(way):
    score, key, value = setting(torch.float32)
    first = torch.randn(B, M, Q)
    prepared = prepare(score, key, value, lengths=COUNT)
    tracked = prepared.attend(first)
    output, map = prepared.attend(first, return_map=True)
    with torch.no_grad():
        assert torch.equal(prepared.attend(first), tracked)
    assert torch.equal(output, tracked)
    assert torch.allclose(map.dense() @ value, tracked, atol=1e-6)
    one = prepared.attend(first[:, 0], return_map=True)
    assert one.map.shape == (B, 1, N)
    assert torch.allclose(one.output, tracked[:, 0], atol=1e-6)


def test_other_sequences_in_another_order(way):
    score, key, value = setting()
    index = torch.tensor([2, 0, 0, 1])
    query = torch.randn(4, M, Q, dtype=torch.float64)
    for count in (COUNT, None):
        found = prepare(score, key, value, lengths=count).select(index).attend(query)
        chosen = None if count is None else count[index]
        assert torch.allclose(found, textbook(score, query, key[index], value[index], chosen))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    score, key, value = setting(dtype)
    query = torch.randn(B, M, Q, dtype=dtype)
    found = prepare(score, key, value, lengths=COUNT).attend(query)
    wanted = regard.attend(query, key, value, score=score, mask=regard.lengths(COUNT))
    assert found.dtype == dtype
    assert torch.allclose(found.float(), wanted.float(), atol=2e-2)


def test_a_second_derivative_is_refused_in_one_sentence():
    pytest.importorskip("numba")
    score, key, value = setting()
    output = prepare(score, key, value).attend(torch.randn(B, M, Q, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"use attend\(\)"):
        torch.autograd.grad(output.sum(), key, create_graph=True)


def test_a_changed_value_is_noticed():
    pytest.importorskip("numba")
    score, key, value = setting()
    output = prepare(score, key, value).attend(torch.randn(B, M, Q, dtype=torch.float64))
    with torch.no_grad():
        value += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_under_torch_compile_it_is_the_usual_path():
    score, key, value = setting()
    query = torch.randn(B, M, Q, dtype=torch.float64)

    @torch.compile(backend="aot_eager")
    def step(key, value, query):
        return prepare(score, key, value).attend(query)

    assert torch.allclose(step(key, value, query), textbook(score, query, key, value, None))


def test_wrong_shapes_are_named():
    score, key, value = setting()
    with pytest.raises(ValueError, match=r"\(batch, N, Dk\)"):
        prepare(score, key[0], value)
    with pytest.raises(ValueError, match=r"lengths should be \(3,\)"):
        prepare(score, key, value, lengths=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"query should be \(3, M, Dq\)"):
        prepare(score, key, value).attend(torch.zeros(2, M, Q, dtype=torch.float64))
