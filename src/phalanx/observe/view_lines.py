"""Draws the view of a job: a few lines that fit into the given columns and rows."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from phalanx.observe.bars import PARTS, bar, parts_bar, sparkline
from phalanx.observe.job_view import JobView, ScoreView, WorkerView
from phalanx.observe.time_left import duration

_LABEL = 12  # columns of the names on the left, at least
_WIDEST = 110  # bars do not get easier to read beyond this
_MOST_WORKERS = 8
_ROWS_ABOVE = 6  # of a terminal, for the lines above the view
_NARROW, _WIDE = 60, 100  # columns of a terminal that leaves out, or has room
_WORTH_SHOWING = 0.005  # of a step's time
_WORTH_NAMING = 0.02  # by how much more time a worker is slowest


def view_lines(view: JobView, columns: int, rows: int, *, ascii_only: bool = False) -> list[Text]:
    """The lines of a view, none wider than `columns`. In a low terminal, the workers go first."""
    width = max(20, min(columns - 1, _WIDEST))
    drawing = _Drawing(view, width, ascii_only)
    lines = [*drawing.title(view), *drawing.progress(view)]
    lines += drawing.score("training", view.training)
    lines += drawing.score("validation", view.validation)
    lines += drawing.time(view)
    room = min(_MOST_WORKERS, rows - len(lines) - _ROWS_ABOVE)
    lines += drawing.workers(view, room)
    if view.others:
        lines.append(drawing.row("others", Text(view.others)))
    lines += [drawing.row("problem", Text(problem, style="yellow")) for problem in view.problems]
    for line in lines:
        line.plain = "".join(each if each.isprintable() else "�" for each in line.plain)  # files may say anything
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
        line.no_wrap = True
    return lines[: max(1, rows - 1)]


class _Drawing:
    """Rows of one width. Pictures (curves, bars of parts) have a column of their own."""

    def __init__(self, view: JobView, width: int, ascii_only: bool) -> None:
        self._width, self._ascii, self._is_narrow = width, ascii_only, width < _NARROW
        self._label = max(_LABEL, len(_epoch(view)) + 1)
        self._picture = 6 if self._is_narrow else 14 if width < _WIDE else 24

    def row(self, label: str, content: Text) -> Text:
        return Text.assemble((label.ljust(self._label), "bold"), content)

    def title(self, view: JobView) -> list[Text]:
        if not view.title:
            return []
        style = "green" if view.state in ("running", "finished") else "yellow"
        return [Text(view.title, style="bold"), self.row("state", Text(view.state, style=style))]

    def progress(self, view: JobView) -> list[Text]:
        """How far the epoch (or what happens between steps) and the run are, each with the time left."""
        if not view.total_steps:
            return [self.row("run", Text(f"step {view.step:,}"))] if view.step else []
        rows = []
        if work := view.work:
            rows.append((work.what, work.done / max(1, work.total), f"{work.done:,}/{work.total:,}", work.left_s))
        elif view.batches:
            share = view.batch / view.batches
            rows.append((_epoch(view), share, f"{view.batch:,}/{view.batches:,}", view.epoch_left_s))
        share = view.step / view.total_steps
        rows.append(("run", share, f"{view.step:,}/{view.total_steps:,}", view.left_s))
        ends = [f"  {end}" for end in _columns([(count, _left(left)) for _, _, count, left in rows])]
        if view.taken_s is not None and self._width >= 70:
            taken = duration(view.taken_s)
            ends[-1] += f", {taken} so far" if view.left_s is not None else f"  {taken}"
        cells = max(4, self._width - self._label - max(map(len, ends)))
        return [
            self.row(label, Text.assemble(bar(share, cells, ascii_only=self._ascii), end))
            for (label, share, _, _), end in zip(rows, ends, strict=True)
        ]

    def score(self, label: str, score: ScoreView | None) -> list[Text]:
        if score is None:
            return []
        curve = sparkline(score.curve, self._picture, ascii_only=self._ascii)
        return [self.row(label, Text.assemble((curve, "cyan"), "  ", score.text, ("  " + score.aside, "dim")))]

    def time(self, view: JobView) -> list[Text]:
        """The speed of all workers, and where the time goes: the largest parts first, as many as fit."""
        lines = []
        if view.samples_per_s is not None:
            seconds = sum(view.times.values()) if view.times else 0.0
            step = f"  {_step_time(seconds)} a step" if seconds else ""
            lines.append(self.row("speed", Text(f"{_speed(view.samples_per_s)} img/s{step}")))
        shares = _shares(view.times or {})
        if not shares:
            return lines
        bar_of_all = (
            Text() if self._is_narrow else parts_bar(shares, self._picture, ascii_only=self._ascii).append("  ")
        )
        line = self.row("time", bar_of_all)
        for name in sorted(shares, key=shares.__getitem__, reverse=True):
            part = PARTS[name]
            word = f"{part.ascii if self._ascii else part.character} {name} {100 * shares[name]:.0f} %"
            if shares[name] < _WORTH_SHOWING or cell_len(line.plain) + len(word) > self._width:
                break
            line.append(word, style=part.style if name != "waiting" else "").append("  ")
        line.rstrip()
        return [*lines, line]

    def workers(self, view: JobView, room: int) -> list[Text]:
        """A row for each of several workers: its times as a bar, its speed, how much it waits; the slowest named."""
        if len(view.workers) < 2:
            return []
        slowest = view.slowest.rank if view.slowest else None
        shown = list(view.workers)
        if len(shown) > max(1, room):  # those that did not go well, and the slowest
            shown.sort(key=lambda worker: (not worker.fate, worker.rank != slowest, _idle_share(worker)))
            shown = sorted(shown[: max(0, room - 1)], key=lambda worker: worker.rank)
        lines = [self._worker(worker, view) for worker in shown]
        rest = len(view.workers) - len(shown)
        return [*lines, *([self.row("", Text(f"and {rest} more workers", style="dim"))] if rest and room > 0 else [])]

    def _worker(self, worker: WorkerView, view: JobView) -> Text:
        label = f"worker {worker.rank}"
        hosts = {one.host for one in view.workers}
        host = f"  {worker.host}" if len(hosts) > 1 else ""
        if worker.fate or not worker.times:
            style = "bold red" if worker.fate not in ("", "waiting", "starting", "finished") else "dim"
            return self.row(label, Text.assemble((worker.fate or "not yet known", style), host))
        shares = _shares(worker.times)
        line = self.row(label, parts_bar(shares, self._picture, ascii_only=self._ascii))
        about = [
            (f"  {_speed(worker.samples_per_s or 0)} img/s".rjust(14), ""),
            (f"  waits {100 * shares.get('waiting', 0.0):2.0f} %", ""),
            (host, "dim"),
        ]
        slowest = view.slowest
        if slowest is not None and slowest.rank == worker.rank and slowest.share >= _WORTH_NAMING:
            how = "" if self._is_narrow else f": +{100 * slowest.share:.0f} % {slowest.part}"
            about.insert(1 if self._is_narrow else 2, (f"  slowest{how}", "yellow"))
        for text, style in about:
            if cell_len(line.plain) + len(text) <= self._width:
                line.append(text, style=style)
        return line


def _epoch(view: JobView) -> str:
    return f"epoch {view.epoch}/{-(-view.total_steps // view.batches)}" if view.batches else ""


def _columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Both aligned to the right."""
    first, second = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [f"{one.rjust(first)}  {other.rjust(second)}".rstrip() for one, other in rows]


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"{duration(seconds)} left"


def _step_time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _speed(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.1f}"


def _shares(times: Mapping[str, float]) -> dict[str, float]:
    total = sum(max(0.0, value) for value in times.values())
    return {name: max(0.0, value) / total for name, value in times.items()} if total else {}


def _idle_share(worker: WorkerView) -> float:
    return _shares(worker.times or {}).get("waiting", 0.0)


def plain_lines(view: JobView, columns: int, *, ascii_only: bool = False) -> Sequence[str]:
    """The same as text, for output that is no terminal."""
    return [line.plain.rstrip() for line in view_lines(view, columns, 1000, ascii_only=ascii_only)]
