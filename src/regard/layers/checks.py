"""Errors about the arguments and inputs of layers, written once."""

from torch import Tensor

from regard.core.request import check_not_nested


def check_sizes(**sizes: int) -> None:
    """Raise ValueError for a size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be 1 or more, got {size}")


def check_heads(dim: int, heads: int, name: str = "dim") -> None:
    """Raise ValueError unless `dim` is a multiple of `heads`."""
    if dim % heads:
        low = dim - dim % heads
        raise ValueError(
            f"{name} must be a multiple of heads, got {name}={dim} and heads={heads}; "
            f"try {name}={low or heads} or {name}={low + heads}"
        )


def check_inputs(widths: dict[str, int], **inputs: Tensor) -> None:
    """Raise ValueError unless each input is (batch, length, its width)."""
    for name, x in inputs.items():
        check_not_nested(name, x)
        if x.dim() != 3 or x.shape[-1] != widths[name]:
            raise ValueError(
                f"{name} should be (batch, length, {widths[name]}), got {tuple(x.shape)}; the "
                "width of a query is dim, those of key and value are key_dim and value_dim, and a "
                "single sequence is x[None]"
            )


def check_dropout(probability: float, name: str = "dropout") -> None:
    """Raise ValueError unless a probability is at least 0 and below 1."""
    if not 0.0 <= probability < 1.0:
        raise ValueError(
            f"{name} should be at least 0 and below 1, a probability, got {probability}"
        )
