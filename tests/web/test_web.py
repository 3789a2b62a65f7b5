"""Requests to a real server: what passes, what is refused, and in which words."""

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field, field_serializer
from starlette.requests import Request

from regard.web import Endpoint, Event, EventStream, Guard, RequestError, create_app, guard
from regard.web.server import listen


class Given(BaseModel):
    name: str
    number: int = Field(1, ge=1, le=9)
    text: str = ""


class Echo(BaseModel):
    name: str
    number: int
    text: str


async def echo(request: Request, given: Given) -> Echo:
    return Echo(name=given.name, number=given.number, text=given.text)


async def fail(request: Request, given: Given) -> Echo:
    if given.name == "missing":
        raise FileNotFoundError("runs/missing does not exist")
    if given.name == "busy":
        raise RequestError(429, "try again in a second", headers={"retry-after": "1"})
    raise ZeroDivisionError("a secret of the server")


async def count(request: Request, given: Given) -> EventStream:
    async def events() -> AsyncIterator[Event]:
        for number in range(given.number):
            yield Event("tick", Echo(name=given.name, number=number, text="한\n글"))
            await asyncio.sleep(0.01)

    return EventStream(events())


ENDPOINTS = [
    Endpoint("GET", "/v1/echo/{name}", echo, "Echo", Given, Echo),
    Endpoint("POST", "/v1/echo/{name}", echo, "Echo", Given, Echo, example={"number": 3}),
    Endpoint("POST", "/v1/fail/{name}", fail, "Fail", Given, Echo, statuses=[404, 429]),
    Endpoint("GET", "/v1/count/{name}", count, "Count", Given, media_type="text/event-stream"),
]


@pytest.fixture
def client(serve: Any) -> Any:
    return serve(
        Guard(create_app(ENDPOINTS, title="test"), largest=1000, larger={"/v1/echo/big": 5000})
    )


def test_input_comes_from_path_query_and_body(client):
    assert client("GET", "/v1/echo/a?number=3").json == {"name": "a", "number": 3, "text": ""}
    answer = client("POST", "/v1/echo/%EA%B0%80", {"number": 4, "text": "나", "name": "ignored"})
    assert answer.json == {"name": "가", "number": 4, "text": "나"}
    assert answer.status == 200


@pytest.mark.parametrize(
    ("given", "status", "field", "words"),
    [
        ({"number": 10}, 422, "number", "number should be less than or equal to 9"),
        ({"number": "x"}, 422, "number", "number should be a whole number"),
        (b"{", 400, None, "not valid JSON"),
        (b'{"number": NaN}', 400, None, "not valid JSON"),
        (b"[" * 900, 400, None, "not valid JSON"),
        (b"[1]", 422, None, "should be a JSON object, got list"),
    ],
)
def test_a_wrong_input_is_one_sentence_beside_its_field(client, given, status, field, words):
    answer = client("POST", "/v1/echo/a", given)
    assert answer.status == status
    assert words in answer.json["error"]
    assert "\n" not in answer.json["error"]
    assert answer.json.get("field") == field


def test_errors_of_the_library_are_sentences_and_defects_stay_in_the_log(client):
    assert client("POST", "/v1/fail/missing", {}).status == 404
    busy = client("POST", "/v1/fail/busy", {})
    assert (busy.status, busy.headers["retry-after"]) == (429, "1")
    crash = client("POST", "/v1/fail/x", {})
    assert crash.status == 500
    assert b"secret" not in crash.body
    assert b"Traceback" not in crash.body
    nowhere = client("GET", "/nowhere").json["error"]
    assert nowhere == "there is nothing at /nowhere: /openapi.json describes what there is"
    assert client("DELETE", "/v1/echo/a").status == 405


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "localhost"}, 200),
        ("GET", {"Host": "[::1]:8000"}, 200),
        ("GET", {"Host": "evil.example"}, 421),  # DNS rebinding
        ("GET", {"Host": "evil.example:80"}, 421),
        ("GET", {"Host": "127.0.0.1.evil.example"}, 421),
        ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
        ("POST", {"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ("POST", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", {"Content-Type": "text/plain"}, 415),  # what a form of another site may send
    ],
)
def test_other_sites_are_refused(client, method, headers, status):
    given = {} if method == "POST" else None
    assert client(method, "/v1/echo/a", given, headers).status == status


def test_a_token_is_needed_where_it_is_set(serve):
    app = Guard(create_app(ENDPOINTS, title="t"), hosts=(), token="é secret", public=("/", "/web/"))
    client = serve(app)
    for given in (None, "Bearer", "Bearer wrong", "Bearer é secre"):
        headers = {"Authorization": given.encode().decode("latin-1")} if given else {}
        answer = client("GET", "/v1/echo/a", headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    right = "Bearer é secret".encode().decode("latin-1")
    assert client("GET", "/v1/echo/a", headers={"Authorization": right}).status == 200
    assert client("GET", "/web/x.js").status == 404
    assert client("GET", "/").status == 404
    with pytest.raises(ValueError, match="needs a token"):
        Guard(app, hosts=())


def test_every_answer_carries_the_headers(client):
    for answer in (
        client("GET", "/v1/echo/a"),
        client("GET", "/x"),
        client("GET", "/", None, {"Host": "x"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_body_is_limited_whether_or_not_its_length_is_known(client):
    assert client("POST", "/v1/echo/a", {"text": "x" * 2000}).status == 413
    assert client("POST", "/v1/echo/big", {"text": "x" * 2000}).status == 200
    assert client("POST", "/v1/echo/big", {"text": "x" * 6000}).status == 413
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    chunks = (b'{"text": "' if not i else b"x" * 500 for i in range(9))
    connection.request("POST", "/v1/echo/a", chunks, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_does_not_arrive_ends_and_others_are_answered(client, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    slow = socket.create_connection(("127.0.0.1", client.port), timeout=10)
    head = "POST /v1/echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert client("GET", "/v1/echo/a").status == 200
    assert slow.recv(100).startswith(b"HTTP/1.1 408")
    slow.close()


def test_events_are_sent_one_by_one(client):
    answer = client("GET", "/v1/count/a?number=3")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.body.decode().split("\n\n")
    assert len(events) == 4
    assert events[1] == 'event: tick\ndata: {"name":"a","number":1,"text":"한\\n글"}'


def test_a_client_that_leaves_ends_its_events(serve):
    ended = []

    async def endless(request: Request, given: Given) -> EventStream:
        async def events() -> AsyncIterator[Event]:
            try:
                while True:
                    yield Event("tick", given)
                    await asyncio.sleep(0.01)
            finally:
                ended.append(given.name)

        return EventStream(events())

    client = serve(create_app([Endpoint("GET", "/{name}", endless, "Tick", Given)], title="t"))
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request("GET", "/left")
    answer = connection.getresponse()
    assert answer.read(11) == b"event: tick"
    answer.close()
    connection.close()
    for _ in range(200):
        if ended:
            break
        asyncio.run(asyncio.sleep(0.02))
    assert ended == ["left"]


def test_the_description_follows_from_the_types(client):
    described = client("GET", "/openapi.json").json
    assert described["openapi"] == "3.1.0"
    get, post = (described["paths"]["/v1/echo/{name}"][method] for method in ("get", "post"))
    assert [(p["name"], p["in"], p["required"]) for p in get["parameters"]] == [
        ("name", "path", True),
        ("number", "query", False),
        ("text", "query", False),
    ]
    assert [p["in"] for p in post["parameters"]] == ["path"]
    body = post["requestBody"]["content"]["application/json"]
    assert body["example"] == {"number": 3}
    assert body["schema"]["properties"]["number"]["maximum"] == 9
    assert "name" not in body["schema"]["properties"]
    assert post["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Echo"
    }
    assert {"400", "415", "422"} <= set(post["responses"])


def test_answers_are_sent_without_the_delay_of_nagles_algorithm():
    async def delays() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await asyncio.wait_for(found, 10)

    assert asyncio.run(delays()) == 1


# ------------------------------------------------------------------------------ the protocol


def exchange(client: Any, *parts: str | bytes) -> tuple[bytes, bool]:
    """What a server answers to bytes, sent as they are, and whether it closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as connection:
        with suppress(ConnectionError):  # closed before all was sent
            for part in parts:
                connection.sendall(part.encode() if isinstance(part, str) else part)
        try:
            while more := connection.recv(2**16):
                answer += more
        except TimeoutError:
            return answer, False
        except ConnectionError:
            pass
    return answer, True


CHUNKED = "Transfer-Encoding: chunked\r\n"
POST = "POST /v1/echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = "GET /v1/echo/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"{POST}{CHUNKED}Content-Length: 2\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n", 400),
        (f"{POST}Content-Length: 7\r\n{CHUNKED}\r\n2\r\n{{}}\r\n0\r\n\r\n", 400),
        (f"{POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}", 400),
        (f"{POST.replace('1.1', '1.0')}{CHUNKED}\r\n2\r\n{{}}\r\n0\r\n\r\n", 400),
        (f"{POST}{CHUNKED}\r\nx\r\n", 400),
        ("\x00\x01 nothing\r\n\r\n", 400),
    ],
    ids=["both", "both, in turn", "two lengths", "chunks of HTTP/1.0", "no chunk", "no request"],
)
def test_a_body_whose_end_is_not_certain_is_refused_and_ends_the_connection(
    client, request_, status
):
    answer, is_closed = exchange(client, request_, SMUGGLED)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert answer.count(b"HTTP/1.1 ") == 1  # what follows is not read as a request
    assert b"smuggled" not in answer
    assert b'{"error":"' in answer
    assert is_closed


@pytest.mark.parametrize(
    ("count", "size", "status"),
    [
        (100, 0, 200),
        (101, 0, 431),
        (1000, 0, 431),
        (9, 60_000, 200),
        (9, 66_000, 431),
        (9, 10_000_000, 400),  # the rest is not waited for
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_headers_are_at_most_a_hundred_and_64_kilobytes(client, count, size, status, at_once):
    lines = [f"X-{number}: {'x' * (size // (count - 2))}\r\n" for number in range(count - 2)]
    head = "GET /v1/echo/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    sent = [head, *lines, "\r\n"]
    answer, is_closed = exchange(client, *(["".join(sent)] if at_once else sent))
    allowed = {status} if status == 200 else {431, 400}  # refused before, or after, the last byte
    assert int(answer.split()[1]) in allowed if answer else status == 400, answer[:100]
    assert is_closed


def test_a_broken_body_of_a_request_that_was_answered_ends_the_connection_alone(client, caplog):
    with socket.create_connection(("127.0.0.1", client.port), timeout=5) as connection:
        connection.sendall(f"{POST.replace('localhost', 'x')}{CHUNKED}\r\n".encode())
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 421 ")
        connection.sendall(b"no\r\n")
        assert connection.recv(2**16) == b""
    assert not [record for record in caplog.records if record.exc_info]


# ------------------------------------------------------------------------------ big answers


class Held(BaseModel):
    """An answer that is written as slowly as a test wants."""

    text: str
    begun: ClassVar = threading.Event()
    go_on: ClassVar = threading.Event()

    @field_serializer("text")
    def _slowly(self, text: str) -> str:
        self.begun.set()
        return text if self.go_on.wait(20) else "nobody went on"


async def hold(request: Request, given: None) -> Held:
    return Held(text="big")


async def hold_events(request: Request, given: None) -> EventStream:
    async def events() -> AsyncIterator[Event]:
        yield Event("held", Held(text="big"))

    return EventStream(events())


@pytest.mark.parametrize("handler", [hold, hold_events])
def test_while_a_big_answer_is_written_others_are_answered(serve, handler):
    Held.begun.clear()
    Held.go_on.clear()
    client = serve(create_app([*ENDPOINTS, Endpoint("GET", "/held", handler, "Wait")], title="t"))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client, "GET", "/held")
        assert Held.begun.wait(20)
        assert client("GET", "/v1/echo/a").status == 200
        Held.go_on.set()
        assert b"big" in answer.result().body
