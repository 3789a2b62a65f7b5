"""Requests of many clients computed together, in one thread beside the event loop."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from regard.web import RequestError


@dataclass(eq=False)
class Job:
    """The inputs of one request, and what becomes of them."""

    inputs: Sequence[Any]
    options: dict[str, Any]
    tokens: int
    deadline: float  # of `time.monotonic`
    on_step: Callable[..., None] | None = None  # receives each step: then it is computed alone
    done: asyncio.Future[list[Any]] = field(default_factory=lambda: _future())

    @property
    def is_over(self) -> bool:
        """Whether its client is gone or its deadline has passed."""
        return self.done.done() or time.monotonic() > self.deadline


def _future() -> asyncio.Future[list[Any]]:
    return asyncio.get_running_loop().create_future()


class StoppedError(Exception):
    """Raised inside a computation whose clients are all gone."""


class Batcher:
    """Collects jobs with the same options and computes them as one batch.

    A batch begins as soon as the last one is finished, when it has `tokens` tokens, or `wait`
    seconds after its first job, whichever is later for the first and sooner for the others.

    Args:
        compute: `(inputs, on_step, **options) -> predictions`, called in a thread of its own
        tokens: of a batch, at most; a larger job is alone
        wait: seconds to wait for further jobs
        waiting: jobs that wait, at most; beyond them `submit` refuses
        observe: called with jobs, tokens and seconds of each batch
    """

    def __init__(
        self,
        compute: Callable[..., list[Any]],
        *,
        tokens: int = 4096,
        wait: float = 0.005,
        waiting: int = 256,
        observe: Callable[[int, int, float], None] = lambda jobs, tokens, seconds: None,
    ) -> None:
        self.compute, self.tokens, self.wait, self.waiting = compute, tokens, wait, waiting
        self.observe = observe
        self.queue: deque[Job] = deque()
        self.pace = 0.05  # seconds of a job, averaged
        self._arrived = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="regard-model")
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to compute what is submitted."""
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish what was submitted, then end."""
        while self.queue:
            await asyncio.sleep(0.01)
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
        await asyncio.to_thread(self._worker.shutdown)

    def submit(self, job: Job) -> asyncio.Future[list[Any]]:
        """Return the future of a job's predictions.

        Raises:
            RequestError: 429, if too many are waiting
        """
        self.check_room()
        self.queue.append(job)
        self._arrived.set()
        return job.done

    def check_room(self) -> None:
        """Raise `RequestError` if too many are waiting, with when to try again."""
        if len(self.queue) >= self.waiting:
            seconds = max(1, math.ceil(self.pace * len(self.queue)))
            raise RequestError(
                429,
                f"{len(self.queue)} requests are waiting: try again in {seconds} s",
                headers={"retry-after": str(seconds)},
            )

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            if self.queue and self.queue[0].on_step is None and not self._is_full():
                await asyncio.sleep(self.wait)
            batch = self._take()
            if not self.queue:
                self._arrived.clear()
            if batch:
                await self._compute(batch)

    def _is_full(self) -> bool:
        return sum(job.tokens for job in self.queue) >= self.tokens

    def _take(self) -> list[Job]:
        """The first job and those behind it that fit with it; jobs that are over are dropped."""
        while self.queue and self.queue[0].is_over:
            self.queue.popleft()
        if not self.queue:
            return []
        batch = [self.queue.popleft()]
        if batch[0].on_step is not None:
            return batch
        total, rest = batch[0].tokens, deque[Job]()
        for job in self.queue:
            fits = job.options == batch[0].options and total + job.tokens <= self.tokens
            if job.is_over:
                continue
            if fits and job.on_step is None:
                batch.append(job)
                total += job.tokens
            else:
                rest.append(job)
        self.queue = rest
        return batch

    async def _compute(self, batch: list[Job]) -> None:
        def on_step(*step: Any) -> None:
            if all(job.is_over for job in batch):
                raise StoppedError
            if batch[0].on_step is not None:
                batch[0].on_step(*step)

        inputs = [one for job in batch for one in job.inputs]
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._worker, lambda: self.compute(inputs, on_step, **batch[0].options)
            )
        except StoppedError:
            return
        except Exception as error:
            await self._fail(batch, error)
            return
        seconds = time.monotonic() - start
        self.pace += 0.1 * (seconds / len(batch) - self.pace)
        self.observe(len(batch), sum(job.tokens for job in batch), seconds)
        for job in batch:
            own, found = found[: len(job.inputs)], found[len(job.inputs) :]
            if not job.done.done():
                job.done.set_result(own)

    async def _fail(self, batch: list[Job], error: Exception) -> None:
        """Give a single job its error; of several, compute each alone, so that one fails alone."""
        if len(batch) == 1:
            if not batch[0].done.done():
                batch[0].done.set_exception(error)
            return
        for job in batch:
            if not job.is_over:
                await self._compute([job])
