"""Requests at every documented limit of both servers, and beyond each by one.

What is within all limits is answered, what is beyond one of them is refused in a sentence, and the
server answers the next request.
"""

import json
import random
import socket
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import regard
from regard.serving import Limits, create_server
from regard.studio import create_studio
from tests.loopback import Client, serving

Body = dict[str, Any]
LETTERS = "abcdefgh"
ACCENT = "\u0301"  # with the letter before it, any number of them is one token


class Limit(NamedTuple):
    """A field, and what makes its largest value, or one more for `over=1`."""

    field: str
    value: Callable[[random.Random, int], Any]


def letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(LETTERS, k=count))


def number(most: float, step: float = 1) -> Callable[[random.Random, int], Any]:
    return lambda rng, over: most + step * over


TRANSLATE = [
    Limit("texts", lambda rng, over: [letters(rng, 3) for _ in range(64 + over)]),
    Limit("texts", lambda rng, over: [letters(rng, 1024 + over)]),  # tokens
    Limit("texts", lambda rng, over: ["a" + ACCENT * (19_999 + over)]),  # characters
    Limit("beam", number(20)),
    Limit("penalty", number(10, 0.1)),
    Limit("prefix", lambda rng, over: letters(rng, 56 + over)),  # of a text of three letters
    Limit("timeout", number(60, 0.1)),
]
PREDICT = [
    Limit("inputs", lambda rng, over: [{"source": letters(rng, 3)} for _ in range(64 + over)]),
    Limit("inputs", lambda rng, over: [{"text": letters(rng, 1024 + over)}]),
    Limit("inputs", lambda rng, over: [{"text": "a" + ACCENT * (19_999 + over)}]),
    Limit("timeout", number(60, 0.1)),
]
LOOK = [
    Limit("text", lambda rng, over: letters(rng, 600 + over)),  # tokens
    Limit("beam", number(10)),
]
EDIT = [
    Limit("text", lambda rng, over: letters(rng, 600 + over)),
    Limit("edits", lambda rng, over: [{"layer": "*", "keys": [0]}] * (50 + over)),
    Limit("edits", lambda rng, over: [{"layer": "*", "keys": [0] * (2000 + over)}]),
    Limit("edits", lambda rng, over: [{"layer": "*", "heads": [0] * (256 + over)}]),
    Limit("edits", lambda rng, over: [{"layer": "*", "keys": [0], "weight": 1 + 0.1 * over}]),
]
COMPARE = [
    Limit("text", lambda rng, over: letters(rng, 20_000 + over)),
    Limit("runs", lambda rng, over: ["copy"] * (4 + over)),
]
ATTEND = [Limit("scale", number(100)), Limit("head", number(0))]
SHORT: dict[str, Body] = {
    "/v1/translate": {"texts": ["abc"], "beam": 1},
    "/v1/predict": {"inputs": ["abc"]},
    "/api/v1/look": {"run": "copy", "text": "abc", "beam": 1},
    "/api/v1/edit": {"run": "copy", "text": "abc", "edits": []},
    "/api/v1/compare": {"text": "abc", "runs": ["copy"]},
    "/api/v1/attend": {"run": "copy", "text": "abc", "layer": "decoder.attention"},
}
ENDPOINTS = {
    "/v1/translate": TRANSLATE,
    "/v1/predict": PREDICT,
    "/api/v1/look": LOOK,
    "/api/v1/edit": EDIT,
    "/api/v1/compare": COMPARE,
    "/api/v1/attend": ATTEND,
}


@pytest.fixture(scope="module")
def clients(copy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the server of a path."""
    home = tmp_path_factory.mktemp("home")
    with (
        serving(create_server(regard.load(copy_run))) as model,
        serving(create_studio([copy_run], home=home)) as studio,
    ):
        yield lambda path: studio if path.startswith("/api") else model


def test_each_limit_is_taken_and_one_more_is_refused(clients, attempts):
    cases = [(path, limit) for path, limits in ENDPOINTS.items() for limit in limits]
    for rng in attempts(1):
        for (path, limit), over in product(cases, (0, 1)):
            client: Client = clients(path)
            answer = client("POST", path, {**SHORT[path], limit.field: limit.value(rng, over)})
            assert answer.status == (422 if over else 200), (path, limit.field, answer.body[:200])
            assert not over or len(answer.json["error"]) <= 500
            assert client("POST", path, SHORT[path]).status == 200


def test_several_limits_at_once_are_answered(clients, attempts):
    """Any of 200, 422 for the weights of alignments, and 504 for the time: never a failure."""
    for rng in attempts(4):
        client: Client = clients("/v1")
        body: Body = {**SHORT["/v1/translate"], "timeout": 2.0, "alignments": rng.random() < 0.5}
        for limit in rng.sample(TRANSLATE[:4], 3):
            body[limit.field] = limit.value(rng, 0)
        body["n_best"] = body["beam"]
        answer = client("POST", "/v1/translate", body)
        assert answer.status in (200, 422, 504), answer.body[:200]
        assert len(answer.body) < 60 * 2**20
        assert client("GET", "/healthz").status == 200


def test_weights_of_alignments_are_counted_as_documented(clients, attempts):
    client: Client = clients("/v1")
    for rng in attempts(3):
        length, n_best = rng.randint(40, 200), rng.randint(1, 20)
        each = n_best * length * (2 * length + 50)
        most = Limits().cells // each
        for count, status in ((min(most, 64), (200, 504)), (most + 1, (422,))):
            if not 1 <= count <= 64:
                continue
            texts = [letters(rng, length) for _ in range(count)]
            body = {"texts": texts, "beam": n_best, "n_best": n_best, "alignments": True}
            answer = client("POST", "/v1/translate", {**body, "timeout": 5.0})
            assert answer.status in status, answer.body[:200]


def test_a_body_is_taken_to_its_last_byte(clients, attempts):
    for rng in attempts(2):
        path = rng.choice(["/v1/predict", "/api/v1/look"])
        given = json.dumps(SHORT[path]).encode()
        for over, status in ((0, 200), (1, 413)):
            body = given + b" " * (2**20 + over - len(given))
            assert clients(path)("POST", path, body).status == status


def test_headers_are_taken_to_the_last(clients, attempts):
    for rng in attempts(2):
        path = rng.choice(["/healthz", "/api/v1/recipes"])
        for over, status in ((0, b"200"), (1, b"431")):
            lines = [f"x-{letters(rng, 5)}-{n}: {letters(rng, 600)}" for n in range(98 + over)]
            head = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines, ""]
            with socket.create_connection(("127.0.0.1", clients(path).port), 20) as connection:
                for line in head:
                    connection.sendall(f"{line}\r\n".encode())
                assert connection.recv(100).split()[1] == status


def test_an_upload_is_taken_to_its_last_character(clients):
    for over, status in ((0, 200), (1, 422)):
        text = "x" * (2**24 + over)
        given = {"name": "a.txt", "text": text, "task": "language"}
        answer = clients("/api")("POST", "/api/v1/uploads", given)
        assert answer.status == status
        assert len(answer.body) < 1000
