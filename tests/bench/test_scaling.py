"""`bench scaling`: real jobs on a small network, and its tables, reasons and figure on given numbers."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench.history import entries
from phalanx.bench.scaling import bench_scaling
from phalanx.bench.scaling_figure import draw_scaling
from phalanx.bench.scaling_plan import ScalingPlan, parse_workers, refuse_uneven
from phalanx.bench.scaling_runs import MeasuredRun, rate_together, run_of_independents, run_of_job
from phalanx.bench.scaling_table import Pair, Results, make_figures, make_rows, make_tables, reason
from phalanx.bench.training import Trained, Training, TrainingFailed, last_words, train_together
from phalanx.errors import UserError
from phalanx.plan.measured import Measurement
from tests.data.samples import assert_helpful


def plan(**changes: object) -> ScalingPlan:
    given: dict[str, object] = {
        "workers": (1, 2),
        "method": "collective",
        "mode": "sync",
        "servers": 1,
        "model": "cifar_resnet8",
        "batch_size": 4,
        "size": 16,
        "steps": 2,
        "rounds": 1,
        "launcher": None,
        "hostfile": None,
    }
    return ScalingPlan(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.usefixtures("own_cache")
def test_jobs_are_run_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bench_scaling(
        Console(file=(tmp_path / "screen").open("w"), width=200),
        plan(kinds=("weak",)),  # strong takes the same way, and as long again
        markdown=tmp_path / "scaling.md",
        json_file=tmp_path / "scaling.json",
        plot=tmp_path / "scaling.svg",
    )
    told = json.loads((tmp_path / "scaling.json").read_text())
    weak, times = told["tables"]
    assert [row[0] for row in weak["rows"]] == ["1", "2"]
    assert weak["rows"][0][4:6] == ["1.00", "100 %"]
    labels = {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in times["rows"]}
    assert set(labels) == {"1, job", "1, independent", "weak, 2, job", "weak, 2, independent"}
    for who, (step, _, compute, exchange, *_) in labels.items():
        assert step > 0
        assert compute > 0
        assert exchange > 0 or "2, job" not in who
    one, two = Measurement.model_validate(told["measured"]).rows  # as `phalanx plan --check` reads it
    assert (one.workers, two.workers, two.method, two.batch_size) == (1, 2, "collective", 4)
    assert two.alone_images_per_s is not None
    assert "| 2 |" in (tmp_path / "scaling.md").read_text()
    assert "<svg" in (tmp_path / "scaling.svg").read_text()
    (entry,) = entries("scaling")
    assert entry.subject == "collective, cifar_resnet8 16² batch 4"
    assert 0 < entry.figures["weak, 2 workers, of independent"] < 10


def test_a_worker_at_its_own_pace_over_hosts(tmp_path: Path) -> None:
    """ssp by `phalanx launch`, over a list that has this machine: the server's log tells the worker's steps."""
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    asked = plan(method="pserver", mode="ssp:2", launcher="ssh", hostfile=tmp_path / "hosts", steps=4)
    words = asked.words("weak", 1, independent=False)
    command = ["launch", "--launcher", "ssh", "-H", str(tmp_path / "hosts"), "--", "train", *words]
    out = tmp_path / "run"
    (trained,) = train_together([([*command, "--out", str(out)], out)])
    assert not any(record["ranks"] for record in trained.steps())
    assert "worker" in (out / "logs" / "server-0.jsonl").read_text()
    run = run_of_job(trained, 4, 1)
    assert run.images_per_s > 0
    assert run.step_s == pytest.approx(4 / run.images_per_s)
    assert run.parts["compute"] > 0


def test_compression_is_of_several_workers() -> None:
    asked = plan(compress="2bit")
    assert asked.subject.startswith("collective, 2bit")
    assert asked.words("weak", 2, independent=False)[-2:] == ["--compress", "2bit"]
    assert "--compress" not in asked.words("weak", 1, independent=False)
    assert "--compress" not in asked.words("weak", 2, independent=True)


def test_one_that_fails_ends_all_and_is_quoted(tmp_path: Path) -> None:
    long = (["train", "digits", "train.length=100000st", "--out", str(tmp_path / "long")], tmp_path / "long")
    wrong = (["train", "nobody", "--out", str(tmp_path / "wrong")], tmp_path / "wrong")
    with pytest.raises(TrainingFailed, match="nobody"):
        train_together([long, wrong], gate=True)


def test_last_words_are_the_error() -> None:
    assert last_words("a\nerror: it broke\n  why: so\n  try: this\n") == "error: it broke / why: so / try: this"
    assert last_words("one\n\ntwo\n") == "one / two"


def run(images_per_s: float, step_s: float, compute: float, exchange: float = 0.0, waiting: float = 0.0) -> MeasuredRun:
    return MeasuredRun(
        images_per_s, step_s, {"data": 0.0, "compute": compute, "exchange": exchange, "update": 0.01}, waiting
    )


def given() -> Results:
    """One worker makes 100 images/s; two lose to the exchange, four to hardware that they share."""
    one = Pair(run(100, 0.1, 0.09), run(100, 0.1, 0.09))
    two = Pair(run(160, 0.125, 0.092, 0.023, 0.01), run(196, 0.102, 0.092))
    four = Pair(run(200, 0.2, 0.18, 0.01), run(210, 0.19, 0.18))
    shared = Pair(run(150, 0.067, 0.05, 0.007), run(160, 0.0625, 0.052))
    return {"weak": {1: [one], 2: [two], 4: [four]}, "strong": {1: [one], 2: [shared]}}


def test_efficiency_is_given_twice_and_its_loss_has_a_reason() -> None:
    weak, strong, times = make_tables(given(), "given", 10, 1, ["a note"])
    assert [row[1:7] for row in weak.rows] == [
        ["100", "100.0", "100.0 to 100.0", "1.00", "100 %", "100 %"],
        ["125", "160.0", "160.0 to 160.0", "1.60", "80 %", "82 %"],
        ["200", "200.0", "200.0 to 200.0", "2.00", "50 %", "95 %"],
    ]
    assert weak.rows[0][7] == ""
    assert weak.rows[1][7] == "exchange +23 ms (10 of it waiting for the slowest)"
    assert weak.rows[2][7] == "compute +90 ms (hardware is shared: independent trainers lose 90)"
    assert strong.rows[1][7].startswith("exchange +7 ms")
    assert times.rows[0] == ["1, job", "100.0", "0.0", "90.0", "0.0", "10.0", "0.0"]
    assert "a note" in times.notes
    figures = make_figures(given())
    assert figures["weak, 4 workers, of 4 × one"] == 0.5
    assert figures["weak, 4 workers, of independent"] == pytest.approx(200 / 210)


def test_compute_that_only_workers_lose_is_laid_to_the_exchange() -> None:
    one = Pair(run(100, 0.1, 0.09), run(100, 0.1, 0.09))
    rows = make_rows({1: [one], 2: [Pair(run(150, 0.133, 0.12), run(200, 0.1, 0.09))]})
    assert "the exchange works on the same cores" in reason(rows[1], rows[0], "weak")
    rows = make_rows({1: [one], 2: [Pair(run(199, 0.1005, 0.0905), run(200, 0.1, 0.09))]})
    assert reason(rows[1], rows[0], "weak") == "nothing to speak of"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_figure_is_drawn(tmp_path: Path, ending: str) -> None:
    draw_scaling(given(), "a $name$", tmp_path / f"scaling.{ending}")
    assert (tmp_path / f"scaling.{ending}").stat().st_size > 5000


def step_event(step: int, t: float, ranks: list[dict[str, float]] | None = None) -> dict[str, object]:
    times = {"data_s": 0.1, "compute_s": 0.6, "exchange_s": 0.2, "update_s": 0.1}
    return {"kind": "step", "step": step, "t": t, "ranks": ranks or [], **times}


def test_a_jobs_time_is_that_of_all_its_ranks() -> None:
    quick = {"data_s": 0.0, "compute_s": 0.5, "exchange_s": 0.4, "update_s": 0.1}
    slow = {"data_s": 0.0, "compute_s": 0.8, "exchange_s": 0.1, "update_s": 0.1}
    records = [
        step_event(2, 10.0, [quick, slow]),
        step_event(4, 12.0, [quick, slow]),
        step_event(5, 13.0, [slow, slow]),
    ]
    made = run_of_job(Trained(Path("nowhere"), 0.0, records, 0), 8, 2)
    assert made.images_per_s == pytest.approx(16)
    assert made.step_s == pytest.approx(1.0)
    assert made.parts["compute"] == pytest.approx((2 * 0.65 + 0.8) / 3)  # by the steps that each event stands for
    assert made.waiting_s == pytest.approx(2 / 3 * 0.3 / 2)


def test_independent_trainers_count_while_all_of_them_run() -> None:
    both = [(10.0, 2), (11.0, 4), (12.0, 6)]
    late = [(11.0, 2), (12.0, 3), (13.0, 9)]  # fast again once it is alone
    assert rate_together([both, late]) == pytest.approx(2 + 1)
    assert rate_together([both, [(20.0, 0), (21.0, 5)]]) == pytest.approx(2 + 5)  # nothing in common: each as it was
    records = [[step_event(step, t) for t, step in track] for track in (both, late)]
    trained = [Trained(Path("nowhere"), 0.0, each, 0) for each in records]
    made = run_of_independents(trained, 8, same_clock=True)
    assert made.images_per_s == pytest.approx(24)
    assert run_of_independents(trained, 8, same_clock=False).images_per_s == pytest.approx(8 * (2 + 3.5))


def test_too_few_steps_are_told() -> None:
    with pytest.raises(TrainingFailed, match="too few steps"):
        run_of_job(Trained(Path("nowhere"), 0.0, [step_event(2, 1.0)], 0), 8, 2)


@pytest.mark.parametrize("text", ["0", "1,0", "two", "", "1,,2", "-1", "1.5"])
def test_what_is_no_list_of_workers_is_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_workers(text)
    assert_helpful(caught.value, f"--workers {text}", "1,2,4")


def test_one_worker_is_always_measured() -> None:
    assert parse_workers("4, 2,2") == (1, 2, 4)


@pytest.mark.parametrize(
    ("batch_size", "workers", "remedy"), [(32, (1, 3), 33), (8, (1, 2, 8), 16), (9, (1, 2, 4), 16), (2, (1, 2), 4)]
)
def test_a_batch_that_does_not_divide_is_refused(batch_size: int, workers: tuple[int, ...], remedy: int) -> None:
    with pytest.raises(UserError) as caught:
        refuse_uneven(plan(batch_size=batch_size, workers=workers))
    assert_helpful(caught.value, f"batch of {batch_size}", f"--batch-size {remedy}")
    refuse_uneven(plan(batch_size=remedy, workers=workers))


def test_a_training_that_is_left_is_ended(tmp_path: Path) -> None:
    with Training(["train", "digits", "train.length=100000st", "--out", str(tmp_path / "run")], tmp_path / "run") as it:
        it.look()
        assert not it.has_ended
    assert it.has_ended
