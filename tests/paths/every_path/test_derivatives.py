"""Second derivatives, forward mode, function transforms and compiling, on every path."""

import pytest
import torch
from torch import Tensor

import regard
from tests.paths.every_path.cases import PATH_SCORE, SCORES, B, D, E, H, M, N, negative_distance


@pytest.mark.parametrize(("path", "score"), [p for p in PATH_SCORE if p[1] != "callable"])
def test_second_derivatives_are_right(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]().double()  # type: ignore[attr-defined]
    mask = regard.lengths(torch.tensor([4, 2])) & regard.causal()
    inputs = [
        torch.randn(2, 1, *size, dtype=torch.float64, requires_grad=True)
        for size in ((3, D), (4, D), (4, 2))
    ]

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=module, mask=mask, path=path)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize(
    ("path", "score"), [("fused", "scaled_dot"), ("banded", "scaled_dot"), ("capped", "softcap")]
)
def test_second_derivatives_of_a_sink_are_right(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    mask = regard.lengths(torch.tensor([4, 2])) & regard.causal()
    sizes = ((2, 2, 3, D), (2, 2, 4, D), (2, 2, 4, 2), (2,))
    inputs = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes]

    def function(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
        normalize = regard.Normalizer(sink=sink, temperature=0.8)
        return regard.attend(
            q,
            k,
            v,
            score=module,
            mask=mask,
            normalize=normalize,
            path=path,  # type: ignore
        )

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own
@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_compiled_gives_the_same_answer(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q = torch.randn(B, H, M, D, requires_grad=True)
    k, v = torch.randn(B, H, N, D), torch.randn(B, H, N, E)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        way = "auto" if path == "capped" and torch.compiler.is_compiling() else path
        return regard.attend(q, k, v, score=module, mask=regard.causal(), path=way)  # type: ignore

    truth = function(q, k, v)
    found = torch.compile(function, backend="aot_eager")(q, k, v)
    torch.testing.assert_close(found, truth)
    (a,) = torch.autograd.grad(truth.square().sum(), q)
    (b,) = torch.autograd.grad(found.square().sum(), q)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("score", ["scaled_dot", "general", "additive", "callable"])
def test_forward_mode_and_func_transforms_are_right(score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    if isinstance(module, torch.nn.Module):
        module = module.double()
    q, k, v = (torch.randn(1, 37, D, dtype=torch.float64) for _ in range(3))

    def function(q: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=module, mask=regard.causal()).square().sum()  # type: ignore

    leaf = q.clone().requires_grad_()
    (truth,) = torch.autograd.grad(function(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(function)(q), truth)
    tangent = torch.randn_like(q)
    _, slope = torch.func.jvp(function, (q,), (tangent,))
    torch.testing.assert_close(slope, (truth * tangent).sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, tangent)
        found = torch.autograd.forward_ad.unpack_dual(function(dual)).tangent
    torch.testing.assert_close(found, (truth * tangent).sum())
    batch = torch.stack([q, 2 * q, -q])
    torch.testing.assert_close(
        torch.func.vmap(function)(batch), torch.stack([function(x) for x in batch])
    )


@pytest.mark.parametrize(
    "more",
    [
        {"path": "reference", "mask": regard.window(3, 2)},
        {"mask": regard.causal()},
        {"mask": regard.lengths(torch.tensor([3, M]))},
        {"dropout": 0.3},
        {"score": regard.Additive(D, D, 3)},
        {"score": negative_distance},
    ],
)
def test_the_whole_call_compiles_to_one_graph(more: dict) -> None:
    q, k, v = (torch.randn(B, H, M, width, requires_grad=True) for width in (D, D, E))

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, **more)

    torch.manual_seed(5)
    truth = function(q, k, v)
    torch.manual_seed(5)
    found = torch.compile(function, backend="aot_eager", fullgraph=True)(q, k, v)
    torch.testing.assert_close(found, truth)
