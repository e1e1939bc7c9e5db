"""A teacher sees the student's pixels with its own normalisation, and answers for the student's classes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from phalanx.config.schema import DistillConfig, MachineConfig
from phalanx.data.augment.mixing import to_input
from phalanx.engine.distill.classes import match_columns
from phalanx.engine.distill.find import find_teacher
from phalanx.engine.distill.teacher import Teacher, load_teachers
from phalanx.engine.model_spec import ModelSpec
from phalanx.errors import UserError
from phalanx.machine.settings import Settings, choose


@pytest.fixture(scope="module")
def settings() -> Settings:
    return choose(MachineConfig(device="cpu", precision="fp32", threads=1))


@pytest.fixture
def spec(digits_run: Path) -> ModelSpec:
    return find_teacher(str(digits_run), []).spec


def load(run: Path, spec: ModelSpec, settings: Settings, *, resize: bool = False) -> Teacher:
    return load_teachers(DistillConfig(teachers=[str(run)], resize=resize), spec, settings)[0]


IMAGES = torch.randint(0, 256, (16, 1, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_another_normalisation_is_undone(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    own = load(digits_run, spec, settings)
    assert own.scale is None
    other = replace(spec, mean=[0.5], std=[0.1])
    teacher = load(digits_run, other, settings)
    wanted = to_input(IMAGES, spec.mean, spec.std)
    torch.testing.assert_close(teacher.input(to_input(IMAGES, other.mean, other.std)), wanted, rtol=0, atol=2e-6)
    torch.testing.assert_close(
        teacher.logits(to_input(IMAGES, other.mean, other.std)), own.logits(wanted), rtol=1e-4, atol=1e-4
    )


def test_the_averaged_weights_answer_in_eval_mode(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    teacher = load(digits_run, spec, settings)
    before = {name: tensor.clone() for name, tensor in teacher.model.state_dict().items()}
    logits = teacher.logits(to_input(IMAGES, spec.mean, spec.std))
    assert logits.shape == (16, 10)
    assert logits.dtype == torch.float32
    assert not logits.requires_grad
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.model.state_dict().items())
    assert "top-1 " in teacher.about
    assert teacher.about.endswith("0.0776 M parameters")


def test_loading_a_teacher_draws_nothing(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    load(digits_run, spec, settings)
    assert torch.equal(torch.rand(3), wanted)


def test_classes_are_matched_by_name(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    images = to_input(IMAGES, spec.mean, spec.std)
    all_of_them = load(digits_run, spec, settings).logits(images)
    fewer = load(digits_run, replace(spec, classes=["7", "3"]), settings)
    assert torch.equal(fewer.logits(images), all_of_them[:, [7, 3]])
    assert fewer.notes == [f"the teacher {digits_run} knows 8 more classes: its answers are taken among the 2 here"]
    turned = load(digits_run, replace(spec, classes=spec.classes[::-1]), settings)
    assert torch.equal(turned.logits(images), all_of_them.flip(1))


def test_missing_classes_are_named() -> None:
    with pytest.raises(UserError, match="does not know 2 of the 3 classes: dog, cow"):
        match_columns(["cat", "hen"], ["dog", "cat", "cow"], "runs/t")


def test_another_size_is_refused_or_resized(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    larger = replace(spec, image_size=32)
    with pytest.raises(UserError, match="sees images of 16 pixels, the student of 32") as refused:
        load(digits_run, larger, settings)
    assert "distill.resize=true" in refused.value.remedy
    teacher = load(digits_run, larger, settings, resize=True)
    assert teacher.input(torch.zeros(2, 1, 32, 32)).shape == (2, 1, 16, 16)
    assert "resized to 16 pixels" in teacher.notes[0]


def test_smaller_images_of_early_epochs_are_resized_for_the_teacher(
    digits_run: Path, spec: ModelSpec, settings: Settings
) -> None:
    """train.sizes: the student sees 8 pixels at first, and the teacher was never trained on such."""
    assert load(digits_run, spec, settings).input(torch.zeros(2, 1, 8, 8)).shape == (2, 1, 16, 16)


def test_other_channels_are_refused(digits_run: Path, spec: ModelSpec, settings: Settings) -> None:
    with pytest.raises(UserError, match=r"sees 1 channel\(s\), the student 3"):
        load(digits_run, replace(spec, channels=3, mean=[0.5] * 3, std=[0.5] * 3), settings)


@pytest.mark.parametrize("name", ["runs/nothing", "no_such_model_of_timm"])
def test_a_missing_teacher_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        find_teacher(name, ["cat"])


def test_published_weights_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that nobody answers at, as on a machine without a network."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "/nonexistent")
    with pytest.raises(UserError, match="the teacher resnet18 cannot be used"):
        find_teacher("resnet18", ["cat"])


def test_a_file_needs_its_description(digits_run: Path, tmp_path: Path, settings: Settings, spec: ModelSpec) -> None:
    from rich.console import Console

    from phalanx.commands.export import export_checkpoint

    with (tmp_path / "said").open("w") as said:
        export_checkpoint(Console(file=said), digits_run, tmp_path / "export", ["safetensors"])
    images = to_input(IMAGES, spec.mean, spec.std)
    wanted = load(digits_run, spec, settings)
    for place in (tmp_path / "export" / "model.safetensors", tmp_path / "export"):
        found = load(place, spec, settings)
        assert found.digest == wanted.digest
        assert torch.equal(found.logits(images), wanted.logits(images))
    (tmp_path / "export" / "config.json").unlink()
    with pytest.raises(UserError, match="does not say what it is"):
        load(tmp_path / "export" / "model.safetensors", spec, settings)
