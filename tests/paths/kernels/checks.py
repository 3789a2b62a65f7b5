"""What the tests of all kernels share: random intervals, and a comparison with an equation."""

import torch

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}


def intervals(queries, keys, *, batch, seed=0):
    """Random intervals, among them empty ones and ones that end beyond the keys."""
    draw = torch.Generator().manual_seed(seed)
    low = torch.randint(-2, keys, (batch, queries), generator=draw)
    return low, low + torch.randint(0, keys + 3, (batch, queries), generator=draw)


def visible(low, high, keys):
    position = torch.arange(keys)
    return (position >= low[..., None]) & (position < high[..., None])


def assert_same(function, equation, tensors, *others, scale=0.0):
    """Values and gradients, each relative to the largest entry of the equation's in float64.

    Args:
        function, equation: (*tensors, *others) -> tensor
        scale: the largest score, whose rounding is tolerated
    """
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found, wanted = function(*tensors, *others), equation(*exact, *others)
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).double()
    pairs = [(found, wanted)]
    if wanted.numel():
        pairs += zip(
            torch.autograd.grad(found, tensors, grad.to(found.dtype)),
            torch.autograd.grad(wanted, exact, grad),
            strict=True,
        )
    tolerance = max(TOLERANCE[found.dtype], 4 * torch.finfo(found.dtype).eps * scale)
    for result, reference in pairs:
        assert result.shape == reference.shape
        if reference.numel():
            error = (result.double() - reference).abs().max()
            assert error <= tolerance * reference.abs().max() + 1e-30


def assert_hidden_reaches_nothing(function, tensors, hideable, bad):
    """What lies outside of keys 2 … 4 may be NaN or inf: results and gradients stay the same.

    Args:
        function: (*tensors) -> tensor, where no query sees keys outside of 2 … 4
        hideable: which of the tensors are keys or values
        bad: the numbers before and after these keys
    """
    dirty = [tensor.detach().clone() for tensor in tensors]
    for i in hideable:
        dirty[i][:, :2], dirty[i][:, 5:] = bad
    results = []
    for run in tensors, [tensor.requires_grad_() for tensor in dirty]:
        out = function(*run)
        results.append((out, *torch.autograd.grad(out.sin().sum(), run)))
    for clean, other in zip(*results, strict=True):
        torch.testing.assert_close(other, clean, rtol=1e-12, atol=1e-12)
