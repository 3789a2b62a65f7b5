"""Fingerprints of data, which show whether it has changed."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import Any

import numpy as np
import torch

CHUNK = 4096  # entries that are hashed at a time


def fingerprint(data: Any) -> str:
    """The size and a checksum of nested sequences, mappings, dataclasses, arrays and tensors.

    >>> fingerprint([("one", "eins"), ("two", "zwei")])
    '2 entries, sha256 91e8179438842783'
    """
    digest = hashlib.sha256()
    _update(digest, data)
    count = f"{len(data):,} entries, " if isinstance(data, Sized) else ""
    return f"{count}sha256 {digest.hexdigest()[:16]}"


def _update(digest: Any, data: Any) -> None:
    if isinstance(data, torch.Tensor) and data.is_sparse:
        data = data.coalesce()
        data = (*data.shape, data.indices(), data.values())
    elif isinstance(data, torch.Tensor):
        data = data.detach().cpu().numpy()
    elif dataclasses.is_dataclass(data):
        data = [(field.name, getattr(data, field.name)) for field in dataclasses.fields(data)]
    elif isinstance(data, Mapping):
        data = data.items()
    if isinstance(data, np.ndarray):
        digest.update(f"{data.dtype}{data.shape}".encode())
        digest.update(np.ascontiguousarray(data).tobytes())
    elif _is_plain(data):
        digest.update(json.dumps(data).encode())
    elif isinstance(data, Iterable):
        entries = iter(data)
        while chunk := list(islice(entries, CHUNK)):
            if all(map(_is_plain, chunk)):
                digest.update(json.dumps(chunk).encode())
            else:
                for entry in chunk:
                    digest.update(b"(")
                    _update(digest, entry)
        digest.update(b")")
    else:
        raise TypeError(f"cannot compute the fingerprint of {type(data).__name__}")


def _is_plain(entry: Any) -> bool:
    """Whether it is a string, a number, None, or a tuple of these."""
    return (
        entry is None
        or isinstance(entry, str | int | float)
        or (type(entry) is tuple and all(isinstance(part, str | int) for part in entry))
    )
