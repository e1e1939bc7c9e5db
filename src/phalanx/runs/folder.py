"""A run is a folder: config.yaml, events.jsonl, log.txt, summary.json, curves, checkpoints/."""

import contextlib
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from phalanx.atomic import make_folder, write_text_atomically
from phalanx.config.resolve import Layer, Resolved
from phalanx.config.text import read_json, read_yaml
from phalanx.errors import UserError
from phalanx.machine.cores import cpu_name
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import is_cross_validation, refuse_cross_validation, run_files

RUNS = Path("runs")
PLAN_FILE = "plan.json"  # what `phalanx plan … --out RUN` predicted
CONFIG_HEADER = "# every setting of this run"  # the beginning of config.yaml
ORIGINS_FILE = "origins.json"  # setting → where its value came from
LOGS = "logs"  # of its processes, in the run's folder
_VERSIONS = ("phalanx", "torch", "torchvision", "timm", "numpy")


def log_path(folder: Path, role: str) -> Path:
    return folder / f"{role}.log"


@dataclass(frozen=True)
class RunFolder:
    """The paths inside a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def quarantine(self) -> Path:
        """Images that did not decode, one `name<tab>reason` a line."""
        return self.path / "quarantine.tsv"

    def write_config(self, resolved: Resolved) -> None:
        """The resolved configuration, as a recipe that can be run again."""
        write_run_file(self.config, config_text(resolved))
        write_run_file(
            self.path / ORIGINS_FILE, json.dumps(self._origins(resolved), indent=1, ensure_ascii=False) + "\n"
        )

    def remove_config(self) -> None:
        """Undo `write_config`, for a run that was refused."""
        for path in (self.config, self.path / ORIGINS_FILE):
            path.unlink(missing_ok=True)

    def _origins(self, resolved: Resolved) -> dict[str, str]:
        """Where each value came from. A resumed run has most of its own config.yaml: those keep their first origin."""
        before: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            found = read_json((self.path / ORIGINS_FILE).read_bytes())
            before = found if isinstance(found, dict) else {}
        own = str(self.config)
        return {key: before.get(key, origin) if origin == own else origin for key, _, origin in resolved.rows()}

    def layer(self) -> Layer:
        """The configuration of this run, as a layer of settings."""
        try:
            tree = read_yaml(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(
                f"{self.path} cannot be resumed",
                why=f"its config.yaml cannot be read ({error})",
                remedy="give the folder of a run",
            ) from error
        if not isinstance(tree, dict):
            raise UserError(
                f"{self.path} cannot be resumed",
                why=f"its config.yaml {'is empty' if tree is None else 'holds no settings'}",
                remedy="restore it from a backup; or start a new run from its weights with --init-from",
            )
        return Layer(str(self.config), tree)


def config_text(resolved: Resolved) -> str:
    """The resolved configuration as YAML: a recipe without ancestors."""
    text = yaml.safe_dump(resolved.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return f"{CONFIG_HEADER}; `phalanx train THIS_FILE` repeats it\n{text}"


def create_run(out: Path | None, name: str) -> RunFolder:
    """Create the run folder: `out`, or runs/NAME-TIME."""
    if out is None:
        return RunFolder(_new_folder(RUNS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"))
    if (out / EVENTS_FILE).exists() or is_cross_validation(out):
        raise UserError(
            f"{out} holds a {'run' if (out / EVENTS_FILE).exists() else 'cross-validation'} already",
            why="a folder holds one run",
            remedy=f"continue it with `phalanx train --resume {out}`, or choose another --out",
        )
    return RunFolder(_new_folder(out, shared=True))


def _new_folder(path: Path, shared: bool = False) -> Path:
    """Create a folder. If it exists and is not `shared`, a number is added to its name."""
    try:
        make_folder(path.parent)
        for number in range(1, 1000):
            numbered = path if number == 1 else path.with_name(f"{path.name}-{number}")
            with contextlib.suppress(FileExistsError):
                make_folder(numbered, exist_ok=shared)
                return numbered
        raise FileExistsError(17, "a thousand folders of that name exist", str(path))
    except OSError as error:
        raise UserError(
            f"the run folder {path} cannot be created",
            why=error.strerror or str(error),
            remedy="choose another place with --out",
        ) from error


def find_run(place: Path | None) -> RunFolder:
    """The run at `place`, or the latest one under runs/."""
    if place is not None:
        if not (place / EVENTS_FILE).is_file():
            refuse_cross_validation(place)
            raise UserError(
                f"{place} is not a run",
                why=f"it has no {EVENTS_FILE}" if place.is_dir() else "there is no such folder",
                remedy="give the folder that `phalanx train` named, such as runs/digits-…",
            )
        return RunFolder(place)
    runs = [path.parent for path in run_files(RUNS, EVENTS_FILE)]
    if not runs:
        raise UserError(
            "there is no run to resume here",
            why=f"{RUNS}/ is empty or missing in {Path.cwd()}",
            remedy="name the run: --resume PATH",
        )
    return RunFolder(max(runs, key=lambda run: (run / EVENTS_FILE).stat().st_mtime))


def write_run_file(path: Path, text: str) -> None:
    """Write a text file of a run's folder atomically."""
    try:
        write_text_atomically(path, text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written",
            why=error.strerror or str(error),
            remedy="make room or mend the permissions; checkpoints already saved are valid",
        ) from error


def machine() -> dict[str, Any]:
    """This machine, for the summary of a run."""
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }


def versions() -> dict[str, str]:
    return {name: version(name) for name in _VERSIONS}
