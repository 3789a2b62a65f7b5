"""`regard doctor`: what is installed, what the machine offers, and which paths would be taken."""

import json
import os
import platform
import textwrap
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import regard
from regard.paths.kernels.compile import parallel

# Every package that some part of regard uses, and the extra that brings it.
PACKAGES = {
    "numba": "kernels",
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "visual",
    "datasets": "training",
    "pydantic": "training",
    "sacrebleu": "training",
    "safetensors": "training",
    "tensorboard": "training",
    "tokenizers": "training",
}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Versions, threads, kernels, and which path typical requests would take."""
    report = {
        "versions": versions(),
        "machine": machine(),
        "kernels": kernels(),
        "paths": paths(),
    }
    print(json.dumps(report, indent=2) if as_json else as_text(report))


def versions() -> dict[str, str | None]:
    """The version of each package, None where it is not installed."""
    return {
        "regard": regard.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numpy", *PACKAGES)},
    }


def machine() -> dict[str, Any]:
    """What torch may use here: processors, their instructions, threads, accelerators."""
    return {
        "system": platform.platform(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processors": _processors(),
        "threads": torch.get_num_threads(),
        "threads between operations": torch.get_num_interop_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }


def kernels() -> dict[str, Any]:
    """Whether the compiled kernels can run, tried by importing their compiler."""
    try:
        import_module("numba")
        several = parallel()
    except Exception as error:  # a broken installation raises anything; the doctor reports it
        return {"available": False, "reason": f"numba cannot be used: {error}"}
    threads = (
        "on several threads" if several else "on one thread: numba finds neither OpenMP nor TBB"
    )
    return {"available": True, "reason": f"compiled by numba, {threads}"}


def paths() -> list[dict[str, str]]:
    """What `explain` says about a handful of typical requests."""
    query, key, value = torch.randn(3, 2, 8, 512, 64)  # each (batch, heads, length, dim)

    def euclidean(query: Tensor, key: Tensor) -> Tensor:
        return -torch.cdist(query, key)

    requests: dict[str, dict[str, Any]] = {
        "dense": {},
        "causal": {"mask": regard.causal()},
        "window": {"mask": regard.window(64, 64)},
        "padded": {"mask": regard.lengths(torch.tensor([200, 512]))},
        "additive": {"score": regard.Additive(64, 64, 64)},
        "sparsemax": {"normalize": "sparsemax"},
        "dropout": {"dropout": 0.1},
        "your function": {"score": euclidean},
    }
    plans = [(name, regard.explain(query, key, value, **more)) for name, more in requests.items()]
    return [{"request": name, "path": plan.path, "reason": plan.reason} for name, plan in plans]


def as_text(report: dict[str, Any]) -> str:
    """Lay the report out for a reader."""
    lines = ["versions"]
    for name, number in report["versions"].items():
        hint = f"not installed: pip install 'regard[{PACKAGES[name]}]'" if name in PACKAGES else "?"
        lines.append(f"  {name:<28}{number or hint}")
    lines.append("machine")
    lines += [f"  {name:<28}{_word(what)}" for name, what in report["machine"].items()]
    able = "available" if report["kernels"]["available"] else "not available"
    lines += ["kernels", f"  {able:<28}{report['kernels']['reason']}"]
    lines.append("paths, for 2 sequences of 512, 8 heads of 64, float32")
    for plan in report["paths"]:
        lines += textwrap.wrap(
            plan["reason"],
            width=100,
            initial_indent=f"  {plan['request']:<14}{plan['path']:<14}",
            subsequent_indent=" " * 30,
        )
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processors() -> int | None:
    if hasattr(os, "sched_getaffinity"):  # Linux: those this process may run on
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _word(what: object) -> str:
    if isinstance(what, bool):
        return "yes" if what else "no"
    return "not set" if what is None else str(what)
