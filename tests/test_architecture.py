"""Imports point one way, light modules stay light, and files are named after what is in them."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "regard"

# Each line may import from the lines above it, never from its own neighbours or from below.
ORDER = (
    ("system",),
    ("core",),
    ("paths.kernels",),
    ("paths",),
    ("attention",),
    ("layers",),
    ("models", "data"),
    ("decoding",),
    ("evaluation",),
    ("training",),
    ("trace",),
    ("analysis",),
    ("visual",),
    ("recipes", "samples"),
    ("export",),
    ("tasks",),
    ("claims",),
    ("",),  # regard/__init__.py, the list of exports
    ("web",),
    ("serving", "studio"),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
LIGHT = ("system", "core", "paths", "paths.kernels", "attention", "layers", "models")
# Maps and traces draw themselves: they import `visual` when a picture is needed.
UPWARDS = {("regard.core.map", "visual"), ("regard.trace.trace", "visual")}
NAMELESS = ("utils", "util", "helpers", "helper", "common", "base", "misc")


def area_of(module: str) -> str:
    """The line of ORDER that a module such as `regard.core.score` belongs to."""
    parts = module.split(".")[1:]
    return "paths.kernels" if parts[:2] == ["paths", "kernels"] else (parts or [""])[0]


def violations(root: Path) -> list[str]:
    """Every broken rule in a package whose root folder is called regard."""
    found = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root.parent)
        module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        area = area_of(module)
        if set(place.with_suffix("").parts) & set(NAMELESS):
            found.append(f"{place}: name it after what is in it")
        if area not in RANK:
            found.append(f"{place}: {area!r} has no place in the order of imports")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for line, target in regard_imports(tree, module, is_package=path.name == "__init__.py"):
            other = area_of(target)
            if (module, other) in UPWARDS:
                continue
            if other != area and RANK.get(other, len(RANK)) >= RANK[area]:
                found.append(f"{place}:{line}: {area or 'regard'} may not import {target}")
        if area in LIGHT:
            allowed = {"torch", "numpy", "regard", *sys.stdlib_module_names}
            allowed |= {"numba", "llvmlite"} if area == "paths.kernels" else set()
            for line, package in packages_at_import(tree):
                if package not in allowed:
                    found.append(f"{place}:{line}: {package} must be imported where it is used")
    return found


def regard_imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Modules of regard that a file imports anywhere in it, absolute or relative."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = module.split(".")
                drop = node.level - is_package
                parents = parents[: len(parents) - drop]
                source = ".".join([*parents, source]).rstrip(".")
            # `from regard import core` and `from regard.paths import kernels` name modules too.
            names = [f"{source}.{alias.name}" for alias in node.names]
            names = [name if area_of(name) in RANK else source for name in names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "regard":
                yield node.lineno, name


def packages_at_import(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Packages that are loaded as soon as a file is imported: not those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from packages_at_import(node)


def test_the_source_keeps_the_rules():
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("path", "code", "complaint"),
    [
        ("core/score.py", "from regard.paths import fused", "may not import regard.paths"),
        ("system/files.py", "from regard.core import score", "may not import regard.core"),
        ("core/score.py", "def f():\n    import regard.layers.graph", "may not import"),
        ("core/score.py", "from ..attention import attend", "may not import regard.attention"),
        ("core/score.py", "import regard", "may not import regard"),
        ("core/score.py", "from regard import attend", "may not import regard"),
        ("core/__init__.py", "from ..layers import graph", "may not import regard.layers"),
        ("core/deep/score.py", "from ...layers import graph", "may not import regard.layers"),
        ("paths/kernels/additive.py", "from regard.paths.fused import run", "may not import"),
        ("paths/kernels/additive.py", "from ..fused import run", "may not import"),
        ("paths/kernels/additive.py", "from regard.attention import run", "may not import"),
        ("models/seq2seq.py", "from regard.data import text", "may not import regard.data"),
        ("data/text.py", "from regard.models import seq2seq", "may not import regard.models"),
        ("training/loop.py", "from regard.tasks import translate", "may not import"),
        ("visual/page/page.py", "from regard.cli import main", "may not import regard.cli"),
        ("core/score.py", "import numba", "numba must be imported where it is used"),
        ("paths/fused.py", "import numba", "numba must be imported where it is used"),
        ("layers/graph.py", "try:\n    import rich\nexcept ImportError: pass", "rich must be"),
        ("layers/graph.py", "class A:\n    from einops import rearrange", "einops must be"),
        ("core/utils.py", "", "name it after what is in it"),
        ("layers/helpers/graph.py", "", "name it after what is in it"),
        ("magic/wand.py", "", "'magic' has no place"),
    ],
)
def test_a_broken_rule_is_reported(tmp_path, path, code, complaint):
    file = tmp_path / "regard" / path
    file.parent.mkdir(parents=True)
    file.write_text(code)
    (found,) = violations(tmp_path / "regard")
    assert complaint in found
    assert path in found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("paths/fused.py", "from regard.core.score import dot\nfrom . import reference"),
        ("paths/fused.py", "def run():\n    from regard.paths.kernels import additive"),
        ("paths/kernels/additive.py", "import numba\nfrom regard.core import mask"),
        ("paths/kernels/additive.py", "from regard.paths.kernels import threads"),
        ("layers/graph.py", "def draw():\n    import matplotlib"),
        ("layers/graph.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rich"),
        ("models/seq2seq.py", "import math, torch, numpy as np\nfrom ..layers.graph import x"),
        ("__init__.py", "from regard.attention import attend\nfrom regard.tasks import load"),
        ("cli/demo.py", "import regard, typer\nfrom regard.visual import heatmap"),
    ],
)
def test_a_kept_rule_is_not_reported(tmp_path, path, code):
    file = tmp_path / "regard" / path
    file.parent.mkdir(parents=True)
    file.write_text(code)
    assert violations(tmp_path / "regard") == []


@pytest.mark.parametrize(
    ("code", "light"),
    [
        ("import regard", {"typer", "torch", "numpy", "pydantic"}),
        ("import regard; regard.attend", {"typer", "rich", "pydantic"}),
        ("from regard.cli import main; main(['--help'])", {"torch", "numpy"}),
        ("from regard.cli import main; main(['train', '--help'])", {"torch", "numpy"}),
        ("from regard.cli import main; main(['--version'])", {"torch", "numpy"}),
        ("from regard.cli import main; main(['train', '--list'])", {"torch", "numpy"}),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(code, light):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    heavy = {"numba", "matplotlib", "datasets", "torch._dynamo"}
    assert loaded & (heavy | light) == set()


def test_the_table_of_folders_is_complete_and_in_the_order_of_imports():
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text("utf-8")
    table = page.partition("| folder |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [line.split("|")[1] for line in table]
    rows = [[name.strip(" `/").replace("/", ".") for name in cell.split(",")] for cell in cells]
    listed = [name for row in rows for name in row]
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert set(listed) == folders | {"paths.kernels"}
    ranks = [RANK[name] for name in listed]
    assert ranks == sorted(ranks)


def test_type_checkers_see_every_export():
    import regard

    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    found = {node.module: {alias.name for alias in node.names} for node in imports}
    assert found == {module: set(names) for module, names in regard._EXPORTS.items()}


def test_every_export_is_there_and_nothing_else():
    import regard

    assert all(getattr(regard, name) is not None for name in regard.__all__)
    assert set(regard._HOME) | {"__version__"} == set(regard.__all__)
    assert set(regard.__all__) <= set(dir(regard))
    with pytest.raises(AttributeError, match="no attribute 'conjure'"):
        regard.conjure  # noqa: B018
