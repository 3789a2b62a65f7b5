"""Export directories: what a run has beside its weights, and the model in another format."""

import shutil
from pathlib import Path
from typing import Any

from torch import nn

from regard.core.names import check_name
from regard.export.ctranslate2 import load_ctranslate2
from regard.export.onnx import load_onnx
from regard.system.files import checksum
from regard.training.checkpoint import read_json, write_json
from regard.training.run_directory import MANIFEST, file_checksums, read_manifest

EXPORT, FORMAT = "export.json", 1
LOADERS = {"ctranslate2": load_ctranslate2, "onnx": load_onnx}


def copy_run(run: Path, folder: Path) -> None:
    """Copy the configuration of a run, its tokenizers and its classes."""
    for name in ("config.toml", *read_manifest(run)["files"]):
        shutil.copyfile(run / name, folder / name)


def seal(run: Path, folder: Path, about: dict[str, Any]) -> None:
    """Write `export.json`, and a manifest with the checksum of every file of the directory."""
    write_json(folder / EXPORT, {"format": FORMAT, **about})
    files = {**file_checksums(folder), "config.toml": checksum(folder / "config.toml")}
    write_json(folder / MANIFEST, {**read_manifest(run), "files": files})


def read_export(folder: Path) -> dict[str, Any] | None:
    """Return what `seal` was given; None if the directory is not an export.

    Raises:
        ValueError: if it is damaged
    """
    if not (folder / EXPORT).is_file():
        return None
    about = read_json(folder / EXPORT, FORMAT, instead="export the run again")
    if EXPORT not in read_manifest(folder)["files"]:
        raise ValueError(f"{folder} is damaged: {MANIFEST} does not name {EXPORT}; export it again")
    return about


def load_exported(folder: Path, about: dict[str, Any]) -> nn.Module:
    """Return the model of an export directory, whose files `read_run_config` has checked.

    Raises:
        ValueError: if it is damaged, or of a target that this version does not know
    """
    check_name("target", about["target"], LOADERS)
    return LOADERS[about["target"]](folder, about).eval()
