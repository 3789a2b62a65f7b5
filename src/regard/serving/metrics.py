"""Numbers about the server, for Prometheus; and one line of the log for each request."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
log = logging.getLogger("regard.serving")


class Metrics:
    """Counters of requests and batches, in a registry of their own.

    Args:
        waiting: returns the number of jobs that wait
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        named: Any = {"registry": self.registry}
        self.requests = Counter(
            "regard_requests_total", "Answers by path and status", ["path", "status"], **named
        )
        self.seconds = Histogram(
            "regard_request_seconds", "Time to answer", ["path"], buckets=SECONDS, **named
        )
        self.batch_jobs = Histogram(
            "regard_batch_requests", "Requests of a batch", buckets=SIZES, **named
        )
        self.batch_tokens = Counter("regard_tokens_total", "Source tokens computed", **named)
        self.batch_seconds = Histogram(
            "regard_batch_seconds", "Time to compute a batch", buckets=SECONDS, **named
        )
        gauge = Gauge("regard_waiting_requests", "Requests that wait", **named)
        gauge.set_function(waiting)

    def observe_batch(self, jobs: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.batch_jobs.observe(jobs)
        self.batch_tokens.inc(tokens)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        return generate_latest(self.registry)


class Observed:
    """ASGI middleware that counts and logs every request; what users send is never logged.

    Args:
        app: what answers
        metrics: where to count
        paths: known ones; others are counted together
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Sequence[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = 500, time.monotonic()

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observed)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            seconds = time.monotonic() - start
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            fields = {"method": scope["method"][:10], "path": path, "status": status}
            log.info("request", extra={"fields": {**fields, "seconds": round(seconds, 4)}})
