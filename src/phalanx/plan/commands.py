"""The recommended command, ready to run."""

import shlex

from phalanx.plan.predict import Prediction
from phalanx.plan.setup import Setup

PORT = 7300  # of data servers


def recommended(setup: Setup, predicted: Prediction) -> str:
    """`phalanx train …` on one host, `phalanx launch … -- train …` on several."""
    return run_rows(setup, predicted)["run"]


def run_rows(setup: Setup, predicted: Prediction) -> dict[str, str]:
    """What to type, by what it is for: `run`, before it the data servers, and `or` where launch does the same."""
    arranged, job = predicted.arranged, predicted.job
    words, rows = _train_words(setup, predicted), {}
    if setup.cluster.data_servers:
        serve = ["phalanx", "serve-data", *_data_words(setup), "--bind", f"0.0.0.0:{PORT}", "--key-file", "key"]
        rows["first, on each data host"] = shlex.join(serve)
    servers = arranged.servers if arranged.method == "pserver" else 0
    launch = ["phalanx", "launch", "-n", str(arranged.workers)]
    launch += ["-s", str(servers)] if servers else []
    if job.all_hosts > 1:
        launch += ["-H", "hosts.txt"]
        if job.server_hosts:
            launch += ["--servers-on", ",".join(f"server{number}" for number in range(1, job.server_hosts + 1))]
        return {**rows, "run": shlex.join([*launch, "--", "train", *words])}
    count = ["--workers", str(arranged.workers)] if arranged.workers > 1 else []
    count += ["--servers", str(servers)] if servers else []
    rows["run"] = shlex.join(["phalanx", "train", *words, *count])
    return rows if arranged.workers == 1 else {**rows, "or": shlex.join([*launch, "--", "train", *words])}


def _subject(setup: Setup) -> list[str]:
    return list(setup.words or (setup.config.name,))


def _data_words(setup: Setup) -> list[str]:
    """Recipe, settings and data: the other flags are not for data servers."""
    words = _subject(setup)
    flags = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    data = words.index("--data") if "--data" in words else len(words)
    return [*words[:flags], *words[data : data + 2]]


def _train_words(setup: Setup, predicted: Prediction) -> list[str]:
    """The arguments of `phalanx train`, without the number of workers."""
    arranged, words = predicted.arranged, _subject(setup)
    if arranged.workers > 1 or arranged.method == "pserver":
        words += ["--update-method", arranged.method]
    if arranged.method == "pserver" and arranged.mode != "sync":
        words += ["--mode", arranged.mode]
    if arranged.compress != "none":
        words += ["--compress", arranged.compress]
    if setup.cluster.data_servers:
        hosts = [f"data{number}:{PORT}" for number in range(1, setup.cluster.data_servers + 1)]
        words += ["--data-service", ",".join(hosts), "data.service_key=key"]
    return words
