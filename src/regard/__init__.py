"""regard: one core that computes every attention mechanism, and lets you see what it attended to.

ATTN(Q, K, V) = normalize[ score(Q, K) + mask ] · V

Every name is imported when it is first used, so that `import regard` and `regard --help` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.analysis import check
    from regard.attention import (
        Attended,
        attend,
        attend_features,
        attend_linear,
        attention_weight,
        explain,
    )
    from regard.core.elementwise import Elementwise, SoftCap
    from regard.core.mask import (
        Mask,
        block_sparse,
        causal,
        from_torch_mha,
        global_tokens,
        lengths,
        segments,
        visible,
        window,
    )
    from regard.core.normalize import Gumbel, Normalizer
    from regard.core.score import (
        ActivatedGeneral,
        Additive,
        BiasedGeneral,
        Concat,
        Cosine,
        Dot,
        General,
        Location,
        ScaledDot,
    )
    from regard.core.weighted_sum import weighted_sum
    from regard.tasks import load, train
    from regard.trace import capture, edit, load_trace

__version__ = "0.1.0"

_EXPORTS = {
    "regard.analysis": ("check",),
    "regard.attention": (
        "Attended", "attend", "attend_features", "attend_linear", "attention_weight", "explain",
    ),
    "regard.core.elementwise": ("Elementwise", "SoftCap"),
    "regard.core.mask": (
        "Mask", "block_sparse", "causal", "from_torch_mha", "global_tokens", "lengths", "segments",
        "visible", "window",
    ),
    "regard.core.normalize": ("Gumbel", "Normalizer"),
    "regard.core.score": (
        "ActivatedGeneral", "Additive", "BiasedGeneral", "Concat", "Cosine", "Dot", "General",
        "Location", "ScaledDot",
    ),
    "regard.core.weighted_sum": ("weighted_sum",),
    "regard.tasks": ("load", "train"),
    "regard.trace": ("capture", "edit", "load_trace"),
}  # fmt: skip
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
_SUBPACKAGES = (
    "analysis", "data", "decoding", "evaluation", "layers", "models", "recipes", "tasks", "trace",
    "training", "visual",
)  # fmt: skip

__all__ = [
    "ActivatedGeneral",
    "Additive",
    "Attended",
    "BiasedGeneral",
    "Concat",
    "Cosine",
    "Dot",
    "Elementwise",
    "General",
    "Gumbel",
    "Location",
    "Mask",
    "Normalizer",
    "ScaledDot",
    "SoftCap",
    "__version__",
    "attend",
    "attend_features",
    "attend_linear",
    "attention_weight",
    "block_sparse",
    "capture",
    "causal",
    "check",
    "edit",
    "explain",
    "from_torch_mha",
    "global_tokens",
    "lengths",
    "load",
    "load_trace",
    "segments",
    "train",
    "visible",
    "weighted_sum",
    "window",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _SUBPACKAGES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    try:
        if name in _SUBPACKAGES:
            return import_module(f"regard.{name}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from regard.system.extras import with_hint

        raise with_hint(f"regard.{name}", error) from error
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_SUBPACKAGES})
