"""Trainings that the studio starts: processes of their own, found again by their directory."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regard.studio import create_studio, uploads
from regard.studio import jobs as jobs_module
from regard.studio.jobs import Jobs
from regard.training import read_run_config

QUICK = ["data.count=400", "data.valid_count=10", "data.test_count=10", "training.threads=1"]
SMALL = ["model.hidden=8", "model.embedding=8"]


def start(client: Any, **given: Any) -> Any:
    body = {"name": "new", "recipe": "copy", "settings": [*QUICK, *SMALL], **given}
    return client("POST", "/api/v1/training", body)


def until(condition: Any, seconds: float = 90) -> Any:
    for _ in range(int(seconds / 0.1)):
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("never true")


@pytest.mark.slow
def test_a_training_runs_pauses_resumes_and_survives_the_studio(serve, tmp_path):
    home = tmp_path / "runs"
    client = serve(create_studio([], home=home))
    long = ["training.epochs=", "training.steps=100000", "training.evaluate_every=20"]
    answer = start(client, settings=[*QUICK, *SMALL, *long])
    assert answer.status == 200, answer.body
    assert answer.json["state"] == "running"
    jobs = Jobs(home)  # what another studio, started later, sees
    until(lambda: len(jobs.progress("new").checkpoints) > 1)
    assert jobs.state("new") == "running"
    answer = client("POST", "/api/v1/training/control", {"run": "new", "action": "pause"})
    assert answer.json["state"] == "paused"
    paused = jobs.progress("new").points[-1].step
    time.sleep(1)
    assert jobs.progress("new").points[-1].step == paused
    other = serve(create_studio([], home=home))
    answer = other("POST", "/api/v1/training/control", {"run": "new", "action": "resume"})
    assert answer.json["state"] == "running"
    until(lambda: jobs.progress("new").points[-1].step > paused)
    assert start(other).status == 409  # the name is taken
    step = until(lambda: jobs.progress("new").checkpoints)[0]
    given = {"run": "new", "text": "cab", "checkpoint": step, "beam": 1}
    assert other("POST", "/api/v1/look", given).status == 200
    record = json.loads((home / ".studio" / "new.json").read_text())
    os.killpg(record["process"], signal.SIGKILL)  # a kill is not a failure: it can be resumed
    assert until(lambda: jobs.state("new") == "stopped")
    answer = other("POST", "/api/v1/training/control", {"run": "new", "action": "resume"})
    assert answer.json["state"] == "running"
    before = jobs.progress("new").checkpoints[-1]
    until(lambda: jobs.progress("new").checkpoints[-1] > before)
    answer = other("POST", "/api/v1/training/control", {"run": "new", "action": "stop"})
    assert until(lambda: jobs.state("new") == "stopped")
    events = other("GET", "/api/v1/training/events?run=new").body.decode()
    assert '"state":"stopped"' in events
    assert '"loss":' in events
    answer = other("POST", "/api/v1/training/control", {"run": "new", "action": "stop"})
    assert (answer.status, answer.json["error"]) == (409, "new is not running")


@pytest.mark.slow
def test_an_uploaded_file_is_checked_and_trained_on(serve, tmp_path):
    home = tmp_path / "runs"
    client = serve(create_studio([], home=home))
    lines = [f"{n}\t{n}{n}" for n in range(200)] + ["bad line", "더하기\t셋"]
    given = {"name": "내 파일.tsv", "text": "\n".join(lines) + "\n"}
    preview = client("POST", "/api/v1/uploads", given).json
    assert preview["count"] == 201
    assert preview["skipped"] == 1
    assert preview["problems"] == ["line 201: 1 column instead of 2"]
    assert preview["rows"][1] == ["1", "11"]
    short = ["training.epochs=1", "training.threads=1", *SMALL]
    answer = start(client, name="내-파일", recipe=None, upload=preview["upload"], settings=short)
    assert answer.status == 200, answer.body
    jobs = Jobs(home)
    until(lambda: jobs.state("내-파일") != "running")
    assert jobs.progress("내-파일").message is None
    assert jobs.state("내-파일") == "finished"
    answer = client("POST", "/api/v1/look", {"run": "내-파일", "text": "12"})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("given", "status", "field", "words"),
    [
        ({"recipe": "nothing"}, 422, None, "unknown recipe"),
        ({"recipe": None}, 422, "recipe", "either a recipe or an uploaded file"),
        ({"settings": ["training.lr=fast"]}, 422, "settings", "training.lr"),
        ({"settings": ["training.speed=3"]}, 422, "settings", "unknown key training.speed"),
        (
            {"settings": ["data.count=0"]},
            422,
            "settings",
            "data.count should be greater",
        ),
        ({"settings": ["data.path=x.tsv"]}, 422, "settings", "unknown key data.path"),
        ({"settings": ["data.train=x.tsv"]}, 422, "settings", "data.train cannot be changed"),
        ({"name": "../up"}, 422, "name", "name should be up to 61 letters, digits"),
        ({"name": "letters"}, 409, "name", "there is a run named letters already"),
        ({"recipe": None, "upload": "../../x.tsv"}, 404, None, "not there any more"),
    ],
)
def test_a_training_that_cannot_start_says_why(client, home, given, status, field, words):
    answer = start(client, **given)
    assert answer.status == status
    assert words in answer.json["error"]
    assert answer.json.get("field") == field
    assert not (home / ".studio").exists()


def test_a_training_too_many_leaves_no_file(client, home, monkeypatch):
    monkeypatch.setattr(jobs_module, "MOST_RUNNING", 0)
    answer = start(client)
    assert (answer.status, answer.json["error"]) == (
        409,
        "0 trainings are running: stop or finish one first",
    )
    assert sorted(path.name for path in home.iterdir()) == ["letters", "without"]


def test_a_training_that_fails_says_why(serve, tmp_path, monkeypatch):
    home = tmp_path / "runs"
    client = serve(create_studio([], home=home))
    (home / ".studio").mkdir(parents=True)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    assert start(client, recipe="multi30k", settings=[]).status == 200
    jobs = Jobs(home)
    until(lambda: jobs.state("new") == "failed")
    message = jobs.progress("new").message
    assert message
    assert "nowhere" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "name", "text", "rows", "skipped", "look"),
    [
        (
            "classify",
            "reviews.tsv",
            "a fine film\tgood\n영화가 별로다\tbad\nno label\n" * 30,
            ["a fine film", "good"],
            30,
            "a film",
        ),
        (
            "classify",
            "reviews.csv",
            'text,label\n"a, b",1\n' + "c d,2\ne,1\n" * 30,
            ["a, b", "1"],
            0,
            "a",
        ),
        ("language", "poem.txt", "나 보기가 역겨워\n" * 120, ["나 보기가 역겨워"], 0, "나"),
    ],
    ids=["tsv", "csv", "txt"],
)
def test_labelled_and_plain_texts_are_checked_and_trained_on(
    serve, tmp_path, task, name, text, rows, skipped, look
):
    home = tmp_path / "runs"
    client = serve(create_studio([], home=home))
    preview = client("POST", "/api/v1/uploads", {"task": task, "name": name, "text": text}).json
    assert preview["rows"][0] == rows
    assert preview["skipped"] == skipped
    small = ["model.dim=8", "model.hidden=8", "training.steps=2", "training.epochs="]
    small += ["training.threads=1", "training.warmup=0", "training.schedule=constant"]
    small += ["model.heads=2", "model.layers=1", "data.context=16"] if task == "language" else []
    answer = start(client, name="mine", recipe=None, upload=preview["upload"], settings=small)
    assert answer.status == 200, answer.body
    jobs = Jobs(home)
    until(lambda: jobs.state("mine") != "running")
    assert jobs.progress("mine").message is None
    answer = client("POST", "/api/v1/look", {"run": "mine", "text": look})
    assert (answer.status, answer.json["task"]) == (200, task)


@pytest.mark.parametrize(
    ("name", "text", "words", "task"),
    [
        ("a.exe", "a\tb", "name should end in .tsv, .csv, .jsonl or .txt", "translate"),
        ("a.tsv", "a\tb\nc\td\n", "2 different sources: a training needs 3 or more", "translate"),
        ("a.txt", "a b\n", "a line of a TSV has a source, a tab and a target", "translate"),
        ("a.csv", "a,b\n1,2\n", "has no column 'source'; known: a, b: a line", "translate"),
        ("a.tsv", "", "is empty", "translate"),
        ("a.tsv", "one\ntwo\n", "all lines are bad", "translate"),
        ("a.jsonl", "{", "bad", "translate"),
        ("a.tsv", "one\tA\ntwo\tA\n", "two or more classes", "classify"),
        ("a.csv", "one,two\n1,2\n", "text", "classify"),
        ("a.txt", "short", "at least 1,000", "language"),
        ("a.tsv", "one\ttwo\n", "text", "language"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(client, home, name, text, words, task):
    answer = client("POST", "/api/v1/uploads", {"name": name, "text": text, "task": task})
    assert answer.status == 422
    error = answer.json["error"]
    assert words in error
    assert "/" not in error  # where the server keeps it
    assert "data." not in error  # settings that an upload does not have
    assert not list(Path(home, ".studio").glob("uploads/*"))


@pytest.mark.parametrize(
    ("task", "name", "text"),
    [
        ("translate", "a.tsv", "\n".join(f"{n}{'x' * 50_000}\t{'y' * 50_000}" for n in range(9))),
        ("classify", "a.tsv", "\n".join(f"{'x' * 50_000}\t{n}" for n in range(9))),
        ("language", "a.txt", "x" * 900_000),
    ],
)
def test_the_preview_of_long_lines_is_cut(client, task, name, text):
    answer = client("POST", "/api/v1/uploads", {"name": name, "text": text, "task": task})
    assert answer.status == 200, answer.body
    assert len(answer.body) < 10_000
    assert answer.json["rows"][0][0].endswith("x…")


def test_uploads_have_room_for_a_gigabyte(client, home, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_BYTES", 2000)
    texts = [f"{n}\n" * 350 for n in range(3)]
    statuses = [
        client(
            "POST",
            "/api/v1/uploads",
            {"name": "a.txt", "text": "x" * 900 + text, "task": "language"},
        ).status
        for text in texts
    ]
    assert statuses == [200, 507, 507]
    assert len(list(Path(home, ".studio").glob("uploads/*"))) == 1


@pytest.mark.slow
def test_a_training_starts_from_the_weights_of_a_run_of_the_list(client, home):
    given = ["training.init=letters", "training.steps=1", "training.epochs=", *QUICK]
    small = ["model.hidden=24", "model.embedding=16"]
    assert start(client, settings=[*given, *small]).status == 200
    jobs = Jobs(home)
    until(lambda: jobs.state("new") != "running")
    assert jobs.progress("new").message is None
    assert read_run_config(home / "new").training.init == str(home / "letters")


@pytest.mark.slow
def test_of_many_starts_at_once_two_run_and_the_others_leave_no_file(client, home):
    long = ["training.epochs=", "training.steps=100000"]
    names = [f"run-{number}" for number in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(
            pool.map(lambda name: start(client, name=name, settings=[*QUICK, *SMALL, *long]), names)
        )
    try:
        assert sorted(answer.status for answer in answers) == [200, 200, 409, 409, 409, 409]
        started = {
            name for name, answer in zip(names, answers, strict=True) if answer.status == 200
        }
        assert {path.stem for path in (home / ".studio").iterdir()} == started
    finally:
        for record in (home / ".studio").glob("*.json"):
            os.killpg(json.loads(record.read_text())["process"], signal.SIGKILL)
