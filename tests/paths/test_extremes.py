"""Every path under extreme inputs, few threads, many Python threads, and in a forked child."""

import os
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import regard

D = 7
MASK = regard.causal() & regard.lengths(torch.tensor([41, 1, 0]))


def additive() -> regard.Additive:
    torch.manual_seed(0)
    return regard.Additive(D, D, 5)


ADDITIVE = additive()


CALLS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "reference": lambda q, k, v: regard.attend(q, k, v, mask=MASK, path="reference"),
    "fused": lambda q, k, v: regard.attend(q, k, v, mask=MASK, path="fused"),
    "banded": lambda q, k, v: regard.attend(q, k, v, mask=MASK, path="banded"),
    "block_sparse": lambda q, k, v: regard.attend(q, k, v, mask=MASK, path="block_sparse"),
    "blockwise": lambda q, k, v: regard.attend(q, k, v, mask=MASK, path="blockwise"),
    "additive_kernel": lambda q, k, v: regard.attend(
        q, k, v, mask=MASK, score=ADDITIVE, path="additive_kernel"
    ),
    "compiled scores": lambda q, k, v: regard.attend(
        q, k, v, mask=MASK, score=ADDITIVE, normalize="sparsemax"
    ),
    "features": lambda q, k, v: regard.attend_features(q, k, v, mask=MASK),  # type: ignore
    "linear": lambda q, k, v: regard.attend_linear(q, k, v, causal=True),  # type: ignore
}


def inputs(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 41, D, generator=generator).to(dtype) for _ in range(3)]


def outcome(call: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """Output and gradients."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = call(*leaves)
    return [output.detach(), *torch.autograd.grad(output.square().sum(), leaves)]


@pytest.mark.parametrize("name", list(CALLS))
def test_one_thread_gives_the_same(name: str) -> None:
    usual = outcome(CALLS[name], inputs())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = outcome(CALLS[name], inputs())
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(alone, usual, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", list(CALLS))
def test_eight_python_threads_at_once_give_the_same(name: str) -> None:
    truth = outcome(CALLS[name], inputs())
    found: list[list[Tensor]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                found.append(outcome(CALLS[name], inputs()))
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert len(found) == 24
    for result in found:
        torch.testing.assert_close(result, truth, atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gives_the_same() -> None:
    truth = {name: CALLS[name](*inputs()) for name in CALLS}  # starts the threads of the parent
    child = os.fork()
    if child == 0:
        status = 1
        try:
            same = [
                torch.allclose(CALLS[name](*inputs()), truth[name], atol=1e-6) for name in CALLS
            ]
            status = 0 if all(same) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("size", [1e4, 1e-42, 0.0])
@pytest.mark.parametrize("name", list(CALLS))
def test_huge_tiny_and_equal_numbers_stay_finite_and_right(name: str, size: float) -> None:
    query, key, value = inputs()
    query, key = query * size, key * size
    if name == "linear":  # its own test has the formula; here only that nothing overflows
        assert all(torch.isfinite(t).all() for t in outcome(CALLS[name], [query, key, value]))
        return
    single = outcome(CALLS[name], [query, key, value])
    assert all(torch.isfinite(t).all() for t in single)
    if size == 1e4 and name in ("reference", "fused", "banded", "block_sparse", "blockwise"):
        return  # scores of 1e8 have no digits left in float32
    double = outcome(
        lambda q, k, v: _in_double(name, q, k, v), [t.double() for t in (query, key, value)]
    )
    scale = float(double[0].abs().max())
    assert float((single[0] - double[0]).abs().max()) <= 2e-5 * scale


def _in_double(name: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if name in ("additive_kernel", "compiled scores"):
        normalize = "softmax" if name == "additive_kernel" else "sparsemax"
        score = additive().double()
        return regard.attend(q, k, v, mask=MASK, score=score, normalize=normalize, path="reference")
    return CALLS[name](q, k, v)


@pytest.mark.parametrize("path", ["fused", "banded", "block_sparse", "blockwise"])
def test_scores_of_ten_thousand_are_as_right_as_float32_allows(path: str) -> None:
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(2, 37, 4, generator=generator) * 100
    key = torch.randn(2, 37, 4, generator=generator) * 100
    value = torch.randn(2, 37, 5, generator=generator)
    truth = regard.attend(
        *(t.double() for t in (query, key, value)), mask=regard.causal(), path="reference"
    )
    found = regard.attend(query, key, value, mask=regard.causal(), path=path)
    largest = float((query @ key.transpose(-1, -2)).abs().max()) / 2
    assert largest > 1e4
    tolerance = 4 * torch.finfo(torch.float32).eps * largest
    assert float((found - truth).abs().max()) <= tolerance * float(truth.abs().max())


@pytest.mark.parametrize("path", ["additive_kernel", "blockwise"])
def test_projections_of_a_thousand_with_opposite_signs(path: str) -> None:
    generator = torch.Generator().manual_seed(2)
    key = 1000 * torch.randn(2, 29, 5, generator=generator)
    query = -key[:, :23] + torch.randn(2, 23, 5, generator=generator)
    value = torch.randn(2, 29, 3, generator=generator)
    score = regard.Additive(5, 5, 5)
    with torch.no_grad():
        score.query_weight.copy_(torch.eye(5))
        score.key_weight.copy_(torch.eye(5))
    truth = regard.attend(
        *(t.double() for t in (query, key, value)), score=score.double(), path="reference"
    )
    found = regard.attend(query, key, value, score=score.float(), path=path)
    torch.testing.assert_close(found.double(), truth, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_one_query_against_any_number_of_keys(score: str, size: int) -> None:
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(2, 1, D, generator=generator)
    key = torch.randn(2, 100_000, D, generator=generator)
    module = "scaled_dot" if score == "scaled_dot" else additive()
    mask = regard.lengths(torch.tensor([size, 3]))
    found = regard.attend(query, key, key, score=module, mask=mask)
    if size == 0:
        assert torch.count_nonzero(found[0]) == 0
    else:
        double = module if isinstance(module, str) else module.double()
        truth = regard.attend(
            *(t[0, :size].double() for t in (query, key, key))
            if size > 1
            else (query[0].double(), key[0, :1].double(), key[0, :1].double()),
            score=double,
            path="reference",
        )
        torch.testing.assert_close(found[0].double(), truth, atol=1e-5, rtol=1e-4)
