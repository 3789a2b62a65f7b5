"""Maps of a model's attention, as observers get them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.observer import record


def recorded(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, dict[str, Tensor]]:
    """The result of `run`, and the maps by module, (batch, heads, M, N); steps are stacked."""
    names = {module: name for name, module in model.named_modules()}
    with record() as calls:
        result = run()
    maps: dict[str, list[Tensor]] = {}
    for call in calls:
        map = call.map.dense()
        map = map.reshape(len(map), -1, *map.shape[-2:])
        maps.setdefault(names[call.module], []).append(map)
    return result, {name: torch.cat(parts, 2) for name, parts in maps.items()}


def step_weights(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, dict[str, Tensor]]:
    """The same of one step, (entries, heads, N): beams are the queries of their sentence."""
    result, maps = recorded(model, run)
    return result, {name: map.transpose(1, 2).flatten(0, 1) for name, map in maps.items()}
