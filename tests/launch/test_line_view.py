"""The view on the launching terminal understands what trainers print."""

from dataclasses import asdict, replace
from typing import Any

from phalanx.launch.line_view import LineView
from phalanx.launch.record import RoleRecord
from phalanx.observe.lines import own_figures, sentence
from phalanx.runs import events as ev
from tests.launch.test_output import STEP

RECORDS = [
    RoleRecord("trainer-0", "h1", "running", samples_per_s=400.0, times=dict.fromkeys(("data", "compute"), 0.1)),
    RoleRecord("trainer-1", "h2", "running", samples_per_s=200.0, times=dict.fromkeys(("data", "compute"), 0.2)),
    RoleRecord("server-0", "h2", "lost", code=-9),
]


def roles() -> list[dict[str, Any]]:
    return [asdict(record) for record in RECORDS]


def test_the_lines_of_the_first_trainer() -> None:
    view = LineView(roles)
    assert view.view().step == 0
    assert not view.take("run: digits, 40 epochs = 1,200 steps")
    step = replace(STEP, k=5)
    line = sentence(step)
    assert line is not None
    assert view.take(line)
    assert view.take(line + own_figures(step, 0))
    found = sentence(ev.Eval(120, 4.0, 0.5, 0.9, 0.99, 5, 100, 0.1, best=True))
    assert found is not None
    assert not view.take(found)  # stays a line, too
    assert not view.take("note: something else")
    over = sentence(ev.Epoch(120, 4, 0.5, 0.9, 0.99, 100, k=5))
    assert over is not None
    assert view.take(over)
    shown = view.view()
    assert view.begun
    assert (shown.step, shown.total_steps, shown.batch, shown.batches) == (120, 1200, 3, 9)
    assert shown.training is not None
    assert shown.validation is not None
    assert shown.training.text == "top-1 90.00 %  top-5 99.00 %"
    assert shown.validation.text == "top-1 90.00 %  top-5 99.00 %"
    assert shown.samples_per_s == 600.0
    assert [worker.host for worker in shown.workers] == ["h1", "h2"]
    assert shown.others == "server-0 killed (SIGKILL)"


def test_several_labels() -> None:
    view = LineView(roles)
    line = sentence(replace(STEP, top1=None, topk=None, metrics={"f1_micro": 0.5}))
    assert line is not None
    assert view.take(line)
    shown = view.view().training
    assert shown is not None
    assert shown.text == "F1 50.00 %"


def test_a_loss_that_is_not_finite_is_still_a_step() -> None:
    line = sentence(replace(STEP, loss=float("nan")))
    assert line is not None
    assert LineView(roles).take(line)
