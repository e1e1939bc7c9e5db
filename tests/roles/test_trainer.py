"""Whole runs, in real processes where a process is what is tested."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from rich.console import Console

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.engine import precision
from phalanx.errors import UserError
from phalanx.machine import settings as machine_settings
from phalanx.machine.cores import cores
from phalanx.machine.job_settings import JOB_WIDE
from phalanx.machine.settings import WORTH_THREADS
from phalanx.roles.request import Request
from phalanx.roles.run import run
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from phalanx.runs.folder import find_run
from tests.conftest import LEAN
from tests.waiting import until

# Small enough for seconds, with everything that could break exactness: momentum, warm-up, batch norm, random crops,
# rotation, dropout, mixing, erasing, EMA, an epoch that the batch size does not divide, checkpoints in mid-epoch.
SMALL = [
    "model.name=wrn10_1",
    "model.drop=0.1",
    "augment.mixup=0.2",
    "augment.cutmix=1",
    "augment.erase=0.3",
    "augment.rotate=10",
    "optim.ema=0.9",
    "train.batch_size=100",
    "train.length=3ep",
    "train.log_every=4",
    "checkpoint.every=4st",
    "eval.every=1ep",
    "train.sizes=[[8, 1ep]]",
    *LEAN,
]


def train(out: Path, *settings: str, resume: bool = False, init_from: Path | None = None) -> str:
    """A run in this process; what it printed."""
    layers = [find_run(out).layer()] if resume else load_recipe("digits").layers
    resolved = resolve([*layers, *map(parse_override, settings)])
    console = Console(file=io.StringIO(), width=200)
    if resume:
        request = Request(resolved, "test", resume=find_run(out), init_from=init_from, resumed_from=layers[0].origin)
    else:
        request = Request(resolved, "test", out=out, init_from=init_from)
    code = run(request, Role(), console).exit_code
    assert code == 0
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phalanx", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_saved(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    saved = out / "checkpoints" / f"step-{step:08d}"
    until(lambda: saved.is_dir() or process.poll() is not None)
    assert saved.is_dir(), process.communicate()[0]


def final(out: Path) -> dict[str, dict[str, torch.Tensor]]:
    return checkpoint.load_newest(out / "checkpoints")[0].tensors


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimizer, average and every reported metric are equal, bit for bit."""
    left, right = final(one), final(other)
    assert left.keys() == right.keys()
    for group, tensors in left.items():
        assert tensors.keys() == right[group].keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, right[group][name]), f"{group} {name}"
    assert metrics(one) == metrics(other)


def metrics(out: Path) -> list[dict[str, Any]]:
    clocks = ("t", "seconds", "samples_per_s", "data_s", "compute_s", "exchange_s", "update_s")
    return [
        {key: value for key, value in record.items() if key not in clocks}
        for record in read_events(out)
        if record["kind"] in ("step", "epoch", "eval")
    ]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(out, *SMALL, "train.curves=true")
    return out


def test_a_run_leaves_its_folder(uninterrupted: Path) -> None:
    for name in ("config.yaml", "events.jsonl", "log.txt", "summary.json", "curves.png", "curves.svg"):
        assert (uninterrupted / name).stat().st_size > 0, name
    summary = json.loads((uninterrupted / "summary.json").read_text())
    assert summary["finished"]
    assert summary["epochs"] == 3
    assert summary["best"]["top1"] >= summary["last"]["top1"]
    assert sum(summary["shares"].values()) == pytest.approx(1)
    assert {"command", "versions", "machine", "wall_s", "samples_per_s"} <= summary.keys()


def test_the_screen_has_six_lines_and_the_log_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [*SMALL, "train.length=1st", "eval.every=100%"]
    brief = train(tmp_path / "brief", *short)
    assert [line.partition(":")[0] for line in brief.splitlines()[:7]] == [
        *("run", "data", "model", "batch", "device", "folder"),
        "epoch 1 batch 1/15 step 1",
    ]
    log = (tmp_path / "brief" / "log.txt").read_text()
    monkeypatch.setenv("PHALANX_VERBOSE", "1")
    verbose = train(tmp_path / "verbose", *short)
    for name in ("optimizer", "precision", "channels_last", "fast_path", "threads", "allocator"):
        assert f"\n{name}: " in verbose
        assert f" {name}: " in log
    assert (tmp_path / "verbose" / "config.yaml").read_text() == (tmp_path / "brief" / "config.yaml").read_text()


def test_pictures_can_be_left_out(tmp_path: Path) -> None:
    said = train(tmp_path / "run", *SMALL, "train.length=1st")
    assert "summary.json" in said
    assert "curves" not in said
    assert not list((tmp_path / "run").glob("curves.*"))


def test_each_epoch_uses_every_sample_once(uninterrupted: Path) -> None:
    samples = [record["samples"] for record in read_events(uninterrupted) if record["kind"] == "epoch"]
    starts = next(record for record in read_events(uninterrupted) if record["kind"] == "start")
    assert samples == [starts["train_samples"]] * 3


@pytest.mark.numeric
def test_the_saved_configuration_repeats_the_run(uninterrupted: Path, tmp_path: Path) -> None:
    resolved = resolve(load_recipe(str(uninterrupted / "config.yaml")).layers)
    run(Request(resolved, "again", out=tmp_path / "again"), Role(), Console(file=io.StringIO()))
    assert_same_run(uninterrupted, tmp_path / "again")


@pytest.mark.numeric
def test_kill_9_in_mid_epoch_then_resume_equals_the_uninterrupted_run(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("digits", *SMALL, "--out", str(out))
    until_saved(out, 8, process)
    process.kill()
    process.wait()
    assert "resumed at step" in train(out, resume=True)
    assert_same_run(uninterrupted, out)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_names_the_way_on_and_loses_nothing(
    uninterrupted: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    process = start("digits", *SMALL, "checkpoint.every=100%", "--out", str(out))
    log = out / "log.txt"
    until(lambda: (log.exists() and "step 4" in log.read_text()) or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert f"phalanx train --resume {out}" in said
    train(out, "checkpoint.every=4st", resume=True)
    assert_same_run(uninterrupted, out)


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("digits", *SMALL, "--out", str(out))
    until_saved(out, 8, process)
    process.kill()
    process.wait()
    newest = checkpoint.latest_path(out / "checkpoints")
    assert newest is not None
    os.truncate(newest / "model.safetensors", 100)
    assert "is damaged" in train(out, resume=True)
    assert (out / "checkpoints" / f"damaged-{newest.name}").is_dir()
    assert_same_run(uninterrupted, out)


@pytest.mark.parametrize(("k", "who"), [("0", "--evaluator"), ("1", "--no-evaluator")])
def test_top_1_alone_is_reported_where_no_other_is_asked_for(tmp_path: Path, k: str, who: str) -> None:
    out = tmp_path / "run"
    small = ["model.name=wrn10_1", "train.length=4st", "eval.every=2st", "train.log_every=2", *LEAN]
    process = start("digits", *small, "train.curves=true", "--top-k", k, who, "--out", str(out))
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    evaluate = [sys.executable, "-m", "phalanx", "eval", str(out)]
    said += subprocess.run(evaluate, capture_output=True, text=True, check=True, timeout=120).stdout
    said += (out / "log.txt").read_text()
    assert "validation at step 4: top-1 " in said
    assert set(re.findall(r"top-\w+", said)) == {"top-1"}
    assert not re.search(r"top-1 [\d.]+ %,? top-1", said)
    for record in metrics(out):
        assert record["topk"] == record["top1"]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["k"], summary["best"]["topk"]) == (1, summary["best"]["top1"])
    assert (out / "curves.png").stat().st_size > 0


def test_threads_of_the_loader_change_nothing(uninterrupted: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", *SMALL, "data.threads=3", "data.prefetch=7")
    assert_same_run(uninterrupted, tmp_path / "run")


def test_what_auto_settled_is_written_down_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a run do not change because it goes on elsewhere."""
    out, auto = tmp_path / "run", ["model.name=wrn10_1", *LEAN, "machine.precision=auto", "train.length=2st"]

    def machine() -> dict[str, Any]:
        job_settings: dict[str, Any] = yaml.safe_load((out / "config.yaml").read_text())["machine"]
        return job_settings

    monkeypatch.setenv("PHALANX_CPU", "avx512-bf16")
    said = train(out, *auto)
    assert "device: cpu (no GPU found), bf16 (AVX512-BF16 present; " in said
    assert "GFLOP a micro-batch are not worth timing)" in said
    began = machine()
    assert "auto" not in [began[name] for name in JOB_WIDE]
    monkeypatch.setenv("PHALANX_CPU", "avx2")
    said = train(out, "train.length=4st", resume=True)
    assert "cpu (no GPU found), bf16 (kept from the run's beginning)" in said
    assert "warning: bf16 is slow on" in said
    assert machine() == began
    assert ", fp32 (as you set it)" in train(out, "train.length=6st", "machine.precision=fp32", resume=True)
    monkeypatch.setenv("PHALANX_CPU", "amx")
    assert ", fp32 (kept from the run's beginning)" in train(out, "train.length=8st", resume=True)
    said = train(out, "train.length=10st", "machine.precision=auto", resume=True)
    assert ", bf16 (AMX present; " in said
    assert machine()["precision"] == "bf16"


@pytest.mark.parametrize("worth", [WORTH_THREADS, 0.0], ids=["few", "all"])
def test_a_resumed_run_has_the_threads_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: float
) -> None:
    """Also one that began before small steps had one thread."""
    quick = ["model.name=mlp", *LEAN, "machine.threads=auto", "train.batch_size=8"]
    with monkeypatch.context() as before:
        before.setattr(machine_settings, "WORTH_THREADS", worth)
        train(tmp_path / "run", *quick, "train.length=1st")
    train(tmp_path / "run", "train.length=2st", resume=True)
    began, resumed = [record for record in read_events(tmp_path / "run") if record["kind"] == "start"]
    assert resumed["decisions"]["threads"] == began["decisions"]["threads"]
    assert (cores() == 1) or (began["decisions"]["threads"].startswith("1 ") == (worth > 0))


@pytest.mark.usefixtures("own_cache")
def test_timing_the_precisions_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CPU", "avx512-bf16")
    monkeypatch.setattr(precision, "WORTH_TIMING", 0)
    quick = ["model.name=wrn10_1", "model.drop=0.1", *LEAN, "train.batch_size=8", "train.length=2st"]
    assert "(a step of 8: " in train(tmp_path / "timed", *quick, "machine.precision=auto")
    chosen = yaml.safe_load((tmp_path / "timed" / "config.yaml").read_text())["machine"]["precision"]
    train(tmp_path / "given", *quick, f"machine.precision={chosen}")
    given = final(tmp_path / "given")["model"]
    assert all(torch.equal(tensor, given[name]) for name, tensor in final(tmp_path / "timed")["model"].items())


@pytest.mark.numeric
def test_accumulation_equals_the_big_batch_without_batch_norm(tmp_path: Path) -> None:
    plain = [
        "model.name=vit_tiny_patch16_224",
        "data.image_size=16",
        "train.length=3st",
        "optim.lr=0.01",
        "optim.nesterov=false",
    ]
    plain += ["model.options={depth: 1, embed_dim: 24, num_heads: 2}", "machine.threads=2", "machine.precision=fp32"]
    train(tmp_path / "whole", *plain, "train.batch_size=64")
    train(tmp_path / "parts", *plain, "train.batch_size=16", "optim.accumulate=4")
    for name, tensor in final(tmp_path / "whole")["model"].items():
        torch.testing.assert_close(tensor, final(tmp_path / "parts")["model"][name], rtol=1e-4, atol=1e-6)


def test_an_exploding_loss_stops_before_the_update(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match=r"the loss is (nan|inf)|not finite") as caught:
        train(out, *SMALL, "optim.lr=1e20", "checkpoint.every=1st", "schedule.kind=constant", "schedule.warmup=0ep")
    assert "last good checkpoint" in caught.value.why
    for tensor in final(out)["model"].values():
        assert bool(torch.isfinite(tensor.float()).all())
    assert read_events(out)[-1]["kind"] == "stop"


def test_fp16_scales_the_loss_and_trains(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        "model.name=cifar_resnet8",
        "machine.precision=fp16",
        "train.length=6st",
        "train.batch_size=64",
    )
    state = checkpoint.load_newest(tmp_path / "run" / "checkpoints")[0].state
    assert state["training"]["loss_scale"]["calm"] > 0


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    small_disk = tmp_path / "disk"
    small_disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3500k", "tmpfs", str(small_disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk can only be mounted as root")
    try:
        with pytest.raises(UserError, match="cannot be written") as caught:
            train(small_disk / "run", *SMALL, "checkpoint.every=1st", "checkpoint.keep_last=50")
        assert "is complete" in caught.value.remedy or "are valid" in caught.value.remedy
        newest = checkpoint.latest_path(small_disk / "run" / "checkpoints")
        assert newest is not None
        checkpoint.verify(newest)
    finally:
        subprocess.run(["umount", "--lazy", str(small_disk)], check=True)


def test_resume_explains_what_it_cannot_do(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is finished"):
        train(uninterrupted, resume=True)
    with pytest.raises(UserError, match="checkpoint of wrn10_1"):
        train(uninterrupted, "model.name=cifar_resnet8", "train.length=9ep", resume=True)
    with pytest.raises(UserError, match="optimizer sgd"):
        train(uninterrupted, "optim.name=adamw", "train.length=9ep", resume=True)
    with pytest.raises(UserError, match="has 10 classes, the data has 7"):
        train(
            uninterrupted,
            "data.source=synthetic",
            "data.synthetic={classes: 7, size: 16, channels: 1}",
            "train.length=9ep",
            resume=True,
        )
    with pytest.raises(UserError, match="holds a run already"):
        train(uninterrupted)
    with pytest.raises(UserError, match="is not a run"):
        find_run(tmp_path)


def test_resume_with_another_batch_size_keeps_its_place(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(out, *SMALL, "train.length=1.5ep", "checkpoint.every=100%")
    said = train(out, "train.batch_size=150", "train.length=3ep", resume=True)
    assert "a step now has 150 samples" in said
    epochs = [record["samples"] for record in read_events(out) if record["kind"] == "epoch"]
    assert epochs == [1442, 1442, 1442]


def test_weights_start_another_run(uninterrupted: Path, tmp_path: Path) -> None:
    start = ["model.name=wrn10_1", "train.length=1st", "optim.lr=1e-12", "train.batch_size=100"]
    train(tmp_path / "fine", *start, init_from=uninterrupted)
    before = checkpoint.load(checkpoint.find(uninterrupted)).tensors["ema"]
    torch.testing.assert_close(final(tmp_path / "fine")["model"]["fc.weight"], before["fc.weight"])
    seven = ["data.source=synthetic", "data.synthetic={classes: 7, size: 16, channels: 1, samples: 200}"]
    with pytest.raises(UserError, match="new_head=true"):
        train(tmp_path / "other", *start, *seven, init_from=uninterrupted)
    train(tmp_path / "new-head", *start, *seven, "model.new_head=true", init_from=uninterrupted)
    with pytest.raises(UserError, match="cannot be read as weights"):
        train(tmp_path / "no", *start, init_from=Path(__file__))


def make_folder(root: Path, broken: int = 0) -> Path:
    generator = np.random.default_rng(0)
    for part, count in (("train", 30), ("val", 10)):
        for number, name in enumerate(("cat", "dog")):
            (root / part / name).mkdir(parents=True)
            for image in range(count):
                pixels = (generator.random((40, 50, 3)) * 100 + 150 * number).astype(np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{image}.jpg")
    for image in range(broken):
        (root / "train" / "cat" / f"{image}.jpg").write_bytes(b"\xff\xd8 this is no image")
    return root


FOLDER = ["model.name=cifar_resnet8", "train.length=2ep", "train.batch_size=16", "data.image_size=32"]


def test_photographs_in_class_folders(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data", broken=2)
    settings = [*FOLDER, "augment.crop=random-resized", f"data.source={data}", "data.bad_images_cap=0.1"]
    said = train(tmp_path / "run", *settings)
    assert said.count("bad image skipped") == 2
    assert len((tmp_path / "run" / "quarantine.tsv").read_text().splitlines()) == 2
    with pytest.raises(UserError, match="is not a readable image"):
        train(tmp_path / "stop", *settings, "data.bad_images=stop")
    with pytest.raises(UserError, match="bad_images_cap") as caught:
        train(tmp_path / "cap", *settings, "data.bad_images_cap=0.01")
    assert f"`phalanx data verify {data} --out bad.txt`" in caught.value.remedy


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["data.source=/no/such/place"], "no/such/place"),
        (["data.fold=1"], "none of data.folds"),
        (["model.name=resnet5000"], "did you mean"),
        (["optim.name=sgdd"], "did you mean"),
        (["optim.name=fusedsgd"], "cannot be made"),
        (["train.length=50%"], "share of the run"),
        (["data.mean=[0.5, 0.5]"], "channels"),
        (["machine.device=cuda:77"], "cuda:77"),
        (["machine.device=tpux"], "tpux"),
    ],
)
def test_bad_input_is_explained_and_makes_no_folder(tmp_path: Path, settings: list[str], expected: str) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match=expected) as caught:
        train(out, "model.name=cifar_resnet8", *settings)
    assert caught.value.why
    assert caught.value.remedy
    assert not out.exists()


def test_an_unwritable_place_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be created"):
        train(tmp_path / "file" / "run", *SMALL)
