"""The end of a sweep: its table, sweep.json, sweep.tsv and the figure."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.observe.figures import save_figure
from phalanx.observe.sweep_figure import figure_of
from phalanx.observe.sweep_results import best_trial, failures, read_trials, report_of, table
from phalanx.observe.tables import print_rows, print_table, tab_separated
from phalanx.runs.folder import write_run_file
from phalanx.runs.sweep_file import SWEEP_FILE, SweepPlan, write_sweep

TABLE, FIGURES = "sweep.tsv", ("sweep.png", "sweep.svg")


def show_sweep(console: Console, folder: Path, plan: SweepPlan) -> None:
    """Write and print what the runs have found so far."""
    trials = read_trials(folder, plan)
    write_sweep(folder, plan, report_of(trials))
    titles, *rows = table(plan.keys, trials)
    write_run_file(folder / TABLE, "".join(tab_separated(row) + "\n" for row in (titles, *rows)))
    print_table(console, titles, rows, numbers=[title for title in titles if title])
    for name, error in failures(trials).items():
        console.print(Text(f"{name} failed: {error}"), soft_wrap=True)
    best = best_trial(trials)
    if best is not None:
        save_figure(figure_of(plan, trials), *(folder / name for name in FIGURES))
    files = [SWEEP_FILE, TABLE, *([FIGURES[0]] if best is not None else [])]
    found = {} if best is None else {"best": f"trial {best.number}: {best.label or 'default settings'}"}
    print_rows(
        console,
        {
            **found,
            "folder": f"{folder}: {', '.join(files)}, trial-*/",
            "next": f"phalanx plot {folder}/trial-*   phalanx compare {folder}/trial-*",
        },
        bold=("best",),
    )
