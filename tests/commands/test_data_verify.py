import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from phalanx.commands.data_verify import verify_data
from phalanx.config.schema import DataConfig
from phalanx.data.sources.manifest import load_manifest, save_manifest
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.pack.packs import COMMAND, pack_folder, write_dataset
from tests.data.samples import assert_helpful
from tests.data.sources.test_cifar import write_cifar10


def verified(source: Path | str, out: Path | None = None, *settings: str) -> tuple[int, list[str]]:
    text = io.StringIO()
    code = verify_data(Console(file=text), str(source), list(settings), out)
    return code, text.getvalue().splitlines()


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def test_what_is_broken_is_listed_and_the_list_is_a_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_dataset(tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "bad.txt"
    assert verified("d", out) == (0, ["all 17 samples are good"])
    assert out.read_text() == ""
    for name, data in (("train/ape/1.jpg", b""), ("val/cat 2/0.jpg", b"no image")):
        (source / name).write_bytes(data)
    whole = (source / "train" / "dog" / "1.jpg").read_bytes()
    (source / "train" / "dog" / "1.jpg").write_bytes(whole[: len(whole) // 2])
    code, lines = verified("d", out)
    listed = [line.split("\t") for line in out.read_text().splitlines()]
    assert code == 1
    assert [name for name, _ in listed] == [
        f"{tmp_path}/d/train/ape/1.jpg",
        f"{tmp_path}/d/train/dog/1.jpg",
        f"{tmp_path}/d/val/cat 2/0.jpg",
    ]
    assert listed[0][1] == "it is empty (0 bytes)"
    assert lines[-2:] == ["3 of 17 samples do not decode", f"to train without them: data.quarantine={out}"]
    assert lines[: len(listed)] == ["\t".join(pair) for pair in listed]
    splits = open_data(DataConfig(source="d", quarantine=out), threads=0)
    assert (len(splits.train), len(splits.val)) == (10, 4)
    assert verified("d", None, f"data.quarantine={out}")[0] == 0


@pytest.mark.parametrize("form", ["wds", "rec", "raw"])
def test_a_flipped_bit_is_found_with_its_place(form: str, tmp_path: Path) -> None:
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p", form, shards=2)
    assert verified(tmp_path / "p") == (0, ["all 17 samples are good"])
    shard = next(file for file in (tmp_path / "p").glob("train-00001.*") if file.suffix in (".tar", ".rec", ".raw"))
    flip(shard, shard.stat().st_size // 3)
    code, lines = verified(tmp_path / "p")
    assert code == 1
    (told,) = (line for line in lines if line.startswith(f"{shard}\t"))
    assert "it is not what was written, first between bytes 0 and " in told
    assert COMMAND in told
    assert "1 file is damaged" in lines[-1]
    if form == "raw":
        assert " #" in lines[1]
        assert "have changed since they were written" in lines[1]


@pytest.mark.parametrize("form", ["wds", "rec", "raw"])
def test_a_shard_that_is_cut_off(form: str, tmp_path: Path) -> None:
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p", form)
    shard = next(file for file in (tmp_path / "p").glob("train-00000.*") if file.suffix in (".tar", ".rec", ".raw"))
    size = shard.stat().st_size
    left = size // 2
    with shard.open("rb+") as file:
        file.truncate(left)
    code, lines = verified(tmp_path / "p")
    assert code == 1
    assert any(f"{shard}\tit ends at byte {left:,} of {size:,}" in line for line in lines)
    text = "\n".join(lines)
    assert ("no sample can be checked" if form == "raw" else "damaged at offset") in text, "up to where it is whole"
    assert lines[-1] == "1 file is damaged"


def test_a_damaged_archive_is_checked_up_to_its_damage(tmp_path: Path) -> None:
    """One that was not packed by us, so that nothing but its own structure tells."""
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p")
    alone = tmp_path / "alone.tar"
    data = (tmp_path / "p" / "train-00000.tar").read_bytes()
    alone.write_bytes(data[: len(data) // 2])
    code, lines = verified(alone)
    assert code == 1
    assert "alone.tar is damaged at offset" in "\n".join(lines)
    assert "1 file is damaged" in lines[-1]


def test_a_pack_that_is_not_finished_is_no_data(tmp_path: Path) -> None:
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p")
    manifest = load_manifest(tmp_path / "p")
    assert manifest is not None
    manifest.finished = False
    save_manifest(tmp_path / "p", manifest)
    with pytest.raises(UserError) as caught:
        verified(tmp_path / "p")
    assert_helpful(caught.value, "interrupted")


def test_data_in_memory(tmp_path: Path) -> None:
    assert verified(write_cifar10(tmp_path)) == (0, ["all 13 samples are good"])
    np.zeros(10, np.uint8).tofile(tmp_path / "test_batch.bin")
    with pytest.raises(UserError):
        verified(tmp_path)


def test_missing_files_of_a_list_are_found_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_dataset(tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    rows = [f"d/train/ape/{i}.jpg,{'ab'[i % 2]}\n" for i in range(3)] + [f"d/gone/{i}.jpg,a\n" for i in range(4)]
    (tmp_path / "list.csv").write_text("image,label\n" + "".join(rows))
    (source / "train" / "ape" / "2.jpg").write_bytes(b"no image")
    out = tmp_path / "bad.txt"
    code, lines = verified("list.csv", out)
    assert code == 1
    assert lines[-2] == "4 of 7 samples are missing; 1 of 7 samples do not decode"
    assert out.read_text().splitlines()[0] == f"{tmp_path}/d/gone/0.jpg\tno such file"
    assert out.read_text().count("\n") == 5
    code, lines = verified("list.csv", None, f"data.quarantine={out}")
    assert (code, lines[-1]) == (0, "all 2 samples are good")
    assert lines[-2] == f"note: 5 samples are left out, named in {out}"
