import json
import os
import platform
from pathlib import Path

import pytest
import torch

from phalanx.errors import UserError
from phalanx.runs import checkpoint


def save(folder: Path, step: int) -> Path:
    weights = {
        "w": torch.full((2, 3), float(step)),
        "nhwc": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    }
    return checkpoint.save(folder, step, {"model": weights}, {"training": {"step": step}})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    loaded = checkpoint.load(save(tmp_path, 7))
    assert torch.equal(loaded.tensors["model"]["w"], torch.full((2, 3), 7.0))
    assert loaded.state["training"] == {"step": 7}


def test_tied_weights_are_saved_twice_rather_than_refused(tmp_path: Path) -> None:
    weight = torch.randn(3, 3)
    path = checkpoint.save(tmp_path, 1, {"model": {"a": weight, "b": weight}}, {})
    assert torch.equal(checkpoint.load(path).tensors["model"]["b"], weight)


def test_saving_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_newest_is_reported_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2) / "model.safetensors"
    if damage == "flip":
        content = bytearray(newest.read_bytes())
        content[-1] ^= 1
        newest.write_bytes(content)
    elif damage == "truncate":
        os.truncate(newest, newest.stat().st_size - 1)
    elif damage == "remove":
        newest.unlink()
    else:
        (newest.parent / "manifest.json").write_text("{")
    loaded, warnings = checkpoint.load_newest(tmp_path)
    assert loaded.state["training"]["step"] == 1
    assert "step-00000002 is damaged" in warnings[0]
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(newest.parent)


def test_nothing_usable_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no usable checkpoint"):
        checkpoint.load_newest(tmp_path)
    with pytest.raises(UserError, match="no checkpoint at"):
        checkpoint.find(tmp_path / "none")


def test_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
        if step == 2:
            checkpoint.mark_best(tmp_path, 2, 0.9)
        checkpoint.prune(tmp_path, keep_last=2)
    assert [path.name[-1] for path in checkpoint.steps_saved(tmp_path)] == ["2", "4", "5"]
    assert checkpoint.find(tmp_path).name.endswith("2")
    assert checkpoint.find(tmp_path, prefer_best=False).name.endswith("5")


def test_leftovers_of_a_dead_process_are_swept(tmp_path: Path) -> None:
    left = tmp_path / f".step-00000003.999999999@{platform.node().replace('.', '-')}.tmp"
    elsewhere = tmp_path / ".step-00000003.999999999@another-host.tmp"  # may be alive there
    left.mkdir()
    elsewhere.mkdir()
    save(tmp_path, 4)
    assert not left.exists()
    assert elsewhere.exists()


def test_one_of_several_workers_saves_a_step(tmp_path: Path) -> None:
    assert [checkpoint.claim(tmp_path / "new", 3) for _ in range(3)] == [True, False, False]
    assert checkpoint.claim(tmp_path / "new", 4)
    checkpoint.forget_claims(tmp_path / "new")
    assert checkpoint.claim(tmp_path / "new", 3)
    assert checkpoint.steps_saved(tmp_path / "new") == []


def test_what_somebody_is_not_done_with_is_not_removed(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    checkpoint.prune(tmp_path, 1, done=lambda path: not path.name.endswith("3"))
    assert [path.name[-1] for path in checkpoint.steps_saved(tmp_path)] == ["3", "5"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"format": 99}))
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)


def test_files_that_are_not_part_of_a_checkpoint_are_not_read(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "junk.safetensors").write_bytes(b"not weights")
    assert checkpoint.load(path).tensors.keys() == {"model"}


def test_a_manifest_names_files_of_its_own_folder(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "../other.safetensors": manifest["state.json"]}))
    with pytest.raises(UserError, match="not a file in it"):
        checkpoint.load(path)
