import io
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from phalanx.cli.data import FORMS, SPLITS
from phalanx.commands.data_pack import pack_data
from phalanx.data.sources.manifest import Form, Options, load_manifest
from phalanx.errors import UserError
from tests.commands.digit_files import write_digits, write_own_dataset
from tests.data.pack.packs import shard_sums, write_dataset
from tests.data.samples import assert_helpful

PROBE = """
import json, sys
from phalanx.cli.main import main
said = {}
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["phalanx", "data", *arguments]
    try:
        main()
    except SystemExit as end:
        said[" ".join(arguments)] = [end.code or 0, "torch" in sys.modules]
sys.stderr.write("CODES" + json.dumps(said))
"""


def packed(source: Path | str, folder: Path, *settings: str, **options: object) -> list[str]:
    text = io.StringIO()
    chosen = Options.model_validate({"form": "wds", **options})
    pack_data(Console(file=text), str(source), folder, chosen, list(settings), "phalanx data pack a b")
    return text.getvalue().splitlines()


def refused(source: Path | str, folder: Path, *settings: str, **options: object) -> UserError:
    with pytest.raises(UserError) as caught:
        packed(source, folder, *settings, **options)
    return caught.value


def test_what_is_said(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    lines = packed(source, tmp_path / "p", shards=2)
    rows = dict(line.split(": ", 1) for line in lines)
    assert rows["train"].startswith("12 samples in 2 shards, ")
    assert rows["val"].startswith("5 samples in 1 shard, ")
    assert rows["use"] == f"phalanx train --data {tmp_path / 'p'}"
    assert packed(source, tmp_path / "p", shards=2)[0] == "before: 3 shards were there already"


def test_a_dataset_of_the_users_own(tmp_path: Path) -> None:
    files = write_digits(tmp_path / "files", 12)
    packed(write_own_dataset(tmp_path, files), tmp_path / "p", "data.channels=1", form="folder")
    images = sorted((tmp_path / "p" / "train").glob("*/*.png"))
    assert [image.parent.name for image in images] == [file.parent.name for file in sorted(files.glob("*/*"))]
    (tmp_path / "broken.py").write_text("class Mine:\n    classes = ['a']\n    def __len__(self): return 1 // 0\n")
    error = refused(f"{tmp_path}/broken.py:Mine", tmp_path / "q")
    assert "broken.py" in str(error)


def test_bad_images_and_a_quarantine(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    (source / "train" / "ape" / "2.jpg").write_bytes(b"broken")
    lines = packed(source, tmp_path / "p", resize=30)
    assert lines[0] == f"left out, not readable: {source}/train/ape/2.jpg: it is not an image of a known format"
    (tmp_path / "bad.txt").write_text(f"{source}/train/ape/2.jpg\n")
    lines = packed(source, tmp_path / "q", f"data.quarantine={tmp_path}/bad.txt", resize=30)
    assert "1 samples are left out" in lines[0]
    assert shard_sums(tmp_path / "p") == shard_sums(tmp_path / "q")


def test_settings_of_the_data(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    packed(source / "train", tmp_path / "p", f"data.val={source}/val", "data.channels=1", form="raw")
    manifest = load_manifest(tmp_path / "p")
    assert manifest is not None
    assert (list(manifest.splits), manifest.channels) == (["train", "val"], 1)


def test_refusals(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    assert_helpful(refused(source, source / "packed"), "inside of")
    assert_helpful(refused(source, source), "inside of")
    assert_helpful(refused(source / "train", tmp_path / "p", split="val"), "no val split", "data.val")
    assert_helpful(refused(source, tmp_path / "p", "train.seed=3"), "train.seed")
    (tmp_path / "file").write_text("")
    assert_helpful(refused(source, tmp_path / "file"), "File exists")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "file"]


def test_the_command_line_refuses_before_it_loads_torch(tmp_path: Path) -> None:
    """Every command of `phalanx data`, with the exit code of a user's mistake."""
    calls = [
        ["--help"],
        ["pack", "--help"],
        ["pack", "a", "b", "--format", "tar"],
        ["pack", "a", "b", "--split", "test"],
        ["pack", "a", "b", "--format", "raw", "--quality", "90"],
        ["pack", "a", "b", "--quality", "101"],
        ["pack", "a"],
        ["imagenet", "b", "--train", "a.tar", "--val", "v.tar", "--devkit", "d.tar.gz"],
        ["imagenet", "b"],
        ["fetch", "cifar11", "b"],
        ["fetch", "cifar10", "b", "--from", "none.tar.gz"],
    ]
    command = [sys.executable, "-c", PROBE, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    errors, _, codes = done.stderr.partition("CODES")
    said = json.loads(codes)
    assert [name for name, (_, torch) in said.items() if torch] == []
    assert {name: code for name, (code, _) in said.items()} == {
        " ".join(words): 0 if words[-1] == "--help" else 2 for words in calls
    }
    assert "Traceback" not in errors
    assert "did you mean cifar10" in errors
    assert "there is no file a.tar" in errors


def test_the_forms_have_one_list() -> None:
    assert get_args(Form) == FORMS
    assert get_args(Options.model_fields["split"].annotation) == SPLITS
