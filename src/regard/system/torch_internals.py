"""Private functions of torch: each with the releases on which it was tested, and what serves else.

Torch may change or remove them in any release, and some end the process where an argument is not
as they expect. So a release that is not in the table never meets them: `function` is None there,
the public function takes over with the same numbers, and `regard doctor` and `explain` say so.

This is the only file that names them. Attributes of tensors and modules that have been the same
for years, such as `_version` and `_modules`, are read where they are needed.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = ["FakeTensor", "TorchDispatchMode", "tree_map_only"]  # private by their file alone

VARIABLE_FUNCTIONS = torch._VF
"""Where `torch.einsum` and dropout look their kernels up: observed, never called."""

NATIVE_MULTI_HEAD = (torch, "_native_multi_head_attention")
NATIVE_ENCODER_LAYER = (torch, "_transformer_encoder_layer_fwd")
"""What `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call: observed, never called."""

TESTED = ("2.8", "2.13", "2.15")
"""The releases on which what asks torch for its state was tested: docs/compatibility.md."""

KERNELS = ("2.13", "2.15")
"""The releases on which kernels were. Flash attention of 2.8 reads beyond the keys if these have
fewer heads than the queries, and ends the process."""

RELEASE = ".".join(torch.__version__.split(".")[:2])


class Private(NamedTuple):
    """Functions that serve one purpose."""

    names: Sequence[str]  # below `torch`
    releases: Sequence[str]
    instead: str  # what serves on other releases
    is_fast: bool = True  # whether that is slower


TABLE = {
    "flash attention": Private(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        ),
        KERNELS,
        "F.scaled_dot_product_attention and its autograd",
    ),
    "gradient of softmax": Private(
        ("ops.aten._softmax_backward_data.default",), KERNELS, "its formula"
    ),
    "fused AdamW": Private(
        ("_fused_adamw_", "_foreach_add_"), KERNELS, "torch.optim.adamw.adamw, a pass per operation"
    ),
    "dispatch modes": Private(
        (
            "_C._len_torch_dispatch_stack",
            "_C._get_dispatch_mode",
            "_C._TorchDispatchModeKey.FAKE",
            "_C._TorchDispatchModeKey.PROXY",
        ),
        TESTED,
        "kernels are always called as operators",
    ),
    "transforms": Private(
        ("_C._functorch.peek_interpreter_stack", "autograd.forward_ad._current_level"),
        TESTED,
        "a trial call, which a transform refuses",
        is_fast=False,
    ),
    "backward pass": Private(
        ("_C._current_graph_task_id",),
        TESTED,
        "what backward recomputes is recorded again",
        is_fast=False,
    ),
    "store of processes": Private(
        ("distributed.distributed_c10d._get_default_store",),
        TESTED,
        "an error does not name the process that is lost",
        is_fast=False,
    ),
}


def functions(purpose: str) -> tuple[Any, ...] | None:
    """What the table has for a purpose, or None on a release that it does not list."""
    return _of_release(purpose, RELEASE)


@cache
def _of_release(purpose: str, release: str) -> tuple[Any, ...] | None:
    names, releases, *_ = TABLE[purpose]
    if release not in releases:
        return None
    try:
        return tuple(attrgetter(name)(torch) for name in names)
    except AttributeError:  # a build without them
        return None


def function(purpose: str) -> Callable[..., Any] | None:
    """The first function for a purpose, or None."""
    found = functions(purpose)
    return None if found is None else found[0]


def off() -> list[str]:
    """The purposes for which something slower serves here."""
    return [name for name, row in TABLE.items() if row.is_fast and functions(name) is None]


def any_dispatch_mode() -> bool:
    """Whether a mode such as FakeTensorMode or make_fx may see every operator; if unsure, yes."""
    return _depth is None or _depth() > 0


def is_traced() -> bool:
    """Whether FakeTensorMode or make_fx is active, under which tensors have no numbers."""
    if _modes is not None:
        depth, mode, *tracers = _modes
        return depth() > 0 and any(map(mode, tracers))
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")  # active only if it is loaded
    return type(torch.empty(0)) is not Tensor or (
        proxies is not None and proxies.get_proxy_mode() is not None
    )


def is_transformed() -> bool:
    """Whether a `torch.func` transform or forward-mode AD is active."""
    if _interpreters is not None:
        return _interpreters() is not None or forward_ad._current_level >= 0
    probe = torch.zeros(())
    try:
        _Untransformable.apply(probe)
    except RuntimeError:
        return True
    try:
        forward_ad.make_dual(probe, probe)
    except RuntimeError:  # there is no level
        return False
    return True


class _Untransformable(torch.autograd.Function):
    """Refused by every transform, as it has no `setup_context`."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.clone()


def in_backward() -> bool:
    """Whether this thread is in a backward pass, as far as this release says so."""
    return _graph_task is not None and _graph_task() != -1


def store_of_processes() -> Any:
    """The store by which the processes of a training found each other, or None."""
    default = function("store of processes")
    return None if default is None else default()


def is_forced_eager() -> bool:
    """Whether `torch.compiler.set_stance("force_eager")` makes compiled modules run their code."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return getattr(getattr(dynamo, "_stance", None), "stance", "default") == "force_eager"


_modes = functions("dispatch modes")
_depth = function("dispatch modes")
_interpreters = function("transforms")
_graph_task = function("backward pass")
