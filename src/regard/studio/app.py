"""The application of the studio: its API, its files, and what guards them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from regard.recipes import describe_recipes, load_recipe
from regard.studio import attention, comparison, edits, exhibits, files, look, messages, uploads
from regard.studio.jobs import UPLOADS, Jobs
from regard.studio.runs import (
    Runs,
    check_links,
    checkpoints,
    describe,
    final_metrics,
    weights_of,
)
from regard.studio.worker import Worker
from regard.web import Endpoint, Event, EventStream, Guard, RequestError, create_app, is_loopback
from regard.web.guard import LOOPBACK

API = "/api/v1"
SECONDS = 0.5  # between looks at the log of a training
MOST_STREAMS = 64
KINDS = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SHOWN_SETTINGS = (  # that the page has a field for; see regard.studio.settings for the others
    *("training.epochs", "training.steps", "training.minutes", "training.lr"),
    *("model.kind", "model.score", "model.hidden", "model.layers", "model.heads", "data.count"),
)


class Studio:
    """The handlers of the API."""

    def __init__(self, folders: Sequence[Path], home: Path, *, has_docs: bool = False) -> None:
        self.runs, self.jobs = Runs(folders, home), Jobs(home)
        self.has_docs = has_docs
        self.gallery = exhibits.Gallery()
        self.models, self.slow = Worker("models"), Worker("pictures")
        self.streams = 0

    # ------------------------------------------------------------------ runs and views

    async def list_runs(self, request: Request, given: Any) -> messages.RunList:
        return await asyncio.to_thread(self._list_runs)

    def _list_runs(self) -> messages.RunList:
        directories = self.runs.find()
        new = {name: self.jobs.home / name for name in self.jobs.names()}  # some without files yet
        found = []
        for name, run in {**new, **directories}.items():
            task, model, metrics = "", "", {}
            own = run.parent.resolve() == self.jobs.home.resolve()
            try:
                state = self.jobs.state(name) if own else "unknown"
                if name in directories:
                    check_links(run, "*")
                    (task, model), metrics = describe(run), final_metrics(run)
            except (OSError, ValueError):  # damaged, or with links: it is not offered
                continue
            found.append(
                messages.RunEntry(
                    name=name,
                    task=task,
                    model=model,
                    metrics=metrics,
                    is_trained=weights_of(run).is_file(),
                    state=state,  # type: ignore[arg-type]
                    checkpoints=checkpoints(run),
                )
            )
        return messages.RunList(runs=sorted(found, key=lambda run: run.name))

    async def list_examples(self, request: Request, given: messages.NamedRun) -> messages.Examples:
        texts, count = await self.models.run(request, partial(look.examples, self.runs, given.run))
        return messages.Examples(texts=texts, count=count)

    async def look(self, request: Request, given: messages.Look) -> messages.Looked:
        return await self.models.together(request, given, partial(look.look, self.runs))

    async def file(self, request: Request, given: messages.File) -> Response:
        content, kind = await self.models.run(request, partial(files.file, self.runs, given))
        return Response(content, media_type=kind)

    async def why(self, request: Request, given: messages.WhyWord) -> Response:
        page = await self.models.run(request, partial(files.why_page, self.runs, given))
        return Response(page, media_type=files.MEDIA["html"])

    async def edit(self, request: Request, given: messages.EditedLook) -> messages.Edited:
        return await self.models.run(request, partial(edits.edited, self.runs, given))

    async def compare(self, request: Request, given: messages.Comparison) -> messages.Comparisons:
        found = await self.models.run(request, partial(comparison.compare, self.runs, given))
        return messages.Comparisons(compared=found)

    async def attend_in_model(
        self, request: Request, given: messages.ModelAttention
    ) -> messages.PageData:
        return await self.models.run(request, partial(attention.attend_in_model, self.runs, given))

    async def list_exhibits(self, request: Request, given: Any) -> messages.ExhibitList:
        found = await self.slow.run(request, self.gallery.entries)
        return messages.ExhibitList(exhibits=found, has_docs=self.has_docs)

    async def measure(self, request: Request, given: messages.NamedExhibit) -> messages.CostCurve:
        return await self.slow.run(request, partial(self.gallery.cost, given.name))

    # ------------------------------------------------------------------ training

    async def list_recipes(self, request: Request, given: Any) -> messages.RecipeList:
        return messages.RecipeList(recipes=list(_recipes()))

    async def upload(self, request: Request, given: messages.Upload) -> messages.Preview:
        folder = self.jobs.folder / UPLOADS
        return await asyncio.to_thread(uploads.preview, folder, given)

    async def start(self, request: Request, given: messages.Start) -> messages.Progress:
        return await asyncio.to_thread(self._start, given)

    def _start(self, given: messages.Start) -> messages.Progress:
        data = None
        if given.upload is not None:
            data = uploads.configuration(self.jobs.folder / UPLOADS, given.upload)
        return self.jobs.progress(self.jobs.start(given, data, self.runs.path))

    async def control(self, request: Request, given: messages.Control) -> messages.Progress:
        return await asyncio.to_thread(self._control, given)

    def _control(self, given: messages.Control) -> messages.Progress:
        self._check_own(given.run)
        self.jobs.control(given.run, given.action)
        return self.jobs.progress(given.run)

    async def follow(self, request: Request, given: messages.Follow) -> EventStream:
        await asyncio.to_thread(self._check_own, given.run)
        if self.streams >= MOST_STREAMS:
            raise RequestError(503, "too many pages follow trainings: close some")
        return EventStream(self._events(given.run, given.after))

    async def _events(self, run: str, after: int) -> AsyncIterator[Event]:
        """Progress whenever something is new, until the training has ended."""
        self.streams += 1
        try:
            last = None
            while True:
                found = await asyncio.to_thread(self.jobs.progress, run, after)
                now = (found.state, found.checkpoints)
                if found.points or now != last:
                    yield Event("progress", found)
                last = now
                after = found.known
                if found.state not in ("running", "paused"):
                    return
                await asyncio.sleep(SECONDS)
        finally:
            self.streams -= 1

    def _check_own(self, name: str) -> None:
        """Raise unless a run is in the folder of new runs, and no link."""
        home = self.jobs.home.resolve()
        run = self.runs.find().get(name)
        if run is None and name in self.jobs.names():  # it has no files yet
            run = home / name
        if run is None or run.resolve().parent != home:
            raise FileNotFoundError(f"no training is named {name[:100]!r}")


def endpoints(studio: Studio) -> list[Endpoint]:
    """Return the operations of the API."""
    m, get, post = messages, partial(Endpoint, "GET"), partial(Endpoint, "POST")
    return [
        get(f"{API}/runs", studio.list_runs, "List the runs", returns=m.RunList),
        get(f"{API}/examples", studio.list_examples, "List test examples of a run",
            m.NamedRun, m.Examples, statuses=[404, 503]),
        post(f"{API}/look", studio.look, "Show an input", m.Look, m.Looked,
             statuses=[404, 503], example={"run": "dates", "text": "27 May 1994"}),
        post(f"{API}/file", studio.file, "Draw an input", m.File,
             media_type="application/octet-stream", statuses=[404, 503]),
        post(f"{API}/why", studio.why, "Explain a word of an output", m.WhyWord,
             media_type="text/html", statuses=[404, 503]),
        post(f"{API}/edit", studio.edit, "Change the attention and decode again",
             m.EditedLook, m.Edited, statuses=[404, 503]),
        post(f"{API}/compare", studio.compare, "Show an input in several runs",
             m.Comparison, m.Comparisons, statuses=[404, 503]),
        post(f"{API}/attend", studio.attend_in_model, "Attend with the numbers of a model",
             m.ModelAttention, m.PageData, statuses=[404, 503]),
        get(f"{API}/gallery", studio.list_exhibits, "List the mechanisms", returns=m.ExhibitList,
            statuses=[503]),
        post(f"{API}/gallery/cost", studio.measure, "Time a mechanism on this machine",
             m.NamedExhibit, m.CostCurve, statuses=[404, 503]),
        get(f"{API}/recipes", studio.list_recipes, "List the recipes", returns=m.RecipeList),
        post(f"{API}/uploads", studio.upload, "Check a file of one's own", m.Upload, m.Preview),
        post(f"{API}/training", studio.start, "Start a training", m.Start, m.Progress,
             statuses=[404, 409]),
        post(f"{API}/training/control", studio.control, "Pause, resume or stop a training",
             m.Control, m.Progress, statuses=[404, 409]),
        get(f"{API}/training/events", studio.follow, "Follow a training", m.Follow,
            media_type="text/event-stream", statuses=[404, 503]),
    ]  # fmt: skip


@cache
def _recipes() -> tuple[messages.Recipe, ...]:
    """Every recipe, with the values of what one may want to change."""
    found = []
    for name, description in describe_recipes().items():
        tables = load_recipe(name)
        settings = {}
        for key in SHOWN_SETTINGS:
            table, _, field = key.partition(".")
            if field in tables.get(table, {}):
                settings[key] = str(tables[table][field])
        recipe = messages.Recipe(
            name=name, description=description, task=tables["task"], settings=settings
        )
        found.append(recipe)
    return tuple(found)


# ------------------------------------------------------------------------------ files


@cache
def _file(package: str, name: str) -> tuple[bytes, str]:
    """A file of the front end, with addresses in place of the names of modules."""
    text = (resources.files(package) / "web" / name).read_text("utf-8")
    text = text.replace('"regard/', '"/page/').replace('"studio/', '"/studio/')
    return text.encode(), KINDS[name.rpartition(".")[2]]


def _names(package: str) -> set[str]:
    return {entry.name for entry in (resources.files(package) / "web").iterdir()}


PACKAGES = {"page": "regard.visual.page", "studio": "regard.studio"}


async def _static(request: Request) -> Response:
    folder, name = request.path_params.get("folder", "studio"), request.path_params.get("name")
    name = name or "index.html"
    if folder not in PACKAGES or name not in _names(PACKAGES[folder]):
        raise RequestError(404, "the file does not exist")
    content, kind = _file(PACKAGES[folder], name)
    headers = {"cache-control": "no-cache"}
    return Response(content, media_type=f"{kind}; charset=utf-8", headers=headers)


class Documentation(StaticFiles):
    """The built documentation, without its inline scripts: those of its files run."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return a file, with a policy of its own."""
        response = super().file_response(*args, **options)
        response.headers["content-security-policy"] = DOCS_POLICY
        return response


def create_studio(
    folders: Sequence[Path],
    *,
    home: Path = Path("runs"),
    docs: Path | None = None,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> ASGIApp:
    """Return the application of the studio.

    Args:
        folders: run directories, or folders of runs, that may be opened
        home: the folder of new runs
        docs: the built documentation, to which the gallery links
        host: where it will listen; elsewhere than on this machine it needs a token
        token: what every request of the API must carry

    Raises:
        ValueError: if others can reach the host without a token
    """
    if not is_loopback(host) and token is None:
        raise ValueError(f"others can reach {host}: a token is needed")
    studio = Studio(folders, home, has_docs=docs is not None)
    routes: list[BaseRoute] = [Route("/", _static)]
    if docs is not None:
        routes.append(Mount("/docs", Documentation(directory=docs)))
    routes.append(Route("/{folder}/{name}", _static))
    app = create_app(
        endpoints(studio),
        title="regard studio",
        description_path=f"{API}/openapi.json",
        routes=routes,
    )
    hosts = LOOPBACK if is_loopback(host) else ()
    return Guard(
        app,
        hosts=hosts,
        token=token,
        public=("/", "/studio/", "/page/", "/docs/"),
        larger={f"{API}/uploads": messages.LARGEST_UPLOAD + 2**20},
    )
