import importlib.util
import io
import json
import shutil
import stat
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from phalanx.commands import export_formats
from phalanx.commands.export import ONNX_PARTS, export_checkpoint
from phalanx.commands.loading import load_trained
from phalanx.errors import UserError

MISSING = [part for part in ONNX_PARTS if importlib.util.find_spec(part) is None]


def exported(place: Path, out: Path | None, *formats: str) -> str:
    """What was printed."""
    said = io.StringIO()
    export_checkpoint(Console(file=said), place, out, formats)
    return said.getvalue()


def test_safetensors_and_torch_answer_as_the_model_does(digits_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(digits_run, tmp_path / "run"))
    said = exported(run, None)
    out = run / "export"
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.pt2", "model.safetensors"]
    assert "any batch size" in said

    trained = load_trained(run, {})
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], tensor) for name, tensor in trained.model.state_dict().items())
    assert stat.S_IMODE((out / "model.safetensors").stat().st_mode) == stat.S_IMODE(
        (out / "config.json").stat().st_mode
    )

    inside = {"config.json": ""}
    program = torch.export.load(out / "model.pt2", extra_files=inside).module()
    images = torch.randn(5, 1, 16, 16)
    torch.testing.assert_close(program(images), trained.model(images))
    config = json.loads(inside["config.json"])
    assert config == json.loads((out / "config.json").read_text())
    assert config["label_names"] == [str(digit) for digit in range(10)]
    assert config["pretrained_cfg"]["mean"] == trained.spec.mean
    assert config["pretrained_cfg"]["crop_mode"] == "squash"
    assert config["phalanx"]["top1"] == json.loads((run / "summary.json").read_text())["best"]["top1"]


def test_timm_reads_the_folder(timm_run: Path, tmp_path: Path) -> None:
    import timm

    said = exported(timm_run, tmp_path, "safetensors")
    assert f"local-dir:{tmp_path}" in said
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(model(images), load_trained(timm_run, {}).model(images))


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_onnx_answers_as_the_model_does(digits_run: Path, tmp_path: Path) -> None:
    import onnxruntime

    said = exported(digits_run, tmp_path, "onnx")
    assert "any batch size" in said
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    images = torch.randn(4, 1, 16, 16)
    answer = session.run(None, {"images": images.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(answer), load_trained(digits_run, {}).model(images), atol=1e-4, rtol=0)


@pytest.mark.skipif(not MISSING, reason="onnx, onnxscript and onnxruntime are installed")
def test_onnx_that_is_not_installed_is_refused_with_the_command(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"phalanx\[onnx\]"):
        exported(digits_run, tmp_path, "onnx")


def test_an_unknown_format_is_refused(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean safetensors"):
        exported(digits_run, tmp_path, "safetensor")


def test_a_model_that_computes_something_else_is_not_exported(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_formats, "MOST_DIFFERENCE", -1.0)
    with pytest.raises(UserError, match="does not compute what the model computes"):
        exported(digits_run, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        exported(digits_run, tmp_path / "file" / "out", "safetensors")
