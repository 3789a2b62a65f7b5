"""Copies of scores, unaffected by later changes of their parameters."""

import copy
from typing import Any

from torch import Tensor, nn

from regard.core.lower import copy_module


class Freezer:
    """Copies scores with their parameters, again only if a parameter has changed.

    >>> score, freeze = nn.Linear(2, 3), Freezer()
    >>> kept = freeze(score)
    >>> _ = nn.init.zeros_(score.weight)
    >>> freeze(score) is kept, bool((kept.weight == 0).all())
    (False, False)
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def __call__(self, score: Any) -> Any:
        """The score as it is now."""
        if isinstance(score, nn.Module):
            return self._module(score)
        inside = getattr(score, "__dict__", {})
        modules = {name: part for name, part in inside.items() if isinstance(part, nn.Module)}
        if not modules:
            return score
        score = copy.copy(score)
        score.__dict__.update({name: self._module(part) for name, part in modules.items()})
        return score

    def _module(self, module: nn.Module) -> nn.Module:
        kept = self._kept.get(id(module))
        if kept is None:
            if not (module._parameters or module._buffers or module._modules):
                return module
            tensors = [*module.parameters(), *module.buffers()]
            kept = self._kept[id(module)] = _Kept(module, tensors)
        return kept.now()


class _Kept:
    """A module, and its last copy."""

    def __init__(self, module: nn.Module, tensors: list[Tensor]) -> None:
        self.module, self.tensors = module, tensors
        self.versions: list[int] = []
        self.copy = module

    def now(self) -> nn.Module:
        """A copy with the parameters of now; the module itself if it has none."""
        versions = [0 if t.is_inference() else t._version for t in self.tensors]
        if versions != self.versions:
            self.copy = copy_module(self.module, lambda tensor: tensor.detach().clone())
            self.versions = versions
        return self.copy
