"""Optional packages: the extra that brings each, and the command that installs it."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit

EXTRAS = {  # of pyproject.toml
    "typer": "cli",
    "rich": "cli",
    "numba": "kernels",
    "datasets": "training",
    "pyarrow": "training",
    "pydantic": "training",
    "regex": "training",
    "sacrebleu": "training",
    "safetensors": "training",
    "tensorboard": "training",
    "tokenizers": "training",
    "tomli-w": "training",
    "matplotlib": "visual",
    "koreanize-matplotlib": "visual",
    "matplotlib-fontja": "visual",
    "prometheus-client": "web",
    "starlette": "web",
    "uvicorn": "web",
    "ctranslate2": "export",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "pillow": "transformers",
    "transformers": "transformers",
    "x-transformers": "bench",
    "scikit-learn": "dev",
}
_IMPORTED_AS = {"PIL": "pillow", "sklearn": "scikit-learn"}


def install_hint(package: str) -> str:
    """Return the command that installs a package: as regard itself was installed.

    From a checkout that is `pip install '.[training]'`, or its path; from a wheel or an archive
    its address with the extra.
    """
    extra = EXTRAS[package]
    try:
        origin = json.loads(distribution("regard").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):  # on the path, without being installed
        return f"pip install '.[{extra}]'"
    if "url" not in origin:
        return f"pip install 'regard[{extra}]'"
    if "dir_info" not in origin:
        return f"pip install 'regard[{extra}] @ {origin['url']}'"
    from urllib.request import url2pathname  # slow to import

    folder = Path(url2pathname(urlsplit(origin["url"]).path))
    editable = "-e " if origin["dir_info"].get("editable") else ""
    place = "." if folder == Path.cwd() else folder
    return f"pip install {editable}'{place}[{extra}]'"


def missing_package(module: str | None) -> str | None:
    """Return the optional package that a module which cannot be imported belongs to, if any.

    >>> missing_package("sklearn.datasets")
    'scikit-learn'
    """
    top = (module or "").partition(".")[0]
    package = _IMPORTED_AS.get(top, top.replace("_", "-"))
    return package if package in EXTRAS else None


def with_hint(what: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error about a missing module, with the command that installs its package."""
    package = missing_package(error.name)
    if package is None:
        return error
    return ModuleNotFoundError(f"{what} needs {package}: {install_hint(package)}", name=error.name)
