"""The commands as a user calls them: exit codes, streams, and what is not imported. Few, since each loads torch."""

import json
import subprocess
import sys
from pathlib import Path

LIGHT = [
    ["--help"],
    ["--version"],
    ["train", "--help"],
    ["eval", "--help"],
    ["recipes"],
    ["train", "digist"],
    ["train", "digits", "optim.lr=high"],
    ["train", "--resume", "nowhere"],
    ["train", "--resume", "nowhere/checkpoints/step-8"],
    ["train", "digits", "--at", "1ep"],
    ["compare", "nowhere", "nor here", "nor there"],
    ["train", "--data", "nowhere"],
    ["train", "digits", "--workers", "5", "--global-batch-size", "96"],
    ["eval"],
    ["predict"],
    ["export"],
    ["eval", "nowhere"],
    ["predict", "nowhere", "cat.jpg"],
    ["predict", "nowhere", "cat.jpg", "--json", "--tsv"],
    ["export", "nowhere", "--format", "onx"],
    ["models", "--size", "0"],
    ["plot", "nowhere", "--against", "mood"],
    ["profile", "digist"],
    ["profile", "."],
    ["profile", "digits", "data.folds=2"],
    ["profile", "digits", "train.profile.steps=0"],
    ["profile", "digits", "--steps", "0"],
]
PROBE = """
import json, sys
from phalanx.cli.main import main
said = {}
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["phalanx", *arguments]
    try:
        main()
    except SystemExit as end:
        said[" ".join(arguments)] = [end.code or 0, "torch" in sys.modules]
sys.stderr.write("CODES" + json.dumps(said))
"""


def phalanx(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "phalanx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_help_and_refusals_do_not_wait_for_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROBE, json.dumps(LIGHT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    errors, _, codes = done.stderr.partition("CODES")
    said = json.loads(codes)
    assert [name for name, (_, torch) in said.items() if torch] == []
    right = ("help", "version", "recipes")
    assert {name: code for name, (code, _) in said.items()} == {
        " ".join(words): 0 if any(word in words[-1] for word in right) else 2 for words in LIGHT
    }
    assert "Traceback" not in errors
    assert errors.count("Usage: phalanx") == 5


def test_a_refusal_goes_to_stderr_with_what_why_and_what_to_try(tmp_path: Path) -> None:
    done = phalanx("eval", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no checkpoint at nowhere\n")
    assert "why: " in done.stderr
    assert "try: " in done.stderr


def test_predictions_are_on_stdout_and_complaints_on_stderr(digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    done = phalanx("predict", str(digits_run), "bad.jpg", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["image"] == "bad.jpg"
    assert done.stderr == "1 of 1 images could not be read\n"


def test_a_reader_that_stops_early_is_no_accident(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "phalanx", "recipes", "digits"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_verbose_shows_every_decision_and_is_no_setting(tmp_path: Path) -> None:
    short = ["digits", "--model", "mlp", "train.length=1st", "train.curves=false", "machine.threads=1"]
    done = phalanx("train", *short, "-v", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "threads: 1 (as you set it)" in done.stdout
    assert "verbose" not in (tmp_path / "run" / "config.yaml").read_text()
