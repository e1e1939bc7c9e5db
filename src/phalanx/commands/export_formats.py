"""The formats of `phalanx export`: safetensors with config.json, torch.export, ONNX."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phalanx import __version__
from phalanx.commands.loading import Trained
from phalanx.custom import is_reference
from phalanx.errors import UserError
from phalanx.models.build import is_ours
from phalanx.models.zoo import constructor_names
from phalanx.runs.score import MAP

MOST_DIFFERENCE = 1e-3  # between the logits of an exported model and the model's own
LARGEST_ONNX_BYTES = 1_900_000_000  # protobuf's limit is 2 GB; larger weights go into another file


def describe(trained: Trained) -> dict[str, Any]:
    """config.json in the form that timm and transformers read, with a section of our own."""
    spec, config, judged = trained.spec, trained.config, trained.judged
    return {
        "architecture": spec.model if is_reference(spec.model) else spec.model.partition(".")[0],
        "num_classes": len(spec.classes),
        "label_names": spec.classes,
        **({"problem_type": "multi_label_classification"} if spec.multi_label else {}),  # as transformers calls it
        "model_args": _model_arguments(trained),
        "pretrained_cfg": {
            "input_size": [spec.channels, spec.image_size, spec.image_size],
            "num_classes": len(spec.classes),
            "mean": spec.mean,
            "std": spec.std,
            "interpolation": config.data.interpolation,
            "crop_pct": config.data.crop_share if spec.margin else 1.0,
            "crop_mode": "center" if spec.margin else "squash",
            **_adaptable_layers(trained),
        },
        "phalanx": {
            "version": __version__,
            "model": spec.model,
            "data": config.data.source,
            "checkpoint": str(trained.path),
            "step": trained.step,
            "multi_label": spec.multi_label,
            **({MAP: judged.metrics.get(MAP) if judged else None} if spec.multi_label else {}),
            "top1": judged.top1 if judged else None,
            "topk": judged.topk if judged else None,
            "k": spec.k(config.eval),
            "input": "float32 (batch, channels, height, width): pixels / 255, less mean, divided by std",
            "output": "float32 (batch, classes): logits"
            + ("; the sigmoid of each is the probability of its class" if spec.multi_label else ""),
        },
    }


def _model_arguments(trained: Trained) -> dict[str, Any]:
    """The constructor's other arguments; timm has fields for the numbers of classes and channels."""
    name, options = trained.spec.model, trained.config.model.options
    if not is_ours(name) and "img_size" in constructor_names(name):
        return {"img_size": trained.spec.image_size, **options}
    return options


def _adaptable_layers(trained: Trained) -> dict[str, str]:
    """The layers that timm replaces for other classes or channels; only from 3 channels can it adapt the first."""
    own: Any = getattr(trained.model, "pretrained_cfg", {"classifier": "fc"})
    names = ["classifier", "first_conv"] if trained.spec.channels == 3 else ["classifier"]
    return {name: own[name] for name in names if own.get(name)}


def write_safetensors(aside: Path, trained: Trained, config: str) -> dict[str, str]:
    """Weights by name, and config.json."""
    from safetensors.torch import save_file

    path, config_path = aside / "model.safetensors", aside / "config.json"
    config_path.write_text(config, encoding="utf-8")
    # Cloned, since safetensors refuses tensors that share memory; transformers needs the format "pt".
    tensors = {name: tensor.contiguous().clone() for name, tensor in trained.model.state_dict().items()}
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(config_path.stat().st_mode)  # safetensors lets only the owner read it
    return {path.name: _size(path), config_path.name: "architecture, classes, input size, normalisation, accuracy"}


def write_torch(aside: Path, trained: Trained, config: str) -> dict[str, str]:
    """A torch.export program, config.json inside; `torch.export.load(path).module()` needs nothing of ours."""
    path = aside / "model.pt2"
    with _refusing(trained, "torch.export"):
        program = torch.export.export(trained.model, (_images(trained, 2),), dynamic_shapes=_any_batch())
        torch.export.save(program, path, extra_files={"config.json": config})
        reloaded = torch.export.load(path).module()
    return {path.name: _checked(path, trained, reloaded)}


def write_onnx(aside: Path, trained: Trained, config: str) -> dict[str, str]:
    """An ONNX model from `images` to `logits`, config.json among its metadata; tried with onnxruntime."""
    import onnxruntime

    path = aside / "model.onnx"
    large = sum(tensor.nbytes for tensor in trained.model.state_dict().values()) > LARGEST_ONNX_BYTES
    with _refusing(trained, "ONNX"):
        program = torch.onnx.export(
            trained.model,
            (_images(trained, 2),),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=_any_batch(),
            dynamo=True,
            verbose=False,
        )
        assert program is not None  # it is None only without dynamo
        program.model.metadata_props["config.json"] = config
        program.save(path, external_data=large)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def answer(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])

    return {path.name: _checked(path, trained, answer)}


WRITERS: dict[str, Callable[[Path, Trained, str], dict[str, str]]] = {
    "safetensors": write_safetensors,
    "torch": write_torch,
    "onnx": write_onnx,
}


def _any_batch() -> tuple[dict[int, Any]]:
    """For the exporters: the first dimension of the only argument varies."""
    return ({0: torch.export.Dim("batch")},)


@contextmanager
def _refusing(trained: Trained, what: str) -> Iterator[None]:
    """Turn any error of an exporter into a UserError: not every model can be traced."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise  # a full disk is not the model's fault
    except Exception as error:
        raise UserError(
            f"{trained.spec.model} cannot be exported with {what}",
            why=str(error).strip().partition("\n")[0] or type(error).__name__,
            remedy="--format safetensors works with every model",
        ) from error


def _images(trained: Trained, count: int) -> Tensor:
    spec, generator = trained.spec, torch.Generator().manual_seed(count)
    return torch.randn(count, spec.channels, spec.image_size, spec.image_size, generator=generator)


def _checked(path: Path, trained: Trained, answer: Callable[[Tensor], Tensor]) -> str:
    """Compare with the model's own answers for batches of one and of several, and return the largest difference."""
    difference = 0.0
    for count in (1, 3):
        images = _images(trained, count)
        with torch.no_grad():
            difference = max(difference, float((answer(images) - trained.model(images)).abs().max()))
    if not difference <= MOST_DIFFERENCE:
        raise UserError(
            f"{path.name} does not compute what the model computes: logits differ by {difference:.3g}",
            why=f"more than {MOST_DIFFERENCE:g} is not rounding; nothing was exported",
            remedy="leave this format out, and please report the model's name",
        )
    return f"{_size(path)}, any batch size, logits at most {difference:.2g} from the model's own"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
