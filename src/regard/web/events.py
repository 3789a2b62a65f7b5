"""Server-sent events: a response that goes on while something happens."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from pydantic import BaseModel
from starlette.responses import StreamingResponse

QUIET_SECONDS = 15.0  # until a comment keeps the connection open


class Event(NamedTuple):
    """One event: its name and its data."""

    name: str
    data: BaseModel

    def encode(self) -> str:
        """Return the event as text of the stream."""
        return f"event: {self.name}\ndata: {self.data.model_dump_json()}\n\n"


class EventStream(StreamingResponse):
    """A response of events; it ends with them, or when the client is gone.

    Args:
        events: what to send; closed when the client is gone
    """

    def __init__(self, events: AsyncIterator[Event]) -> None:
        super().__init__(_encoded(events), media_type="text/event-stream")
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"


async def _encoded(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """The text of the stream, with a comment where nothing happens for a while."""
    waiting: asyncio.Task[Event] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait([waiting], timeout=QUIET_SECONDS)
            if not done:
                yield ":\n\n"
                continue
            try:
                event = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield await asyncio.to_thread(event.encode)
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
