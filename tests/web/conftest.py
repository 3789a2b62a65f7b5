"""A real server on loopback, in a thread."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import uvicorn

from regard.web.server import listen


class Answer(NamedTuple):
    """The answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """Sends requests as they are given, with any header."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"http://127.0.0.1:{port}"

    def __call__(
        self, method: str, path: str, given: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {"Content-Type": "application/json"} if given is not None else {}
        body = given if given is None or isinstance(given, bytes) else json.dumps(given).encode()
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Client]]:
    """Run applications on free ports until the test ends."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(app: Any) -> Client:
        listening = listen("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.01)
        running.append((server, thread))
        return Client(listening.getsockname()[1])

    yield start
    for server, thread in running:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
