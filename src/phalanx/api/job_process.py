"""`python -m phalanx.api.job_process JOB RESULT`: supervise a job that a user's process asked for, in JSON files."""

import json
import sys
from pathlib import Path

from rich.console import Console

from phalanx.api.job import ChildJob
from phalanx.api.start import start
from phalanx.errors import EXIT_USER, UserError
from phalanx.roles.lifeline import hold_lifeline
from phalanx.roles.process import run_process


def main() -> int:
    job = ChildJob.from_data(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    hold_lifeline()
    try:
        return _supervise(job)
    except UserError as error:
        told = {"what": error.what, "why": error.why, "remedy": error.remedy}
        Path(sys.argv[2]).write_text(json.dumps({"error": told}), encoding="utf-8")
        return EXIT_USER


def _supervise(job: ChildJob) -> int:
    if job.options is None:
        return start(job.request).exit_code
    from phalanx.api.launch_options import LaunchOptions, start_launch

    options = LaunchOptions(**job.options)
    return start_launch(job.request, options, Console(stderr=True))


if __name__ == "__main__":
    run_process(main)
