"""No request reaches a file outside the runs and uploads: none is read, and none is written."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import regard
from regard.recipes import describe_recipes, load_recipe
from regard.serving import create_server
from regard.studio import create_studio
from regard.tasks import TASKS
from regard.training.config import Config, Distributed, Training

SECRET = "correct horse battery staple"
RECIPES = {load_recipe(name)["task"]: name for name in reversed(list(describe_recipes()))}


@pytest.fixture
def outside(tmp_path: Path, copy_run: Path) -> Path:
    """A folder that is not served, with a secret in files of every kind, a run among them."""
    folder = tmp_path / "outside"
    shutil.copytree(copy_run, folder / "run")
    rows = "".join(f"{SECRET} {number}\t{number % 2}\n" for number in range(99))
    for name in ("secret.tsv", "secret.txt", "passwd"):
        (folder / name).write_text(rows)
    (folder / "secret.csv").write_text("text,label\n" + rows.replace("\t", ","))
    lines = (json.dumps({"text": f"{SECRET} {n}", "label": n % 2}) for n in range(99))
    (folder / "secret.jsonl").write_text("\n".join(lines))
    (folder / "secret.gz").write_bytes(gzip.compress(rows.encode()))
    np.savez(folder / "secret.npz", sources=np.array([SECRET]))
    Image.fromarray(np.arange(28 * 28, dtype=np.uint8).reshape(28, 28)).save(folder / "secret.png")
    return folder


def keys() -> Iterator[tuple[str, str]]:
    """Every key of every table of every task, with the task."""
    tables = {"": Config, "training": Training, "distributed": Distributed}
    for task, kind in TASKS.items():
        for table, settings in {**tables, **dict(kind.tables)}.items():
            yield from ((task, f"{table}.{name}".lstrip(".")) for name in settings.model_fields)
    yield from (("translate", f"model.{name}") for name in ("kind", "score", "preset", "hidden"))


def content(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: the bytes of files, and where links lead."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_no_setting_of_a_training_is_a_path(serve, outside, home):
    (home / "link").symlink_to(outside)
    places = [
        *(str(path) for path in outside.iterdir()),
        *("/etc/passwd", "../outside/secret.tsv", "../outside/run", "../../etc/passwd"),
        *(f"{home}/link/secret.tsv", "link/secret.tsv", "link/", "~/.ssh/id_rsa", "."),
    ]
    client = serve(create_studio([], home=home))
    before, own = content(outside), content(home)
    tried = list(keys())
    assert len(tried) > 400
    for number, (task, key) in enumerate(tried):
        place = places[number % len(places)]
        values = [f"{key}={place}", f" {key.replace('.', ' . ')} = '{place}'", f'{key}=["{place}"]']
        if key in ("data", "model", "loss", "training"):
            values.append(f"{key}={{path='{place}', init='{place}', store='{place}'}}")
        for value in values:
            given = {"name": "new", "recipe": RECIPES[task], "settings": [value]}
            answer = client("POST", "/api/v1/training", given)
            assert answer.status in (404, 422), (value, answer.body)
            assert SECRET.encode() not in answer.body
            assert b"root:" not in answer.body
            assert "pydantic" not in answer.json["error"]
    assert content(outside) == before
    assert content(home) == own


@pytest.mark.parametrize("key", ["data.train", "data.path", "data.folder", "data.store"])
def test_a_path_is_not_cleared_either(client, key):
    for value in (f"{key}=", f"{key} = "):
        given = {"name": "new", "recipe": "dates", "settings": ["data.count=7", value]}
        answer = client("POST", "/api/v1/training", given)
        assert answer.status == 422
        assert answer.json["field"] == "settings"


def test_a_training_starts_from_a_run_of_the_list_alone(serve, outside, home):
    (home / "linked").symlink_to(outside / "run")
    client = serve(create_studio([], home=home))
    for name in ("linked", "../outside/run", str(outside / "run"), "nobody", ".", ""):
        given = {"name": "new", "recipe": "copy", "settings": [f"training.init={name or ' x'}"]}
        answer = client("POST", "/api/v1/training", given)
        assert answer.status == 404
        assert "no run named" in answer.json["error"]
    assert not (home / "new").exists()
    weights = home / "letters" / "model.safetensors"  # a file of a run may be no link either
    weights.rename(outside / "model.safetensors")
    weights.symlink_to(outside / "model.safetensors")
    given = {"name": "new", "recipe": "copy", "settings": ["training.init=letters"]}
    answer = client("POST", "/api/v1/training", given)
    assert (answer.status, "is a link out of the run" in answer.json["error"]) == (422, True)


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "manifest.json"])
def test_a_link_in_a_run_is_not_followed(serve, outside, home, name):
    (outside / "config.toml").write_text(f'task = "translate"\n[model]\nkind = "{SECRET}"\n')
    (outside / "metrics.jsonl").write_text('{"step": 1, "loss": 0.123456789}\n' * 2)
    (outside / "manifest.json").write_text(json.dumps({"config": SECRET}))
    whole = serve(create_studio([], home=home))
    assert whole("GET", "/api/v1/training/events?run=letters").status == 200
    (home / "letters" / name).unlink()
    (home / "letters" / name).symlink_to(outside / name)
    client = serve(create_studio([], home=home))
    listed = client("GET", "/api/v1/runs")
    assert [run["name"] for run in listed.json["runs"]] == ["without"]
    for answer in (
        listed,
        client("GET", "/api/v1/examples?run=letters"),
        client("POST", "/api/v1/look", {"run": "letters", "text": "cab"}),
        client("GET", "/api/v1/training/events?run=letters"),
        client("POST", "/api/v1/training/control", {"run": "letters", "action": "resume"}),
    ):
        assert SECRET.encode() not in answer.body
        assert b"0.123456789" not in answer.body
        assert answer.status < 500


def test_an_upload_is_no_link_and_no_path(serve, outside, home):
    uploads = home / ".studio" / "uploads"
    uploads.mkdir(parents=True)
    name = "translate-0123456789abcdef.tsv"
    (uploads / name).symlink_to(outside / "secret.tsv")
    client = serve(create_studio([], home=home))
    wrong = ["translate-../../x.tsv", "/etc/passwd", "translate-", "../outside/secret.tsv", ".", ""]
    for upload in (name, *wrong, str(outside / "secret.tsv"), "translate-\0.tsv"):
        answer = client("POST", "/api/v1/training", {"name": "new", "upload": upload})
        assert answer.status in (404, 422)
        assert SECRET.encode() not in answer.body
    assert not (home / "new").exists()


@pytest.mark.parametrize("task", list(TASKS))
def test_no_input_of_either_server_is_a_path(serve, outside, tiny_run, tmp_path, task):
    run = tiny_run(task)
    before, own = content(outside), content(run)
    model, studio = (
        serve(create_server(regard.load(run))),
        serve(create_studio([run], home=tmp_path)),
    )
    fields = {key.rpartition(".")[2] for of, key in keys() if of == task}
    fields |= {"text", "source", "pixels", "left", "node", "user", "prompt", "image", "file"}
    places = [str(path) for path in outside.iterdir()] + ["/etc/passwd", "../outside/secret.png"]
    asked = []
    for number, field in enumerate(sorted(fields)):
        place = places[number % len(places)]
        asked.append({"inputs": [{field: place}]})
        asked.append({"inputs": [place], field: place})
    asked += [{"inputs": [place]} for place in places]
    answers = [model("POST", "/v1/predict", given) for given in asked]
    for place in places:
        for path, more in (("look", {}), ("file", {"format": "attn"}), ("edit", {"edits": []})):
            given: dict[str, Any] = {"run": task, "text": place, **more}
            answers.append(studio("POST", f"/api/v1/{path}", given))
        answers.append(studio("GET", f"/api/v1/examples?run={place}"))
        answers.append(studio("POST", "/api/v1/compare", {"runs": [task, place], "text": place}))
    for answer in answers:
        assert answer.status < 500, answer.body
        assert SECRET.encode() not in answer.body
        assert b"root:" not in answer.body
    if task == "image":  # no input at all: what is in it could be told from the class
        assert {answer.status for answer in answers if b"compared" not in answer.body} <= {404, 422}
        assert not any(b'"output"' in answer.body for answer in answers)
    assert content(outside) == before
    assert content(run) == own
