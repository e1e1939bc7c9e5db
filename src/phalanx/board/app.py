"""The routes of the board. All of them read; `notes` alone writes, and `stop` exists with --control only."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from phalanx.board.checkpoints import checkpoints_of, is_offered
from phalanx.board.curves import curves_of, number_in
from phalanx.board.guard import Guard
from phalanx.board.job import job_of, summary_of
from phalanx.board.metrics import metrics_text
from phalanx.board.notes import read_notes, write_notes
from phalanx.board.places import Place, Places
from phalanx.board.profile import has_profile, profile_of
from phalanx.board.results import evaluation, evaluation_names, evaluation_times
from phalanx.board.rows import row_of
from phalanx.board.settings import settings_of
from phalanx.board.texts import is_log, lines_of, log_names
from phalanx.errors import UserError
from phalanx.runs.inside import open_inside

ASSETS = Path(__file__).parent / "assets"
_MOST_BODY = 100_000  # bytes of a request
_TYPES = {".png": "image/png", ".svg": "image/svg+xml", ".json": "application/json"}


@dataclass(frozen=True)
class Tools:
    """What the board asks other parts of Phalanx to do; None where it may not."""

    stop: Callable[[Path], str] | None = None  # stops the job of a run; what follows, in words
    samples: Callable[[Path], bytes] | None = None  # a PNG of augmented images as a run's model sees them
    problems: Callable[[], list[str]] = list  # what keeps runs of other hosts from being copied now


def make_app(places: Places, guard: Guard, tools: Tools) -> Starlette:
    """The application. Every answer goes through the guard."""
    board = Board(places, tools)
    run = "/api/run/{key:str}"
    routes = [
        Route("/", _page),
        Mount("/assets", StaticFiles(directory=ASSETS)),
        Route("/api/runs", board.reading(board.runs)),
        Route(run, board.reading(board.one)),
        Route(f"{run}/curves", board.reading(board.curves)),
        Route(f"{run}/job", board.reading(board.job)),
        Route(f"{run}/config", board.reading(board.config)),
        Route(f"{run}/log", board.reading(board.log)),
        Route(f"{run}/evaluation/{{name:str}}", board.reading(board.evaluation)),
        Route(f"{run}/profile", board.reading(board.profile)),
        Route(f"{run}/samples", board.reading(board.samples)),
        Route(f"{run}/file/{{name:path}}", board.reading(board.file)),
        Route(f"{run}/notes", board.notes, methods=["PUT"]),
        Route("/metrics", board.reading(board.metrics)),
    ]
    if tools.stop is not None:
        routes.append(Route(f"{run}/stop", board.stop, methods=["POST"]))
    handlers: dict[Any, Any] = {UserError: _told, HTTPException: _refused}
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=guard)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


class Board:
    """Answers from the files of runs. Each answer is made in a thread: files may be slow."""

    def __init__(self, places: Places, tools: Tools) -> None:
        self._places, self._tools = places, tools

    def reading(self, answer: Callable[[Request], Response]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await run_in_threadpool(answer, request)

        return endpoint

    def _place(self, request: Request, key: str | None = None) -> Place:
        place = self._places.get(key or request.path_params["key"])
        if place is None:
            raise HTTPException(404, "there is no such run")
        return place

    def _rows(self) -> list[dict[str, Any]]:
        return [row_of(place, self._places.history(place)) for place in self._places.list()]

    def runs(self, request: Request) -> Response:
        roots = [root.shown for root in self._places.roots]
        about = {"roots": roots, "control": self._tools.stop is not None, "problems": self._tools.problems()}
        return _json({"runs": self._rows(), **about})

    def one(self, request: Request) -> Response:
        place = self._place(request)
        history = self._places.history(place)
        row = row_of(place, history)
        with history.lock:
            start = history.start()
        evaluations = evaluation_names(place)
        about = {
            "start": start,
            "summary": summary_of(place),
            "checkpoints": checkpoints_of(place),
            "evaluations": evaluations,
            "evaluated": evaluation_times(place, evaluations),
            "logs": log_names(place),
            "has_profile": has_profile(place),
            "has_samples": self._tools.samples is not None,
            "control": self._tools.stop is not None,
        }
        return _json({**row, **about})

    def curves(self, request: Request) -> Response:
        history = self._places.history(self._place(request))
        asked = request.query_params
        with history.lock:
            history.refresh(steps=True)
            state = f"{len(history.columns['step'])}-{history.last_t}-{len(history.others)}"
            if asked.get("have") == state:  # nothing was added since: nothing has to be computed and drawn
                return _json({"state": state})
            found = curves_of(
                history,
                asked.get("axis", "step"),
                first=number_in(asked.get("from")),
                last=number_in(asked.get("to")),
                points=int(min(max(number_in(asked.get("points"), 800) or 0, 2), 4000)),
                smooth=min(max(number_in(asked.get("smooth"), 0.0) or 0.0, 0.0), 0.999),
            )
        return _json({**found, "state": state})

    def job(self, request: Request) -> Response:
        place = self._place(request)
        return _json(job_of(place, self._places.history(place)))

    def config(self, request: Request) -> Response:
        place, against = self._place(request), request.query_params.get("against")
        other = self._place(request, against) if against else None
        return _json(settings_of(place, self._places.history(place), other))

    def log(self, request: Request) -> Response:
        place, name = self._place(request), request.query_params.get("file", "log.txt")
        if not is_log(name):
            raise HTTPException(404, "there is no such log")
        try:
            return _json(lines_of(place, name, request.query_params.get("search", "")[:200]))
        except OSError as error:
            raise HTTPException(404, "there is no such log") from error

    def evaluation(self, request: Request) -> Response:
        try:
            found = evaluation(self._place(request), request.path_params["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise HTTPException(409, f"this evaluation is damaged: {str(error)[:200]}") from error
        if found is None:
            raise HTTPException(404, "there is no such evaluation")
        return _json(found)

    def profile(self, request: Request) -> Response:
        try:
            found = profile_of(self._place(request))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HTTPException(409, f"this profile is damaged: {str(error)[:200]}") from error
        if found is None:
            raise HTTPException(404, "there is no profile of this run")
        return _json(found)

    def samples(self, request: Request) -> Response:
        place = self._place(request)
        if self._tools.samples is None or place.host:
            raise HTTPException(409, "the run's data is on another host" if place.host else "not available")
        return Response(self._tools.samples(place.path), media_type="image/png")

    def file(self, request: Request) -> Response:
        place, name = self._place(request), request.path_params["name"]
        if not is_offered(name):
            raise HTTPException(404, "there is no such file")
        try:
            file = open_inside(place.path, name)
        except OSError as error:
            raise HTTPException(404, "there is no such file") from error
        kind = _TYPES.get(Path(name).suffix, "application/octet-stream")
        headers = {"Content-Length": str(os.fstat(file.fileno()).st_size), "Content-Type": kind}
        if kind != "image/png":
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name.replace('/', '-'))}"
        if request.method == "HEAD":
            file.close()
            return Response(headers=headers)
        return StreamingResponse(_chunks(file, int(headers["Content-Length"])), headers=headers)

    def metrics(self, request: Request) -> Response:
        return Response(_bytes(metrics_text(self._rows())), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def notes(self, request: Request) -> Response:
        place = self._place(request)
        if place.host:
            raise HTTPException(409, f"this is a copy: notes are kept in the run's folder, on {place.host}")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                raise HTTPException(413, "too long")
        try:
            given = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, "not JSON") from error
        await run_in_threadpool(write_notes, place.path, given)
        return _json(read_notes(place.path))

    async def stop(self, request: Request) -> Response:
        place = self._place(request)
        if self._tools.stop is None or place.host:
            raise HTTPException(403, "start the board with --control, on the job's host")
        return _json({"said": await run_in_threadpool(self._tools.stop, place.path)})


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """At most `size` bytes: a log may grow while it is sent."""
    with file:
        while size and (chunk := file.read(min(size, 1 << 18))):
            size -= len(chunk)
            yield chunk


def _json(content: Any) -> Response:
    # ASCII: file names may hold halves of surrogates, which have no UTF-8. JSON has no NaN.
    text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def _bytes(text: str) -> bytes:
    """Names of files and values of settings may hold halves of surrogates."""
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


async def _page(request: Request) -> Response:
    return Response((ASSETS / "index.html").read_bytes(), media_type="text/html; charset=utf-8")


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, UserError)
    return PlainTextResponse(_bytes(str(error)), 409)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(_bytes(error.detail), error.status_code)
