"""Loggers, each read back by the real package: one run that is resumed, and one that was trained without them."""

import csv
import shutil
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import phalanx
from phalanx.cli.main import app
from phalanx.errors import UserError
from phalanx.observe.loggers.base import LoggedRun
from phalanx.observe.loggers.make import LOGGERS, require_packages
from phalanx.observe.loggers.numbers import numbers_of
from phalanx.observe.loggers.relay import Relay
from phalanx.runs import events as ev
from phalanx.runs.events import read_events

SMALL = {
    "model.name": "wrn10_1",
    "train.log_every": 4,
    "train.curves": False,
    "machine.threads": 1,
    "machine.precision": "fp32",
    "eval.every": "8st",
    "checkpoint.every": "8st",
}


def rows_of(run: Path) -> list[dict[str, str]]:
    """The rows of log.csv without their times, which each writer takes for itself."""
    with (run / "log.csv").open(encoding="utf-8", newline="") as file:
        return [{name: cell for name, cell in row.items() if name != "time"} for row in csv.DictReader(file)]


def scalars(run: Path) -> Any:
    accumulator: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    found = accumulator.EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    return found


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A run with all loggers, stopped at step 8 and resumed to step 16; and the address of its MLflow store."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    home = tmp_path_factory.mktemp("logged")
    store = f"sqlite:///{home}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("MLFLOW_TRACKING_URI", store)
        out = home / "run"
        names = ["tensorboard", "wandb", "mlflow", "csv"]
        settings = SMALL | {"train.length": "8st", "log.notify": ["true s3cret"]}
        phalanx.train("digits", settings=settings, out=out, log=names)
        phalanx.train(resume=out, settings={"train.length": "16st"})
        yield out, store


def test_tensorboard_reads_the_curves(logged: tuple[Path, str]) -> None:
    run, _ = logged
    found = scalars(run)
    points = {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    steps = [record for record in read_events(run) if record["kind"] == "step"]
    assert [step for step, _ in points["train/loss"]] == [record["step"] for record in steps] == [4, 8, 12, 16]
    assert [value for _, value in points["train/loss"]] == pytest.approx([record["loss"] for record in steps])
    assert [step for step, _ in points["val/top1"]] == [8, 16]
    assert {"train/lr", "val/top3", "system/process_memory", "speed/samples_per_s"} <= set(points)
    text = found.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "model.name: wrn10_1" in text
    assert "notify" not in text


def test_wandb_goes_on_in_the_same_run(logged: tuple[Path, str]) -> None:
    run, _ = logged
    parts = sorted((run / "wandb").glob("offline-run-*"))
    assert len(parts) == 2
    assert len({part.name.rpartition("-")[2] for part in parts}) == 1, "the same id"
    assert all((part / f"run-{part.name.rpartition('-')[2]}.wandb").stat().st_size > 0 for part in parts)


def test_mlflow_goes_on_in_the_same_run(logged: tuple[Path, str]) -> None:
    run, store = logged
    mlflow: Any = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("phalanx")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["model.name"] == "wrn10_1"
    history = client.get_metric_history(found.info.run_id, "train/loss")
    losses = [record["loss"] for record in read_events(run) if record["kind"] == "step"]
    assert [(one.step, one.value) for one in history] == list(zip([4, 8, 12, 16], losses, strict=True))
    assert [one.path for one in client.list_artifacts(found.info.run_id)] == ["config.yaml"]
    recipe = mlflow.artifacts.load_text(f"{found.info.artifact_uri}/config.yaml")
    assert "name: wrn10_1" in recipe
    assert "s3cret" in (run / "config.yaml").read_text()
    assert "s3cret" not in f"{recipe} {found.data.params}"


def test_csv_has_a_row_for_each_event(logged: tuple[Path, str]) -> None:
    run, _ = logged
    rows = rows_of(run)
    assert [row["step"] for row in rows if row["train/loss"]] == ["4", "8", "12", "16"]
    assert [row["step"] for row in rows if row["val/loss"]] == ["8", "16"]


def test_an_export_equals_what_was_logged_live(logged: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = logged
    old = Path(shutil.copytree(run, tmp_path / "old", ignore=shutil.ignore_patterns("tensorboard", "log.csv", "wandb")))
    pictures = old / "eval"
    pictures.mkdir()
    Image.new("RGB", (4, 3)).save(pictures / "confusion.png")
    for name in ("tensorboard", "csv", "tensorboard"):  # the second export of one kind replaces the first
        result = CliRunner().invoke(app, ["export-log", str(old), "--to", name])
        assert result.exit_code == 0, result.output
    live, later = scalars(run), scalars(old)
    assert set(live.Tags()["scalars"]) == set(later.Tags()["scalars"])
    for tag in live.Tags()["scalars"]:
        points = [[(point.step, point.value) for point in found.Scalars(tag)] for found in (live, later)]
        assert points[0] == points[1], tag
    assert later.Tags()["images"] == ["confusion"]
    assert rows_of(old) == rows_of(run)


def test_trackio(logged: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("trackio") is None:
        pytest.skip("needs trackio, which wants an older Pillow than the other tests")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    old = Path(shutil.copytree(logged[0], tmp_path / "old"))
    assert CliRunner().invoke(app, ["export-log", str(old), "--to", "trackio"]).exit_code == 0
    assert list((tmp_path / "trackio").glob("phalanx*.db"))


def test_an_unknown_logger_and_a_missing_package() -> None:
    with pytest.raises(UserError, match="log"):
        phalanx.train("digits", log="tensorbord")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UserError, match="--log wandb needs the package wandb") as refused:
            require_packages(["csv", "wandb"])
    assert "pip install" in refused.value.remedy


class Broken:
    """A logger whose disk is full from its second number on."""

    def __init__(self) -> None:
        self.taken = 0

    def begin(self, run: LoggedRun) -> None: ...

    def rewind(self, step: int) -> None: ...

    def numbers(self, step: int, time_s: float, values: Any) -> None:
        self.taken += 1
        if self.taken > 1:
            raise OSError(28, "No space left on device")

    def finish(self, *, failed: bool) -> None:
        raise AssertionError("it has failed already")


def test_a_failure_is_told_once_and_hurts_nobody(tmp_path: Path) -> None:
    told: list[str] = []
    broken = Broken()
    relay = Relay("csv", broken, LoggedRun(tmp_path, "phalanx", {}), told.append)
    for step in range(10_000):  # more than the queue holds
        relay.take(ev.Callback(step, "mine", "on_step", {"x": float(step)}))
    relay.close()
    assert broken.taken == 2
    assert len(told) == 1
    assert "export-log" in told[0]


class Stuck(Broken):
    """A logger whose service does not answer until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def begin(self, run: LoggedRun) -> None:
        self.released.wait(60)


def test_training_goes_on_while_a_logger_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.observe.loggers.relay.QUEUED", 4)
    told: list[str] = []
    observer, logger = ev.Observer(), Stuck()

    def tell(text: str) -> None:
        told.append(text)
        observer.emit(ev.Note(1, text))

    observer.sinks = [Relay("csv", logger, LoggedRun(tmp_path, "phalanx", {}), tell)]

    def train() -> None:
        for step in range(20):  # more than the queue holds
            observer.emit(ev.Callback(step, "mine", "on_step", {"x": float(step)}))

    training = threading.Thread(target=train, daemon=True)
    training.start()
    training.join(60)
    assert not training.is_alive()
    assert len(told) == 1
    assert "too slow" in told[0]
    logger.released.set()
    observer.close()


class NeverEnds(Broken):
    """A logger whose service is gone at the end."""

    def numbers(self, step: int, time_s: float, values: Any) -> None: ...

    def finish(self, *, failed: bool) -> None:
        raise ConnectionError("the service is gone")


def test_a_failure_at_the_end_does_not_keep_the_run_waiting(tmp_path: Path) -> None:
    told: list[str] = []
    relay = Relay("csv", NeverEnds(), LoggedRun(tmp_path, "phalanx", {}), told.append)
    relay.take(ev.Callback(1, "mine", "on_step", {"x": 1.0}))
    relay.close()
    assert not relay._thread.is_alive()
    assert len(told) == 1
    assert "the service is gone" in told[0]


def test_a_csv_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    (out / "log.csv").mkdir(parents=True)
    run = phalanx.train("digits", settings=SMALL | {"train.length": "4st"}, out=out, log="csv")
    assert run.finished
    notes = [record["text"] for record in read_events(out) if record["kind"] == "note"]
    assert sum("logging to csv failed" in note for note in notes) == 1


def test_numbers_have_the_names_of_the_guide() -> None:
    evaluated = ev.Eval(8, 1.0, 0.5, 0.9, 0.99, 5, 100, 1.0, True, {"f2": 0.5})
    assert numbers_of(ev_record(evaluated)) == {"val/loss": 0.5, "val/top1": 0.9, "val/top5": 0.99, "val/f2": 0.5}
    assert numbers_of(ev_record(ev.Note(1, "text"))) == {}
    assert set(LOGGERS) == {"tensorboard", "wandb", "mlflow", "trackio", "csv"}


def ev_record(event: ev.Event) -> ev.Record:
    return ev.record_of(event)
