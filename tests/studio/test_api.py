"""The API of the studio: looking, editing, comparing, files, the gallery."""

import base64
import math
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.studio import create_studio


def look(client: Any, **given: Any) -> Any:
    answer = client("POST", "/api/v1/look", {"run": "letters", "text": "cab", **given})
    assert answer.status == 200, answer.body
    return answer.json


def test_runs_are_listed_with_what_they_are(client):
    runs = {run["name"]: run for run in client("GET", "/api/v1/runs").json["runs"]}
    assert set(runs) == {"letters", "without"}
    assert runs["letters"]["task"] == "translate"
    assert runs["letters"]["is_trained"]
    assert runs["letters"]["state"] == "finished"
    assert runs["letters"]["checkpoints"]
    assert "exact" in runs["letters"]["metrics"]


def test_a_look_is_what_the_predictor_writes(client, home):
    found = look(client, beam=3)
    translator = regard.load(home / "letters")
    best = translator.translate(["cab"], beam=3, n_best=3)[0]
    assert [each["text"] for each in found["candidates"]] == [each.text for each in best]
    assert found["output"] == best[0].text
    assert [word["token"] for word in found["words"]] == best[0].tokens
    total = sum(word["log_probability"] for word in found["words"])
    assert total == pytest.approx(best[0].score, abs=1e-3)
    calls = found["page"]["data"]["traces"][0]["calls"]
    assert [(call["rows"], call["columns"]) for call in calls] == [(len(best[0].tokens), 3)]


def test_another_word_is_put_and_the_model_goes_on(client):
    found = look(client)
    other = found["words"][0]["choices"][1]
    forced = look(client, prefix=[other["id"]])
    assert forced["words"][0]["id"] == other["id"]
    assert forced["words"][0]["log_probability"] == pytest.approx(
        math.log(other["probability"]), abs=0.1
    )


def test_requests_at_once_are_answered_as_one_by_one(client):
    texts = ["a", "cab", "", "bad", "x" * 30, "cab"]
    bodies = [{"run": "letters", "text": text, "beam": 3} for text in texts]
    bodies[3]["prefix"] = [10**6]
    alone = [client("POST", "/api/v1/look", body) for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: client("POST", "/api/v1/look", body), bodies))
    assert [answer.status for answer in alone] == [200, 200, 422, 422, 200, 200]
    for one, other in zip(alone, together, strict=True):
        assert one.status == other.status
        assert one.json.get("output") == other.json.get("output")
        assert one.json.get("error") == other.json.get("error")


def test_a_model_without_attention_answers_without_a_page(client):
    assert look(client, run="without")["page"] is None


def test_a_checkpoint_has_its_own_weights(client, home):
    runs = client("GET", "/api/v1/runs").json["runs"]
    steps = next(run["checkpoints"] for run in runs if run["name"] == "letters")
    then, now = (look(client, checkpoint=step) for step in (steps[0], steps[-1]))
    assert then["words"][0]["log_probability"] != now["words"][0]["log_probability"]
    missing = client("POST", "/api/v1/look", {"run": "letters", "text": "a", "checkpoint": 999})
    assert missing.status == 404


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"text": ""}, 422, "empty text"),
        ({"text": "x" * 20_001}, 422, "text should have at most 20000"),
        ({"text": "ab" * 301}, 422, "the text has 602 tokens; the studio takes up to 600"),
        ({"prefix": [10**6]}, 422, "prefix should be ids"),
        ({"run": "nobody"}, 404, "no run named 'nobody'"),
        ({"run": "../letters"}, 404, "no run named"),
        ({"run": "/etc"}, 404, "no run named"),
        ({"example": 999}, 422, "test examples"),
        ({"extra": 1}, 422, "there is no field extra"),
        ({"beam": "many"}, 422, "beam should be a whole number"),
    ],
)
def test_a_look_that_cannot_be_is_a_sentence(client, given, status, words):
    body = {"run": "letters", "text": "cab", **given}
    if "example" in given:
        del body["text"]
    answer = client("POST", "/api/v1/look", body)
    assert answer.status == status
    assert words in answer.json["error"]


def test_links_that_lead_out_are_refused(client, home, tmp_path, trained):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.toml").write_text((trained / "letters" / "config.toml").read_text())
    (home / "linked").symlink_to(outside)
    names = [run["name"] for run in client("GET", "/api/v1/runs").json["runs"]]
    assert "linked" not in names
    weights = home / "letters" / "model.safetensors"
    weights.rename(tmp_path / "model.safetensors")
    weights.symlink_to(tmp_path / "model.safetensors")
    answer = client("POST", "/api/v1/look", {"run": "letters", "text": "cab"})
    assert answer.status == 422
    assert "is a link out of the run" in answer.json["error"]


def test_an_edit_is_what_regard_edit_does(client, home):
    given = {"run": "letters", "text": "cab", "edits": [{"layer": "decoder.*", "keys": [1]}]}
    found = client("POST", "/api/v1/edit", given).json
    translator = regard.load(home / "letters")
    with regard.trace.edit(translator.model, "decoder.*", keys=[1]):
        after = translator.translate(["cab"], beam=1)[0]
    assert found["before"]["output"] == translator.translate(["cab"], beam=1)[0].text
    assert found["after"]["output"] == after.text
    total = sum(word["log_probability"] for word in found["after"]["words"])
    assert total == pytest.approx(after.score, abs=1e-3)
    best = translator.search(["cab"], beam=1)[0][0]
    with regard.trace.edit(translator.model, "decoder.*", keys=[1]):
        scores = translator.trace("cab", written=best).about["log_probabilities"]["target"]
    assert [change["after"] for change in found["changes"]] == scores


def test_a_weight_is_set(client):
    edit = {"layer": "decoder.attention", "cells": [[0, 2]], "weight": 1.0}
    given = {"run": "letters", "text": "cab", "edits": [edit]}
    found = client("POST", "/api/v1/edit", given).json
    assert found["changes"][0]["before"] != found["changes"][0]["after"]
    again = client("POST", "/api/v1/edit", {**given, "edits": []}).json
    assert again["after"]["output"] == again["before"]["output"]
    assert all(change["before"] == change["after"] for change in again["changes"])
    nowhere = client("POST", "/api/v1/edit", {**given, "edits": [{"layer": "nothing"}]})
    assert nowhere.status == 422
    assert "no module is named like" in nowhere.json["error"]


def test_a_word_of_an_output_is_explained_on_a_page(client):
    looked = client("POST", "/api/v1/look", {"run": "letters", "text": "cab"}).json
    written = [word["id"] for word in looked["words"]]
    given = {"run": "letters", "text": "cab", "written": written, "at": 0, "language": "ko"}
    answer = client("POST", "/api/v1/why", given)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/html")
    assert "정말 그런가?" in answer.body.decode()
    beyond = client("POST", "/api/v1/why", {**given, "at": len(written)})
    assert beyond.status == 422
    assert "at should be from 0" in beyond.json["error"]


def test_runs_are_compared_and_one_that_fails_says_why(client):
    given = {"runs": ["letters", "without", "nobody"], "text": "cab"}
    found = client("POST", "/api/v1/compare", given).json["compared"]
    assert [each["name"] for each in found] == given["runs"]
    assert found[0]["entropy"] > 0
    assert found[1]["entropy"] is None
    assert found[1]["looked"]["page"] is None
    assert "no run named" in found[2]["error"]
    assert client("POST", "/api/v1/compare", {"runs": [], "text": "a"}).status == 422


def stored(page: dict, tensor: dict) -> torch.Tensor:
    """The rows of a tensor of a page: 16 bits each, scaled by the row's largest entry."""
    (_, rows, columns), bundle = tensor["shape"], tensor["bundle"]
    raw = zlib.decompress(base64.b64decode(page["chunks"][bundle["chunk"]]))
    scale = np.frombuffer(raw, "<f4", rows)
    cells = np.frombuffer(raw, "<i2", rows * columns, offset=4 * rows).reshape(rows, columns)
    return torch.from_numpy(cells / 32767 * scale[:, None]).float()


def test_the_numbers_of_a_model_are_attended_to_in_another_way(client, home):
    given = {"run": "letters", "text": "cab", "layer": "decoder.attention"}
    own = client("POST", "/api/v1/attend", given).json
    trace = regard.load(home / "letters").trace("cab")
    weights = trace.calls[0].map.dense()[0]
    inputs = trace.calls[0].inputs
    value = inputs.value.reshape(-1, *inputs.value.shape[-2:])[0]
    hard = client("POST", "/api/v1/attend", {**given, "normalizer": "hard"}).json
    for answer, expected in ((own, weights @ value), (hard, value[weights.argmax(-1)])):
        sums = stored(answer, answer["data"]["traces"][0]["calls"][0]["numbers"]["tensors"]["sums"])
        assert sums == pytest.approx(expected, abs=1e-3)
    for wrong in ({"layer": "nothing"}, {"head": 5}):
        answer = client("POST", "/api/v1/attend", {**given, **wrong})
        assert answer.status == 422


@pytest.mark.parametrize(
    ("format", "start"),
    [("svg", b"<?xml"), ("png", b"\x89PNG"), ("html", b"<!doctype html>"), ("attn", None)],
)
def test_a_view_is_a_file(client, tmp_path, format, start):
    answer = client("POST", "/api/v1/file", {"run": "letters", "text": "cab", "format": format})
    assert answer.status == 200
    if start is not None:
        assert answer.body.startswith(start)
    else:
        (tmp_path / "a.attn").write_bytes(answer.body)
        assert regard.load_trace(tmp_path / "a.attn").about["text"] == "cab"


def test_a_file_shows_the_edited_state(client, home, tmp_path):
    edits = [{"layer": "decoder.*", "keys": [1]}]
    given = {"run": "letters", "text": "cab", "format": "attn", "edits": edits}
    (tmp_path / "a.attn").write_bytes(client("POST", "/api/v1/file", given).body)
    found = regard.load_trace(tmp_path / "a.attn")
    translator = regard.load(home / "letters")
    with regard.trace.edit(translator.model, "decoder.*", keys=[1]):
        after = translator.translate(["cab"], beam=1)[0]
    assert found.tokens["target"] == after.tokens
    assert float(found.calls[0].map.dense()[..., 1].max()) == 0.0


def test_the_documentation_is_served_where_there_is_one(serve, tmp_path):
    (tmp_path / "site" / "guide").mkdir(parents=True)
    (tmp_path / "site" / "guide" / "scores.html").write_text("<h1>Scores</h1>")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "site" / "link.html").symlink_to(tmp_path / "secret.html")
    client = serve(create_studio([], home=tmp_path / "runs", docs=tmp_path / "site"))
    page = client("GET", "/docs/guide/scores.html")
    assert (page.status, page.body) == (200, b"<h1>Scores</h1>")
    (scripts,) = re.findall("script-src ([^;]*)", page.headers["content-security-policy"])
    assert scripts == "'self'"  # live figures are files; nothing inline runs
    for path in ("/docs/link.html", "/docs/../secret.html", "/docs/%2e%2e/secret.html", "/docs/x"):
        assert client("GET", path).status == 404


def test_the_front_end_is_served_and_nothing_else(client):
    page = client("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert b"<script type=" in page.body
    assert b"<script>" not in page.body
    code = client("GET", "/studio/look.js")
    assert code.headers["content-type"].startswith("text/javascript")
    assert b'"regard/' not in code.body
    assert client("GET", "/page/views.js").status == 200
    for path in (
        "/page/../document.py",
        "/page/%2e%2e%2fdocument.py",
        "/studio/nothing.js",
        "/etc/passwd",
    ):
        assert client("GET", path).status == 404


@pytest.mark.parametrize(
    "task", ["classify", "pair", "recommend", "graph", "memory", "image", "language", "hard"]
)
def test_every_task_can_be_looked_at(serve, tiny_run, tmp_path, task):
    client = serve(create_studio([tiny_run(task)], home=tmp_path / "none"))
    examples = client("GET", f"/api/v1/examples?run={task}").json
    assert examples["count"] > 0
    given = {"text": examples["texts"][0]} if examples["texts"] else {"example": 0}
    answer = client("POST", "/api/v1/look", {"run": task, **given})
    assert answer.status == 200, answer.body
    assert answer.json["output"]
    assert answer.json["page"]["data"]["traces"][0]["calls"]


def test_elsewhere_than_on_this_machine_a_token_is_needed(tmp_path: Path):
    with pytest.raises(ValueError, match="a token is needed"):
        create_studio([], home=tmp_path, host="0.0.0.0")


@pytest.mark.slow
def test_the_gallery_has_every_mechanism_and_times_one(client):
    gallery = client("GET", "/api/v1/gallery").json
    found = gallery["exhibits"]
    names = [each["name"] for each in found]
    assert not gallery["has_docs"]
    assert len(names) == len(set(names)) > 30
    for texts in found[0]["texts"].values():
        assert len(found[0]["weights"]) == len(texts["rows"])
    assert [found[0]["texts"][language]["title"] for language in ("en", "ko")] == ["Dot", "내적"]
    curve = client("POST", "/api/v1/gallery/cost", {"name": names[0]}).json
    assert len(curve["lengths"]) == len(curve["milliseconds"]) == len(curve["dense"])
    assert all(time > 0 for time in curve["milliseconds"])
    assert client("POST", "/api/v1/gallery/cost", {"name": "nothing"}).status == 404
