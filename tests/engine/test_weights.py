"""Saved weights go into a model that they fit, and anything else is refused with the reason."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from phalanx.engine.evaluate import Interrupted
from phalanx.engine.loop import train
from phalanx.engine.state import Best
from phalanx.engine.step import train_step
from phalanx.engine.weights import initialize_from, load_weights, restore
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import EventFile, Start
from tests.data.samples import assert_helpful
from tests.engine.tiny import TinyRun, network, same, tiny_run

MOMENTUM = ("optim.momentum=0.9", "optim.ema=0.9")
SEVEN = "data.synthetic={samples: 42, val_samples: 12, classes: 7, size: 8}"


def steps(tiny: TinyRun, until: int) -> None:
    for batch in tiny.pipeline.stream(tiny.state.epoch, tiny.state.start):
        train_step(tiny.state, batch, tiny.exchange, tiny.engine)
        tiny.state.advance(batch)
        if tiny.state.step == until:
            return


def save(tiny: TinyRun, run: Path) -> Path:
    """A checkpoint as a run writes it, and the events that it lies beside; the folder of checkpoints."""
    events = EventFile(run)
    plan = tiny.plan
    counts = (plan.steps_per_epoch, plan.total_steps, plan.samples_per_step)
    events.take(Start("test", tiny.spec.model, 0, "synthetic", 40, 12, 4, *counts, {}, []))
    events.close()
    optimizer, scalars = tiny.exchange.state.optimizer_state()
    tensors = {"model": tiny.state.model.state_dict(), "optimizer": optimizer}
    if tiny.state.ema is not None:
        tensors["ema"] = tiny.state.ema.model.state_dict()
    state = {
        "training": tiny.state.numbers(),
        "optimizer": scalars,
        "identity": tiny.spec.saved(),
        "samples_per_step": plan.samples_per_step,
        "config": tiny.config.model_dump(mode="json"),
    }
    return checkpoint.save(run / "checkpoints", tiny.state.step, tensors, state).parent


def continued(tiny: TinyRun, folder: Path, at_step: int | None = None) -> list[str]:
    """Restore, and what the user is told."""
    return restore(folder, tiny.state, tiny.exchange, tiny.spec, tiny.plan, at_step=at_step).warnings


def test_a_restored_run_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    whole, first, second = (tiny_run(*MOMENTUM) for _ in range(3))
    steps(whole, 6)
    steps(first, 3)
    first.state.best = Best(0.5, 0.9, 3, 0.6)
    folder = save(first, tmp_path)
    assert continued(second, folder) == []
    assert (second.state.step, second.state.start, second.state.best) == (3, 24, Best(0.5, 0.9, 3, 0.6))
    assert checkpoint.best_path(folder) == checkpoint.path_of(folder, 3)  # it was the best, and now is marked
    steps(second, 6)
    assert same(second.weights(), whole.weights())
    assert second.state.ema is not None
    assert whole.state.ema is not None
    assert same(second.state.ema.model.state_dict(), whole.state.ema.model.state_dict())


def test_a_restored_run_may_begin_earlier_and_puts_the_rest_aside(tmp_path: Path) -> None:
    first, second = tiny_run(), tiny_run()
    steps(first, 2)
    early = first.weights()
    save(first, tmp_path)
    steps(first, 4)
    folder = save(first, tmp_path)
    (warning,) = continued(second, folder, at_step=2)
    assert "checkpoints saved after step 2 are no longer part of the run" in warning
    assert "step-00000004" in warning
    assert same(second.weights(), early)
    assert [path.name for path in checkpoint.steps_saved(folder)] == ["step-00000002"]
    with pytest.raises(UserError, match="no checkpoint of step 3"):
        continued(tiny_run(), folder, at_step=3)


def test_other_samples_per_step_are_told_and_counted_anew(tmp_path: Path) -> None:
    first, second = tiny_run(), tiny_run("train.batch_size=4")
    steps(first, 3)
    (warning,) = continued(second, save(first, tmp_path))
    assert "a step now has 4 samples, 8 before" in warning
    assert (second.state.step, second.state.start) == (6, 24)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (SEVEN, ("has 4 classes, the data has 7", "--init-from with model.new_head=true")),
        ("model.name=wrn10_1", ("a checkpoint of cifar_resnet20, not of wrn10_1", "--model cifar_resnet20")),
        ("train.length=3st", ("is finished: 3 of 3 steps", "--epochs")),
    ],
)
def test_what_cannot_be_continued_is_refused(tmp_path: Path, other: str, words: tuple[str, ...]) -> None:
    first, second = tiny_run(), tiny_run(other)
    steps(first, 3)
    first.state.evaluated_step = 3
    folder = save(first, tmp_path)
    with pytest.raises(UserError) as caught:
        continued(second, folder)
    assert_helpful(caught.value, *words)


def test_a_finished_run_whose_last_evaluation_is_missing_is_not_finished(tmp_path: Path) -> None:
    first, second = tiny_run("train.length=3st"), tiny_run("train.length=3st")

    class Interrupting:
        def report(self, *_: object) -> None: ...

        def save(self, *_: object) -> None: ...

        def ends_early(self) -> bool:
            return False

        def rejoined(self, *_: object) -> None: ...

        def evaluate(self, *_: object) -> bool:
            raise Interrupted

    plan = (first.engine, first.plan, Interrupting(), bool)
    assert not train(first.state, first.pipeline, first.exchange, *plan)
    assert continued(second, save(first, tmp_path)) == []
    assert second.plan.evaluation_due(second.state)


def renamed(tensors: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    return {new if name == old else name: tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: renamed(t, "0.weight", "0.kernel"),
            ("1 tensors are missing (0.weight", "1 are unexpected (0.kernel"),
        ),
        (lambda t: t | {"9.weight": torch.zeros(1)}, ("1 are unexpected (9.weight", "check --model")),
        (lambda t: {name: t[name] for name in ("0.weight", "0.bias")}, ("2 tensors are missing (6.bias, 6.weight",)),
        (lambda t: t | {"6.bias": torch.zeros(7)}, ("6.bias is [7] and should be [4]", "model.new_head=true")),
    ],
)
def test_weights_that_do_not_fit_are_named_and_none_is_loaded(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]], words: tuple[str, ...]
) -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wrong = change({name: tensor + 1 for name, tensor in before.items()})
    with pytest.raises(UserError) as caught:
        load_weights(model, wrong, "old.safetensors")
    assert_helpful(caught.value, "the weights in old.safetensors do not fit", *words)
    assert same(dict(model.state_dict()), before)


def test_loaded_weights_keep_the_models_layout() -> None:
    model = network()
    load_weights(model, {name: tensor.contiguous() + 1 for name, tensor in model.state_dict().items()}, "a file")
    assert next(model.parameters()).is_contiguous(memory_format=torch.channels_last)


def test_a_new_run_starts_from_the_averaged_weights_of_another(tmp_path: Path) -> None:
    first, second = tiny_run(*MOMENTUM), tiny_run(*MOMENTUM)
    steps(first, 3)
    save(first, tmp_path)
    initialize_from(tmp_path, second.state, second.spec, new_head=False)
    assert first.state.ema is not None
    assert second.state.ema is not None
    assert same(second.weights(), dict(first.state.ema.model.state_dict()))
    assert same(second.weights(), dict(second.state.ema.model.state_dict()))
    assert second.state.step == 0


def test_a_new_head_stays_fresh_where_the_classes_are_others(tmp_path: Path) -> None:
    first = tiny_run()
    steps(first, 2)
    folder = save(first, tmp_path)
    seven = tiny_run(SEVEN, model=network(7))
    seven.state.model.default_cfg = {"classifier": "6"}  # type: ignore[assignment]  # as timm's models say it
    fresh = seven.weights()
    with pytest.raises(UserError, match="has 4 classes, the data has 7"):
        initialize_from(folder, seven.state, seven.spec, new_head=False)
    initialize_from(folder, seven.state, seven.spec, new_head=True)
    for name, tensor in seven.weights().items():
        expected = fresh if name.startswith("6.") else first.weights()
        assert torch.equal(tensor, expected[name]), name


def test_a_file_of_weights_with_the_names_of_an_export_is_matched_by_name(tmp_path: Path) -> None:
    tiny = tiny_run()
    tiny.state.model.default_cfg = {"classifier": "6"}  # type: ignore[assignment]  # as timm's models say it
    saved = {name: tensor + 1 for name, tensor in tiny.weights().items()}
    save_file({name: tensor.contiguous() for name, tensor in saved.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"label_names": ["d", "c", "b", "a"]}))
    named = replace(tiny.spec, classes=["a", "b", "c", "d"])
    (note,) = initialize_from(tmp_path / "model.safetensors", tiny.state, named, new_head=False)
    assert "matched by name" in note
    assert torch.equal(tiny.weights()["6.weight"], saved["6.weight"].flip(0))
    assert torch.equal(tiny.weights()["0.weight"], saved["0.weight"])


def test_a_new_run_starts_from_a_file_of_weights(tmp_path: Path) -> None:
    tiny = tiny_run()
    wanted = {name: tensor + 1 for name, tensor in tiny.weights().items()}
    save_file({name: tensor.contiguous() for name, tensor in wanted.items()}, tmp_path / "weights.safetensors")
    other = replace(tiny.spec, model="another", classes=["a", "b"])  # a file says nothing of these
    tiny.state.model.default_cfg = {"classifier": "6"}  # type: ignore[assignment]  # as timm's models say it
    (note,) = initialize_from(tmp_path / "weights.safetensors", tiny.state, other, new_head=False)
    assert same(tiny.weights(), wanted)
    assert note == f"{tmp_path / 'weights.safetensors'} does not name its classes: its classifier was matched by number"
    (tmp_path / "weights.pth").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(UserError) as caught:
        initialize_from(tmp_path / "weights.pth", tiny.state, tiny.spec, new_head=False)
    assert_helpful(caught.value, "weights.pth cannot be read as weights", "pickles such as .pth can run code")
