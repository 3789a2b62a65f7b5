"""Which module of a model is running right now."""

import sys
from types import FrameType

from torch import nn


def running(depth: int = 1) -> nn.Module | None:
    """The module that called: the nearest function whose `self` (or `module`) is one.

    Hooks would tell as well, but they switch torch's own fast paths off, so that the numbers
    change, and they do not see a `step` or a `decode`.

    >>> class Layer(nn.Module):
    ...     def step(self):
    ...         return running(depth=0)
    >>> layer = Layer()
    >>> layer.step() is layer
    True

    Args:
        depth: how many callers to leave out
    """
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        names = frame.f_code.co_varnames
        if names and names[0] in ("self", "module"):
            first = frame.f_locals.get(names[0])
            if isinstance(first, nn.Module):
                return first
        frame = frame.f_back
    return None


class Names:
    """What the modules of a model are called.

    >>> model = nn.ModuleDict({"inner": nn.Identity()})
    >>> Names(model).of(model["inner"]), Names(model).of(nn.Identity()), Names(None).of(model)
    ('inner', None, 'ModuleDict')

    Args:
        model: whose modules to name; None for any module at all, by the name of its class
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        found = {} if model is None else dict(model.named_modules())
        self.modules = {name or type(model).__name__: module for name, module in found.items()}
        self._names = {id(module): name for name, module in self.modules.items()}

    def of(self, module: nn.Module | None) -> str | None:
        """The name of a module; None if it is not one of the model's."""
        if self.model is None:
            return "attend" if module is None else type(module).__name__
        return self._names.get(id(module))
