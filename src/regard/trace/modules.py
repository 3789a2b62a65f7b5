"""The modules of a model: their names, their roles, and which of them is making a call."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from regard.attention.observer import observed
from regard.layers.role import DECODER_SELF, ENCODER_DECODER, SELF, AttentionRole
from regard.trace.adapters.hugging_face import transformers_roles
from regard.trace.adapters.torch_calls import EarlyBound, Place, Wrap, binds_early, reported
from regard.trace.missed import find_attention, is_opaque, watched


def inner_module(model: Any, what: str) -> nn.Module:
    """The torch module that is the model, or is its `.model`, as of a loaded run."""
    inner = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(inner, nn.Module):
        raise TypeError(
            f"{what} takes a torch module, or an object with one as .model, got "
            f"{type(model).__name__}"
        )
    return inner


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Keep torch's modules from their fused layers, which show no attention inside."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class Modules:
    """Names and roles of the modules of a model.

    >>> model = nn.ModuleDict({"inner": nn.Identity()})
    >>> Modules(model).name(model["inner"]), Modules(model).name(nn.Identity())
    ('inner', None)

    Args:
        model: None for any module at all, named by its class
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model = model
        self.ids: set[int] = set()
        self.third_party: set[type] = set()  # classes that are neither torch's nor ours
        self.multi_head: list[nn.MultiheadAttention] = []
        self.has_fast = False  # torch's fast paths, which some ways of observing turn off
        self.attention: dict[int, nn.Module] = {}  # what looks like it, by id
        self.opaque: list[nn.Module] = []  # what runs as a graph
        if model is not None:
            self._walk(model)

    def _walk(self, model: nn.Module) -> None:
        """Take a quick look at every module: this runs whenever a capture begins."""
        waiting: list[nn.Module | None] = [model]
        kinds: dict[type, list[Any]] = {}
        while waiting:
            module = waiting.pop()
            if module is None or id(module) in self.ids:
                continue
            self.ids.add(id(module))
            kinds.setdefault(type(module), []).append(module)
            if is_opaque(module):
                self.opaque.append(module)
            waiting += module.__dict__["_modules"].values()
        for kind, some in kinds.items():
            if issubclass(kind, nn.MultiheadAttention):
                self.multi_head += some
            elif issubclass(kind, nn.TransformerEncoderLayer):
                self.has_fast = True
            elif is_third_party_class(kind):
                self.third_party.add(kind)
        if self.opaque or any(map(is_third_party_class, kinds)):
            self.attention = find_attention(kinds)

    @property
    def is_compiled(self) -> bool:
        """Whether a part of the model runs as a graph."""
        return bool(self.opaque)

    @cached_property
    def by_name(self) -> dict[str, nn.Module]:
        """The modules by their names; the model itself by the name of its class."""
        model = getattr(self.model, "_orig_mod", self.model)  # torch.compile wraps it
        found = {} if model is None else dict(model.named_modules())
        return {name or type(model).__name__: module for name, module in found.items()}

    @cached_property
    def _names(self) -> dict[int, str]:
        return {id(module): name for name, module in self.by_name.items()}

    def name(self, module: nn.Module | None) -> str | None:
        """The name of a module; None if it does not belong to the model."""
        if self.model is None:
            return None if module is None else type(module).__name__
        return self._names.get(id(module))

    def role(self, module: nn.Module | None) -> AttentionRole:
        """Which sequences the queries and keys of a module belong to: the source if not known.

        The `role` that a model gave to the module; else what torch and transformers declare.
        """
        role = getattr(module, "role", None)
        return role if isinstance(role, AttentionRole) else self._roles.get(id(module), SELF)

    @cached_property
    def _roles(self) -> dict[int, AttentionRole]:
        found: dict[int, AttentionRole] = {}
        for module in self.by_name.values():
            if isinstance(module, nn.TransformerDecoderLayer):
                found[id(module.self_attn)] = DECODER_SELF
                found[id(module.multihead_attn)] = ENCODER_DECODER
        return found | transformers_roles(self.by_name)

    @contextmanager
    def observable(self) -> Iterator[None]:
        """Let the attention of the model notify observers until the block ends."""
        fast = self.has_fast or self.multi_head
        early = not fast and any(map(binds_early, self.third_party))
        own = self.third_party if self.third_party or self.model is None else None
        calls = reported(self._forwards(), self.multi_head, own)
        with calls, EarlyBound() if early else nullcontext():
            yield

    def _forwards(self) -> dict[Place, Wrap]:
        """The methods to replace, so that calls have the name of a module and none is missed."""
        found: dict[Place, Wrap] = {(kind, "forward"): observed for kind in self.third_party}
        for module in self.attention.values():
            if is_third_party_class(type(module)):
                found[type(module), "forward"] = watched
        for module in (*self.attention.values(), *self.opaque):
            own = module.__dict__
            name = "_compiled_call_impl" if own.get("_compiled_call_impl") else "forward"
            if name in own or isinstance(module, torch.jit.ScriptModule):
                found[module, name] = partial(watched, module=module)
        return found


def is_third_party(module: nn.Module | None) -> bool:
    """Whether a module is neither torch's nor ours."""
    return module is not None and is_third_party_class(type(module))


def is_third_party_class(kind: type) -> bool:
    """Whether a class or one that it is derived from is neither torch's nor ours."""
    names = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return not names <= {"torch", "regard", "builtins", "typing", "abc"}
