"""The screen while a run trains: a view and a table of evaluations on a terminal, plain lines elsewhere."""

import io
import json
from pathlib import Path

from rich.console import Console

from phalanx.observe.display import LiveDisplay, PlainDisplay, Tick, make_display
from phalanx.runs import events as ev
from tests.screen import Screen


def evaluation(step: int, best: bool, k: int = 3) -> ev.Eval:
    return ev.Eval(step, step / 10, loss=0.5, top1=0.9, topk=0.99, k=k, samples=100, seconds=0.1, best=best)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=80, force_terminal=terminal, color_system=None, legacy_windows=False), file


def lines(file: io.StringIO) -> list[str]:
    """What a person sees in the end."""
    screen = Screen(80, 24)
    screen.feed(file.getvalue().replace("\n", "\r\n"))
    return [line.rstrip() for line in screen.lines]


def tick(step: int = 10, metric: str = "top1") -> Tick:
    return Tick(
        *(step, 30, step // 10, 10, 10),
        loss=1.25,
        accuracy=0.5,
        samples_per_s=400,
        metric=metric,
        topk=0.75 if metric == "top1" else None,
        k=3,
        times=(0.01, 0.08, 0.0, 0.01),
    )


def shown(display: LiveDisplay) -> list[str]:
    return [line.plain.rstrip() for line in display._draw(80, 24)]


def test_a_terminal_shows_a_row_for_each_evaluation() -> None:
    screen, file = console(terminal=True)
    display = make_display(screen)
    assert isinstance(display, LiveDisplay)
    for step in (10, 20):
        display.tick(tick(step))
        epoch, run, training, *_ = shown(display)
        assert epoch.startswith(f"epoch {step // 10}/3 ")
        assert "10/10" in epoch
        assert f"{step}/30" in run
        assert "top-1 50.00 %  top-3 75.00 %  loss 1.2500" in training
        assert any(line.startswith("time ") and "█ compute 80 %" in line for line in shown(display))
        assert "speed       400 img/s  100 ms a step" in shown(display)
        display.working("validating", 50, 100)
        assert shown(display)[0].startswith("validating")
        assert "50/100" in shown(display)[0]
        display.take(ev.Epoch(step, step // 10, 1.25, 0.5, 0.7, 100))
        display.take(evaluation(step, best=step == 10))
    assert any("top-1 90.00 %  top-3 99.00 %  best 90.00 %" in line for line in shown(display))
    display.take(evaluation(10, best=False))  # from an evaluator, of a step that training has left behind
    display.take(ev.BadImage(20, "cat.jpg", "truncated"))
    display.take(ev.Checkpoint(20, "somewhere", 0.25, 3_200_000))
    display.close()
    written = lines(file)
    titles = next(n for n, line in enumerate(written) if line.split()[:2] == ["epoch", "step"])
    assert written[titles].split() == ["epoch", "step", *["loss", "top-1", "top-3"] * 2]
    assert ["training", "validation"] in [line.split() for line in written[:titles]]
    first, second, third = [line for line in written if "99.00" in line and "val" not in line]
    assert first.split() == [
        *("1", "10", "1.2500", "50.00", "%", "75.00", "%"),
        *("0.5000", "90.00", "%", "99.00", "%", "best"),
    ]
    assert second.split()[:2] == ["2", "20"]
    assert "best" not in second
    assert third.split()[:5] == ["1", "10", "-", "-", "-"]
    assert max(map(len, (first, second))) <= 80
    assert "bad image skipped: cat.jpg: truncated" in written
    assert "checkpoint of step 20: 3.2 MB in 0.2 s" in written


def test_top_1_alone_has_one_column() -> None:
    screen, file = console(terminal=True)
    display = LiveDisplay(screen)
    display.take(evaluation(10, best=True, k=1))
    assert "top-3" not in file.getvalue()
    assert file.getvalue().count("90.00 %") == 1


def test_several_labels_have_map_and_f1_instead() -> None:
    metrics = {"mAP": 0.875, "f1_micro": 0.5, "f1_macro": 0.25, "own": 3.0}
    found = ev.Eval(10, 1.0, 0.5, None, None, 1, 100, 0.1, best=True, metrics=metrics, metric="mAP")
    for terminal in (True, False):
        screen, file = console(terminal)
        display = make_display(screen)
        display.tick(tick(metric="f1_micro"))
        if isinstance(display, LiveDisplay):
            assert "F1 50.00 %  loss 1.2500" in shown(display)[2]
        display.take(ev.Epoch(10, 1, 1.25, None, None, 100, {"f1_micro": 0.5}))
        display.take(found)
        display.close()
        assert "top-1" not in file.getvalue()
        if terminal:
            titles, row = [line for line in lines(file) if line.endswith("F1") or line.endswith("best")]
            assert titles.split() == ["epoch", "step", "loss", "F1", "loss", "mAP", "F1"]
            assert row.split() == [
                *("1", "10", "1.2500", "50.00", "%"),
                *("0.5000", "87.50", "%", "50.00", "%", "best"),
            ]
        else:
            assert "training loss 1.2500 F1 50.00 % over 100 samples" in file.getvalue()
            assert "mAP 87.50 % loss 0.5000 f1_micro 0.5 f1_macro 0.25 own 3 on 100 images" in file.getvalue()


def test_faults_that_training_survives_are_lines_above_the_view(tmp_path: Path) -> None:
    """The launcher cannot print them while the first trainer draws."""
    roles = [{"name": "trainer-0", "state": "running"}, {"name": "trainer-1", "state": "lost", "code": -9}]
    faults = [{"t": 1.0, "text": "before", "told": True}, {"t": 2.0, "text": "trainer-1 was killed", "told": False}]
    (tmp_path / "job.json").write_text(json.dumps({"state": "running", "roles": roles, "faults": faults}))
    screen, file = console(terminal=True)
    display = make_display(screen, 0, tmp_path)
    assert isinstance(display, LiveDisplay)
    display.tick(tick())
    display.close()
    assert any(line.startswith("worker 1 ") and "killed (SIGKILL)" in line for line in shown(display))
    assert [line for line in lines(file) if line in ("before", "trainer-1 was killed")] == ["trainer-1 was killed"]


def test_a_console_that_takes_only_lines_gets_lines() -> None:
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(make_display(dumb), PlainDisplay)


def test_elsewhere_there_are_lines() -> None:
    screen, file = console(terminal=False)
    display = make_display(screen, worker=1)
    assert isinstance(display, PlainDisplay)
    display.tick(tick())
    display.working("validating", 50, 100)  # it is quick, so that its result is enough
    display.take(evaluation(10, best=True))
    display.take(ev.Checkpoint(10, "somewhere", 0.1, 100))  # only programs read these
    display.close()
    assert file.getvalue() == (
        "validation at step 10: top-1 90.00 % top-3 99.00 % loss 0.5000 on 100 images in 0.1 s (best so far)\n"
    )


def test_a_narrow_terminal_has_a_narrow_table() -> None:
    file = io.StringIO()
    display = LiveDisplay(Console(file=file, width=50, force_terminal=True, color_system=None, legacy_windows=False))
    display.take(evaluation(10, best=True))
    display.close()
    written = lines(file)
    assert max(map(len, written)) < 50
    assert written[-2].split() == ["1", "10", "0.5000", "90.00", "%", "99.00", "%", "best"]
