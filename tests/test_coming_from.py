"""docs/coming_from.md: names, arguments and keys of `regard` exist; those of torch are complete."""

import inspect
import operator
import re

import pytest
from torch import nn

import regard
import regard.visual.figure
from docs.tools.pages import ROOT
from regard.cli.keys import describe_keys

TEXT = (ROOT / "docs" / "coming_from.md").read_text("utf-8")
PAGE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"regard((?:\.\w+)+)(?:\(([^()]*)\))?")
KEY = re.compile(r"(?:data|model|loss|training)\.\w+")


def names() -> list[tuple[str, str]]:
    """Every name below `regard` on the page, with its arguments."""
    found = [match.groups() for code in CODE.findall(PAGE) for match in NAME.finditer(code)]
    return sorted({(name.removeprefix("."), arguments or "") for name, arguments in found})


@pytest.mark.parametrize(("name", "arguments"), names())
def test_a_name_of_the_page_exists_and_takes_its_arguments(name, arguments):
    found = operator.attrgetter(name)(regard)
    given = re.findall(r"(\w+)=", arguments)
    assert set(given) <= set(inspect.signature(found).parameters) if given else callable(found)


def test_the_page_has_names():
    assert len(names()) > 30


def test_every_key_is_one_of_the_task_translate():
    shown = [key for _, ours in ROWS for code in CODE.findall(ours) for key in KEY.findall(code)]
    described = describe_keys("translate")
    tables = dict(re.findall(r"^\[(\w+)\][^\n]*\n(.*?)(?=^\[|\Z)", described, re.M | re.S))
    missing = [
        key
        for key in shown
        for table, name in [key.split(".")]
        if not re.search(rf"^  {name} ", tables[table], re.M)
    ]
    assert len(shown) > 40
    assert missing == []


def test_every_argument_of_torch_is_in_the_table():
    table = PAGE.split("## `nn.MultiheadAttention`")[1].split("\n## ")[0]
    layer = nn.MultiheadAttention
    theirs = {*inspect.signature(layer).parameters, *inspect.signature(layer.forward).parameters}
    listed = {
        code for row in re.findall(r"^\| (.+?) \|", table, re.M) for code in CODE.findall(row)
    }
    assert theirs - listed == {"self", "query", "key", "value"}


def test_the_arguments_of_our_layer_exist():
    table = PAGE.split("## `nn.MultiheadAttention`")[1].split("\n## ")[0]
    ours = re.findall(r"^\| .+? \| (`\w+`(?:, `\w+`)?) \|$", table, re.M)
    named = {code for row in ours for code in CODE.findall(row)}
    assert {"dim", "heads", "dropout", "bias", "key_dim", "value_dim"} == named
    assert named <= set(inspect.signature(regard.layers.MultiHeadAttention).parameters)


@pytest.mark.parametrize("page", ["coming_from.md", "coming_from.ko.md"])
def test_the_lines_of_the_table_of_masks_run(page, capsys):
    text = (ROOT / "docs" / page).read_text("utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, {})
        assert capsys.readouterr().out.split() == re.findall(r"# prints (\S+)", block) != []
