"""What a step keeps in memory is measured before training, and steps are cut so that they fit."""

from pathlib import Path

import pytest
import torch
import yaml

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import MachineConfig
from phalanx.engine import micro_batch_memory
from phalanx.engine.micro_batch_memory import MemoryNeed, measure_need
from phalanx.engine.model_spec import ModelSpec
from phalanx.machine.memory import free_bytes
from phalanx.machine.settings import choose
from tests.conftest import LEAN, train_digits

SPEC = ModelSpec("mlp", [str(number) for number in range(10)], 1, 28, [0.5], [0.5])


def need(*words: str) -> MemoryNeed:
    config = resolve([parse_override(word) for word in words]).config
    return measure_need(config, SPEC, choose(MachineConfig(device="cpu", precision="fp32", threads=1)))


def test_a_model_needs_what_its_layers_keep_and_draws_nothing() -> None:
    """mlp keeps its images, and what its two relus of 128 and 64 put out."""
    torch.manual_seed(5)
    need("model.name=wrn10_1", "model.options={dropout: 0.3}")
    found = need("model.name=mlp")
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(5))
    kept = (found.sample - 8 * 28 * 28) / micro_batch_memory._WORK
    assert kept == pytest.approx(4 * (28 * 28 + 128 + 64))
    values = 28 * 28 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
    assert found.fixed == 4 * micro_batch_memory._COPIES * values
    assert need("model.name=mlp", "distill.loss=mutual").sample == 2 * found.sample
    assert found.samples(found.fixed) < 0
    assert found.samples((found.fixed + 100 * found.sample) / micro_batch_memory._USABLE) in (99, 100)


def test_there_is_memory_left_here() -> None:
    assert free_bytes(torch.device("cpu")) > 1e6


def test_a_run_is_cut_and_remembers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        micro_batch_memory, "free_bytes", lambda device: 1.3e6
    )  # as on a tiny machine: 44 samples of 16²
    small = ("model.name=mlp", "train.length=2st", "train.batch_size=128", "eval.every=100%", *LEAN)
    run = train_digits(tmp_path / "run", *small, "train.fit_memory=true")
    kept = yaml.safe_load((run / "config.yaml").read_text())["train"]
    assert kept["global_batch_size"] == 128
    assert kept["micro_batches"] == 3
    assert (
        "there is room for 44 samples, so a step has 3 micro-batches of 43, before 1" in (run / "log.txt").read_text()
    )
