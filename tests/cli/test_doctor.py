import json
import sys

import pytest
import torch

import regard
from regard.cli import main


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
    asked = {plan["request"] for plan in report["paths"]}
    assert {"dense", "causal", "window", "padded", "additive", "dropout"} <= asked
    assert all(plan["path"] and plan["reason"] for plan in report["paths"])


def test_paths_are_what_explain_says(report):
    said = {plan["request"]: plan["path"] for plan in report["paths"]}
    query, key, value = torch.randn(3, 2, 8, 512, 64)
    causal = regard.explain(query, key, value, mask=regard.causal())
    dropout = regard.explain(query, key, value, dropout=0.1)
    assert (said["causal"], said["dropout"]) == (causal.path, dropout.path)


def test_the_text_says_what_the_json_says(report, capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for plan in report["paths"]:
        (line,) = (line for line in shown.out.splitlines() if f"  {plan['request']:<14}" in line)
        assert plan["path"] in line
    assert report["versions"]["torch"] in shown.out


def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr("regard.cli.doctor.PACKAGES", {"absent-package": "kernels"})
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "not installed: pip install 'regard[kernels]'" in shown
    assert "not available" in shown
