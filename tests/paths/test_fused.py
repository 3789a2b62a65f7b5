"""The commonest call, whose choice is remembered, gives what the formula gives."""

import pytest
import torch

import regard
from regard.attention.observer import record
from regard.core.mask import Grid, as_mask
from regard.core.normalize import Normalizer

B, H, M, N, D = 2, 3, 11, 13, 5
COUNT = torch.tensor([N, 7])
MASKS = {
    "none": lambda: None,
    "causal": regard.causal,
    "window": lambda: regard.window(3, 2),
    "lengths": lambda: regard.lengths(COUNT),
    "empty sequence": lambda: regard.lengths(torch.tensor([0, N])),
    "both lengths": lambda: regard.lengths(COUNT, torch.tensor([M, 5])),
    "segments": lambda: regard.segments(torch.arange(M) // 6, torch.arange(N) // 7),
    "causal padded": lambda: regard.causal() & regard.lengths(COUNT),
    "not window": lambda: ~regard.window(4, 4),
    "bool (N,)": lambda: torch.arange(N) % 3 > 0,
    "bool (M, N)": lambda: torch.rand(M, N) > 0.5,
    "bool (B, 1, 1, N)": lambda: (torch.arange(N) < COUNT[:, None])[:, None, None],
    "bool (H, M, 1)": lambda: torch.rand(H, M, 1) > 0.5,
}


def inputs(queries: int = M, dtype=torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (B, H, queries, D), (B, H, N, D), (B, H, N, D)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("name", list(MASKS))
def test_a_plain_call_is_the_formula_whatever_the_mask(name: str):
    tensors, mask = inputs(), MASKS[name]()
    assert regard.explain(*tensors, mask=mask).path == "fused"
    found = regard.attend(*tensors, mask=mask)
    assert torch.equal(found, regard.attend(*tensors, mask=mask, return_map=True).output)
    wanted = regard.attend(*tensors, mask=mask, path="reference")
    upstream = torch.randn(found.shape, dtype=found.dtype)
    ours = torch.autograd.grad(found, tensors, upstream)
    theirs = torch.autograd.grad(wanted, tensors, upstream)
    for a, b in zip((found, *ours), (wanted, *theirs), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_a_square_causal_call_and_a_single_query_are_the_formula_too():
    tensors = inputs(N)
    found = regard.attend(*tensors, mask=regard.causal())
    assert torch.allclose(found, regard.attend(*tensors, mask=regard.causal(), path="reference"))
    tensors = inputs(1)
    found = regard.attend(*tensors, mask=regard.causal())
    assert torch.allclose(found, regard.attend(*tensors, path="reference"))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_hidden_numbers_do_not_reach_a_plain_call(bad: float):
    query, key, value = inputs()
    spoilt = [key.detach().clone(), value.detach().clone()]
    for tensor in spoilt:
        tensor[1, :, 7:] = bad
        tensor.requires_grad_()
    mask = regard.lengths(COUNT)
    found = regard.attend(query, *spoilt, mask=mask)
    assert torch.allclose(found, regard.attend(query, key, value, mask=mask))
    for gradient in torch.autograd.grad(found.sum(), [query, *spoilt]):
        assert gradient.isfinite().all()


def test_a_remembered_call_is_the_chosen_one():
    tensors = [t.detach() for t in inputs()]
    first = regard.attend(*tensors)
    assert torch.equal(regard.attend(*tensors), first)
    with record() as calls:
        assert torch.equal(regard.attend(*tensors), first)
    assert [call.path for call in calls] == [regard.explain(*tensors).path] == ["fused"]
    tiny = [t[:1, :1, :2, :] for t in tensors]
    for _ in range(2):
        assert torch.equal(regard.attend(*tiny), regard.attend(*tiny, path="reference"))
    with pytest.raises(TypeError, match="share a dtype"):
        regard.attend(tensors[0], tensors[1], tensors[2].float())


def test_a_mask_that_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="only 13"):
        regard.attend(*inputs(), mask=regard.lengths(torch.tensor([N + 1, 1])))
    with pytest.raises(ValueError, match="does not fit 11 queries"):
        regard.attend(*inputs(), mask=torch.ones(M + 1, N) > 0)
    for mask in (regard.causal, [[True] * N] * M, "causal"):  # no parentheses, no tensor
        with pytest.raises(TypeError, match=r"or a mask such as regard.causal\(\)"):
            regard.attend(*inputs(), mask=mask)


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_masks_tell_their_leading_dimensions_without_a_block(name: str):
    mask, grid = as_mask(MASKS[name]()), Grid(M, N, 2, torch.device("cpu"))
    block = mask.block(slice(0, M), slice(0, N), grid)
    own = mask.spread(grid)
    assert torch.Size((1,) * (block.dim() - 2 - len(own)) + own) == block.shape[:-2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["temperature", "sink"])
def test_learned_numbers_have_the_gradient_of_the_formula_in_every_dtype(name: str, dtype):
    for seed in range(3):
        torch.manual_seed(seed)
        *tensors, upstream = (3 * torch.randn(3, 3, 65, 65) for _ in range(4))
        found = []
        for number in (dtype, torch.float64):  # the same numbers, rounded to the dtype
            q, k, v, g = (t.to(dtype).to(number) for t in (*tensors, upstream))
            learned = torch.nn.Parameter(torch.ones(3))
            output = regard.attend(q, k, v, normalize=Normalizer(**{name: learned}))
            output.backward(g)
            found.append(learned.grad)
        scale = found[1].abs().max().clamp(min=1.0)
        limit = max(8 * torch.finfo(dtype).eps, 5e-5)
        torch.testing.assert_close(found[0] / scale, found[1] / scale, rtol=0, atol=limit)
