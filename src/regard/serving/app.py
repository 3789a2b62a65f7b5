"""The application: endpoints of one model, behind a guard, a queue and metrics."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from regard import decoding
from regard.export import CTranslate2Model
from regard.export.onnx import OnnxDecoder, OnnxModel
from regard.serving.batcher import Batcher, Job
from regard.serving.metrics import Metrics, Observed
from regard.serving.schemas import (
    CHARACTERS,
    Hypothesis,
    PredictAnswer,
    PredictRequest,
    State,
    Token,
    TranslateAnswer,
    TranslateRequest,
    TranslationAnswer,
)
from regard.tasks import Predictor, Translation, Translator, check_options
from regard.web import Endpoint, Event, EventStream, Guard, RequestError, create_app
from regard.web.guard import LOOPBACK

STATUSES = (401, 413, 429, 503, 504)
PUBLIC = ("/healthz", "/readyz")
LENGTHS = decoding.Limits()  # of translations, as `Translator.predict` has them


@dataclass(frozen=True)
class Limits:
    """What a server takes at a time."""

    tokens: int = 4096  # of a batch
    wait: float = 0.005  # seconds that a request waits for others
    waiting: int = 256  # requests
    longest: int = 1024  # tokens of a text
    cells: int = 2**22  # attention weights of an answer
    body: int = 2**20  # bytes


def create_server(
    predictor: Predictor,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    limits: Limits = Limits(),  # noqa: B008
) -> ASGIApp:
    """Return the application that serves a predictor.

    Args:
        token: that requests must have; needed unless `hosts` are those of this machine
        hosts: accepted names in `Host`; empty accepts any
    """
    server = Server(predictor, limits)
    endpoints = server.endpoints()
    app = create_app(endpoints, title=f"regard: {predictor.task}", lifespan=server.lifespan)
    guarded = Guard(app, hosts=hosts, token=token, public=PUBLIC, largest=limits.body)
    return Observed(guarded, server.metrics, [e.path for e in endpoints])


class Server:
    """The endpoints of one predictor, and the queue that they share."""

    def __init__(self, predictor: Predictor, limits: Limits) -> None:
        self.predictor, self.limits = predictor, limits
        self.metrics = Metrics(lambda: len(self.batcher.queue))
        self.batcher: Batcher
        self.is_ready = False

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """While the server runs; at the end what was accepted is finished."""
        self.batcher = Batcher(
            self._compute,
            tokens=self.limits.tokens,
            wait=self.limits.wait,
            waiting=self.limits.waiting,
            observe=self.metrics.observe_batch,
        )
        self.batcher.start()
        await asyncio.to_thread(self._warm_up)
        self.is_ready = True
        try:
            yield
        finally:
            self.is_ready = False
            await self.batcher.stop()

    def endpoints(self) -> list[Endpoint]:
        """Return what the server answers."""
        found = [
            Endpoint(
                "POST",
                "/v1/predict",
                self.predict,
                "Predict, for any task",
                takes=PredictRequest,
                returns=PredictAnswer,
                example={"inputs": ["an input as `regard predict` takes it"]},
                statuses=STATUSES,
            ),
            Endpoint("GET", "/healthz", self.healthz, "Whether the process works", returns=State),
            Endpoint(
                "GET",
                "/readyz",
                self.readyz,
                "Whether requests are accepted",
                returns=State,
                statuses=(503,),
            ),
            Endpoint(
                "GET",
                "/metrics",
                self.show_metrics,
                "Numbers for Prometheus",
                media_type="text/plain",
                statuses=(401,),
            ),
        ]
        if isinstance(self.predictor, Translator):
            translate = Endpoint(
                "POST",
                "/v1/translate",
                self.translate,
                "Translate texts, all at once or, with stream, token by token",
                takes=TranslateRequest,
                returns=TranslateAnswer,
                example={"texts": ["march 3rd, 2031"], "beam": 5, "alignments": True},
                statuses=STATUSES,
            )
            found.insert(0, translate)
        return found

    async def predict(self, request: Request, body: PredictRequest) -> PredictAnswer:
        """Predictions as JSON."""
        options = check_options(self.predictor, body.options())
        for one in body.inputs:
            if self.predictor.task == "image" and isinstance(one, str):
                raise RequestError(422, 'an image is an object {"pixels": [[…]]}', "inputs")
        job = await self._job(body.inputs, options, body.timeout)
        found = await self._result(request, job, body.timeout)
        return await asyncio.to_thread(
            lambda: PredictAnswer(predictions=[self.predictor.to_json(one) for one in found])
        )

    async def translate(
        self, request: Request, body: TranslateRequest
    ) -> TranslateAnswer | EventStream:
        """Translations of all texts, or the stream of one."""
        searches = not body.samples and body.beam > 1
        if body.stream and (searches or body.n_best > 1 or len(body.texts) > 1):
            raise RequestError(
                422, "a stream is of one text, one translation, and beam 1 or sampling", "stream"
            )
        options = body.options()
        if body.prefix:
            options["prefix"] = body.prefix
        job = await self._job(body.texts, options, body.timeout)
        if body.stream:
            self.batcher.check_room()
            return EventStream(self._stream(request, job, body.timeout))
        found = await self._result(request, job, body.timeout)
        return await asyncio.to_thread(
            lambda: TranslateAnswer(translations=[_answer(one) for one in found])
        )

    async def healthz(self, request: Request, body: None) -> Response:
        """The event loop answers."""
        return self._state("ok")

    async def readyz(self, request: Request, body: None) -> Response:
        """Requests are accepted: the server is not ending, and its queue is not full."""
        if not self.is_ready or len(self.batcher.queue) >= self.limits.waiting:
            raise RequestError(503, "the server is ending or its queue is full")
        return self._state("ready")

    async def show_metrics(self, request: Request, body: None) -> Response:
        """All metrics."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    def _state(self, status: str) -> Response:
        """The state, written by the event loop itself: it does not wait behind larger answers."""
        state = State(status=status, task=self.predictor.task, engine=engine_of(self.predictor))
        return Response(state.model_dump_json(), media_type="application/json")

    async def _job(self, inputs: Sequence[Any], options: dict[str, Any], timeout: float) -> Job:
        """The job of some inputs, parsed and counted beside the event loop."""
        if not self.is_ready:
            raise RequestError(503, "the server is ending", headers={"retry-after": "1"})

        def read() -> tuple[list[Any], list[int]]:
            parsed = [self.predictor.parse(one) for one in inputs]
            return parsed, list(map(self._count, parsed))

        parsed, tokens = await asyncio.to_thread(read)
        if options.get("return_map"):
            self._check_cells(tokens, options["n_best"])
        return Job(
            parsed, options, sum(max(1, count) for count in tokens), time.monotonic() + timeout
        )

    async def _result(self, request: Request, job: Job, timeout: float) -> list[Any]:
        """The predictions of a job, unless its time is over or its client is gone."""
        done = self.batcher.submit(job)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            both: list[asyncio.Future[Any]] = [done, gone]
            await asyncio.wait(both, timeout=timeout, return_when="FIRST_COMPLETED")
            if not done.done():
                status = 499 if gone.done() else 504
                raise RequestError(status, f"there was no answer within {timeout:g} s")
            return done.result()
        finally:
            done.cancel()
            gone.cancel()

    async def _stream(self, request: Request, job: Job, timeout: float) -> AsyncIterator[Event]:
        """The tokens of one translation as they come, and the translation."""
        translator = self.predictor
        assert isinstance(translator, Translator)
        loop, tokens = asyncio.get_running_loop(), asyncio.Queue[int]()

        def on_step(sentences: Any, chosen: Any) -> None:
            loop.call_soon_threadsafe(tokens.put_nowait, int(chosen[0]))

        job.on_step = on_step
        answer = asyncio.ensure_future(self._result(request, job, timeout))
        ids: list[int] = []
        try:
            while not answer.done() or not tokens.empty():
                get = asyncio.ensure_future(tokens.get())
                await asyncio.wait([get, answer], return_when="FIRST_COMPLETED")
                if not get.done():
                    get.cancel()
                    continue
                ids.append(get.result())
                (name,) = translator.target.tokens(ids[-1:])
                yield Event("token", Token(token=name, text=translator.target.decode(ids)))
            try:
                (found,) = answer.result()
                yield Event("translation", await asyncio.to_thread(_answer, found))
            except (RequestError, ValueError) as error:
                yield Event("error", _problem(error))
        finally:
            answer.cancel()

    def _warm_up(self) -> None:
        """Compile what the first requests would wait for."""
        if getattr(self.predictor, "source", None) is not None:
            for beam in (1, 5):
                self.predictor.predict(["a"], beam=beam)

    def _count(self, one: Any) -> int:
        """Tokens of an input, about; 422 if there are too many."""
        if isinstance(one, tuple):  # a pair of texts, or of a text and something else
            return sum(map(self._count, one))
        if isinstance(one, np.ndarray):  # frames
            count = len(one)
        elif isinstance(one, str):
            if len(one) > CHARACTERS:
                raise RequestError(
                    422, f"a text has {len(one):,} characters, at most {CHARACTERS:,} are taken"
                )
            names = ("source", "left")
            tokenizers = (getattr(self.predictor, name, None) for name in names)
            tokenizer = next(filter(None, tokenizers), None)
            count = len(one.split() if tokenizer is None else tokenizer.encode(one))
        else:
            return 1
        if count > self.limits.longest:
            raise RequestError(
                422, f"a text has {count:,} tokens, at most {self.limits.longest:,} are taken"
            )
        return count

    def _check_cells(self, tokens: Sequence[int], n_best: int) -> None:
        """Raise 422 if alignments of texts may have too many weights, if all become longest."""
        lengths = torch.tensor(tokens)
        cells = n_best * int((lengths * LENGTHS.of(lengths)).sum())
        if cells > self.limits.cells:
            raise RequestError(
                422,
                f"the alignments may have {cells:,} weights, and an answer has at most "
                f"{self.limits.cells:,}: send fewer or shorter texts, ask for a smaller n_best, or "
                "leave out alignments",
                "alignments",
            )

    def _compute(
        self, inputs: list[Any], on_step: Callable[..., None], **options: Any
    ) -> list[Any]:
        """Predictions, in the thread of the model."""
        if isinstance(self.predictor, Translator):
            prefix = options.pop("prefix", None)
            if prefix is not None:
                options["prefix"] = [prefix] * len(inputs)
            options["on_step"] = on_step
        return self.predictor.predict(inputs, **options)


def engine_of(predictor: Predictor) -> str:
    """Return what runs the model: "torch", "ctranslate2" or "onnx"."""
    if isinstance(predictor.model, CTranslate2Model):
        return "ctranslate2"
    return "onnx" if isinstance(predictor.model, OnnxDecoder | OnnxModel) else "torch"


def _answer(translations: Translation | list[Translation]) -> TranslationAnswer:
    several = translations if isinstance(translations, list) else [translations]
    hypotheses = [
        Hypothesis(
            text=one.text,
            score=one.score,
            tokens=one.tokens,
            alignment=None if one.map is None else one.map.double().round(decimals=6).tolist(),
        )
        for one in several
    ]
    return TranslationAnswer(source=several[0].source, hypotheses=hypotheses)


def _problem(error: Exception) -> Any:
    from regard.web import Problem

    return Problem(error=" ".join(str(error).split()), field=None)


async def _disconnected(request: Request) -> None:
    """Wait until the client is gone."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
