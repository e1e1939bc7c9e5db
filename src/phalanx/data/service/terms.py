"""What a trainer and a data server must agree on: settings, the data, and the pixels of a few samples."""

from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from phalanx.config.resolve import flatten
from phalanx.config.schema import RunConfig
from phalanx.data.decode.jpeg import decoder_status
from phalanx.data.order import Work
from phalanx.data.pipeline import Pipeline
from phalanx.net.code import CodeReport, other_code
from phalanx.net.control import as_json

Terms = dict[str, Any]

# Settings of `data` and `augment` that do not change what a server makes; any other, known now or added later, counts.
# The data's place and format may differ from host to host: the data itself is compared instead.
_NOT_COMPARED = {
    *("data.source", "data.root", "data.image_field", "data.label_field", "data.label_element", "data.salvage"),
    *("data.image_shape", "data.image_layout", "data.label_bytes", "data.remote_options", "data.cache_gb"),
    *("data.quarantine", "data.val", "data.val_labels", "data.crop_share", "data.mean", "data.std", "data.drop_last"),
    *("data.threads", "data.prefetch", "data.bad_images", "data.bad_images_cap"),
    *("data.service", "data.servers", "data.service_key", "data.service_timeout_s", "data.service_fallback"),
    *("augment.erase", "augment.mixup", "augment.cutmix"),  # what trainers do themselves
    *("augment.mix_probability", "augment.mix_switch", "augment.mix_until"),
}
_MOST_TOLD, _SHOWN = 20, 200  # differences, and characters of each value
_PROBES = 8  # samples that both sides make and compare
_PIXELS = "pixels"
_VERSIONS = "versions"
_PACKAGES = ("pillow", "torch", "torchvision", "numpy")
_CODE = "phalanx"


def terms_of(config: RunConfig, pipeline: Pipeline, process: str) -> Terms:
    """All that decides what batches a pipeline makes, by name. JSON can hold it. `process` is for messages."""
    source = pipeline.source
    settings = {
        key: value
        for key, value in flatten(config.model_dump(mode="json")).items()
        if key.split(".")[0] in ("data", "augment") and key not in _NOT_COMPARED
    }
    return {
        **settings,
        "train.seed": config.train.seed,
        "epochs of views": pipeline.view_epochs,
        "image size": pipeline.framing.size,
        "training samples": len(source),
        "channels": source.channels,
        "classes": f"{len(source.classes)} ({_digest(as_json(source.classes))})",
        "labels": _digest(np.ascontiguousarray(source.labels, dtype="<i8").tobytes()),
        _CODE: CodeReport.of(process).to_data(),
        _PIXELS: _looks(pipeline),
        _VERSIONS: {name: _version(name) for name in _PACKAGES} | {"JPEG by": decoder_status()},
    }


def difference(trainers: Terms, servers: Terms) -> str:
    """The differences, for a message; empty if all that matters agrees."""
    mine, theirs = (CodeReport.from_data(terms.get(_CODE), "the other") for terms in (trainers, servers))
    if error := other_code(mine, theirs):
        return f"{error.what}; {error.remedy}"
    names = [name for name in {**trainers, **servers} if name not in (_CODE, _PIXELS, _VERSIONS)]
    found = [
        f"{name[:_SHOWN]} is {repr(trainers.get(name))[:_SHOWN]} for the trainer"
        f" and {repr(servers.get(name))[:_SHOWN]} for the server"
        for name in names
        if trainers.get(name) != servers.get(name)
    ]
    if not found and trainers.get(_PIXELS) != servers.get(_PIXELS):
        found.append(f"the same samples look different there: {_other_versions(trainers, servers)}")
    return "; ".join(found[:_MOST_TOLD])


def _other_versions(trainers: Terms, servers: Terms) -> str:
    mine, theirs = trainers.get(_VERSIONS), servers.get(_VERSIONS, {})
    mine = mine if isinstance(mine, dict) else {}
    others = [f"{name} {mine[name]} and {theirs.get(name)}" for name in mine if mine[name] != theirs.get(name)]
    return f"other versions ({', '.join(others)})" if others else "other files under the same labels"


def _looks(pipeline: Pipeline) -> str:
    """A digest of some samples as the pipeline makes them: other files or another decoder would show here."""
    count = min(_PROBES, len(pipeline.source))
    indices = np.arange(count, dtype=np.int64) * len(pipeline.source) // count
    micro, _ = pipeline.make(Work(0, 0, ((0, indices),), count, last=False))
    return _digest(micro[0].images.permute(0, 2, 3, 1).contiguous().numpy().tobytes())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
