"""Compiled kernels on disk: one file per kernel, dtype and CPU, with a checksum.

Numba's own files have none. A damaged one ends the process or computes nonsense, and two processes
that write at the same time can mix up the entries of its index.
"""

import hashlib
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.system.files import atomic_file

_SIZE = hashlib.sha256().digest_size
_warned = False


class KernelFiles:
    """Loads and saves what numba compiled, instead of its own index and data files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def path(self, key: tuple) -> Path:
        """The file for a signature and a CPU, both described by numba's key."""
        return self.folder / f"{self.name}-{hashlib.sha256(repr(key).encode()).hexdigest()}.kernel"

    def load(self, key: tuple) -> Any:
        """The compiled kernel, or None if there is none or its file is damaged."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"the kernel cache {path} cannot be read ({error}); compiling the kernel again")
            return None
        digest, data = content[:_SIZE], content[_SIZE:]
        if hashlib.sha256(data).digest() != digest:
            _warn(f"the kernel cache {path} is damaged; compiling the kernel again")
            return None
        return pickle.loads(data)

    def save(self, key: tuple, compiled: Any) -> None:
        from numba.core.serialize import dumps

        data = dumps(compiled)
        try:
            with atomic_file(self.path(key)) as part:
                part.write_bytes(hashlib.sha256(data).digest() + data)
        except OSError as error:
            _warn(f"the kernel cache {self.folder} cannot be written ({error})")


def compile_cached(function: Callable, signature: str, name: str, options: dict) -> Callable:
    """Compile a function with numba, or load it from where its cache is; without one if need be."""
    import numba

    try:
        dispatcher = numba.njit(cache=True, **options)(function)
        cache = dispatcher._cache
        cache._cache_file = KernelFiles(Path(cache.cache_path), f"{name}-{numba.__version__}")
        dispatcher.compile(signature)
    except (OSError, RuntimeError):  # numba found no folder that it can write to
        dispatcher = numba.njit(**options)(function)
        dispatcher.compile(signature)
    return dispatcher


def _warn(message: str) -> None:
    """Warn once per process, however many files are damaged."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(message, RuntimeWarning, stacklevel=2)
