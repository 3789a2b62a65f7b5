"""Checks of every request before it reaches an endpoint, and headers of every response."""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.web.problem import RequestError, problem

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SAFE = ("GET", "HEAD")
SEND_SECONDS = 60.0
BODY_SECONDS = 60.0
MOST_HEADERS = 100
HEADER_BYTES = 2**16
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

        refusal = _framing(scope) or self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        try:
            await self.app(scope, _Limited(receive, self._largest(scope)), send_with_headers)
        except (TimeoutError, ClientDisconnect):
            if not started:
                raise

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that does not pass."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return problem(421, f"the server does not answer for the host {host[:100]!r}")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_write = scope["method"] not in SAFE
        if origin is not None:
            is_other = urlsplit(origin).netloc.lower() != host.lower()
        else:
            is_other = is_write and site not in ("none", "same-origin")
        if is_other:
            return problem(403, "the request comes from a page of another site")
        if self.token is not None and not self._is_public(scope["path"]):
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("latin-1"), self.token.encode()):
                sentence = "the token is missing or wrong: send Authorization: Bearer TOKEN"
                return problem(401, sentence, headers={"www-authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return problem(400, "Content-Length should be a number")
        if int(length[:20]) > self._largest(scope):
            return problem(413, f"the body should have at most {self._largest(scope):,} bytes")
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


def _framing(scope: Scope) -> Response | None:
    """The answer to a request whose headers are too many, or do not say where its body ends.

    The connection is closed after it: another server on the way may have seen another end, and what
    follows would be a request that it never saw (RFC 9112, 6.1).
    """
    headers, status = Headers(scope=scope), 431
    size = sum(len(name) + len(value) + len(": \r\n") for name, value in headers.raw)
    is_chunked, is_old = "transfer-encoding" in headers, scope["http_version"] == "1.0"
    if len(headers.raw) > MOST_HEADERS or size > HEADER_BYTES:
        sentence = f"a request may have {MOST_HEADERS} headers and {HEADER_BYTES:,} bytes of them"
    elif is_chunked and ("content-length" in headers or is_old):
        sentence = "send Content-Length, or Transfer-Encoding with HTTP/1.1, and not both"
        status = 400
    else:
        return None
    return problem(status, sentence, headers={"connection": "close"})


def _name(host: str) -> str:
    """The name of a `Host` header, without its port.

    >>> _name("LocalHost:8000"), _name("[::1]:8000")
    ('localhost', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
