"""Checks of every request before it reaches an endpoint, and headers of every response."""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.web.problem import RequestError, problem

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SAFE = ("GET", "HEAD")
SEND_SECONDS = 60.0
BODY_SECONDS = 60.0
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware: `Host`, `Origin`, token and size of requests; headers of responses.

    A page of another site cannot reach the server: its `Origin` differs, and a name that it lets
    point to 127.0.0.1 (DNS rebinding) is not among `hosts`.

    Args:
        app: what receives the requests that pass
        hosts: accepted names in `Host`, without port; empty accepts any and needs a token
        token: what `Authorization: Bearer TOKEN` must hold; None if none is needed
        public: paths that need no token; one that ends in "/" stands for all below it
        largest: bytes of a body
        larger: bytes of a body for single paths, such as uploads
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str] = LOOPBACK,
        token: str | None = None,
        public: Sequence[str] = (),
        largest: int = 2**20,
        larger: Mapping[str, int] | None = None,
    ) -> None:
        if not hosts and token is None:
            raise ValueError("a server that accepts any host needs a token")
        self.app, self.hosts, self.token = app, tuple(hosts), token
        self.public, self.largest, self.larger = tuple(public), largest, larger or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            async with asyncio.timeout(SEND_SECONDS):  # a client that does not read
                await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, sentence = refusal
            more = {"www-authenticate": "Bearer"} if status == 401 else None
            await problem(status, sentence, headers=more)(scope, receive, send_with_headers)
            return
        try:
            await self.app(scope, _Limited(receive, self._largest(scope)), send_with_headers)
        except (TimeoutError, ClientDisconnect):
            if not started:
                raise

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the reason if a request is refused."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return 421, f"the server does not answer for the host {host[:100]!r}"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, "the request comes from a page of another site"
        is_write = scope["method"] not in SAFE
        if is_write and origin is None and site not in ("none", "same-origin"):
            return 403, "the request comes from a page of another site"
        if self.token is not None and not self._is_public(scope["path"]):
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("latin-1"), self.token.encode()):
                return 401, "the token is missing or wrong: send Authorization: Bearer TOKEN"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return 400, "Content-Length should be a number"
        if int(length[:20]) > self._largest(scope):
            return 413, f"the body should have at most {self._largest(scope):,} bytes"
        return None

    def _largest(self, scope: Scope) -> int:
        return self.larger.get(scope["path"], self.largest)

    def _is_public(self, path: str) -> bool:
        below = tuple(each for each in self.public if each.endswith("/") and each != "/")
        return path in self.public or path.startswith(below)


class _Limited:
    """Receives a body of limited size in limited time."""

    def __init__(self, receive: Receive, largest: int) -> None:
        self.receive, self.largest = receive, largest
        self.size, self.is_complete = 0, False
        self.deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def __call__(self) -> Message:
        if self.is_complete:  # waits for the end of the connection
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.deadline):
                message = await self.receive()
        except TimeoutError as error:
            raise RequestError(
                408, f"the body did not arrive within {BODY_SECONDS:.0f} s"
            ) from error
        self.size += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        if self.size > self.largest:
            raise RequestError(413, f"the body should have at most {self.largest:,} bytes")
        return message


def _name(host: str) -> str:
    """The name of a `Host` header, without its port.

    >>> _name("LocalHost:8000"), _name("[::1]:8000")
    ('localhost', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
