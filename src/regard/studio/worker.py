"""One thread that computes, and a short queue in front of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from regard.web import RequestError

LONGEST_QUEUE = 128
LARGEST_BATCH = 16

Given = TypeVar("Given")
Result = TypeVar("Result")


class Worker:
    """Computes one request after the other; models are used by one thread at a time."""

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.turn = asyncio.Lock()
        self.waiting = 0
        self.pending: list[tuple[Request, Any, asyncio.Future[Any]]] = []

    async def run(self, request: Request, work: Callable[[], Result]) -> Result:
        """Return what `work` returns, unless the client leaves before its turn.

        Raises:
            RequestError: 503 if the queue is full
            ClientDisconnect: if the client has left, as one does that typed another letter
        """
        async with self._queue():
            if await request.is_disconnected():
                raise ClientDisconnect
            return await self._compute(work)

    @asynccontextmanager
    async def _queue(self, enter: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
        if self.waiting >= LONGEST_QUEUE:
            raise RequestError(503, "the studio is busy: try again", headers={"retry-after": "1"})
        self.waiting += 1
        enter()
        try:
            async with self.turn:
                yield
        finally:
            self.waiting -= 1

    async def _compute(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    async def together(
        self, request: Request, given: Given, work: Callable[[list[Given]], list[Any]]
    ) -> Any:
        """Return what `work` returns for `given`, which it receives with all others that wait.

        Args:
            work: returns a result or an exception for each
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with self._queue(lambda: self.pending.append((request, given, answer))):
            while not answer.done():  # else one that came before has computed it too
                await self._batch(work)
        found = await answer
        if isinstance(found, Exception):
            raise found
        return found

    async def _batch(self, work: Callable[[list[Any]], list[Any]]) -> None:
        batch, self.pending = self.pending[:LARGEST_BATCH], self.pending[LARGEST_BATCH:]
        gone = [await request.is_disconnected() for request, _, _ in batch]
        wanted = [given for (_, given, _), left in zip(batch, gone, strict=True) if not left]
        try:
            results = iter(await self._compute(lambda: work(wanted)))
        except Exception as error:
            results = iter([error] * len(wanted))
        for (_, _, answer), left in zip(batch, gone, strict=True):
            answer.set_result(ClientDisconnect() if left else next(results))
