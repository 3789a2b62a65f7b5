"""A package that is missing is named with the command that installs it."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from regard.system import extras

INSTALLED = {
    "wheel": (
        {"url": "file:///downloads/regard-1-py3-none-any.whl", "archive_info": {}},
        "pip install 'regard[training] @ file:///downloads/regard-1-py3-none-any.whl'",
    ),
    "checkout": (
        {"url": "file:///my%20code/regard", "dir_info": {"editable": True}},
        "pip install -e '/my code/regard[training]'",
    ),
    "folder": (
        {"url": "file:///src/regard", "dir_info": {}},
        "pip install '/src/regard[training]'",
    ),
    "index": (None, "pip install 'regard[training]'"),
}


class Installed:
    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(("origin", "hint"), INSTALLED.values(), ids=INSTALLED)
def test_the_hint_installs_from_where_regard_was_installed(monkeypatch, origin, hint):
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(origin))
    assert extras.install_hint("tomli-w") == hint


def test_without_metadata_the_hint_is_that_of_a_checkout(monkeypatch):
    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", none)
    assert extras.install_hint("tomli-w") == "pip install '.[training]'"


def test_in_the_folder_of_a_checkout_the_hint_is_short(monkeypatch):
    here = {"url": Path.cwd().as_uri(), "dir_info": {"editable": True}}
    monkeypatch.setattr(extras, "distribution", lambda name: Installed(here))
    assert extras.install_hint("matplotlib") == "pip install -e '.[visual]'"


WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None  # as Python marks what cannot be imported
import regard
try:
    getattr(regard, {attribute!r})
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("attribute", ["train", "load", "training", "tasks"])
def test_with_torch_and_numpy_alone_the_extra_is_named(attribute):
    missing = [name.replace("-", "_") for name in extras.EXTRAS]
    code = WITHOUT.format(missing=missing, attribute=attribute)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    said = done.stdout.strip()
    assert said.startswith(f"regard.{attribute} needs ")
    assert "pip install" in said
    assert "[training]" in said
