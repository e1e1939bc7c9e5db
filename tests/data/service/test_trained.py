"""Training with data servers, as a user starts it: the weights are those of training without."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import torch

from phalanx.net.key import own_key
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN, train_digits

# Those of the `digits_run` fixture, which is trained without data servers.
SETTINGS = ("model.name=wrn10_1", "train.length=2ep", "optim.ema=0.9", *LEAN)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "phalanx", *words]


def assert_same_weights(one: Path, other: Path) -> None:
    left, right = (checkpoint.load_newest(run / "checkpoints")[0].tensors for run in (one, other))
    assert left.keys() == right.keys()
    for group, tensors in left.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, right[group][name]), f"{group} {name}"


def test_data_servers_on_this_machine_change_nothing(digits_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("train", "digits", *SETTINGS, "train.log_every=5", "--data-servers", "2", "--out", str(out))
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_weights(digits_run, out)
    fed = [event for event in read_events(out) if event["kind"] == "data_service"]
    assert len(fed[-1]["servers"]) == 2
    assert sum(server["samples_per_s"] for server in fed[-1]["servers"]) > 0
    assert {"queue", "idle", "server_samples_per_s"} <= fed[-1]["servers"][0].keys()
    assert 0 <= fed[-1]["wait_share"] <= 1


def test_a_server_of_its_own_with_a_key_file(digits_run: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    words = ("serve-data", "digits", *SETTINGS, "--bind", "127.0.0.1:*", "--threads", "1", "--key-file", str(key))
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            place = next(re.findall(r"at (tcp://\S+)", line)[0] for line in server.stdout if "serving" in line)
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
            service = (f"data.service=[{place}]", f"data.service_key={key}")
            assert_same_weights(digits_run, train_digits(tmp_path / "run", *SETTINGS, *service))
        finally:
            server.terminate()
        assert "samples served" in server.stdout.read()
    assert server.returncode == 0
    assert own_key(key) == key.read_text().strip(), "a key that is there is kept"
