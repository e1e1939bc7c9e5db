"""Find the teacher that a user names: a run's best checkpoint, an exported file, or timm's published weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from phalanx.config.text import read_json
from phalanx.custom import is_reference
from phalanx.custom.installed import installed
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.weights import read_weights
from phalanx.errors import UserError
from phalanx.models.pretrained import require_weights
from phalanx.models.zoo import require_known
from phalanx.runs import checkpoint

KINDS = "a teacher is a run's folder, a .safetensors file of `phalanx export`, or a timm name"


@dataclass(frozen=True)
class Found:
    """A teacher that is not built yet."""

    name: str  # as the user names it
    model: dict[str, Any]  # the settings of its model
    spec: ModelSpec
    tensors: dict[str, Tensor] | None  # None: the model fetches timm's weights when it is built
    judged: str = ""  # its accuracy on its own validation data


def find_teacher(name: str, wanted: list[str]) -> Found:
    """The teacher called `name`, for a student that knows the `wanted` classes."""
    place = Path(name)
    if place.is_dir():
        return _of_run(name, place)
    if place.is_file() or place.suffix == ".safetensors":
        return _of_file(name, place)
    return _of_timm(name, wanted)


def _of_run(name: str, place: Path) -> Found:
    if (place / "config.json").is_file() and (place / "model.safetensors").is_file():
        return _of_file(name, place / "model.safetensors")  # the folder of an export
    loaded = checkpoint.load(checkpoint.find(place))
    try:
        model = {**loaded.state["config"]["model"], "pretrained": False, "initializer": "default"}
        spec, training = ModelSpec(**loaded.state["identity"]), loaded.state["training"]
        best = training["best"]
        judged = best["top1"] if best and best["step"] == training["step"] else None
        tensors = loaded.tensors.get("ema", loaded.tensors["model"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"the teacher {name} is not a complete checkpoint",
            why=f"{loaded.path}: {type(error).__name__}: {error}",
            remedy="name a run of `phalanx train` of this version",
        ) from error
    _refuse_own_code(name, model["name"], loaded.state["config"].get("code", {}).get("files", {}))
    return Found(name, model, spec, tensors, _accuracy(judged))


def _of_file(name: str, place: Path) -> Found:
    tensors = read_weights(place)
    try:
        about = read_json((place.parent / "config.json").read_bytes())
        ours, prepared = about.get("phalanx", {}), about["pretrained_cfg"]
        model: dict[str, Any] = {
            "name": str(ours.get("model", about["architecture"])),
            "options": dict(about.get("model_args", {})),
        }
        channels, size, _ = prepared["input_size"]
        several = about.get("problem_type") == "multi_label_classification"
        spec = ModelSpec(
            model["name"], about["label_names"], channels, size, list(prepared["mean"]), list(prepared["std"]), several
        )
        judged = _accuracy(ours.get("top1"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"the teacher {name} does not say what it is",
            why=f"config.json beside it should have its model, classes and normalisation ({type(error).__name__}: "
            f"{error})",
            remedy="give the run's folder, or the file in the folder that `phalanx export` has written",
        ) from error
    model["options"].pop("img_size", None)  # decided by the size of its images
    _refuse_own_code(name, model["name"], {})
    return Found(name, model, spec, tensors, judged)


def _of_timm(name: str, wanted: list[str]) -> Found:
    if "/" in name:
        raise UserError(f"there is no teacher at {name}", why="there is no such folder or file", remedy=KINDS)
    try:
        require_known(name)
        require_weights(name)
    except UserError as error:
        what = error.what.removeprefix("model.pretrained: ").removeprefix("model.name=")
        raise UserError(f"the teacher {name} cannot be used: {what}", why=error.why, remedy=KINDS) from error
    import timm
    from timm.data.imagenet_info import ImageNetInfo

    prepared: Any = timm.get_pretrained_cfg(name)
    if prepared.num_classes != 1000:
        raise UserError(
            f"the classes of the teacher {name} are not known",
            why=f"its weights have {prepared.num_classes:,} classes, and timm names those of ImageNet-1k",
            remedy="fine-tune it on your data with `phalanx train --pretrained`, and give that run as the teacher",
        )
    labels = ImageNetInfo("imagenet-1k")
    identifiers = list(labels.label_names())
    short = [labels.index_to_description(index, detailed=False).split(",")[0] for index in range(1000)]
    classes = identifiers if {*wanted} & {*identifiers} else short
    channels, size, _ = prepared.input_size
    spec = ModelSpec(name, classes, channels, size, list(prepared.mean), list(prepared.std))
    return Found(name, {"name": name, "pretrained": True}, spec, None)


def _refuse_own_code(name: str, model: str, files: dict[str, str]) -> None:
    """Two versions of a module cannot be imported into one process: a teacher's code has to be the student's."""
    here = {file.name: file.digest for file in installed()}
    if is_reference(model) and (not files or any(here.get(file) != digest for file, digest in files.items())):
        raise UserError(
            f"the teacher {name} is a model of your own code, {model}",
            why="the process of a student imports the student's code, and not another version of it",
            remedy="let the student use the same file, or choose a teacher that `phalanx models` lists",
        )


def _accuracy(top1: Any) -> str:
    return f"top-1 {100 * top1:.1f} %, " if isinstance(top1, float) else ""
