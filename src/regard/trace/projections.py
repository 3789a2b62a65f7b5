"""The inputs of attention layers: what their projections W_Q, W_K and W_V received."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.attention.record import LayerInputs
from regard.layers import TorchMultiheadAttention

NAMES = (
    ("query_projection", "key_projection", "value_projection"),
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("q", "k", "v"),
    ("c_attn",),
)
"""How libraries name W_Q, W_K and W_V; a single one is their concatenation."""

OUTPUTS = ("output_projection", "out_proj", "o_proj", "out_lin", "o", "c_proj")
"""How they name W_O."""


Three = tuple[Tensor, Tensor, Tensor]


def find_projections(module: nn.Module | None) -> tuple[nn.Module, ...]:
    """W_Q, W_K and W_V of a layer, or one module with all of them; () if it has none by name.

    >>> from regard.layers import MultiHeadAttention
    >>> find_projections(MultiHeadAttention(6, heads=2))[0]
    Linear(in_features=6, out_features=6, bias=True)
    """
    for names in NAMES:
        found = tuple(getattr(module, name, None) for name in names)
        if all(isinstance(each, nn.Module) for each in found):
            return found  # type: ignore[return-value]
    return ()


def find_output(module: nn.Module | None) -> nn.Module | None:
    """W_O of a layer; None if it has none by name."""
    found = (getattr(module, name, None) for name in OUTPUTS)
    return next((each for each in found if isinstance(each, nn.Module) and has_weight(each)), None)


def has_weight(module: nn.Module) -> bool:
    """Whether a module is a projection, and not an `nn.Identity` in the place of one."""
    return isinstance(getattr(module, "weight", None), Tensor)


class ProjectionInputs:
    """Keeps the latest inputs of the projections of a model, by hooks.

    The hooks are on the projections alone: torch leaves its fast paths where its own attention
    has one.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._latest: dict[int, Tensor] = {}  # by id of the projection
        self._three: dict[int, Three] = {}  # by id of the layer
        modules = list(modules)
        self._layers = [each for each in modules if isinstance(each, TorchMultiheadAttention)]
        self._projections = [part for each in modules for part in find_projections(each)]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep inputs until the block ends."""
        handles = [each.register_forward_pre_hook(self._keep) for each in self._projections]
        handles += [
            each.register_forward_pre_hook(self._keep_three, with_kwargs=True)
            for each in self._layers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def of(self, module: nn.Module | None, freeze: Callable[[Any], Any]) -> LayerInputs | None:
        """What the projections of a module received last; None if it has none.

        Args:
            freeze: makes copies of modules that later changes do not affect
        """
        if id(module) in self._three:
            return LayerInputs(self._three[id(module)])
        parts = find_projections(module)
        found = [self._latest[id(part)] for part in parts if id(part) in self._latest]
        if not parts or len(found) < len(parts) or any(x.dim() != 3 for x in found):
            return None
        query, key, value = found * 3 if len(found) == 1 else found
        output = find_output(module)
        copies = tuple(freeze(part) for part in parts)
        return LayerInputs((query, key, value), copies, None if output is None else freeze(output))

    def _keep(self, part: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            self._latest[id(part)] = args[0].detach()

    def _keep_three(self, layer: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(layer, TorchMultiheadAttention)
        given = {**dict(zip(("query", "key", "value"), args, strict=False)), **options}
        three = (given[name].detach() for name in ("query", "key", "value"))
        query, key, value = (layer._batch_first(x, x.dim() == 3) for x in three)
        self._three[id(layer)] = query, key, value
