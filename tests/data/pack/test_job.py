"""Packing: the same bytes whoever packs; interrupted, it goes on; nothing half-written is taken for whole."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import RandomResizedCrop, has_margin
from phalanx.data.pack.destination import locked
from phalanx.data.pack.packing import SHARD_BYTES
from phalanx.data.pack.plan import shard_ends
from phalanx.data.sources.manifest import Options, load_manifest, save_manifest
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.pack.packs import COMMAND, FORMS, pack_folder, parts_of, shard_sums, write_dataset
from tests.data.samples import assert_helpful, image_bytes, smooth
from tests.data.sources.test_cifar import write_cifar10
from tests.data.sources.test_idx import write_idx
from tests.waiting import until


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def packs(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The dataset in each form, in three shards. Only to be read."""
    folder = tmp_path_factory.mktemp("packs")
    for form in FORMS:
        pack_folder(dataset, folder / form, form, shards=3)
    return {form: folder / form for form in FORMS}


def refused(source: Path, folder: Path, form: str = "wds", **options: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        pack_folder(source, folder, form, **options)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
def test_threads_do_not_change_the_bytes(dataset: Path, packs: dict[str, Path], form: str, tmp_path: Path) -> None:
    pack_folder(dataset, tmp_path / "1", form, shards=3, threads=1)
    assert shard_sums(tmp_path / "1") == shard_sums(packs[form])
    endings = (".tar", ".rec", ".raw", ".tfrecord", ".parquet", ".sha256")
    names = [name.rpartition(".")[0] for name in shard_sums(packs[form]) if name.endswith(endings)]
    wanted = ["train-00000", "train-00001", "train-00002", "val-00000"]
    if form in ("tfrecord", "parquet"):
        wanted = [f"{name}-of-{of}" for name, of in zip(wanted, [*["00003"] * 3, "00001"], strict=True)]
    if form == "parquet":
        wanted = [f"data/{name.replace('val', 'validation')}" for name in wanted]
    assert names == wanted


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("wds", "wds"), ("rec", "rec"), ("raw", "raw"), ("wds", "rec"), ("rec", "wds"), ("rec", "raw")),
        *(("folder", form) for form in FORMS if form not in ("wds", "raw")),
        *(("tfrecord", form) for form in FORMS if form not in ("rec", "raw")),
    ],
)
def test_what_is_packed_packs_to_the_same(packs: dict[str, Path], first: str, second: str, tmp_path: Path) -> None:
    pack_folder(packs[first], tmp_path / "again", second, shards=3)
    assert shard_sums(tmp_path / "again") == shard_sums(packs[second])


def test_training_sees_the_same_from_every_form(dataset: Path, packs: dict[str, Path]) -> None:
    framing = RandomResizedCrop(24, seed=5)
    indices = np.arange(12)[::-1].copy()
    wanted = open_data(DataConfig(source=str(dataset), decode="exact"), threads=0)
    for form in FORMS:
        folder = packs[form]
        found = open_data(DataConfig(source=str(folder), decode="exact"), threads=2)
        assert found.notes == [] or form in ("tfrecord", "parquet"), "those tell which fields they found"
        for ours, theirs in ((found.train, wanted.train), (found.val, wanted.val)):
            assert (ours.classes, ours.labels.tolist()) == (["ape", "cat 2", "dog"], theirs.labels.tolist()), form
            assert (ours.mean, ours.std, ours.image_size) == (theirs.mean, theirs.std, theirs.image_size)
            chosen = indices[indices < len(ours)]
            seen, wanted_images = (split.read(chosen, framing, 2, replace_bad=True).images for split in (ours, theirs))
            np.testing.assert_array_equal(seen, wanted_images, err_msg=form)


@pytest.mark.parametrize("form", FORMS)
def test_small_images_keep_their_channels_size_and_statistics(form: str, tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", packed=True)
    pack_folder(tmp_path / "mnist", tmp_path / "packed", form)
    wanted, found = parts_of(tmp_path / "mnist"), parts_of(tmp_path / "packed")
    for part in wanted:
        ours, theirs = found[part], wanted[part]
        assert (ours.channels, ours.image_size, ours.mean) == (1, 28, wanted["train"].mean)
        assert ours.classes == theirs.classes
        assert not has_margin(ours, 28), "all subject, as it was"
        framing = RandomResizedCrop(16, seed=1)
        seen, wanted_images = (
            split.read(np.arange(4), framing, 0, replace_bad=True).images for split in (ours, theirs)
        )
        np.testing.assert_array_equal(seen, wanted_images)


def test_shards_by_size(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard ends with the sample that makes it large enough, so that packing again cuts at the same places."""
    monkeypatch.setitem(SHARD_BYTES, "wds", 8_000)
    monkeypatch.setitem(SHARD_BYTES, "rec", 8_000)
    for form in ("wds", "rec"):
        manifest = pack_folder(dataset, tmp_path / form, form)
        sizes = [shard.files[0].bytes for shard in manifest.splits["train"]]
        assert len(sizes) > 2
        assert all(size > 8_000 for size in sizes[:-1])
        pack_folder(tmp_path / form, tmp_path / f"{form}-again", form)
        assert shard_sums(tmp_path / f"{form}-again") == shard_sums(tmp_path / form)


def test_one_split_alone(dataset: Path, tmp_path: Path) -> None:
    for form in FORMS:
        manifest = pack_folder(dataset, tmp_path / form, form, split="val")
        assert list(manifest.splits) == ["val"]
        parts = parts_of(tmp_path / form)
        assert {part: len(split) for part, split in parts.items()} == {"val": 5}
        if form == "parquet":
            continue  # its reader does not tell the names of files
        pack_folder(tmp_path / form, tmp_path / f"{form}-again", form)
        assert shard_sums(tmp_path / f"{form}-again") == shard_sums(tmp_path / form)


def test_an_interrupted_pack_goes_on(dataset: Path, packs: dict[str, Path], tmp_path: Path) -> None:
    """As if it had died while its second shard was written, and once more after the last one."""
    for form in FORMS:
        folder = tmp_path / form
        pack_folder(dataset, folder, form, shards=3)
        manifest = load_manifest(folder)
        assert manifest is not None
        manifest.finished = False
        del manifest.splits["train"][1:], manifest.splits["val"][:]
        save_manifest(folder, manifest)
        for file in folder.rglob("train-00001*"):
            file.rename(file.with_name(f"{file.name}.part"))
            file.with_name(f"{file.name}.part").write_bytes(b"half")
        first = folder / manifest.splits["train"][0].files[0].name
        kept = first.stat().st_ino
        with pytest.raises(UserError) as caught:
            parts_of(folder)
        assert_helpful(caught.value, str(folder), "interrupted", COMMAND)
        pack_folder(dataset, folder, form, shards=3)
        assert shard_sums(folder) == shard_sums(packs[form])
        assert first.stat().st_ino == kept, "what is whole is not made again"
        assert not [file for file in folder.iterdir() if file.name.startswith(".")]


def test_a_pack_that_is_finished_is_left_alone(dataset: Path, tmp_path: Path) -> None:
    pack_folder(dataset, tmp_path / "p", shards=3)
    times = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "p").iterdir()}
    pack_folder(dataset, tmp_path / "p", shards=3)
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "p").iterdir()} == times


@pytest.mark.parametrize("form", FORMS)
def test_a_shard_that_is_lost_or_cut_off_is_told_and_made_again(
    dataset: Path, packs: dict[str, Path], form: str, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    pack_folder(dataset, folder, form, shards=3)
    lost, cut = (sorted(folder.rglob(f"{part}-*"))[-1] for part in ("train", "val*"))
    lost.unlink()
    with pytest.raises(UserError) as caught:
        parts_of(folder)
    assert_helpful(caught.value, f"{lost} is missing", COMMAND)
    pack_folder(dataset, folder, form, shards=3)
    with cut.open("rb+") as file:
        file.truncate(cut.stat().st_size - 5)
    with pytest.raises(UserError) as caught:
        parts_of(folder)
    assert_helpful(caught.value, f"{cut} is damaged", f"ends at byte {cut.stat().st_size:,}")
    pack_folder(dataset, folder, form, shards=3)
    assert shard_sums(folder) == shard_sums(packs[form])


def test_other_options_or_other_data_are_refused(dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    own = write_dataset(tmp_path / "own")
    pack_folder(own, folder, shards=2)
    assert_helpful(refused(own, folder, shards=3), "other options", "shards 2, now 3", COMMAND)
    assert_helpful(refused(own, folder, "rec", shards=2), "form wds, now rec")
    assert_helpful(refused(own, folder, resize=10, shards=2), "resize unset, now 10")
    assert_helpful(refused(dataset, folder, shards=2), "other data", str(own))
    image = next((own / "train" / "ape").iterdir())
    os.utime(image, ns=(1, 1))
    assert_helpful(refused(own, folder, shards=2), "other data", "times")
    (folder / "pack.json").write_text('{"version": 9}')
    assert_helpful(refused(own, folder, shards=2), "pack.json cannot be read", "version")
    with pytest.raises(UserError, match="cannot be read"):
        parts_of(folder)


def test_a_folder_with_something_else_in_it_is_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "train-00000.tar").write_text("mine")
    assert_helpful(refused(dataset, tmp_path), "not empty", "notes.txt, train-00000.tar")
    assert (tmp_path / "train-00000.tar").read_text() == "mine"
    pack_folder(dataset, tmp_path / "p")
    (tmp_path / "p" / "mine.txt").write_text("mine")
    assert_helpful(refused(dataset, tmp_path / "p"), "mine.txt")


def test_one_job_at_a_time(dataset: Path, tmp_path: Path) -> None:
    with locked(tmp_path):
        assert_helpful(refused(dataset, tmp_path), "another process")
    pack_folder(dataset, tmp_path)


def test_a_full_disk_keeps_what_is_finished(dataset: Path, packs: dict[str, Path], tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: writing fails in the same call."""
    folder = tmp_path / "p"
    largest = (packs["raw"] / "train-00002.raw").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, limits[1]))
    try:
        error = refused(dataset, folder, "raw", shards=3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_helpful(error, str(folder), "File too large", "2 finished shards are kept", "make room")
    assert sorted(shard_sums(folder)) == ["train-00000.raw", "train-00001.raw"]
    pack_folder(dataset, folder, "raw", shards=3)
    assert shard_sums(folder) == shard_sums(packs["raw"])


def test_images_that_do_not_decode(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "data")
    (source / "train" / "cat 2" / "1.jpg").write_bytes(b"broken")
    manifest = pack_folder(source, tmp_path / "p", "raw", resize=8)
    (left,) = manifest.splits["train"][0].left_out
    assert (left.index, left.reason, manifest.num_samples("train")) == (5, "it is not an image of a known format", 11)
    assert left.name.endswith("cat 2/1.jpg")
    pack_folder(tmp_path / "p", tmp_path / "again", "raw", resize=8)
    assert shard_sums(tmp_path / "again") == shard_sums(tmp_path / "p")
    error = refused(source, tmp_path / "stop", "raw", settings={"bad_images": "stop"})
    assert_helpful(error, "cat 2/1.jpg")
    (source / "train" / "dog" / "1.jpg").write_bytes(b"broken, too")
    assert_helpful(refused(source, tmp_path / "many", "raw"), "data.bad_images_cap", "dog/1.jpg")
    assert pack_folder(source, tmp_path / "copied").num_samples("train") == 12, "nothing is decoded to copy it"


def test_what_no_shard_can_hold(dataset: Path, tmp_path: Path) -> None:
    assert_helpful(refused(dataset, tmp_path / "p", shards=13), "13 shards", "12 samples")
    (tmp_path / "data" / " cat").mkdir(parents=True)
    (tmp_path / "data" / " cat" / "0.png").write_bytes(image_bytes(smooth(4, 4)))
    assert_helpful(refused(tmp_path / "data", tmp_path / "p"), "' cat'", "classes.txt")
    assert not (tmp_path / "p").exists()


def test_numbers_of_shards_follow_the_splits(tmp_path: Path) -> None:
    splits, options = parts_of(write_cifar10(tmp_path)), Options(form="wds", shards=4)
    assert (shard_ends(splits, options, "train"), shard_ends(splits, options, "val")) == ([2, 5, 7, 10], [3])


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """A real process, killed with -9 as soon as it has finished a few shards."""
    source = tmp_path / "data"
    picture = tmp_path / "one.jpg"
    picture.write_bytes(image_bytes(smooth(400, 500), "JPEG"))
    for name in ("a", "b"):
        (source / name).mkdir(parents=True)
        for i in range(60):
            (source / name / f"{i:03d}.jpg").hardlink_to(picture)
    words = ["data", "pack", str(source), str(tmp_path / "p"), "--shards", "30", "--resize", "48"]
    process = subprocess.Popen([sys.executable, "-m", "phalanx", *words], stdout=subprocess.DEVNULL)
    try:
        until(lambda: (tmp_path / "p" / "train-00002.tar").exists() or process.poll() is not None)
        assert process.poll() is None
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    with pytest.raises(UserError) as caught:
        parts_of(tmp_path / "p")
    assert_helpful(caught.value, "interrupted", "--shards 30 --resize 48")
    before = {file.name: file.stat().st_ino for file in (tmp_path / "p").glob("train-*.tar")}
    assert 3 <= len(before) < 28
    pack_folder(source, tmp_path / "p", shards=30, resize=48)
    pack_folder(source, tmp_path / "whole", shards=30, resize=48)
    assert shard_sums(tmp_path / "p") == shard_sums(tmp_path / "whole")
    kept = [name for name, number in before.items() if (tmp_path / "p" / name).stat().st_ino == number]
    assert len(kept) >= len(before) - 1, "all but the one that was not yet in the manifest"
