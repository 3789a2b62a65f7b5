"""A table of the parts of a model and their numbers of parameters."""

from torch import nn


def parameters(module: nn.Module) -> int:
    """The number of parameters of a module; shared ones count once.

    >>> parameters(nn.Linear(3, 5))
    20
    """
    return sum(parameter.numel() for parameter in module.parameters())


def summary(model: nn.Module, depth: int = 2) -> str:
    """The parts of a model, down to some depth, with their numbers of parameters.

    >>> print(summary(nn.Sequential(nn.Linear(3, 5), nn.ReLU())))
    part   kind        parameters
    -----------------------------
    0      Linear              20
    -----------------------------
    total  Sequential          20

    Args:
        depth: how many levels of modules inside modules to show

    Parts without parameters are left out. A part that shares parameters with one above it is
    marked and adds nothing to the total.
    """
    rows: list[tuple[str, str, str]] = []
    seen: set[int] = set()
    for name, module in _parts(model, depth):
        own = {id(p): p.numel() for p in module.parameters()}
        if not own:
            continue
        new = sum(size for key, size in own.items() if key not in seen)
        inner = any(parameters(child) for child in module.children())
        leaf = name.count(".") == depth - 1 or not inner
        shared = " (shared)" if leaf and new < sum(own.values()) else ""
        seen |= set(own) if leaf else set()
        rows.append((name, type(module).__name__ + shared, f"{new:,}"))
    head = ("part", "kind", "parameters")
    total = ("total", type(model).__name__, f"{parameters(model):,}")
    widths = [max(len(row[column]) for row in (head, *rows, total)) for column in range(3)]
    lines = [
        f"{part:<{widths[0]}}  {kind:<{widths[1]}}  {count:>{widths[2]}}"
        for part, kind, count in (head, *rows, total)
    ]
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def _parts(module: nn.Module, depth: int, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Modules inside a module, by their full names, outer ones before inner ones."""
    found = []
    for name, child in module.named_children():
        found.append((prefix + name, child))
        if depth > 1:
            found += _parts(child, depth - 1, f"{prefix}{name}.")
    return found
