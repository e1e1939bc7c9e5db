"""A training request: the resolved configuration and where the run goes. Plain data that can be sent to hosts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.config.flags import imply_collective, keep_batch
from phalanx.config.resolve import DEFAULT, Layer, Resolved, nest, resolve
from phalanx.config.schema import RunConfig
from phalanx.custom.code import CodeFile
from phalanx.custom.collect import original
from phalanx.runs.folder import RunFolder

Data = Mapping[str, Any]  # what JSON can hold


@dataclass(frozen=True)
class Request:
    """What a job does. The starting process makes it, and every process of the job gets the same one."""

    resolved: Resolved
    command: str
    out: Path | None = None
    resume: RunFolder | None = None
    at_step: int | None = None  # which checkpoint a resumed run starts from; default: the newest
    init_from: Path | None = None
    resumed_from: str = ""  # the origin of a resumed run's earlier settings
    notes: tuple[str, ...] = ()  # for the user, about the settings
    code: tuple[CodeFile, ...] = ()  # the user's own code: every process imports it from here, not from its disk

    @property
    def config(self) -> RunConfig:
        return self.resolved.config

    def to_data(self) -> dict[str, Any]:
        """As JSON for the other processes, without the run folder: its path differs between hosts."""
        return {
            "config": self.config.model_dump(mode="json"),
            "origins": self.resolved.origins,
            "command": self.command,
            "resume": self.resume is not None,
            "init_from": str(self.init_from) if self.init_from else None,
            "resumed_from": self.resumed_from,
            "code": [file.to_data() for file in self.code],
        }

    @staticmethod
    def from_data(data: Data, run: Path) -> "Request":
        """The request that `to_data` wrote, for a process whose run folder is `run`."""
        return Request(
            Resolved(RunConfig.model_validate(data["config"]), dict(data["origins"])),
            data["command"],
            out=run,
            resume=RunFolder(run) if data["resume"] else None,
            init_from=Path(data["init_from"]) if data["init_from"] else None,
            resumed_from=data["resumed_from"],
            code=tuple(map(CodeFile.from_data, data["code"])),
        )


def resume_words(request: Request, run: str) -> list[str]:
    """The arguments with which `phalanx train` resumes a run as in the request, for batch scripts."""
    origins = request.config.code.origins
    settings = [
        f"{key}={json.dumps(original(value, origins))}"
        for key, value, origin in request.resolved.rows()
        if origin not in (DEFAULT, request.resumed_from)
    ]
    return ["--resume", run, *settings, *accept_words(request)]


def accept_words(request: Request) -> list[str]:
    """The choice between the run's copy of the user's code and a changed file was made when the job was started."""
    return ["--accept-code", "run"] if request.code else []


def resume_request(before: Layer, given: list[Layer], command: str, run: RunFolder, step: int | None) -> Request:
    """A request that resumes a run. `before` is its configuration; samples per step stay the same for any workers."""
    kept = keep_batch(resolve([before]).config, imply_collective([before], given))
    return Request(resolve([before, *kept]), command, resume=run, at_step=step, resumed_from=before.origin)


def with_workers(request: Request, before: Layer | None, workers: int) -> Request:
    """The request of a new group of `workers` workers, after a failure.

    `before` is the run's configuration if it has a checkpoint; without one the run starts again.
    """
    base = before or Layer("the job's configuration", request.config.model_dump(mode="json"))
    given = [Layer("the launcher", nest("exchange.workers", workers))]
    resumed = resume_request(base, given, request.command, RunFolder(Path()), None)
    resumed = replace(resumed, code=request.code)
    if before is not None:
        return resumed
    return replace(request, resolved=Resolved(resumed.config, request.resolved.origins))
