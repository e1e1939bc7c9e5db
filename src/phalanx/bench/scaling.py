"""`phalanx bench scaling`: training speed by number of workers, from jobs that it starts.

Each job of N workers is run beside N independent trainers that have as many threads and exchange nothing: what these
lose against N times one trainer is the machine's doing, and only the rest is ours.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from phalanx.bench.report import tell
from phalanx.bench.scaling_figure import draw_scaling
from phalanx.bench.scaling_plan import ScalingKind, ScalingPlan, refuse_uneven
from phalanx.bench.scaling_runs import MeasuredRun, run_of_independents, run_of_job
from phalanx.bench.scaling_table import Pair, Results, make_figures, make_tables, measured_of
from phalanx.bench.training import TrainingFailed, train_together
from phalanx.bench.until_stopped import until_stopped
from phalanx.errors import UserError
from phalanx.launch.hosts import Host, read_hostfile
from phalanx.launch.placement import place
from phalanx.machine.cores import cores
from phalanx.models.listing import cost
from phalanx.observe.figures import refuse_other_endings
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line
from phalanx.runs.folder import create_run


def bench_scaling(
    console: Console, plan: ScalingPlan, *, markdown: Path | None, json_file: Path | None, plot: Path | None
) -> None:
    """Run everything in rounds, and report."""
    refuse_uneven(plan)
    if plot is not None:
        refuse_other_endings(plot)
    cost(plan.model, plan.size)  # raises for an unknown model
    hosts = read_hostfile(plan.hostfile) if plan.hostfile else []
    if hosts:
        place(hosts, {"trainer": max(plan.workers)})
    results: Results = {}
    failed: list[str] = []
    cases: list[tuple[ScalingKind, int]] = [(plan.kinds[0], 1)]
    cases += [(kind, count) for kind in plan.kinds for count in plan.workers if count > 1]
    with (
        progress(console, "percent of all steps", 200 * plan.rounds * len(cases)) as advance,
        _folder(plan) as folder,
        until_stopped(lambda: results) as stopped,
    ):
        jobs = Jobs(plan, hosts, folder, advance)
        for number in range(plan.rounds):
            for kind, workers in list(cases):
                try:
                    pair = Pair(jobs.job(kind, workers, number), jobs.independents(kind, workers, number))
                except TrainingFailed as error:
                    if (kind, workers) == cases[0]:
                        raise UserError(
                            "one worker cannot be trained, with which all are compared",
                            why=str(error),
                            remedy="fix that first; `phalanx doctor` shows what works here",
                        ) from error
                    failed.append(f"{kind}, {workers} workers: {error}")
                    cases.remove((kind, workers))
                    results.get(kind, {}).pop(workers, None)
                    continue
                for each in plan.kinds if workers == 1 else (kind,):  # one worker is the same in both
                    results.setdefault(each, {}).setdefault(workers, []).append(pair)
    notes = _notes(plan, hosts) + failed + stopped.notes
    tables = make_tables(results, plan.subject, plan.batch_size, plan.rounds, notes)
    if plot is not None:
        draw_scaling(results, plan.subject, plot)
        print_line(console, f"{plot}: speed and times against workers")
    tell(
        console,
        "scaling",
        tables,
        make_figures(results),
        subject=plan.subject,
        markdown=markdown,
        json_file=json_file,
        measured=measured_of(plan, results),
    )
    stopped.end()


def _notes(plan: ScalingPlan, hosts: list[Host]) -> list[str]:
    notes = []
    if not hosts and plan.launcher in (None, "local"):
        here, servers = cores(), plan.servers if plan.method == "pserver" else 0
        for count in plan.workers:
            if count + servers > here:
                also = f" and {servers} server{'s' * (servers > 1)}" if servers else ""
                workers = f"{count} worker{'s' * (count > 1)}"
                notes.append(f"{workers}{also} shared {here} cores: independent trainers had the same cores")
    return notes


@contextmanager
def _folder(plan: ScalingPlan) -> Iterator[Path]:
    """The folder of the runs. With other hosts it is kept and shown, since folders stay there too."""
    if plan.launcher not in (None, "local"):
        yield create_run(None, "scaling").path.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        yield Path(folder)


class Jobs:
    """Runs jobs and independent trainers, here or by `phalanx launch`."""

    def __init__(self, plan: ScalingPlan, hosts: list[Host], folder: Path, advance: Callable[[int], None]) -> None:
        self._plan, self._hosts, self._folder, self._advance = plan, hosts, folder, advance

    def job(self, kind: ScalingKind, workers: int, number: int) -> MeasuredRun:
        plan, out = self._plan, self._folder / f"{kind}-{workers}-round-{number}"
        words = plan.words(kind, workers, independent=False)
        (trained,) = train_together([(self._command(words, plan.hostfile, out), out)], self._watch())
        return run_of_job(trained, plan.batch_of(kind, workers), workers)

    def independents(self, kind: ScalingKind, workers: int, number: int) -> MeasuredRun:
        plan, commands = self._plan, []
        for one, hostfile in enumerate(self._placements(workers)):
            out = self._folder / f"{kind}-{workers}-round-{number}-independent-{one}"
            words = plan.words(kind, workers, independent=True)
            commands.append((self._command(words, hostfile, out), out))
        here = plan.launcher is None
        trained = train_together(commands, self._watch(), gate=here)
        return run_of_independents(trained, plan.batch_of(kind, workers), same_clock=here)

    def _command(self, words: list[str], hostfile: Path | None, out: Path) -> list[str]:
        train = ["train", *words, "--out", str(out)]
        if self._plan.launcher is None:
            return train
        hosts = ["-H", str(hostfile)] if hostfile else []
        return ["launch", "--launcher", self._plan.launcher, *hosts, "--", *train]

    def _placements(self, workers: int) -> list[Path | None]:
        """For each independent trainer, a hostfile with the host of the job's trainer of that rank."""
        if not self._hosts:
            return [None] * workers
        files: list[Path | None] = []
        for placement in place(self._hosts, {"trainer": workers}):
            host = self._hosts[placement.host]
            name = f"[{host.name}]" if ":" in host.name else host.name
            port = f" port={host.port}" if host.port else ""
            file = self._folder / f"host-{placement.host}"
            file.write_text(f"{host.user + '@' if host.user else ''}{name}{port} slots=1\n", encoding="utf-8")
            files.append(file)
        return files

    def _watch(self) -> Callable[[float], None]:
        shown = 0

        def watch(share: float) -> None:
            nonlocal shown
            self._advance(int(100 * share) - shown)
            shown = int(100 * share)

        return watch
