"""The end of a run for bad images names the command that lists them, and that list leaves them out."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from phalanx.commands.data_verify import verify_data
from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import Whole
from phalanx.data.sources.bad_images import BadImages, verify_command
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.samples import write_images
from tests.data.shard_files import pictures, write_tfrecord


def stopped(config: DataConfig, found_in: Path | None = None) -> UserError:
    source = open_data(config, threads=0).train
    read = source.read(np.arange(len(source)), Whole(8), 0, replace_bad=False)
    with pytest.raises(UserError) as caught:
        BadImages.of(config, source, found_in=found_in).count(read.bad)
    return caught.value


@pytest.mark.parametrize("policy", ["skip", "stop"])
def test_the_command_in_the_message_finds_what_to_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_images(tmp_path / "my photos", {"a": 9, "b": 9})
    for name in ("a/2.png", "a/5.png", "b/7.png"):
        (data / name).write_bytes(b"broken")
    settings = {"source": "folder:my photos", "channels": 3, "val_share": 0.2, "bad_images": policy}
    error = stopped(DataConfig.model_validate(settings))
    _, command, rest = error.remedy.split("`")
    assert "data.quarantine=bad.txt" in rest
    assert "quarantine.tsv" not in error.remedy, "nothing has written one"
    words = shlex.split(command)
    assert words == [*("phalanx", "data", "verify", "folder:my photos", "data.channels=3"), "--out", "bad.txt"]
    assert verify_data(Console(quiet=True), words[3], words[4:5], Path(words[6])) == 1
    splits = open_data(DataConfig.model_validate({**settings, "quarantine": "bad.txt"}), threads=0)
    assert len(splits.train) + len(splits.val) == 15
    for source in (splits.train, splits.val):
        assert source.read(np.arange(len(source)), Whole(8), 0, replace_bad=False).bad == []


def test_the_list_of_the_run_is_named_where_it_was_written(tmp_path: Path) -> None:
    data = write_images(tmp_path / "d", {"a": 4, "b": 4})
    for name in ("a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png"):
        (data / name).write_bytes(b"broken")
    config, found_in = DataConfig(source=str(data)), tmp_path / "run" / "quarantine.tsv"
    assert "quarantine.tsv" not in stopped(config, found_in).remedy
    found_in.parent.mkdir()
    found_in.write_text(f"{data}/a/1.png\tbroken\n")
    assert f"({found_in} has those that this run found before" in stopped(config, found_in).remedy


def test_the_command_has_the_settings_by_which_samples_are_found(tmp_path: Path) -> None:
    config = DataConfig(
        source="it's here/*.tfrecord",
        val="tfrecord:val",
        image_field="image/raw",
        label_element=2,
        salvage=True,
        options={"root": "a b"},
        threads=3,
        quarantine=Path("old.txt"),
        image_size=32,
    )
    settings = ["data.val=tfrecord:val", "data.image_field=image/raw", "data.label_element=2"]
    settings += ['data.options={"root": "a b"}', "data.salvage=true"]
    words = shlex.split(verify_command(config))
    assert words == ["phalanx", "data", "verify", "it's here/*.tfrecord", *settings, "--out", "bad.txt"]
    path = write_tfrecord(tmp_path / "a.tfrecord", pictures(4), image="x")
    words = shlex.split(verify_command(DataConfig(source=str(path), image_field="x")))
    assert verify_data(Console(quiet=True), words[3], words[4:-2], None) == 0
