"""Connections that end when nothing happens on them, or when what arrives is no request."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.web.problem import Problem

UNREAD_SECONDS = 60.0  # until a client must have read an answer


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection without a request for `timeout_keep_alive` seconds.

    uvicorn itself begins to count after the first answer, and stops at the next byte. Here a
    request counts once its headers are complete, so that a client that sends nothing, or a byte at
    a time, does not hold a connection. A client that does not read an answer has a minute.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch a connection."""
        super().connection_made(transport)
        self._last: Any = None  # the newest request when something happened last
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._watch)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request; if its answer has begun, the connection only ends."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = Problem(
                error="the bytes are not a request of HTTP/1.1, or its headers too long", field=None
            )
            body = text.model_dump_json(exclude_none=True).encode()
            headers = [("content-type", "application/json"), ("connection", "close")]
            headers.append(("content-length", str(len(body))))
            start = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        now, request, transport = self.loop.time(), self.cycle, self.transport
        is_running = request is not None and not request.response_complete
        if request is not self._last or (is_running and not transport.is_closing()):
            self._last, self._since = request, now
        unread = transport.get_write_buffer_size()
        allowed = UNREAD_SECONDS if unread else self.timeout_keep_alive
        if now - self._since >= allowed:
            transport.abort()
        else:
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._watch)
