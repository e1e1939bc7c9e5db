"""`phalanx.Run`: numbers, curves, the model, predictions and evaluations of a run."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import phalanx
from phalanx.commands.loading import load_trained
from phalanx.data.sources.embedded import open_digits
from tests.commands.digit_files import write_digits, write_own_dataset
from tests.data.pack.packs import pack_folder


@pytest.fixture
def run(digits_run: Path, tmp_path: Path) -> phalanx.Run:
    """A finished run of its own."""
    return phalanx.load(shutil.copytree(digits_run, tmp_path / "runs" / "digits"))


def test_numbers_are_those_of_the_events(run: phalanx.Run) -> None:
    steps, values = run.history("val/top1")
    assert (run.last.step, run.last.top1) == (steps[-1], values[-1])
    assert run.best.top1 == max(values)
    assert run.best.topk == run.history("val/topk").values[values.index(max(values))]
    assert run.last.epoch == 2.0
    for name in ("train/loss", "train/top1", "train/lr", "val/loss", "samples_per_s"):
        assert run.history(name).steps
    with pytest.raises(phalanx.Error, match="val/top1"):
        run.history("val/top")


def test_a_run_without_an_evaluation_says_so(timm_run: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(timm_run, tmp_path / "run")
    lines = (copied / "events.jsonl").read_text().splitlines(keepends=True)
    (copied / "events.jsonl").write_text("".join(line for line in lines if '"kind": "eval"' not in line))
    run = phalanx.load(copied)
    with pytest.raises(phalanx.Error, match="no evaluation yet"):
        _ = run.best
    assert "best" not in repr(run)


def test_it_shows_itself(run: phalanx.Run) -> None:
    assert "state    finished" in repr(run)
    assert f"{100 * run.best.top1:.2f} %" in repr(run)
    assert "data:image/png;base64," in run._repr_html_()
    figure = run.figure()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_runs_are_listed_newest_first(run: phalanx.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run.path, tmp_path / "runs" / "another", copy_function=shutil.copy)
    (tmp_path / "runs" / "no-run").mkdir()
    assert [one.path.name for one in phalanx.runs()] == ["another", "digits"]
    assert phalanx.runs("nowhere") == []
    with pytest.raises(phalanx.Error, match="is not a run"):
        phalanx.load("runs/no-run")


def test_the_model_has_the_best_weights_in_plain_layers(run: phalanx.Run) -> None:
    model = run.model()
    assert not model.training
    assert {type(layer).__module__.split(".")[0] for layer in model.modules() if not list(layer.children())} <= {
        "torch",
        "phalanx",
    }
    trained = load_trained(run.path, {"device": "cpu"})
    images = torch.zeros(2, 1, 16, 16, dtype=torch.uint8)
    inputs = (images / 255 - trained.spec.mean[0]) / trained.spec.std[0]
    assert torch.allclose(model(inputs), trained.logits(images), atol=1e-4)


def test_an_image_is_the_same_in_every_form(run: phalanx.Run, tmp_path: Path) -> None:
    source = open_digits("val", channels=1)
    pixels = source.images[source.rows[0], :, :, 0]
    path = tmp_path / "digit.png"
    Image.fromarray(pixels).save(path)
    tensor = torch.from_numpy(pixels.copy())
    forms: list[Any] = [
        path,
        str(path),
        Image.open(path),
        pixels,
        pixels[:, :, None],
        tensor,
        tensor[None],
        pixels / 255,
    ]
    together = run.predict([*forms, np.repeat(pixels[:, :, None], 3, axis=2)], top_k=10)
    assert len(together) == len(forms) + 1
    assert together[0].image == str(path)
    assert (together[0].label, together[0].probability) == together[0].classes[0]
    expected = dict(together[0].classes)
    alone = [*run.predict(path, top_k=10), *run.predict(np.stack([pixels[:, :, None]] * 2), top_k=10)]
    for prediction in (*together, *alone):
        assert dict(prediction.classes) == pytest.approx(expected, abs=1e-5)
    assert run.predict([]) == []


@pytest.mark.parametrize(
    ("image", "part"),
    [
        (np.zeros((4, 4, 7), dtype=np.uint8), "shape"),
        (np.full((4, 4), 3.0), "0..1"),
        (np.zeros((4, 4), dtype=np.int64), "int64"),
        ({"image": 1}, "dict is no image"),
        ("nothing*.jpg", "no image"),
    ],
)
def test_what_is_no_image_is_refused(digits_run: Path, image: object, part: str) -> None:
    with pytest.raises(phalanx.Error) as caught:
        phalanx.load(digits_run).predict([image])  # type: ignore[list-item]
    assert part in str(caught.value)


def test_an_unreadable_file_is_an_error_when_it_is_looked_at(run: phalanx.Run, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    bad, good = run.predict([tmp_path / "a.jpg", np.zeros((8, 8))])
    assert good.label in run.classes
    with pytest.raises(phalanx.Error, match=r"a\.jpg could not be read"):
        _ = bad.label


def test_other_data_is_evaluated(run: phalanx.Run, tmp_path: Path) -> None:
    evaluation = run.evaluate(write_digits(tmp_path / "other", 40))
    assert evaluation.samples == 40
    assert evaluation.folder == run.path / "eval-other"
    assert (evaluation.folder / "eval.json").exists()
    assert sum(one.correct for one in evaluation.classes) == round(40 * evaluation.top1)
    own = run.evaluate()
    assert own.top1 == pytest.approx(run.best.top1, abs=0.01)


def test_data_of_every_kind_is_predicted_and_evaluated(
    run: phalanx.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_digits(tmp_path / "d", 40)
    pack_folder(files, tmp_path / "p", "rec", settings={"channels": 1})
    wanted = run.predict(files, top_k=1)
    zeros = np.zeros((8, 8), dtype=np.uint8)
    first, *packed, last = run.predict([zeros, str(tmp_path / "p"), zeros])
    assert [one.label for one in packed] == [one.label for one in wanted]
    assert [one.true_label for one in packed] == [Path(one.image).parent.name for one in wanted]
    assert (first.image, last.image, first.true_label, wanted[0].true_label) == ("image 0", "image 41", None, None)
    assert len(run.predict("digits", split="val")) == 355
    write_own_dataset(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("mine").Digits
    assert [one.label for one in run.predict(own)] == [one.label for one in wanted]
    assert run.evaluate(own, settings={"data.options": {"first": 30}}).samples == 10


def test_a_recipe_shows_its_claim_and_can_be_trained(tmp_path: Path) -> None:
    recipe = phalanx.recipe("digits")
    assert "98.5 %" in repr(recipe)
    assert "model.name = 'cifar_resnet8'" in repr(recipe)
    assert "<table>" in recipe._repr_html_()
    settings = {"model.name": "wrn10_1", "train.length": "1st", "machine.threads": 1, "train.curves": False}
    run = phalanx.train(recipe, settings=settings, out=tmp_path / "run")
    assert run.config.name == "digits"
    with pytest.raises(phalanx.Error, match="digits"):
        phalanx.recipe("digts")


def test_a_finished_run_is_resumed_as_it_is(run: phalanx.Run) -> None:
    assert run.resume() is run
    with pytest.raises(phalanx.Error, match="finished"):
        run.resume(epochs=2)
    with pytest.raises(phalanx.Error, match="epochs"):
        run.resume(epoch=2)  # type: ignore[call-arg]
