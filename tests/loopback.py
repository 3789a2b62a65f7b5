"""A real server on loopback, in a thread, and a client that sends any header."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

from regard.web.server import configure, listen


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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Content-Type": "application/json"} if given is not None else {}
        body = given if given is None or isinstance(given, bytes) else json.dumps(given).encode()
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


@contextmanager
def serving(app: Any, port: int = 0) -> Iterator[Client]:
    """Answer requests until the block ends."""
    listening = listen("127.0.0.1", port)
    server = uvicorn.Server(configure(app, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)
    try:
        yield Client(listening.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listening.close()
