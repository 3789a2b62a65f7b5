"""Which module of a model is running right now."""

import sys
from types import FrameType

from torch import nn


class Modules:
    """The modules of a model by name, and which of them is at work.

    Hooks would tell as well, but they switch torch's own fast paths off, so that the numbers
    change, and they do not see a `step` or a `decode`. So the callers are asked: the nearest
    function whose first argument is one of the modules is the one that runs.

    >>> model = nn.ModuleDict({"inner": nn.Identity()})
    >>> Modules(model).names
    ['ModuleDict', 'inner']

    Args:
        model: whose modules to name; None for any module at all, by the name of its class
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model, root = model, type(model).__name__
        found = {} if model is None else dict(model.named_modules())
        self._modules = {name or root: module for name, module in found.items()}
        self._names = {id(module): name for name, module in self._modules.items()}

    @property
    def names(self) -> list[str]:
        return list(self._modules)

    def get(self, name: str) -> nn.Module | None:
        """The module of a name, if there is one."""
        return self._modules.get(name)

    def running(self, depth: int = 1) -> tuple[str, nn.Module | None] | None:
        """The name of the module that called, and itself; None if it is not one of the model's.

        Args:
            depth: how many callers to leave out
        """
        frame: FrameType | None = sys._getframe(depth + 1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount:
                first = frame.f_locals.get(code.co_varnames[0])
                name = self._names.get(id(first))
                if name is not None:
                    return name, first
                if self.model is None and isinstance(first, nn.Module):
                    return type(first).__name__, first
            frame = frame.f_back
        return ("attend", None) if self.model is None else None
