"""The addresses of the live page, and the events that keep an open page new.

    /  /run?id=…  /study?id=…  /deployment?id=…     a page: its tables are in it, its figures arrive as events
    /events?page=…                                  server-sent events: the page's markup and the figures that changed
    /labels?id=…                                    samples per client and class of a run
    /static/NAME                                    the scripts and the style

An open page is made anew when its runs changed, but not more often than a small share of a core allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from undrift.core.errors import BadRequest
from undrift.live import deployment_view, labels, run_view, runs_view, study_view
from undrift.live.guard import sentence
from undrift.live.index import Index
from undrift.report import page

EVERY, ALIVE = 0.5, 15.0  # seconds between looks, and between signs of life
SHARE = 80  # an open page, and the looking, may each take 1 / 80 of a core
KEYS = (
    ("j, k", "next, previous row"), ("Enter", "open the row"), ("x", "draw the row, or not"), ("/", "filter by name"),
    ("u", "back to all runs"), ("t", "dark or light"), ("?", "this list"),
)  # fmt: skip


class Live:
    """The index, the thread that reads folders and makes pages, and what the open pages wait for."""

    def __init__(self, index: Index, title: str) -> None:
        self.index, self.title = index, title
        self.worker = ThreadPoolExecutor(1, "undrift-live")  # one at a time: reading shall not take a second core
        self.labels = labels.Labels()
        self.stopping = asyncio.Event()

    async def do(self, work: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.worker, work, *values)

    async def look(self) -> None:
        """Poll the folders until the server ends."""
        while True:
            cost = await self.do(self.timed_poll)
            await asyncio.sleep(max(EVERY, SHARE * cost))

    async def stop(self) -> None:
        """Poll once more, send what is new, end the event streams."""
        try:
            await self.do(self.timed_poll)
        finally:
            self.stopping.set()

    def timed_poll(self) -> float:
        began = time.thread_time()
        self.index.poll()
        return time.thread_time() - began

    # ---- pages -------------------------------------------------------------------------------------------------------

    def made(self, asked: dict[str, str], quick: bool = False) -> tuple[str, list[page.Section]]:
        """(title, sections) of a page."""
        name, key = asked.get("page", "runs"), asked.get("id", "")
        if name == "runs":
            select = [key for key in asked.get("select", "").split("\n") if key]
            x = asked.get("x", "rounds")
            return self.title, runs_view.sections(self.index, select, x if x in runs_view.AXES else "rounds")
        if name == "study" and key in self.index.studies:
            return key, study_view.sections(self.index, self.index.studies[key], quick)
        if name in ("run", "deployment") and key in self.index.runs:
            row = self.index.runs[key]
            if row.deployment:  # under either address: the page of a run would name classes
                return key, deployment_view.sections(row, quick)
            return key, run_view.sections(row, self.index.number(row.method), quick)
        raise BadRequest("there is no such run here; it may have been moved or removed")

    def stamp(self, asked: dict[str, str]) -> Any:
        """Changes when the page's runs do."""
        return self.index.version if asked.get("page", "runs") == "runs" else self.index.stamp(asked.get("id", ""))

    async def page(self, request: Request) -> Response:
        asked = {**dict(request.query_params), "page": request.url.path.strip("/") or "runs"}
        try:
            title, sections = await self.do(self.made, asked, True)
        except BadRequest as error:
            return sentence(404, f"{str(error)[0].upper()}{str(error)[1:]}.")
        markup, _ = rendered(sections)
        head = "".join(f"<link rel='stylesheet' href='/static/{name}'>" for name in ("page.css", "live.css"))
        head += "".join(f"<script src='/static/{name}'></script>" for name in ("page.js", "live.js"))
        head += "<script src='/static/plotly.js' async></script>"
        address = html.escape(f"/events?{urlencode(asked)}")
        up = "" if asked["page"] == "runs" else "<a href='/' rel='up'>all runs</a>"
        frame = (
            f"<nav>{up}<span id='connection' role='status'>connecting</span></nav>"
            f"<main data-events='{address}'>{markup}</main>{keys()}"
        )
        return Response(page.document(title, head, frame), media_type="text/html")

    # ---- events ------------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        return StreamingResponse(
            self.stream(dict(request.query_params)), media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )  # fmt: skip

    async def stream(self, asked: dict[str, str]) -> AsyncIterator[bytes]:
        """What changed, until the page is closed. What costs much of a run's page is made less often than the rest."""
        phases = (False,) if asked.get("page", "runs") == "runs" else (True, False)
        sent, seen, due = dict[str, str](), dict[bool, Any](), dict.fromkeys(phases, 0.0)
        said, last = time.monotonic(), False
        while not last:
            last = self.stopping.is_set()
            stamp = self.stamp(asked)
            for quick in phases:
                if (quick not in seen or seen[quick] != stamp) and (last or time.monotonic() >= due[quick]):
                    seen[quick] = stamp
                    cost, message = await self.do(self.message, asked, quick, sent)
                    due[quick] = time.monotonic() + SHARE * cost
                    if message:
                        said = time.monotonic()
                        yield message
            if time.monotonic() - said > ALIVE:
                said = time.monotonic()
                yield b": alive\n\n"
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), EVERY)

    def message(self, asked: dict[str, str], quick: bool, sent: dict[str, str]) -> tuple[float, bytes]:
        """(seconds of work, an event with the markup and the figures that differ from what was sent)."""
        began = time.thread_time()
        try:
            markup, figures = rendered(self.made(asked, quick)[1])
        except BadRequest:
            markup, figures = page.element("about", "It is gone: the run was moved or removed."), {}
        whole = "quick" if quick else "page"
        found = {f"#{whole}": markup, **figures}
        changed = {name: text for name, text in found.items() if sent.get(name) != text}
        sent.update(changed)
        if not changed:
            return time.thread_time() - began, b""
        own = f'"{whole}":{json.dumps(markup)},' if f"#{whole}" in changed else ""
        drawn = ",".join(f"{json.dumps(name)}:{text}" for name, text in changed.items() if not name.startswith("#"))
        return time.thread_time() - began, f'data: {{{own}"figures":{{{drawn}}}}}\n\n'.encode()

    async def label_counts(self, request: Request) -> Response:
        row = self.index.runs.get(request.query_params.get("id", ""))
        if row is None:
            return JSONResponse({"sentence": "There is no such run here."}, 404)
        if row.deployment or row.state == "broken":
            return JSONResponse({"sentence": "There is no figure of this run."})
        found = await self.labels.of(row)
        if isinstance(found, str):
            return JSONResponse({"sentence": found})
        return Response(as_json(*page.titled(found)), media_type="application/json")


def keys() -> str:
    lines = "".join(f"<dt><kbd>{html.escape(key)}</kbd></dt><dd>{html.escape(what)}</dd>" for key, what in KEYS)
    return (
        f"<dialog id='keys'><h3>Keys</h3><dl>{lines}</dl><form method='dialog'><button>close</button></form></dialog>"
    )


def rendered(sections: list[page.Section]) -> tuple[str, dict[str, str]]:
    """(the markup with an empty place for each figure, the figures as JSON by id)."""
    figures: dict[str, str] = {}

    def place(name: str, figure: Any) -> str:
        title, shown = page.titled(figure)
        figures[name] = as_json(title, shown)
        title = html.escape(title)
        return f"<h3>{title}</h3><div class='plotly-graph-div' id='{name}-plot' data-title='{title}'></div>"

    return "\n".join(page.element(*page.headed(section), place) for section in sections), figures


def as_json(title: str, shown: dict[str, Any]) -> str:
    from plotly.io.json import to_json_plotly

    with contextlib.suppress(
        TypeError, ValueError
    ):  # arrays, and numbers that are not finite: plotly's encoder knows them
        return json.dumps({"title": title, **shown}, allow_nan=False)
    return str(to_json_plotly({"title": title, "data": shown["data"], "layout": shown["layout"]}, engine="json"))


# ---- files -----------------------------------------------------------------------------------------------------------


def static_files() -> dict[str, tuple[bytes, str]]:
    """Every file that is served, by name. Nothing else can be asked for."""
    from plotly.offline import get_plotlyjs

    own = files("undrift.live")
    return {
        "page.css": (page.asset("page.css").encode(), "text/css"),
        "page.js": (page.asset("page.js").encode(), "text/javascript"),
        "live.css": ((own / "live.css").read_bytes(), "text/css"),
        "live.js": ((own / "live.js").read_bytes(), "text/javascript"),
        "plotly.js": (get_plotlyjs().encode(), "text/javascript"),
    }


def application(live: Live) -> Starlette:
    content = static_files()

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in content:
            return sentence(404, "There is no such page.")
        body, kind = content[name]
        return Response(body, media_type=kind, headers={"Cache-Control": "max-age=3600"})

    async def missing(request: Request, error: Exception) -> Response:
        return sentence(404, "There is no such page.")

    pages = [Route(path, live.page) for path in ("/", "/run", "/study", "/deployment")]
    routes = [
        *pages,
        Route("/events", live.events),
        Route("/labels", live.label_counts),
        Route("/static/{name}", static),
    ]
    return Starlette(routes=routes, exception_handlers={404: missing, 405: missing})
