"""The screen while a run trains: a bar and a table of evaluations on a terminal, plain lines elsewhere."""

import io

from rich.console import Console

from phalanx.observe.display import LiveDisplay, PlainDisplay, Tick, make_display
from phalanx.runs import events as ev


def evaluation(step: int, best: bool, k: int = 3) -> ev.Eval:
    return ev.Eval(step, step / 10, loss=0.5, top1=0.9, topk=0.99, k=k, samples=100, seconds=0.1, best=best)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=80, force_terminal=terminal, color_system=None, legacy_windows=False), file


def lines(file: io.StringIO) -> list[str]:
    """Without what the bar writes and removes again."""
    return [line.rpartition("\x1b[2K")[2].rstrip() for line in file.getvalue().splitlines()]


def test_a_terminal_shows_a_row_for_each_evaluation() -> None:
    screen, file = console(terminal=True)
    display = make_display(screen)
    assert isinstance(display, LiveDisplay)
    for step in (10, 20):
        display.tick(Tick(step, 30, step // 10, 10, 10, loss=1.25, accuracy=0.5, samples_per_s=400))
        (bar,) = display._progress.tasks
        assert bar.description == f"epoch {step // 10}/3 10/10"
        assert bar.fields["numbers"] == "loss 1.250  top-1 50.00 %  400 img/s"
        display.evaluating(50, 100)
        assert bar.description == "validation 50/100"
        display.take(ev.Epoch(step, step // 10, 1.25, 0.5, 0.7, 100))
        display.take(evaluation(step, best=step == 10))
    display.take(evaluation(10, best=False))  # from an evaluator, of a step that training has left behind
    display.take(ev.BadImage(20, "cat.jpg", "truncated"))
    display.close()
    written = lines(file)
    titles, first, second, third = [line for line in written if "val top-" in line or "90.00" in line]
    assert titles.split("  ")[-1].strip() == "val top-3"
    assert first.split() == [*("1", "10", "1.2500", "50.00", "%"), *("0.5000", "90.00", "%", "99.00", "%", "best")]
    assert second.split()[:2] == ["2", "20"]
    assert "best" not in second
    assert third.split()[:4] == ["1", "10", "-", "-"]
    assert max(map(len, (titles, first, second))) <= 80
    assert "bad image skipped: cat.jpg: truncated" in written


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
        display.tick(Tick(10, 30, 1, 10, 10, loss=1.25, accuracy=0.5, samples_per_s=400, metric="f1_micro"))
        if isinstance(display, LiveDisplay):
            assert display._progress.tasks[0].fields["numbers"] == "loss 1.250  F1 50.00 %  400 img/s"
        display.take(ev.Epoch(10, 1, 1.25, None, None, 100, {"f1_micro": 0.5}))
        display.take(found)
        display.close()
        assert "top-1" not in file.getvalue()
        if terminal:
            titles, row = [line for line in lines(file) if "val mAP" in line or "87.50" in line]
            assert titles.split("  ")[-1].strip() == "val F1"
            assert row.split() == [
                *("1", "10", "1.2500", "50.00", "%"),
                *("0.5000", "87.50", "%", "50.00", "%", "best"),
            ]
        else:
            assert "training loss 1.2500 F1 50.00 % over 100 samples" in file.getvalue()
            assert "mAP 87.50 % loss 0.5000 f1_micro 0.5 f1_macro 0.25 own 3 on 100 images" in file.getvalue()


def test_elsewhere_there_are_lines() -> None:
    screen, file = console(terminal=False)
    display = make_display(screen, worker=1)
    assert isinstance(display, PlainDisplay)
    display.tick(Tick(10, 30, 1, 10, 10, loss=1.25, accuracy=0.5, samples_per_s=400))
    display.take(evaluation(10, best=True))
    display.take(ev.Checkpoint(10, "somewhere", 0.1, 100))  # only programs read these
    display.close()
    assert file.getvalue() == (
        "validation at step 10: top-1 90.00 % top-3 99.00 % loss 0.5000 on 100 images in 0.1 s (best so far)\n"
    )
