import json
import shutil
from pathlib import Path

import pytest
import torch

from phalanx.commands.loading import load_trained
from phalanx.errors import UserError
from phalanx.runs import checkpoint


def test_the_averaged_weights_are_used_where_there_are_some(digits_run: Path) -> None:
    trained = load_trained(digits_run, {})
    saved = checkpoint.load(checkpoint.find(digits_run)).tensors
    loaded = trained.model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in saved["ema"].items())
    assert not torch.equal(saved["ema"]["fc.weight"], saved["model"]["fc.weight"])
    assert not trained.model.training
    assert trained.judged is not None


def test_what_is_made_from_a_checkpoint_goes_to_its_run_or_stays_with_it(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint.find(digits_run)
    assert load_trained(path, {}).home == digits_run
    monkeypatch.chdir(path.parent)
    assert load_trained(Path(path.name), {}).home.samefile(digits_run)
    alone = Path(shutil.copytree(path, tmp_path / "alone"))
    assert load_trained(alone, {}).home == alone


def test_a_place_without_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint at"):
        load_trained(tmp_path, {})


def test_a_damaged_checkpoint_is_refused(digits_run: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint.find(digits_run), tmp_path / "copy"))
    weights = bytearray((path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (path / "model.safetensors").write_bytes(weights)
    with pytest.raises(UserError, match="damaged"):
        load_trained(path, {})


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"model": {"w": torch.zeros(1)}}, {"training": {"step": 1}})
    with pytest.raises(UserError, match="is not a complete checkpoint"):
        load_trained(path, {})


def test_settings_of_another_version_are_named(digits_run: Path, tmp_path: Path) -> None:
    loaded = checkpoint.load(checkpoint.find(digits_run))
    state = json.loads(json.dumps(loaded.state))
    state["config"]["train"]["bathc_size"] = 3
    path = checkpoint.save(tmp_path, 1, loaded.tensors, state)
    with pytest.raises(UserError, match=r"train\.bathc_size"):
        load_trained(path, {})


@pytest.mark.parametrize("machine", [{"precision": "fp8"}, {"device": "tpu"}, {"device": "cuda:77"}])
def test_a_machine_that_is_not_there_is_refused(digits_run: Path, machine: dict[str, str]) -> None:
    with pytest.raises(UserError, match=next(iter(machine.values()))):
        load_trained(digits_run, machine)
