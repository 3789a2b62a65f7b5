"""Optional packages, and the extra of pyproject.toml that installs each."""

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "numba": "kernels",
    "datasets": "training",
    "pyarrow": "training",
    "pydantic": "training",
    "sacrebleu": "training",
    "safetensors": "training",
    "tensorboard": "training",
    "tokenizers": "training",
    "tomli-w": "training",
    "matplotlib": "visual",
    "koreanize-matplotlib": "visual",
    "matplotlib-fontja": "visual",
    "ctranslate2": "bench",
    "x-transformers": "bench",
    "scikit-learn": "dev",
    "transformers": "dev",
}
_IMPORTED_AS = {"sklearn": "scikit-learn"}


def install_hint(package: str) -> str:
    """Return the command that installs a package.

    >>> install_hint("tomli-w")
    "pip install '.[training]'"
    """
    return f"pip install '.[{EXTRAS[package]}]'"


def missing_package(module: str | None) -> str | None:
    """Return the optional package that a module which cannot be imported belongs to, if any.

    >>> missing_package("sklearn.datasets")
    'scikit-learn'
    """
    top = (module or "").partition(".")[0]
    package = _IMPORTED_AS.get(top, top.replace("_", "-"))
    return package if package in EXTRAS else None
