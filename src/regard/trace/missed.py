"""Attention that ran and was not recorded: which modules look like it, which ran, and why."""

import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, wraps
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.attention.observer import calling, observers
from regard.core.blocks import in_functorch
from regard.system import torch_internals

ATTENTION = re.compile(
    r"(?i)(?:attention|attn)"
    r"(?!.*(?:output|projection|bias|norm|mlp|adapter|adapterlayer|loss|dropout|mask|embeddings?)$)"
)
"""Class names of attention, as opposed to those of its parts."""

ONE = re.compile(
    r"(?i)(?:(?:to|in|fc|linear|proj)_?|w_?)?(q|k|v)(?:uery|ey|alue|ueries|eys|alues)?"
    r"(?:_?(?:proj|projection|lin|linear|layer|net))?"
)
ALL = re.compile(r"(?i)qkv|query_?key_?value|^c_attn$")
"""Names of one projection, and of the concatenation of three."""

LINEAR = re.compile(r"(?i)linear_?(?:self)?att|delta_?(rule|net)|recurren|retention|lightning|rwkv")
RECURRENT = "linear attention or a recurrent state, without a softmax over keys"
REASONS = (
    (re.compile(r"flex_attention"), "uses flex_attention"),
    (re.compile(r"flash_attn_\w*func"), "uses flash_attn"),
    (re.compile(r"memory_efficient_attention"), "uses memory_efficient_attention"),
    (re.compile(r"(?i)softmax"), "computes softmax in its own code, and not as weights · values"),
    (LINEAR, RECURRENT),
)
"""What the code of a module mentions, and what that says about it."""

DYNAMO = "_torchdynamo_orig_callable"  # what torch.compile leaves on a function
UNKNOWN = "calls no attention function that capture records"
OUTSIDE = "calls attention outside of forward(), or through a module that it does not register"
COMPILED = 'is compiled; torch.compiler.set_stance("force_eager") runs it as it is written'
SCRIPTED = "is compiled by TorchScript"
TRANSFORMED = "ran inside a transform of torch.func"


class Missed(NamedTuple):
    """A module that looks like attention, ran, and was not recorded: an entry of `Trace.missed`.

    >>> print(Missed("layers.0.attn", "LinearAttention", "linear attention"))
    layers.0.attn (LinearAttention): linear attention

    Args:
        name: of the module in the model
        kind: the name of its class
        reason: why it was not recorded, as far as that is known
    """

    name: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}): {self.reason}"


def abbreviated(missed: Sequence[Missed], most: int) -> list[str]:
    """The first of some missed modules as text, and how many more there are."""
    more = len(missed) - most
    return [*map(str, missed[:most]), *([f"and {more} more"] if more > 0 else [])]


# ---------------------------------------------------------------------- what looks like attention


def class_name(module: nn.Module) -> str:
    """The name of a module's class; of the original class if it is scripted."""
    scripted = isinstance(module, torch.jit.ScriptModule)
    return str(module.original_name) if scripted else type(module).__name__


@lru_cache(maxsize=4096)
def has_projections(names: tuple[str, ...]) -> bool:
    """Whether modules of these names project queries, keys and values.

    >>> has_projections(("q_proj", "k_proj", "v_proj")), has_projections(("to_qkv",))
    (True, True)
    >>> has_projections(("keys", "values", "output"))
    False
    """
    letters = {match[1].lower() for name in names if (match := ONE.fullmatch(name))}
    return len(letters) == 3 or any(map(ALL.search, names))


def find_attention(kinds: Mapping[type, Iterable[nn.Module]]) -> dict[int, nn.Module]:
    """The modules that look like attention, by id.

    They have projections of queries, keys and values, or a name of attention and no such module
    inside.

    Args:
        kinds: the modules of a model, by class
    """
    named, found = [], {}
    for kind, modules in kinds.items():
        if kind.__module__.startswith("torch.nn.") and kind is not nn.MultiheadAttention:
            continue
        if getattr(kind, "forward", None) is nn.Module.forward:
            continue  # a container, which is never called
        for module in modules:
            if has_projections(tuple(module._modules.keys())):
                found[id(module)] = module
            elif ATTENTION.search(class_name(module)):
                named.append(module)
    likely = found.keys() | {id(module) for module in named}
    return found | {id(each): each for each in named if not _holds(each, likely)}


def _holds(module: nn.Module, ids: Container[int]) -> bool:
    """Whether one of a module's parts is among some."""
    return any(id(part) in ids for part in module.modules() if part is not module)


def _innermost(module: nn.Module, ids: Container[int]) -> list[nn.Module]:
    parts = [part for part in module.modules() if id(part) in ids]
    return [part for part in parts if not _holds(part, ids)]


def is_opaque(module: nn.Module) -> bool:
    """Whether a module runs as a graph, without its Python code."""
    forward = module.__dict__.get("_compiled_call_impl") or module.__dict__.get("forward")
    return hasattr(forward, DYNAMO) or isinstance(module, torch.jit.ScriptModule)


def _is_eager(module: nn.Module) -> bool:
    """Whether a compiled module runs its Python code all the same."""
    return torch_internals.is_forced_eager() and not isinstance(module, torch.jit.ScriptModule)


# ---------------------------------------------------------------------- what ran


class Watch:
    """Which modules that look like attention ran, and which of them made no recorded call.

    Args:
        attention: modules that look like attention, by id
        opaque: modules that run as a graph, in which nothing is recorded
    """

    def __init__(self, attention: Mapping[int, nn.Module], opaque: Iterable[nn.Module]) -> None:
        self.attention = attention
        self.graphs = {id(each): _innermost(each, attention) for each in opaque}
        self.ran: set[int] = set()  # in Python
        self.ran_as_graphs: dict[int, nn.Module] = {}
        self.incomplete: dict[int, tuple[nn.Module, str | None]] = {}

    def __contains__(self, module: nn.Module) -> bool:
        return id(module) in self.attention or bool(self.graphs.get(id(module)))

    def ended(self, module: nn.Module, is_complete: bool) -> None:
        """Note that a module ran, and whether it recorded all there was."""
        if id(module) in self.graphs and not _is_eager(module):
            self.ran_as_graphs[id(module)] = module
        elif id(module) in self.attention:
            self.ran.add(id(module))
            if not is_complete:
                self.report(module, TRANSFORMED if in_functorch() else None)

    def report(self, module: nn.Module, reason: str | None) -> None:
        """Note that a call of a module was not recorded, and the reason if it is known."""
        self.incomplete.setdefault(id(module), (module, reason))

    def missed(self, recorded: set[int]) -> list[tuple[nn.Module, str]]:
        """The modules that were not recorded, with the reasons.

        Args:
            recorded: ids of modules that made recorded calls
        """
        known = self.ran | recorded
        graphs = {
            id(part): (part, SCRIPTED if isinstance(graph, torch.jit.ScriptModule) else COMPILED)
            for graph in self.ran_as_graphs.values()
            for part in self.graphs[id(graph)]
            if id(part) not in known and not _holds(part, recorded)
        }
        others = self.incomplete.values()
        return [*graphs.values(), *((part, reason or _reason(part)) for part, reason in others)]


class _Run:
    """A call of a watched module; it is complete once a call inside it was recorded or reported."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.is_complete = module, False
        self.softmaxes: set[object] = set()  # in its own code, that did not become attention


_running: ContextVar[_Run | None] = ContextVar("running", default=None)


def recorded() -> None:
    """Note that the watched module that is running made a recorded call."""
    run = _running.get()
    if run is not None:
        run.is_complete = True


def running() -> _Run | None:
    """The call of the innermost watched module that is running."""
    return _running.get()


def softmax_began(token: object) -> None:
    """Note that the module that is running computed a softmax in its own code."""
    run = _running.get()
    if run is not None:
        run.softmaxes.add(token)


def softmax_ended(token: object) -> None:
    """Note that a softmax was recorded, or is not attention."""
    run = _running.get()
    if run is not None:
        run.softmaxes.discard(token)


def is_recomputed() -> bool:
    """Whether backward is repeating what ran before."""
    return torch.is_grad_enabled() and torch_internals.in_backward()


def watched(method: Callable, module: nn.Module | None = None) -> Callable:
    """Make `forward` tell the watches of this thread when it made no recorded call.

    Args:
        method: of a class
        module: whose own the method is, in place of its class's
    """

    @wraps(method)  # with what torch.compile left on it, see `is_opaque`
    def call(*args: Any, **options: Any) -> Any:
        owner = args[0] if module is None else module
        listening = observers()  # none inside a compiled graph
        if not listening:
            return method(*args, **options)
        above = _running.get()
        if above is not None and above.module is owner:  # super().forward()
            return method(*args, **options)
        watches = [each for each in map(_watch, listening) if each is not None and owner in each]
        with calling(owner):
            if not watches:
                return method(*args, **options)
            run = _Run(owner)
            token = _running.set(run)
            try:
                result = method(*args, **options)
            finally:
                _running.reset(token)
        if above is not None:
            above.is_complete = True
        for each in [] if is_recomputed() else watches:
            each.ended(owner, run.is_complete and not run.softmaxes)
        return result

    # a code object of its own: torch.compile limits the number of graphs for each
    name = getattr(method, "__name__", "forward")
    call.__code__ = call.__code__.replace(co_name=name)  # type: ignore[attr-defined]
    return call


def _watch(observer: Any) -> Watch | None:
    return getattr(observer, "watch", None)


def calling_frame(ids: Container[int]) -> nn.Module | None:
    """The innermost of some modules, by id, whose method is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, nn.Module) and id(found) in ids:
            return found
        frame = frame.f_back
    return None


# ---------------------------------------------------------------------- why


def _reason(module: nn.Module) -> str:
    """Why a module was not recorded, as far as its code tells."""
    kind: Any = type(module)
    names = _names(kind)
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if "ALL_ATTENTION_FUNCTIONS" in names and implementation:
        return f"runs on attn_implementation={implementation!r}"
    if LINEAR.search(kind.__name__):
        return RECURRENT
    found = (reason for pattern, reason in REASONS if any(map(pattern.search, names)))
    return next(found, UNKNOWN)


@lru_cache(maxsize=1024)
def _names(kind: Any) -> frozenset[str]:
    """The names in the methods of a class, and in the functions of its file that they call."""
    bases = [base for base in kind.__mro__ if not base.__module__.startswith("torch.nn.")]
    methods = [unwrap(each) for base in bases for each in vars(base).values() if callable(each)]
    waiting = [each for each in methods if isinstance(each, FunctionType)]
    names, known = {kind.__name__}, set(waiting)
    while waiting:
        function = waiting.pop()
        used = _used(function.__code__)
        names |= used
        called = [function.__globals__.get(name) for name in used]
        own = {each for each in called if isinstance(each, FunctionType)} - known
        own = {each for each in own if each.__globals__ is function.__globals__}
        waiting += own
        known |= own
    return frozenset(names)


def _used(code: CodeType) -> set[str]:
    inner = [_used(each) for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*inner)
