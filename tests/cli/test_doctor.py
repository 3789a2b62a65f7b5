import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import regard
from regard.cli import main
from regard.system.extras import EXTRAS, install_hint

OWN = ("dev", "docs")  # extras of those who work on regard itself


@pytest.fixture
def report(capsys):
    assert main(["doctor", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_versions_are_those_in_use(report):
    assert report["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert report["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"regard", "numpy", "numba", "matplotlib"} <= set(report["versions"])


def test_threads_are_those_of_torch(report):
    assert report["machine"]["threads"] == torch.get_num_threads()


def test_every_typical_request_has_a_path_and_a_reason(report):
    requests = {plan["request"] for plan in report["paths"]}
    assert {"dense", "causal", "window", "padded", "additive", "dropout"} <= requests
    assert all(plan["path"] and plan["reason"] for plan in report["paths"])


def test_paths_are_those_of_explain(report):
    paths = {plan["request"]: plan["path"] for plan in report["paths"]}
    query, key, value = torch.randn(3, 2, 8, 512, 64)
    causal = regard.explain(query, key, value, mask=regard.causal())
    dropout = regard.explain(query, key, value, dropout=0.1)
    assert (paths["causal"], paths["dropout"]) == (causal.path, dropout.path)


def test_the_text_has_what_the_json_has(report, capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for plan in report["paths"]:
        (line,) = (line for line in shown.out.splitlines() if f"  {plan['request']:<14}" in line)
        assert plan["path"] in line
    assert report["versions"]["torch"] in shown.out


def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr("regard.cli.doctor._version", lambda name: None if name in EXTRAS else "1")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"not installed: {install_hint('numba')}" in shown
    assert "not available" in shown


def test_every_optional_package_of_the_project_is_known_with_its_extra(report):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = {
        extra: {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}
        for extra, requirements in project["project"]["optional-dependencies"].items()
    }
    assert all(package in extras[extra] for package, extra in EXTRAS.items())
    listed = set().union(*(names for extra, names in extras.items() if extra not in OWN))
    assert listed - {"regard"} == {name for name, extra in EXTRAS.items() if extra not in OWN}
    assert set(EXTRAS) <= set(report["versions"])


def test_a_kernel_that_does_not_run_is_not_claimed(monkeypatch, capsys):
    monkeypatch.setattr("regard.paths.kernels.compile.has_numba", lambda: False)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert not report["kernels"]["available"]
    (additive,) = (plan for plan in report["paths"] if plan["request"] == "additive")
    assert "compiled" not in additive["reason"]


WITHOUT = """
import sys
sys.modules[{module!r}] = None  # as Python marks what cannot be imported
from regard.cli import main
for line in {lines!r}:
    print("STATUS", main(line.split()), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("safetensors", "safetensors", "training"),
        ("tomli_w", "tomli-w", "training"),
        ("matplotlib", "matplotlib", "visual"),
    ],
)
def test_every_command_names_the_package_that_is_missing(module, package, extra, tmp_path):
    lines = ["train copy --dry-run --set data.count=40", "evaluate run", "predict run text"]
    lines.append("compare copy --decoders luong --scores dot")
    needs = {"matplotlib": lines[3:]}.get(module, lines)
    code = WITHOUT.format(module=module, lines=needs)
    environment = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    hint = install_hint(package)
    assert f"[{extra}]" in hint
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.findall(r"STATUS (\d+)", done.stdout) == ["1"] * len(needs)
    sentence = f"regard: this command needs {package}: {hint}"
    assert done.stderr.splitlines() == [sentence] * len(needs)
