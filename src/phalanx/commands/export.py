"""`phalanx export`: a trained model as files that others can use, each checked before it is moved into place."""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from phalanx.custom import is_reference
from phalanx.custom.installed import FOLDER as CODE
from phalanx.custom.installed import installed
from phalanx.errors import UserError, nearest
from phalanx.observe.tables import print_rows
from phalanx.runs.code import write_code

FORMATS = ("safetensors", "torch", "onnx")
DEFAULT_FORMATS = FORMATS[:2]
ONNX_PARTS = ("onnx", "onnxscript", "onnxruntime")


def export_checkpoint(console: Console, place: Path, out: Path | None, formats: Sequence[str]) -> None:
    """Write the model in each format into `out`, in float32, for batches of any size."""
    wanted = list(dict.fromkeys(formats or DEFAULT_FORMATS))
    for name in wanted:
        _require(name)
    # Imported only now, so that errors show without waiting for torch.
    from phalanx.commands.export_formats import WRITERS, describe
    from phalanx.commands.loading import load_trained

    plain = {"device": "cpu", "precision": "fp32", "channels_last": False, "compile": False}
    trained = load_trained(place, plain)
    folder = out or trained.home / "export"
    rows = {"model": f"{trained.spec.model}, {trained.path}"}
    config = json.dumps(describe(trained), indent=1, ensure_ascii=False) + "\n"
    with _aside(folder) as aside:
        for name in wanted:
            rows |= WRITERS[name](aside, trained, config)
    if write_code(folder, installed()):
        rows[f"{CODE}/"] = "a copy of your own code, which defines the model"
    rows["folder"] = str(folder)
    if "safetensors" in wanted:
        rows["use"] = _use(trained.spec.model, folder)
    print_rows(console, rows)


def _require(name: str) -> None:
    if name not in FORMATS:
        raise UserError(f"there is no export format {name!r}", remedy=nearest(name, FORMATS))
    missing = [part for part in ONNX_PARTS if importlib.util.find_spec(part) is None] if name == "onnx" else []
    if missing:
        raise UserError(
            "a model cannot be exported to ONNX here",
            why=f"not installed: {', '.join(missing)}",
            remedy="pip install 'phalanx[onnx]'",
        )


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder to write into. Its files move to `folder` together, when all of them have been written and checked.

    The libraries that write them want a name and not an open file, so this is no `write_atomically`.
    """
    aside = folder / f".export.{os.getpid()}.tmp"
    try:
        aside.mkdir(parents=True)
        yield aside
        for file in sorted(aside.iterdir()):
            file.replace(folder / file.name)
    except OSError as error:
        raise UserError(
            f"the model cannot be written to {folder}",
            why=error.strerror or str(error),
            remedy="free disk space, fix the permissions, or choose another --out",
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _use(model: str, folder: Path) -> str:
    from phalanx.models.build import is_ours

    if is_reference(model) and model.startswith(f"{CODE}/"):
        return f"phalanx train --model {folder / model} --init-from {folder / 'model.safetensors'}"
    if is_ours(model):  # timm does not know it
        return f"phalanx train --model {model} --init-from {folder / 'model.safetensors'}"
    return f"timm.create_model('local-dir:{folder}', pretrained=True)"
