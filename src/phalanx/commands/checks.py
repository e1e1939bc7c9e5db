"""Checks of what Phalanx needs, in a second or less each: ok, missing, or failed with the reason."""

import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from phalanx.commands.export import ONNX_PARTS
from phalanx.data.base import View
from phalanx.data.decode.images import decode
from phalanx.data.decode.jpeg import decoder_status
from phalanx.native.build import native_origins

LEAST_FREE_GB = 1.0


class Missing(Exception):
    """An optional part is missing. The message says how to install it."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    name: str
    status: Literal["ok", "missing", "failed"]
    detail: str
    required: bool

    @property
    def is_trouble(self) -> bool:
        return self.required and self.status != "ok"


@dataclass(frozen=True)
class Check:
    """`attempt` returns a remark, or raises: Missing, or any other error if the part is broken."""

    name: str
    attempt: Callable[[], str]
    required: bool = False

    def finding(self) -> Finding:
        try:
            return Finding(self.name, "ok", self.attempt(), self.required)
        except Missing as error:
            return Finding(self.name, "missing", str(error), self.required)
        except Exception as error:  # a broken installation may raise anything
            reason = str(error).strip().partition("\n")[0]
            return Finding(self.name, "failed", f"{type(error).__name__}: {reason}", self.required)


def run_checks() -> Iterator[Finding]:
    """Run the checks one after the other."""
    for check in CHECKS:
        yield check.finding()


def required_versions() -> dict[str, str]:
    """Installed versions of what Phalanx requires; Missing if one is absent or too old."""
    from packaging.requirements import Requirement

    found = {}
    try:
        texts = importlib.metadata.requires("phalanx") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise Missing("phalanx itself is not installed: pip install .") from error
    for text in texts:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError as error:
            raise Missing(f"pip install '{text}'") from error
        if not requirement.specifier.contains(version, prereleases=True):
            raise Missing(f"{requirement.name} {version} is installed: pip install '{text}'")
        found[requirement.name] = version
    return found


def _packages() -> str:
    return f"all {len(required_versions())} are installed"


def _torch_family() -> str:
    """Wheels of torch and torchvision that do not belong together fail here, at the first of torchvision's kernels."""
    import timm
    import torchvision

    kept = torchvision.ops.nms(torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1]]), torch.tensor([1.0, 0.5]), 0.5)
    if kept.tolist() != [0]:
        raise ValueError("torchvision computes a wrong result")
    return f"compatible; timm has {len(timm.list_models()):,} models"


def _decoding(form: str) -> str:
    """Compress and decode an image of one colour, as in training."""
    colour, packed = (200, 40, 90), io.BytesIO()
    try:
        Image.new("RGB", (16, 16), colour).save(packed, form)
    except (KeyError, OSError) as error:
        raise Missing(f"this build of Pillow has no {form}: pip install --force-reinstall pillow") from error
    pixels = decode(packed.getvalue(), lambda height, width: View(0, 0, height, width), 8, 3, "bilinear")
    if np.abs(pixels.astype(int) - colour).max() > 8:
        raise ValueError(f"the colour {colour} became {pixels[0, 0].tolist()}")
    by = f" by {decoder_status()}" if form == "JPEG" else ""
    return f"{packed.tell()} bytes decoded{by}"


def _plots() -> str:
    from matplotlib.figure import Figure

    figure, drawn = Figure(), io.BytesIO()
    figure.subplots().plot([0, 1])
    figure.savefig(drawn, format="png")
    return f"a PNG of {Image.open(drawn).size[0]} pixels drawn"


def _gloo() -> str:
    """Sum over a process group of one, on the loopback device."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise Missing("this build of torch has no gloo: several workers on CPUs cannot be used")
    device = {"linux": "lo", "darwin": "lo0"}.get(sys.platform, "")
    with _environment("GLOO_SOCKET_IFNAME", device), tempfile.TemporaryDirectory() as folder:
        place = f"file://{folder}/rendezvous"
        dist.init_process_group("gloo", init_method=place, rank=0, world_size=1, timeout=timedelta(seconds=10))
        try:
            dist.all_reduce(torch.ones(3))
        finally:
            dist.destroy_process_group()
    return f"a group of one on {device or 'the default device'}"


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable temporarily; an empty value leaves it unchanged."""
    before = os.environ.get(name)
    os.environ.update({name: value} if value else {})
    try:
        yield
    finally:
        os.environ.pop(name, None)
        os.environ.update({name: before} if before is not None else {})


def _cuda() -> str:
    if not torch.cuda.is_available():
        raise Missing("no CUDA device, or no driver for it")
    for number in range(torch.cuda.device_count()):
        square = torch.eye(64, device=f"cuda:{number}")
        if not torch.equal(square @ square, square):
            raise ValueError(f"cuda:{number} computes a wrong product")
    return f"{torch.cuda.device_count()} device(s), CUDA {torch.version.cuda}"


def _compiler() -> str:
    names = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    found = next((name for name in names if name and shutil.which(name)), None)
    if found is None:
        raise Missing("no c++, g++ or clang++; only torch.compile needs it")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "one.cpp")
        source.write_text("#include <vector>\nint main() { return (int)std::vector<int>(1)[0]; }\n")
        command = [found, str(source), "-o", str(Path(folder, "one"))]
        made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode:
        raise OSError(f"{found} cannot compile: {made.stderr.strip()}")
    return f"{found} compiles"


def _torch_compile() -> str:
    """Whether it could work. A real try would take most of a minute."""
    if torch.cuda.is_available():
        if importlib.util.find_spec("triton") is None:
            raise Missing("pip install triton")
        return "triton is here; not tried, which would take a minute"
    _compiler()
    return "its compiler works; not tried, which would take a minute"


def _native_code() -> str:
    """Which of our compiled libraries are used, and where they come from."""
    present, absent = native_origins()
    found = "; ".join(f"{where}: {', '.join(names)}" for where, names in {**absent, **present}.items())
    if absent:
        raise Missing(found)
    return found


def _onnx() -> str:
    missing = [part for part in ONNX_PARTS if importlib.util.find_spec(part) is None]
    if missing:
        raise Missing("pip install 'phalanx[onnx]'")
    import onnx
    import onnxruntime

    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "negate", values[:1], values[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    if session.run(None, {"x": np.ones(1, np.float32)})[0][0] != -1:
        raise ValueError("onnxruntime computes a wrong result")
    return f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"


def _folder() -> str:
    with tempfile.TemporaryFile(dir=Path.cwd()) as file:
        file.write(b"x")
    return f"{Path.cwd()} can be written"


def _disk() -> str:
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    if free_gb < LEAST_FREE_GB:
        raise OSError(f"only {free_gb:.2f} GB free; checkpoints of a ResNet-50 take 0.2 GB each")
    return f"{free_gb:.1f} GB free"


CHECKS = (
    Check("packages", _packages, required=True),
    Check("torch, torchvision, timm", _torch_family, required=True),
    Check("native code", _native_code),
    Check("JPEG", partial(_decoding, "JPEG"), required=True),
    Check("PNG", partial(_decoding, "PNG"), required=True),
    Check("WebP", partial(_decoding, "WEBP")),
    Check("plots", _plots, required=True),
    Check("gloo", _gloo),
    Check("CUDA", _cuda),
    Check("C++ compiler", _compiler),
    Check("torch.compile", _torch_compile),
    Check("ONNX", _onnx),
    Check("current folder", _folder),
    Check("disk", _disk),
)
