"""The arguments of the kernels: shapes checked, halves promoted, intervals of visible keys.

Query i sees keys low_i … high_i − 1, or all of them where low or high is None.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.nn import Parameter

from regard.system import torch_internals

End = Tensor | None
"""One end of the interval of keys that each query sees, int64 (B or 1, M)."""


def check_shape(name: str, tensor: Tensor, shape: Sequence[int | None]) -> None:
    """Raise unless a tensor has a shape, in which None stands for any size.

    >>> check_shape("key", torch.zeros(2, 3), (2, None, 5))
    Traceback (most recent call last):
    ValueError: key must have shape (2, any, 5), but has (2, 3)
    """
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        want is not None and want != have for want, have in zip(shape, sizes, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape ({wanted}), but has {sizes}")


def check_intervals(query: Tensor, low: End, high: End) -> tuple[End, End]:
    """Both ends as int64 tensors of shape (B or 1, M)."""
    ends: list[Tensor | None] = []
    for name, end in (("low", low), ("high", high)):
        if end is not None:
            if end.is_floating_point() or end.dtype == torch.bool:
                raise TypeError(f"{name} must be an integer tensor, but has dtype {end.dtype}")
            check_shape(name, end, (1 if end.shape[:1] == (1,) else query.shape[0], query.shape[1]))
            end = end.long()
        ends.append(end)
    return ends[0], ends[1]


def promote_half(*tensors: Tensor) -> tuple[torch.dtype, tuple[Tensor, ...]]:
    """The common dtype of some tensors, and the tensors in that dtype, float32 at least.

    >>> promote_half(torch.zeros(1, dtype=torch.float16))
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


def needs_no_op(tensors: tuple[Tensor, ...]) -> bool:
    """Whether a kernel may be called directly: no gradient, no tracing, no subclass of Tensor."""
    return (
        not torch.compiler.is_compiling()
        and all(type(tensor) in (Tensor, Parameter) for tensor in tensors)
        and not needs_gradient(tensors)
        and not torch_internals.any_dispatch_mode()
    )


def needs_gradient(tensors: tuple[Tensor, ...]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def interval_arrays(low: End, high: End, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends as int64 arrays of shape (B or 1, M)."""
    start = np.zeros((1, queries), np.int64) if low is None else low.contiguous().numpy()
    stop = np.full((1, queries), keys, np.int64) if high is None else high.contiguous().numpy()
    return start, stop


def as_column(end: End) -> End:
    """One end (B or 1, M) as a column (B or 1, M, 1) to be cut along with the queries."""
    return None if end is None else end.unsqueeze(-1)


def shown_keys(low: End, high: End, keys: int) -> Tensor | None:
    """Which keys queries see, (B or 1, M, N), or None for all; the ends are columns.

    >>> shown_keys(None, torch.tensor([[[1], [3]]]), 3)
    tensor([[[ True, False, False],
             [ True,  True,  True]]])
    """
    shown = None
    if low is not None:
        shown = torch.arange(keys, device=low.device) >= low
    if high is not None:
        before = torch.arange(keys, device=high.device) < high
        shown = before if shown is None else shown & before
    return shown
