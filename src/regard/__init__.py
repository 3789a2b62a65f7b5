"""regard: one core that computes every attention mechanism, and lets you see what it attended to.

ATTN(Q, K, V) = normalize[ score(Q, K) + mask ] · V
"""

from importlib import import_module
from typing import Any

from regard.attention import (
    Attended,
    attend,
    attend_features,
    attend_linear,
    attention_weight,
    explain,
)
from regard.core.mask import (
    Mask,
    causal,
    from_torch_mha,
    lengths,
    segments,
    visible,
    window,
)
from regard.core.normalize import Gumbel
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

__version__ = "0.1.0"

__all__ = [
    "ActivatedGeneral",
    "Additive",
    "Attended",
    "BiasedGeneral",
    "Concat",
    "Cosine",
    "Dot",
    "General",
    "Gumbel",
    "Location",
    "Mask",
    "ScaledDot",
    "__version__",
    "attend",
    "attend_features",
    "attend_linear",
    "attention_weight",
    "capture",
    "causal",
    "explain",
    "from_torch_mha",
    "lengths",
    "load",
    "load_trace",
    "segments",
    "visible",
    "weighted_sum",
    "window",
]

_LATE = {"capture": "regard.trace", "load": "regard.tasks", "load_trace": "regard.trace"}
_AREAS = (
    "analysis", "data", "decoding", "evaluation", "layers", "models", "recipes", "tasks", "trace",
    "training", "visual",
)  # fmt: skip
"""What is imported when somebody asks for it, so that importing regard stays quick."""


def __getattr__(name: str) -> Any:
    if name in _AREAS:
        return import_module(f"regard.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_AREAS})
