"""`regard doctor`: what is installed, what the machine offers, and which paths would be taken."""

import os
import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from regard.cli.options import Json
from regard.cli.output import write_json
from regard.system.extras import EXTRAS, install_hint

if TYPE_CHECKING:
    from torch import Tensor


def doctor(as_json: Json = False) -> None:
    """Print versions, threads, kernels, and paths of typical calls."""
    from regard.system.compatibility import of_this_machine

    report = {
        "versions": versions(),
        "compatibility": of_this_machine(),
        "machine": machine(),
        "kernels": kernels(),
        "paths": paths(),
    }
    if as_json:
        write_json(report, indent=2)
    else:
        print(as_text(report))


def versions() -> dict[str, str | None]:
    """Return the version of each package, None where it is not installed."""
    import regard

    return {
        "regard": regard.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numpy", *EXTRAS)},
    }


def machine() -> dict[str, Any]:
    """Return what torch may use here: processors, their instructions, threads, accelerators."""
    import torch

    from regard.system.posix import processors

    return {
        "system": platform.platform(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processors": processors(),
        "threads": torch.get_num_threads(),
        "threads between operations": torch.get_num_interop_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "tested on": "CPUs alone; CUDA and MPS are untested on hardware",
    }


def kernels() -> dict[str, Any]:
    """Return whether the compiled kernels can run, found out by running one."""
    import torch

    import regard
    from regard.paths.kernels.compile import parallel

    query = torch.randn(1, 3, 2)
    try:
        import numba  # noqa: F401

        score = regard.Additive(2, 2, 2)
        regard.attend(query, query, query, score=score, path="additive_kernel")
        several = parallel()
    except Exception as error:  # a broken installation raises anything; the doctor reports it
        return {"available": False, "reason": f"numba cannot be used: {error}"}
    threads = "several threads" if several else "one thread: numba finds neither OpenMP nor TBB"
    return {"available": True, "reason": f"compiled by numba, on {threads}"}


def paths() -> list[dict[str, str]]:
    """Return what `explain` reports about a handful of typical calls."""
    import torch

    import regard

    query, key, value = torch.randn(3, 2, 8, 512, 64)  # each (batch, heads, length, dim)

    def euclidean(query: "Tensor", key: "Tensor") -> "Tensor":
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
    """Lay the report out for a reader, in 80 columns."""
    lines = ["versions"]
    for name, number in report["versions"].items():
        lines.append(f"  {name:<28}{number or 'not installed: ' + install_hint(name)}")
    lines.append("compatibility")
    for name, text in report["compatibility"].items():
        lines += _wrapped(f"  {name:<28}", text)
    lines.append("machine")
    lines += [f"  {name:<28}{_word(value)}" for name, value in report["machine"].items()]
    able = "available" if report["kernels"]["available"] else "not available"
    lines += ["kernels", *_wrapped(f"  {able:<28}", report["kernels"]["reason"])]
    lines.append("paths, for 2 sequences of 512, 8 heads of 64, float32")
    for plan in report["paths"]:
        lines += _wrapped(f"  {plan['request']:<14}{plan['path']:<16}", plan["reason"])
    return "\n".join(lines)


def _wrapped(start: str, text: str) -> list[str]:
    indent = " " * len(start)
    return textwrap.wrap(text, width=80, initial_indent=start, subsequent_indent=indent)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)
