"""The recommended command, ready to run."""

import shlex

from phalanx.plan.predict import Prediction
from phalanx.plan.setup import Setup


def train_words(setup: Setup, predicted: Prediction) -> list[str]:
    """The arguments of `phalanx train`, without the number of workers."""
    arranged, config = predicted.arranged, setup.config
    words = list(setup.words or (config.name,))
    if arranged.workers > 1:
        words += ["--update-method", arranged.method]
    if arranged.method == "pserver" and arranged.mode != "sync":
        words += ["--mode", arranged.mode]
    if arranged.compress != "none":
        words += ["--compress", arranged.compress]
    return words


def launch_command(setup: Setup, predicted: Prediction) -> str:
    """`phalanx train …` on one host, `phalanx launch … -- train …` on several."""
    arranged, job = predicted.arranged, predicted.job
    words = train_words(setup, predicted)
    servers = arranged.servers if arranged.method == "pserver" else 0
    if job.all_hosts == 1:
        count = ["--workers", str(arranged.workers)] if arranged.workers > 1 else []
        count += ["--servers", str(servers)] if servers else []
        return shlex.join(["phalanx", "train", *words, *count])
    launch = ["phalanx", "launch", "-n", str(arranged.workers)]
    launch += ["-s", str(servers)] if servers else []
    launch += ["-H", "hosts.txt"]
    return shlex.join([*launch, "--", "train", *words])
