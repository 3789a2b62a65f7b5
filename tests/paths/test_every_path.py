"""What must hold on every path: each is forced by name and compared with the float64 formula."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.core import blocks

B, H, M, N, D, E = 2, 3, 23, 29, 5, 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block border every few rows, so that small inputs cross several."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 5 * B * H * N)


def negative_distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


SCORES: dict[str, Callable[[], object]] = {
    "dot": regard.Dot,
    "scaled_dot": regard.ScaledDot,
    "general": lambda: regard.General(D, D),
    "biased_general": lambda: _random_bias(regard.BiasedGeneral(D, D)),
    "cosine": lambda: regard.Cosine(3.0),
    "location": lambda: regard.Location(D, N),
    "additive": lambda: regard.Additive(D, D, 11),
    "concat": lambda: regard.Concat(D, D, 11),
    "activated_general": lambda: regard.ActivatedGeneral(D, D),
    "callable": lambda: negative_distance,
}
DOT = ["dot", "scaled_dot", "general", "biased_general", "cosine", "location"]
TANH = ["additive", "concat"]

MASKS: dict[str, Callable[[], regard.Mask | None]] = {
    "none": lambda: None,
    "causal": regard.causal,
    "causal from the start": lambda: regard.causal(offset=0),
    "window": lambda: regard.window(3, 2),
    "lengths": lambda: regard.lengths(torch.tensor([N, 11])),
    "empty sequence": lambda: regard.lengths(torch.tensor([0, 13])),
    "both lengths": lambda: regard.lengths(torch.tensor([17, N]), torch.tensor([M, 19])),
    "segments": lambda: regard.segments(torch.arange(M) // 6, torch.arange(N) // 7),
    "causal padded": lambda: regard.causal() & regard.lengths(torch.tensor([N, 7])),
    "not window": lambda: ~regard.window(4, 4),
    "random": lambda: regard.visible(
        torch.rand(H, M, N, generator=torch.Generator().manual_seed(1)) > 0.6
    ),
}
WHOLE_INTERVALS = [name for name in MASKS if name not in ("not window", "random", "segments")]
SAME_FOR_HEADS = [name for name in MASKS if name not in ("none", "random")]


def _random_bias(score: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        torch.nn.init.normal_(score.bias)  # type: ignore[arg-type]
    return score


def cases() -> list[tuple[str, str, str]]:
    """Each path with each score and mask it takes."""
    found = [("fused", s, m) for s in DOT for m in MASKS]
    found += [("banded", s, m) for s in DOT for m in SAME_FOR_HEADS]
    found += [("kernels", s, m) for s in TANH for m in WHOLE_INTERVALS]
    found += [("blockwise", s, m) for s in SCORES for m in MASKS]
    return found


@dataclass
class Run:
    output: Tensor
    gradients: dict[str, Tensor]


def run(path: str, score: object, mask: object, dtype: torch.dtype, **more: object) -> Run:
    """One forward and backward pass on fixed inputs, in a dtype and on a path."""
    generator = torch.Generator().manual_seed(7)
    inputs = {
        name: torch.randn(B, H, length, width, dtype=torch.float64, generator=generator)
        .to(dtype)
        .requires_grad_()
        for name, length, width in (("query", M, D), ("key", N, D), ("value", N, E))
    }
    upstream = torch.randn(B, H, M, E, dtype=torch.float64, generator=generator).to(dtype)
    parameters = {}
    if isinstance(score, torch.nn.Module):
        score = score.to(dtype)
        score.zero_grad()
        parameters = dict(score.named_parameters())
    torch.manual_seed(3)
    output = regard.attend(**inputs, score=score, mask=mask, path=path, **more)  # type: ignore
    leaves = inputs | parameters
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream, allow_unused=True)
    found = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
    return Run(output.detach(), found)


def assert_close(found: Run, truth: Run, tolerance: float) -> None:
    for name, value in {"output": truth.output, **truth.gradients}.items():
        other = found.output if name == "output" else found.gradients[name]
        assert other.dtype == found.output.dtype
        scale = max(float(value.abs().max()), 1e-30)
        error = float((other.double() - value.double()).abs().max()) / scale
        assert error <= tolerance, f"{name}: relative error {error:.2g}"


@pytest.mark.parametrize(("path", "score", "mask"), cases())
def test_path_gives_the_reference_in_value_and_gradient(path: str, score: str, mask: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    truth = run("reference", module, MASKS[mask](), torch.float64)
    assert_close(run(path, module, MASKS[mask](), torch.float64), truth, 1e-9)
    assert_close(run(path, module, MASKS[mask](), torch.float32), truth, 2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("path", "score"),
    [("reference", "dot"), ("fused", "scaled_dot"), ("banded", "scaled_dot"),
     ("kernels", "additive"), ("blockwise", "additive"), ("blockwise", "scaled_dot")],
)  # fmt: skip
def test_half_precision_is_near_the_reference(path: str, score: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    mask = regard.causal() & regard.lengths(torch.tensor([N, 11]))
    truth = run("reference", module, mask, torch.float64)
    assert_close(run(path, module, mask, dtype), truth, 16 * torch.finfo(dtype).eps)


NORMALIZERS = ["softmax", "sparsemax", "entmax15", "hard", "gumbel"]


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("score", ["scaled_dot", "additive", "callable"])
def test_blockwise_repeats_the_noise_of_the_reference(
    normalize: str, dropout: float, score: str
) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    mask = regard.causal() & regard.lengths(torch.tensor([N, 0]))
    truth = run("reference", module, mask, torch.float64, normalize=normalize, dropout=dropout)
    found = run("blockwise", module, mask, torch.float64, normalize=normalize, dropout=dropout)
    assert_close(found, truth, 1e-9)


@pytest.mark.parametrize("score", ["scaled_dot", "location", "additive", "callable"])
@pytest.mark.parametrize("mask", list(MASKS))
def test_gathering_the_chosen_value_equals_weighing_them_all(score: str, mask: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(H, N, E)
    v[:, -1] = math.inf if mask == "causal from the start" else 1.0  # nobody sees the last key
    with torch.no_grad():
        more = {"score": module, "mask": MASKS[mask](), "normalize": "hard"}
        truth = regard.attend(q, k, v, path="reference", **more)  # type: ignore
        assert regard.explain(q, k, v, **more).path == "gather"  # type: ignore
        assert torch.equal(regard.attend(q, k, v, **more), truth)  # type: ignore


def test_a_normalizer_of_the_users_own_runs_in_blocks() -> None:
    def squares(scores: Tensor, mask: Tensor | None) -> Tensor:
        weights = scores.square() if mask is None else scores.square() * mask
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

    truth = run("reference", "dot", regard.causal(), torch.float64, normalize=squares)
    found = run("blockwise", "dot", regard.causal(), torch.float64, normalize=squares)
    assert_close(found, truth, 1e-9)


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_parameters_in_closures_get_their_gradients(path: str) -> None:
    weight = torch.randn(D, D, dtype=torch.float64, requires_grad=True)
    q, k, v = (torch.randn(M, D, dtype=torch.float64) for _ in range(3))
    out = regard.attend(q, k, v, score=lambda a, b: a @ weight @ b.T, path=path)
    (found,) = torch.autograd.grad(out.square().sum(), weight)
    (truth,) = torch.autograd.grad((torch.softmax(q @ weight @ k.T, -1) @ v).square().sum(), weight)
    torch.testing.assert_close(found, truth)


PATH_SCORE = [
    ("reference", "scaled_dot"),
    ("reference", "additive"),
    ("fused", "scaled_dot"),
    ("fused", "general"),
    ("banded", "scaled_dot"),
    ("kernels", "additive"),
    ("blockwise", "scaled_dot"),
    ("blockwise", "additive"),
    ("blockwise", "callable"),
]


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_a_query_that_sees_nothing_gives_zeros_and_gets_none(path: str, score: str) -> None:
    torch.manual_seed(0)
    mask = regard.lengths(torch.tensor([0, N]), torch.tensor([M, 13]))
    found = run(path, SCORES[score](), mask, torch.float32)
    blind = ~mask.dense(M, N).any(-1)
    for b in range(B):
        assert torch.count_nonzero(found.output[b, :, blind[b]]) == 0
        assert torch.count_nonzero(found.gradients["query"][b, :, blind[b]]) == 0
    assert all(torch.isfinite(g).all() for g in found.gradients.values())
    assert torch.count_nonzero(found.output[1, :, :13]) == H * 13 * E


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("how", ["lengths", "window", "bias"])
@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_poison_in_keys_hidden_from_every_query_reaches_nothing(
    path: str, score: str, how: str, poison: float
) -> None:
    if how == "bias" and path in ("banded", "kernels"):
        pytest.skip(f"path {path!r} takes no bias")
    torch.manual_seed(0)
    module = SCORES[score]()
    query, key, value = torch.randn(M, D), torch.randn(N, D), torch.randn(N, E)
    hidden = torch.zeros(N, dtype=torch.bool)
    mask: regard.Mask | None = None
    bias = None
    if how == "lengths":
        hidden[11:] = True
        mask = regard.lengths(torch.tensor(11))
    elif how == "window":
        hidden[8:] = True
        mask = regard.window(2, 1, offset=-M + 7)
    else:
        hidden[::3] = True
        bias = torch.zeros(M, N).masked_fill(hidden, -math.inf)

    def outcome(k: Tensor, v: Tensor) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (query, k, v)]
        parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
        out = regard.attend(*leaves, score=module, mask=mask, bias=bias, path=path)  # type: ignore
        return [out, *torch.autograd.grad(out.square().sum(), [*leaves, *parameters])]

    clean = outcome(key.masked_fill(hidden[:, None], 0), value.masked_fill(hidden[:, None], 0))
    dirty = outcome(
        key.masked_fill(hidden[:, None], poison), value.masked_fill(hidden[:, None], poison)
    )
    for a, b in zip(clean, dirty, strict=True):
        assert torch.isfinite(b).all()
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_asking_for_the_map_changes_no_bit(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, E)
    mask = regard.window(5, 1)
    alone = regard.attend(q, k, v, score=module, mask=mask, path=path)  # type: ignore
    both = regard.attend(q, k, v, score=module, mask=mask, path=path, return_map=True)  # type: ignore
    assert torch.equal(alone, both.output)
    torch.testing.assert_close(both.map.dense() @ v, alone, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("size", [(2, 2, 3, 5), (2, 3, 31, 37)])
@pytest.mark.parametrize("more", [{}, {"dropout": 0.3}, {"mask": regard.causal()}])
def test_the_automatic_choice_does_not_depend_on_the_map(size: tuple, more: dict) -> None:
    b, h, m, n = size
    q, k, v = torch.randn(b, h, m, D), torch.randn(b, h, n, D), torch.randn(b, h, n, D)
    torch.manual_seed(5)
    alone = regard.attend(q, k, v, **more)
    torch.manual_seed(5)
    assert torch.equal(alone, regard.attend(q, k, v, return_map=True, **more).output)


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


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
@pytest.mark.parametrize(
    "sizes",
    [
        ((5, D), (7, D), (7, E)),
        ((2, 5, D), (2, 7, D), (2, 7, E)),
        ((2, 1, 5, D), (1, 3, 7, D), (3, 7, E)),
        ((2, 3, 5, D), (2, 1, 7, D), (2, 1, 7, E)),
        ((2, 3, 4, 5, D), (2, 3, 1, 7, D), (2, 3, 1, 7, E)),
        ((2, 3, 4, 5, D), (7, D), (4, 7, E)),
        ((3, 3, 1, D), (3, 3, 7, D), (3, 3, 7, E)),
    ],
)
def test_any_leading_dimensions_broadcast(path: str, score: str, sizes: tuple) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    if isinstance(module, torch.nn.Module):
        module = module.double()
    q, k, v = (torch.randn(*size, dtype=torch.float64) for size in sizes)
    mask = regard.window(4, 0)
    truth = regard.attend(q, k, v, score=module, mask=mask, path="reference")  # type: ignore
    found = regard.attend(q, k, v, score=module, mask=mask, path=path)  # type: ignore
    leading = torch.broadcast_shapes(*(size[:-2] for size in sizes))
    assert found.shape == (*leading, sizes[0][-2], E)
    torch.testing.assert_close(found, truth, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_lengths_belong_to_sequences_even_with_as_many_heads(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q, k, v = torch.randn(3, 3, M, D), torch.randn(3, 3, N, D), torch.randn(3, 3, N, E)
    sizes = torch.tensor([2, 11, N])
    found = regard.attend(q, k, v, score=module, mask=regard.lengths(sizes), path=path)  # type: ignore
    for b, size in enumerate(sizes.tolist()):
        if score == "location":
            continue
        alone = regard.attend(
            q[b],
            k[b, :, :size],
            v[b, :, :size],
            score=module,
            path="reference",  # type: ignore
        )
        torch.testing.assert_close(found[b], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0), (1, 1), (1, 11)])
def test_empty_and_single_sizes(score: str, m: int, n: int) -> None:
    module = SCORES[score]()
    q = torch.randn(2, m, D, requires_grad=True)
    k, v = torch.randn(2, n, D, requires_grad=True), torch.randn(2, n, E, requires_grad=True)
    out, map = regard.attend(q, k, v, score=module, mask=regard.causal(), return_map=True)  # type: ignore
    assert out.shape == (2, m, E)
    assert map.dense().shape == (2, m, n)
    if n == 0:
        assert torch.count_nonzero(out) == 0
    out.sum().backward()
    assert k.grad is None or torch.isfinite(k.grad).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_and_mask_agrees_with_the_formula(data: st.DataObject) -> None:
    draw = data.draw
    b, h = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    m, n = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    d, e = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    numbers = st.lists(st.integers(0, n), min_size=b, max_size=b)
    makers = {
        "causal": lambda: regard.causal(),
        "window": lambda: regard.window(draw(st.integers(0, 9)), draw(st.integers(0, 9))),
        "lengths": lambda: regard.lengths(torch.tensor(draw(numbers))),
        "visible": lambda: regard.visible(torch.rand(m, n, generator=generator) > 0.5),
        "segments": lambda: regard.segments(
            torch.randint(3, (b, m), generator=generator).sort(-1).values,
            torch.randint(3, (b, n), generator=generator).sort(-1).values,
        ),
    }
    mask = makers[draw(st.sampled_from(sorted(makers)))]()
    for sign in draw(st.lists(st.sampled_from("&|~"), max_size=2)):
        other = makers[draw(st.sampled_from(sorted(makers)))]()
        mask = mask & other if sign == "&" else mask | other if sign == "|" else ~mask
    q = torch.randn(b, h, m, d, dtype=torch.float64, generator=generator)
    k = torch.randn(b, h, n, d, dtype=torch.float64, generator=generator)
    v = torch.randn(b, h, n, e, dtype=torch.float64, generator=generator)
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    seen = mask.dense(m, n, leading=2)
    weights = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
    for path in ("auto", "reference", "fused", "banded", "blockwise"):
        found = regard.attend(q, k, v, mask=mask, path=path)
        torch.testing.assert_close(found, weights @ v, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("path", ["reference", "fused", "banded", "blockwise"])
def test_torch_is_an_oracle_for_dot_products(path: str) -> None:
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, D)
    mask = torch.rand(B, 1, M, N) > 0.3
    mask[..., 0] = True
    truth = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(regard.attend(q, k, v, mask=mask, path=path), truth)


@pytest.mark.parametrize("path", ["reference", "fused", "blockwise"])
def test_a_bias_is_added_and_its_infinities_hide(path: str) -> None:
    q, k, v = torch.randn(B, H, M, D), torch.randn(B, H, N, D), torch.randn(B, H, N, E)
    bias = torch.randn(H, M, N)
    bias[:, 4] = -math.inf
    bias[1, :, 5:] = -math.inf
    found = regard.attend(q, k, v, bias=bias, mask=regard.causal(), path=path)
    scores = q @ k.transpose(-1, -2) / math.sqrt(D) + bias
    scores = scores.masked_fill(~regard.causal().dense(M, N), -math.inf)
    torch.testing.assert_close(found, torch.softmax(scores, -1).nan_to_num(0.0) @ v)


@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_the_gradient_of_a_bias_is_right(path: str) -> None:
    q, k, v = (torch.randn(2, 7, 3, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(7, 7, dtype=torch.float64)
    bias[2] = -math.inf
    bias[3, 4] = -math.inf
    bias.requires_grad_()

    def function(bias: Tensor) -> Tensor:
        return regard.attend(q, k, v, bias=bias, path=path)

    (found,) = torch.autograd.grad(function(bias).square().sum(), bias)
    assert torch.count_nonzero(found[2]) == 0
    assert found[3, 4] == 0
    step = torch.zeros_like(bias)
    step[5, 1] = 1e-6
    with torch.no_grad():
        change = (
            function(bias + step).square().sum() - function(bias - step).square().sum()
        ) / 2e-6
    torch.testing.assert_close(found[5, 1], change, atol=1e-7, rtol=1e-6)


def test_a_bias_that_needs_a_gradient_is_not_fused() -> None:
    q = torch.randn(1, 64, 8)
    bias = torch.zeros(64, 64, requires_grad=True)
    assert regard.explain(q, q, q, bias=bias).path == "blockwise"
    with pytest.raises(ValueError, match="bias needs a gradient"):
        regard.attend(q, q, q, bias=bias, path="fused")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "fused"),
        ({"mask": regard.causal()}, "fused"),
        ({"mask": regard.window(4, 4)}, "banded"),
        ({"mask": regard.lengths(torch.tensor([3, 900]))}, "banded"),
        ({"dropout": 0.1}, "blockwise"),
        ({"normalize": "sparsemax"}, "blockwise"),
        ({"score": negative_distance}, "blockwise"),
        ({"score": regard.Additive(64, 64, 3)}, "kernels"),
        ({"score": regard.Additive(64, 64, 3), "dropout": 0.1}, "blockwise"),
        ({"score": regard.Location(64, 1024)}, "fused"),
        ({"mask": regard.window(4, 4), "bias": torch.zeros(997, 1009)}, "fused"),
        ({"normalize": "hard"}, "gather"),
    ],
)
def test_explain_tells_the_path_and_why(more: dict, expected: str) -> None:
    q, k, v = torch.randn(2, H, 997, 64), torch.randn(2, H, 1009, 64), torch.randn(2, H, 1009, 64)
    if expected == "fused" and isinstance(more.get("mask"), type(regard.causal())):
        k, v = (k, v) if "bias" in more else (k[..., :997, :], v[..., :997, :])
    plan = regard.explain(q, k, v, **more)
    assert plan.path == expected
    assert plan.reason in str(plan)
    assert plan.flops > 0
    assert plan.bytes > 0


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own
@pytest.mark.parametrize(("path", "score"), PATH_SCORE)
def test_compiled_gives_the_same_answer(path: str, score: str) -> None:
    torch.manual_seed(0)
    module = SCORES[score]()
    q = torch.randn(B, H, M, D, requires_grad=True)
    k, v = torch.randn(B, H, N, D), torch.randn(B, H, N, E)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return regard.attend(q, k, v, score=module, mask=regard.causal(), path=path)  # type: ignore

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
