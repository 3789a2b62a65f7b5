"""What the kernels accept: shapes checked, halves raised to float32, intervals as int64."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn import Parameter


def expect(name: str, tensor: Tensor, shape: Sequence[int | None]) -> None:
    """Raise unless a tensor has a shape, in which None stands for any size.

    >>> expect("key", torch.zeros(2, 3), (2, None, 5))
    Traceback (most recent call last):
    ValueError: key must have shape (2, any, 5), but has (2, 3)
    """
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        want is not None and want != have for want, have in zip(shape, sizes, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), but has {sizes}")


def raised(*tensors: Tensor) -> tuple[torch.dtype, tuple[Tensor, ...]]:
    """The common dtype of some tensors, and the tensors in that dtype, float32 at least.

    >>> raised(torch.zeros(1, dtype=torch.float16))
    (torch.float16, (tensor([0.]),))
    """
    dtype = tensors[0].dtype
    tracing = torch.compiler.is_compiling()
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise TypeError(f"expected floating-point tensors, but got {tensor.dtype}")
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
        if not tracing and unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                "the kernels have no forward-mode derivative; dual tensors need the reference path"
            )
    working = dtype if dtype == torch.float64 else torch.float32
    return dtype, tuple(t if t.dtype == working else t.to(working) for t in tensors)


def plain(tensors: tuple[Tensor, ...]) -> bool:
    """Whether nobody watches what is computed: no derivative, no tracing, no subclass of Tensor."""
    return (
        not torch.compiler.is_compiling()
        and all(type(tensor) in (Tensor, Parameter) for tensor in tensors)
        and not needs_gradient(tensors)
    )


def needs_gradient(tensors: tuple[Tensor, ...]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def check_intervals(
    query: Tensor, low: Tensor | None, high: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Both ends as int64 tensors of shape (B or 1, M)."""
    if low is None and high is None:
        return None, None
    return check_end("low", query, low), check_end("high", query, high)


def check_end(name: str, query: Tensor, end: Tensor | None) -> Tensor | None:
    if end is None:
        return None
    if end.is_floating_point() or end.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, the ends of intervals, but has {end.dtype}")
    expect(name, end, (1 if end.shape[:1] == (1,) else query.shape[0], query.shape[1]))
    return end.long()
