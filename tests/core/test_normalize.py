"""Normalizers: other implementations as oracles, masks from inside, empty rows, gradients."""

import math
from collections.abc import Callable

import entmax
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

import regard
from regard.core.normalize import (
    NORMALIZERS,
    Gumbel,
    Normalizer,
    entmax15,
    hard,
    sigmoid,
    softmax,
    sparsemax,
)

SMOOTH = {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15}
ORACLES: dict[str, Callable[..., Tensor]] = {
    "softmax": torch.softmax,
    "sparsemax": entmax.sparsemax,
    "entmax15": entmax.entmax15,
}
every = pytest.mark.parametrize("name", NORMALIZERS)
sums_to_one = pytest.mark.parametrize(
    "name", [n for n in NORMALIZERS if n not in ("sigmoid", "sink")]
)
smooth = pytest.mark.parametrize("name", SMOOTH)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def quiet(name: str) -> Callable[[Tensor, Tensor | None], Tensor]:
    """A normalizer by name; gumbel with the same noise every time."""
    if name != "gumbel":
        return NORMALIZERS[name]

    def normalize(scores: Tensor, mask: Tensor | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        noise = torch.rand(scores.shape, generator=generator, dtype=torch.float64) * 0.98 + 0.01
        return Gumbel()(scores, mask, noise.to(scores.dtype))

    return normalize


# ------------------------------------------------------------------ what they are


@smooth
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 10.0, 1e4])
def test_a_normalizer_is_what_its_authors_code_gives(name: str, scale: float) -> None:
    scores = numbers(3, 41, 17, scale=scale).requires_grad_()
    upstream = numbers(3, 41, 17, seed=1)
    found, truth = SMOOTH[name](scores), ORACLES[name](scores, dim=-1)
    torch.testing.assert_close(found, truth, atol=1e-9, rtol=1e-9)
    (gradient,) = torch.autograd.grad(found, scores, upstream)
    (expected,) = torch.autograd.grad(truth, scores, upstream)
    torch.testing.assert_close(gradient, expected, atol=1e-7, rtol=1e-7)


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    scores = numbers(11, 5)
    found = sparsemax(scores)
    others = torch.distributions.Dirichlet(torch.full((5,), 0.3, dtype=torch.float64)).sample(
        (20000,)
    )
    nearest = (scores[:, None] - others).square().sum(-1).amin(-1)
    assert bool(((scores - found).square().sum(-1) <= nearest + 1e-12).all())
    assert int((found == 0).sum()) > 0


@pytest.mark.parametrize(("name", "alpha"), [("sparsemax", 2.0), ("entmax15", 1.5)])
def test_sparse_normalizers_meet_their_optimality_condition(name: str, alpha: float) -> None:
    """Peters et al. 2019, eq. 7: p = max((α − 1) s − τ, 0)^(1 / (α − 1)) for one τ per row."""
    scores = numbers(7, 13, scale=0.7)
    p = SMOOTH[name](scores)
    tau = (alpha - 1) * scores - p.pow(alpha - 1)
    for row, weights, threshold in zip((alpha - 1) * scores, p, tau, strict=True):
        inside = weights > 0
        assert float(threshold[inside].max() - threshold[inside].min()) < 1e-9
        assert bool((row[~inside] <= threshold[inside].mean() + 1e-9).all())


@sums_to_one
@settings(max_examples=40)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 7, 31]), st.sampled_from([0.1, 1.0, 30.0]))
def test_rows_are_distributions_over_the_visible_keys(
    name: str, seed: int, keys: int, scale: float
) -> None:
    scores = numbers(5, keys, seed=seed, scale=scale)
    mask = numbers(5, keys, seed=seed + 1) > -0.3
    weights = quiet(name)(scores, mask)
    assert bool((weights >= 0).all())
    assert torch.count_nonzero(weights[~mask]) == 0
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double())


@every
def test_hiding_keys_is_deleting_them(name: str) -> None:
    scores = numbers(2, 5, 11).requires_grad_()
    keys = [0, 2, 3, 7, 10]
    mask = torch.zeros(11, dtype=torch.bool)
    mask[keys] = True
    if name == "gumbel":
        noise = torch.rand(
            2, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        found = Gumbel()(scores, mask, noise)
        alone = Gumbel()(scores[..., keys], None, noise[..., keys])
    else:
        found, alone = NORMALIZERS[name](scores, mask), NORMALIZERS[name](scores[..., keys])
    torch.testing.assert_close(found[..., keys], alone)
    assert torch.count_nonzero(found[..., ~mask]) == 0
    upstream = numbers(2, 5, 11, seed=1)
    (gradient,) = torch.autograd.grad(found, scores, upstream)
    (expected,) = torch.autograd.grad(alone, scores, upstream[..., keys])
    torch.testing.assert_close(gradient, expected)


@every
@pytest.mark.parametrize("hidden", [math.nan, math.inf, -math.inf, 1e30])
def test_what_stands_in_a_hidden_place_does_not_matter(name: str, hidden: float) -> None:
    scores, mask = numbers(3, 7), torch.arange(7) < 4
    poisoned = torch.where(mask, scores, hidden).requires_grad_()
    found = quiet(name)(poisoned, mask)
    torch.testing.assert_close(found.detach(), quiet(name)(scores, mask))
    (gradient,) = torch.autograd.grad(found, poisoned, numbers(3, 7, seed=1))
    assert torch.isfinite(gradient).all()
    assert torch.count_nonzero(gradient[:, 4:]) == 0


@every
def test_a_query_that_sees_nothing_has_no_weights_and_no_gradient(name: str) -> None:
    scores = numbers(3, 7).requires_grad_()
    mask = torch.tensor([[True], [False], [True]]).expand(3, 7)
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        found = quiet(name)(scores, mask)
        (gradient,) = torch.autograd.grad(found.square().sum(), scores, create_graph=True)
    assert torch.count_nonzero(found[1]) == 0
    assert torch.count_nonzero(gradient[1]) == 0
    assert torch.isfinite(gradient).all()
    (second,) = torch.autograd.grad(gradient.square().sum(), scores)
    assert torch.isfinite(second).all()


@every
@pytest.mark.parametrize("masked", [False, True])
def test_no_keys_give_no_weights(name: str, masked: bool) -> None:
    scores = torch.zeros(3, 0, requires_grad=True)
    mask = torch.zeros(3, 0, dtype=torch.bool) if masked else None
    weights = NORMALIZERS[name](scores, mask)
    assert weights.shape == (3, 0)
    weights.sum().backward()


@every
def test_a_mask_broadcasts_both_ways(name: str) -> None:
    scores, mask = numbers(5, 7), numbers(2, 3, 1, 7) > -0.5
    found = quiet(name)(scores.expand(2, 3, 5, 7), mask)
    wide = quiet(name)(scores.expand(2, 3, 5, 7), mask.expand(2, 3, 5, 7))
    torch.testing.assert_close(found, wide)
    rows = numbers(5, 1) > 0
    torch.testing.assert_close(quiet(name)(scores, rows), quiet(name)(scores, rows.expand(5, 7)))


@smooth
def test_derivatives_of_both_orders_are_right(name: str) -> None:
    # supports of several sizes, and no score near the edge of one
    scores = torch.tensor([[1.0, 0.7, -0.4, 0.95], [3.0, 0.1, 0.2, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True], [False, True, True, True]])
    for visible in (None, mask):
        function = lambda s, visible=visible: SMOOTH[name](s, visible)  # noqa: E731
        assert gradcheck(function, scores.clone().requires_grad_())
        assert gradgradcheck(function, scores.clone().requires_grad_())


@smooth
def test_equal_scores_share_equally(name: str) -> None:
    scores = torch.zeros(1, 7, dtype=torch.float64)
    torch.testing.assert_close(SMOOTH[name](scores), torch.full_like(scores, 1 / 7))
    tied = torch.tensor([2.0, 2.0, 2.0, -9.0], dtype=torch.float64)
    torch.testing.assert_close(SMOOTH[name](tied)[:3], SMOOTH[name](tied)[:1].expand(3))
    many = torch.zeros(1, 10007)
    torch.testing.assert_close(
        SMOOTH[name](many), torch.full_like(many, 1 / 10007), atol=1e-9, rtol=1e-4
    )


@smooth
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_neither_overflow_nor_lose_the_largest(
    name: str, dtype: torch.dtype
) -> None:
    for scores in ([1e4, -1e4, 0.0], [-1e4, -1e4, -1e4 - 50], [1e4, 1e4 - 0.5, -1e4]):
        row = torch.tensor(scores, dtype=dtype, requires_grad=True)
        weights = SMOOTH[name](row)
        truth = ORACLES[name](torch.tensor(scores, dtype=torch.float64), dim=-1)
        torch.testing.assert_close(weights.double(), truth, atol=1e-6, rtol=1e-5)
        weights[0].backward()
        assert row.grad is not None
        assert torch.isfinite(row.grad).all()


@smooth
def test_adding_a_number_to_a_row_changes_nothing(name: str) -> None:
    scores = numbers(5, 11)
    torch.testing.assert_close(SMOOTH[name](scores + 123.0), SMOOTH[name](scores))


@smooth
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keys", [7, 601, 70001])
def test_weights_of_half_precision_scores_are_near_the_truth(
    name: str, dtype: torch.dtype, keys: int
) -> None:
    scores = numbers(2, keys, scale=0.3 / keys**0.5).to(dtype)
    weights = regard.attention_weight(scores, normalize=name)
    assert weights.dtype == dtype
    truth = ORACLES[name](scores.double(), dim=-1)
    rounding = (
        torch.finfo(dtype).eps * float(truth.max()) + 2**-25
    )  # below 2^-14, float16 counts so
    assert float((weights.double() - truth).abs().max()) <= rounding


# ------------------------------------------------------------------ hard


def test_hard_takes_the_first_of_the_best_visible_keys() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, True], [False, False, True, True]])
    assert hard(scores, mask).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    assert hard(scores).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    below = torch.full((1, 3), -1e30)
    assert hard(below, torch.tensor([False, True, True])).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_hard_weights_are_exactly_ones_and_zeros(dtype: torch.dtype) -> None:
    weights = hard(numbers(101, 31, scale=3.0).to(dtype))
    assert set(weights.unique().tolist()) == {0.0, 1.0}


def test_the_gradient_of_hard_is_that_of_softmax() -> None:
    scores, mask = numbers(5, 7).requires_grad_(), numbers(5, 7, seed=3) > -1
    upstream = numbers(5, 7, seed=1)
    (found,) = torch.autograd.grad(hard(scores, mask), scores, upstream)
    p = torch.softmax(scores.masked_fill(~mask, -math.inf), -1).detach()
    truth = p * (upstream - (p * upstream).sum(-1, keepdim=True))
    torch.testing.assert_close(found, truth)
    assert found.abs().max() > 0


# ------------------------------------------------------------------ gumbel


def test_gumbel_is_softmax_of_scores_plus_noise_over_temperature() -> None:
    scores, mask = numbers(3, 5), torch.arange(5) < 4
    u = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for temperature in (0.3, 1.0, 4.0):
        powers = [
            [
                math.exp((float(s) - math.log(-math.log(float(n)))) / temperature)
                for s, n in zip(a, b, strict=True)
            ]
            for a, b in zip(scores[:, :4], u[:, :4], strict=True)
        ]
        truth = torch.tensor(
            [[p / sum(row) for p in row] + [0.0] for row in powers], dtype=torch.float64
        )
        torch.testing.assert_close(Gumbel(temperature)(scores, mask, u), truth)


@pytest.mark.parametrize("through", ["normalizer", "attend"])
def test_the_key_of_the_largest_gumbel_weight_is_a_sample_from_softmax(through: str) -> None:
    torch.manual_seed(0)
    draws = 40000
    scores = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5])
    if through == "normalizer":
        weights = regard.attention_weight(scores.expand(draws, 5), normalize="gumbel")
    else:
        query = torch.ones(draws, 1)
        result = regard.attend(
            query,
            scores[:, None],
            scores[:, None],
            score="dot",
            normalize="gumbel",
            return_map=True,
        )
        weights = result.map.dense()
    counts = torch.bincount(weights.argmax(-1), minlength=5).double()
    expected = draws * torch.softmax(scores.double(), -1)
    chi_square = float(((counts - expected).square() / expected).sum())
    assert chi_square < 23.5  # exceeded by one draw in ten thousand, at four degrees of freedom


def test_a_cold_gumbel_takes_one_key_and_a_hot_one_all() -> None:
    torch.manual_seed(0)
    scores = numbers(200, 7)
    cold, hot = Gumbel(1e-4)(scores), Gumbel(1e4)(scores)
    assert float(cold.amax(-1).mean()) > 0.995
    torch.testing.assert_close(hot, torch.full_like(hot, 1 / 7), atol=1e-3, rtol=0)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        Gumbel(0.0)
    with pytest.raises(ValueError, match="above 0, got nan"):
        Gumbel(math.nan)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gumbel_repeats_under_the_same_seed_and_stays_finite(dtype: torch.dtype) -> None:
    scores = torch.zeros(1000, 300, dtype=dtype)

    def draw() -> Tensor:
        return regard.attention_weight(scores, normalize="gumbel")

    torch.manual_seed(3)
    one = draw()
    two = draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), one)
    assert not torch.equal(one, two)
    assert torch.isfinite(one).all()


def test_the_noise_of_gumbel_passes_gradients_on() -> None:
    scores = numbers(3, 5).requires_grad_()
    u = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gradcheck(lambda s: Gumbel(0.7)(s, None, u), scores)


# ------------------------------------------------------------------ your own


def squares(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = scores.square() if mask is None else scores.square() * mask
    return weights / weights.sum(-1, keepdim=True)


def naive(scores: Tensor, mask: Tensor | None) -> Tensor:
    """What most people write: NaN where a query sees nothing."""
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -math.inf), -1)


def test_any_callable_normalizes() -> None:
    query, key = numbers(3, 5), numbers(7, 5, seed=1)
    mask = regard.causal()
    found = regard.attend(query, key, key, normalize=squares, mask=mask)
    scores = (query @ key.T / math.sqrt(5)).square() * mask.dense(3, 7)
    torch.testing.assert_close(found, scores / scores.sum(-1, keepdim=True) @ key)
    torch.testing.assert_close(
        regard.attention_weight(query @ key.T, mask, normalize=squares),
        squares(query @ key.T, mask.dense(3, 7)),
    )


@pytest.mark.parametrize("normalize", [naive, squares])
@pytest.mark.parametrize("path", ["reference", "blockwise"])
def test_a_naive_callable_is_kept_from_nan_where_a_query_sees_nothing(
    path: str, normalize: Callable
) -> None:
    query, key = numbers(5, 3).requires_grad_(), numbers(3, 3, seed=1).requires_grad_()
    mask = regard.causal()  # five queries on three keys: the first two see nothing
    output, map = regard.attend(
        query, key, key, normalize=normalize, mask=mask, path=path, return_map=True
    )
    assert torch.count_nonzero(output[:2]) == 0
    assert torch.count_nonzero(map[:2]) == 0
    others = regard.attend(query[2:], key, key, normalize=normalize, mask=mask, path="reference")
    torch.testing.assert_close(output[2:], others)
    found = torch.autograd.grad(output.square().sum(), (query, key))
    expected = torch.autograd.grad(others.square().sum(), (query, key))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


# ------------------------------------------------------------------ sigmoid


def test_sigmoid_is_its_formula_and_its_bias_is_that_of_attend() -> None:
    q, k, v = numbers(3, 5), numbers(7, 5, seed=1), numbers(7, 2, seed=2)
    bias = torch.full((1, 1), -math.log(7), dtype=torch.float64)
    weights = 1 / (1 + torch.exp(-(q @ k.T / 5**0.5 - math.log(7))))
    found = regard.attend(q, k, v, normalize="sigmoid", bias=bias)
    torch.testing.assert_close(found, weights @ v)


# ------------------------------------------------------------------ temperature, top-k, sink


def written_out(
    scores: Tensor, mask: Tensor, temperature: Tensor, sink: Tensor | None, top_k: int | None
) -> Tensor:
    """e^(s/τ) / (e^a + Σ e^(s/τ)) over the visible keys, or over the k largest, row by row."""
    weights = torch.zeros_like(scores)
    for head, i in torch.cartesian_prod(*map(torch.arange, scores.shape[:2])).tolist():
        keys = [j for j in range(scores.shape[2]) if mask[i, j]]
        if top_k is not None:
            keys = sorted(keys, key=lambda j: -scores[head, i, j].item())[:top_k]
        powers = {j: torch.exp(scores[head, i, j] / temperature[head]) for j in keys}
        extra = 0.0 if sink is None else torch.exp(sink[head])
        for j in keys:
            weights[head, i, j] = powers[j] / (extra + sum(powers.values()))
    return weights


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("with_sink", [False, True])
def test_a_normalizer_is_its_equation_in_value_and_gradient(
    top_k: int | None, with_sink: bool
) -> None:
    mask = numbers(5, 7, seed=3) > -0.5
    mask[1] = False
    scores = numbers(2, 5, 7).requires_grad_()
    temperature = torch.nn.Parameter(torch.tensor([0.5, 2.0], dtype=torch.float64))
    sink = torch.nn.Parameter(numbers(2, seed=4)) if with_sink else None
    normalizer = Normalizer(temperature=temperature, sink=sink, top_k=top_k)
    leaves = [scores, *normalizer.parameters()]
    assert len(leaves) == 2 + with_sink
    found = normalizer(scores, mask)
    truth = written_out(scores, mask, temperature, sink, top_k)
    torch.testing.assert_close(found, truth)
    assert torch.count_nonzero(found[:, 1]) == 0
    upstream = numbers(2, 5, 7, seed=5)
    for a, b in zip(
        torch.autograd.grad(found, leaves, upstream),
        torch.autograd.grad(truth, leaves, upstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("inner", ["softmax", "sparsemax", "entmax15"])
def test_a_sink_is_one_more_key_without_a_value(inner: str) -> None:
    scores = numbers(3, 7)
    found = Normalizer(inner, sink=0.4)(scores)
    column = torch.full((3, 1), 0.4, dtype=torch.float64)
    truth = SMOOTH[inner](torch.cat((scores, column), -1))[:, :-1]
    torch.testing.assert_close(found, truth)
    assert float(found.sum(-1).min()) < 0.9


def test_normalizers_are_those_of_x_transformers() -> None:
    attend = pytest.importorskip("x_transformers.attend").Attend
    q, k, v = (numbers(2, 3, 7, 5, seed=seed) for seed in range(3))
    theirs = attend(heads=3, head_learned_sink=True, causal=True).double()
    with torch.no_grad():
        theirs.head_attn_sink.copy_(numbers(3, seed=9))
    sink = Normalizer(sink=theirs.head_attn_sink)
    found = regard.attend(q, k, v, normalize=sink, mask=regard.causal())
    torch.testing.assert_close(found, theirs(q, k, v)[0])
    for normalize, options in (
        (Normalizer(top_k=3), {"sparse_topk": 3}),
        (sigmoid, {"sigmoid": True}),
    ):
        found = regard.attend(q, k, v, normalize=normalize)
        torch.testing.assert_close(found, attend(**options)(q, k, v)[0])


def test_top_k_keeps_scores_that_are_equal() -> None:
    weights = Normalizer(top_k=1)(torch.tensor([[2.0, 2.0, 1.0]]))
    assert weights.tolist() == [[0.5, 0.5, 0.0]]


def test_annealing_a_temperature_leaves_earlier_maps_alone() -> None:
    normalizer = Normalizer(temperature=0.5, sink=torch.nn.Parameter(torch.zeros(1)))
    x = numbers(1, 5, 3).float()
    attended = regard.attend(x, x, x, normalize=normalizer, return_map=True)
    before = attended.map.dense()
    normalizer.temperature = 3.0
    with torch.no_grad():
        normalizer.sink.add_(1.0)  # type: ignore[union-attr]
    assert torch.equal(attended.map.dense(), before)
    torch.testing.assert_close(before @ x, attended.output)


def test_a_relaxed_sample_can_have_a_temperature_and_the_largest_keys() -> None:
    scores, uniform = numbers(2, 5), torch.full((2, 5), 0.3, dtype=torch.float64)
    found = Normalizer("gumbel", temperature=0.5, top_k=2)(scores, None, uniform)
    kept = scores >= scores.topk(2).values[:, -1:]
    torch.testing.assert_close(found, softmax(scores / 0.5, kept))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normalizer("sigmoid", sink=0.0), "a sink takes weight from other keys"),
        (lambda: Normalizer("gumbel", sink=0.0), "a sink takes weight from other keys"),
        (lambda: Normalizer(temperature=0.0), "temperature must be above 0"),
        (lambda: Normalizer(temperature=torch.tensor(0.0)), "temperature must be above 0"),
        (lambda: Normalizer(temperature=torch.tensor([1.0, -1.0, 2.0])), "temperature must be"),
        (lambda: Normalizer(temperature=nn.Parameter(torch.zeros(3))), "temperature must be"),
        (lambda: Normalizer(temperature=torch.tensor(math.nan)), "temperature must be above 0"),
        (lambda: Normalizer(top_k=0), "top_k must be a whole number, at least 1, got 0"),
        (lambda: Normalizer(top_k=2.5), "top_k must be a whole number, at least 1, got 2.5"),
        (lambda: Normalizer(sink=math.inf), "sink must be finite"),
        (lambda: Normalizer("softmx"), "did you mean 'softmax'"),
        (lambda: Normalizer(top_k=8), "top_k=8 is more than there are keys, 7"),
        (lambda: Normalizer(sink=torch.zeros(2)), r"sink of shape \(2,\) does not fit"),
        (lambda: Normalizer(temperature=torch.ones(4, 3)), "temperature of shape"),
    ],
)
def test_combinations_that_mean_nothing_are_errors(make: Callable, message: str) -> None:
    x = torch.zeros(2, 3, 7, 5)
    with pytest.raises(ValueError, match=message):
        regard.explain(x, x, x, normalize=make())


def test_a_temperature_without_numbers_is_taken_as_it_is() -> None:
    """As in models that are built on the meta device, and filled later."""
    with torch.device("meta"):
        assert Normalizer(temperature=nn.Parameter(torch.zeros(3))).temperature.is_meta
    with FakeTensorMode():
        Normalizer(temperature=torch.zeros(3))
