"""What the runs of a sweep have found: a row for each combination, with mean and standard deviation over seeds."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from phalanx.config.grid import shown
from phalanx.observe.lines import percent
from phalanx.observe.results import read_results
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.score import MAP
from phalanx.runs.sweep_file import SweepPlan


@dataclass(frozen=True)
class TrialRun:
    """One run: `best` and `last` are its accuracies (mAP where a sample may have several labels), None if unknown."""

    run: str
    seed: int
    state: str  # finished, failed, stopped, unfinished, or waiting
    best: float | None = None
    last: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Trial:
    """A combination of values with its runs."""

    number: int
    values: dict[str, Any]
    runs: tuple[TrialRun, ...]
    metric: str  # top1 or mAP

    @property
    def scores(self) -> list[float]:
        """The best accuracies of the runs that are finished."""
        return [run.best for run in self.runs if run.state == "finished" and run.best is not None]

    @property
    def mean(self) -> float | None:
        return fmean(self.scores) if self.scores else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation; None of less than two."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def last(self) -> float | None:
        """The mean of the last evaluations, which no choice has favoured."""
        found = [run.last for run in self.runs if run.state == "finished" and run.last is not None]
        return fmean(found) if found else None

    @property
    def label(self) -> str:
        return ", ".join(f"{key}={shown(value)}" for key, value in self.values.items())

    def to_dict(self, *, best: bool) -> dict[str, Any]:
        numbers = {"metric": self.metric, "mean": self.mean, "std": self.std, "last_mean": self.last, "best": best}
        return {
            "trial": self.number,
            "values": self.values,
            **numbers,
            "seeds": [asdict(run) for run in self.runs],
        }


def read_trials(folder: Path, plan: SweepPlan) -> list[Trial]:
    """The state of every combination, from the events of its runs."""
    rows: dict[int, list[TrialRun]] = {}
    values: dict[int, dict[str, Any]] = {}
    metric = "top1"
    for run in plan.runs:
        path = folder / run.name
        row = TrialRun(run.name, run.seed, "failed" if run.error else "waiting", error=run.error)
        if (path / EVENTS_FILE).is_file():
            found = read_results([path])[0]
            several = found.best_map is not None
            metric = MAP if several else metric
            done = found.state == "finished"
            row = TrialRun(
                run.name,
                run.seed,
                "finished" if done else "failed" if run.error else found.state,
                found.best_map if several else found.best_top1,
                found.final_map if several else found.final_top1,
                "" if done else run.error,
            )
        rows.setdefault(run.trial, []).append(row)
        values[run.trial] = run.values
    return [Trial(number, values[number], tuple(rows[number]), metric) for number in sorted(rows)]


def best_trial(trials: list[Trial]) -> Trial | None:
    """The one with the highest mean; of equal ones the first."""
    measured = [trial for trial in trials if trial.mean is not None]
    return max(measured, key=lambda trial: (trial.mean or 0.0, -trial.number), default=None)


def report_of(trials: list[Trial]) -> dict[str, Any]:
    """What sweep.json has of the results."""
    best = best_trial(trials)
    return {
        "finished": all(run.state == "finished" for trial in trials for run in trial.runs),
        "best": None if best is None else {"trial": best.number, "values": best.values, "mean": best.mean},
        "trials": [trial.to_dict(best=trial is best) for trial in trials],
    }


def table(keys: list[str], trials: list[Trial]) -> Iterator[list[str]]:
    """Titles, and a row for each combination; the best one is marked."""
    best = best_trial(trials)
    name = "top-1" if not trials or trials[0].metric == "top1" else trials[0].metric
    yield ["trial", *keys, name, f"last {name}", "runs", ""]
    for trial in trials:
        yield [
            str(trial.number),
            *(shown(trial.values.get(key)) for key in keys),
            _spread(trial.mean, trial.std),
            _spread(trial.last, None),
            f"{len(trial.scores)} of {len(trial.runs)}",
            " ".join(["best"] * (trial is best) + _states(trial)),
        ]


def _states(trial: Trial) -> list[str]:
    states = [run.state for run in trial.runs]
    return [f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != "finished"]


def _spread(mean: float | None, std: float | None) -> str:
    return "-" if mean is None else percent(mean) + (f" ± {percent(std)}" if std is not None else "")


def failures(trials: list[Trial]) -> Mapping[str, str]:
    """Why runs have failed, by the names of their folders."""
    return {run.run: run.error for trial in trials for run in trial.runs if run.state == "failed"}
