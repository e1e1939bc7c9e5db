"""A step's work is counted and its precisions are timed, and nothing of the run changes by that."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.config.role import Role
from phalanx.config.schema import MachineConfig
from phalanx.engine import micro_batch_memory, precision, step_cost
from phalanx.engine.micro_batch_memory import measure_need
from phalanx.engine.precision import measure, settle_precision
from phalanx.engine.step_cost import NAME, count_work, time_precisions
from phalanx.exchange.rendezvous import LocalRendezvous
from phalanx.machine.job_settings import JobSettings, choose_for_job, report_machine
from phalanx.machine.precision import PRECISIONS
from phalanx.machine.settings import Settings, settings_for
from phalanx.machine.timings import path_of, timings
from phalanx.models.build import build_model
from phalanx.native.features import SWITCH
from tests.engine.tiny import TinyRun, tiny_run

MODEL = ("model.name=wrn10_1", "train.batch_size=8", "optim.accumulate=2")


def draws() -> list[float]:
    """The next number of each generator, which stays where it is."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    drawn = [float(torch.rand(())), random.random(), float(np.random.random())]
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    return drawn


def test_work_is_counted_by_layer() -> None:
    run = tiny_run("model.name=mlp", "data.synthetic={samples: 40, val_samples: 12, classes: 4, size: 28}")
    spec = run.spec
    model = build_model(run.config.model, num_classes=4, channels=spec.channels, image_size=spec.image_size)
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    expected = 3 * 2 * 8 * sum(layer.in_features * layer.out_features for layer in layers)
    before = draws()
    assert count_work(run.config, run.spec).flops == expected
    assert draws() == before


def test_a_model_that_cannot_run_like_this_has_no_known_work() -> None:
    run = tiny_run("model.name=vgg11")  # images of 8² are too small: the error comes where it is trained
    assert count_work(run.config, run.spec).flops is None


def settings_of(run: TinyRun, level: str, monkeypatch: pytest.MonkeyPatch) -> tuple[JobSettings, Settings]:
    monkeypatch.setenv(SWITCH, level)
    config = MachineConfig(device="cpu", threads=1, fast_path="products")
    job_settings = choose_for_job(config, [report_machine(config)])
    return job_settings, settings_for(job_settings)


@pytest.mark.usefixtures("own_cache")
def test_precisions_are_timed_once_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = tiny_run(*MODEL)
    _, settings = settings_of(run, "avx512-bf16", monkeypatch)
    before, work = draws(), count_work(run.config, run.spec)
    cost = time_precisions(work, run.config, run.spec, settings)
    assert draws() == before
    assert cost.timed == cost.samples == 8
    assert cost.seconds is not None
    assert set(cost.seconds) == set(PRECISIONS)
    assert min(cost.seconds.values()) > 0
    (kept,) = tmp_path.rglob("precisions.json")
    assert "wrn10_1" in kept.read_text()
    assert time_precisions(work, run.config, run.spec, settings) == cost
    sevens = dict.fromkeys(PRECISIONS, 7.0)
    kept.write_text(json.dumps({key: {"samples": 4, **sevens} for key in json.loads(kept.read_text())}))
    with timings(NAME):  # while another run times another model
        known = time_precisions(work, run.config, run.spec, settings)
    assert (known.timed, known.seconds) == (4, sevens)
    other_layout = time_precisions(work, run.config, run.spec, replace(settings, channels_last=False))
    assert other_layout.seconds != sevens


@pytest.mark.usefixtures("own_cache")
def test_what_is_too_large_is_timed_with_less_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run(*MODEL)
    _, settings = settings_of(run, "avx512-bf16", monkeypatch)
    monkeypatch.setattr(precision, "WORTH_TIMING", 0)
    monkeypatch.setattr(step_cost, "_STEP_S", 0.0)
    assert measure(run.config, run.spec, settings).why_not == "a step takes more than 0 s: too long to time"
    monkeypatch.setattr(step_cost, "_STEP_S", 60.0)
    need = measure_need(run.config, run.spec, replace(settings, dtype=torch.float32))
    for room, said in ((2.5, (2, "")), (0.5, (0, "there is no memory to time a step in fp32"))):
        free = (need.fixed + room * need.sample) / 0.8
        monkeypatch.setattr(micro_batch_memory, "free_bytes", lambda device, free=free: free)
        measured = measure(run.config, run.spec, settings)
        assert (measured.samples, measured.why_not) == said
        path_of(NAME).unlink(missing_ok=True)


@pytest.mark.usefixtures("own_cache")
def test_a_job_takes_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run(*MODEL)
    job_settings, settings = settings_of(run, "amx", monkeypatch)
    given = (settings, LocalRendezvous(), Role())
    small, _ = settle_precision(run.config, run.spec, job_settings, *given)
    assert small.machine.precision == "bf16"
    assert "are not worth timing" in small.decisions["precision"].reason
    monkeypatch.setattr(precision, "WORTH_TIMING", 0)
    settled, config = settle_precision(run.config, run.spec, job_settings, *given)
    decision = settled.decisions["precision"]
    assert decision.reason.startswith("a step of 8: ")
    assert settled.machine.precision == config.machine.precision == decision.value
    assert settled.decisions.keys() == job_settings.decisions.keys()


def test_one_precision_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "WORTH_TIMING", 0)
    run = tiny_run(*MODEL)
    job_settings, settings = settings_of(run, "avx2", monkeypatch)
    assert settle_precision(run.config, run.spec, job_settings, settings, LocalRendezvous(), Role()) == (
        job_settings,
        run.config,
    )
    for given in ({"precision": "bf16"}, {"compile": True, "precision": "auto"}):
        monkeypatch.setenv(SWITCH, "avx512-bf16")
        machine = MachineConfig.model_validate({"device": "cpu", **given})
        assert not choose_for_job(machine, [report_machine(machine)]).both_precisions
