"""Data over http: folders by their index pages, single files and ranges of them; servers that fail, and come back."""

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from phalanx.commands.data_info import show_info
from phalanx.commands.data_verify import verify_data
from phalanx.config.schema import DataConfig
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.data.sources.remote import failures, listing
from phalanx.errors import UserError
from tests.conftest import LEAN, train_digits
from tests.data.samples import FixedViews, assert_helpful
from tests.data.shard_files import pictures as samples
from tests.data.shard_files import write_wds
from tests.data.sources.archives.test_zip import assert_same, opened, pictures, write_folder, write_zip
from tests.data.sources.remote.servers import Behaviour, serving_folder

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

SPLITS = ("train/ape", "train/cat & dog", "val/ape", "val/cat & dog")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and no long waits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(failures, "OPENING_WAITS_S", (0.01, 0.02))
    monkeypatch.setattr(failures, "READING_WAITS_S", (0.01, 0.02))
    monkeypatch.setattr(listing, "FRESH_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "served", {f"pets/{name}": data for name, data in pictures(*SPLITS).items()})


@pytest.fixture
def server(folder: Path) -> Iterator[tuple[str, Behaviour]]:
    with serving_folder(folder) as (url, behaviour):
        yield url, behaviour


def at(url: str, **settings: Any) -> Splits:
    return open_data(DataConfig.model_validate({"source": url, "val_share": 0.25, **settings}), threads=2)


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_folder_is_the_same_as_on_disk(folder: Path, server: tuple[str, Behaviour], ending: str) -> None:
    url, behaviour = server
    found = at(f"{url}/pets{ending}")
    assert_same(found, opened(folder / "pets"))
    assert found.train.name(0) == f"{url}/pets/train/ape/0.png"
    assert found.train.description.startswith(f"class folders in {url}/pets/train, ")
    images = {path: count for path, count in behaviour.asked.items() if path.endswith(".png")}
    assert set(images.values()) == {1}
    assert_same(at(f"{url}/pets{ending}"), opened(folder / "pets"))  # nothing is fetched twice
    assert {path: count for path, count in behaviour.asked.items() if path.endswith(".png")} == images


def test_evaluation_info_and_verification(
    folder: Path, server: tuple[str, Behaviour], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{server[0]}/pets/"
    source = open_split(url, DataConfig(), ["ape", "cat & dog"], threads=0)
    assert all("/val/" in source.name(index) for index in range(len(source)))
    (folder / "pets/val/ape/2.png").write_bytes(b"no image")
    out, bad = io.StringIO(), tmp_path / "bad.tsv"
    show_info(Console(file=out, width=200), url, [], tmp_path / "sheet.png", as_json=False)
    assert "cat & dog" in out.getvalue()
    assert verify_data(Console(file=out), url, [], bad) == 1
    assert bad.read_text().startswith(f"{url}val/ape/2.png\t")
    monkeypatch.chdir(tmp_path)
    assert len(at(url, quarantine=str(bad)).val) == 7


def test_a_run_on_remote_images(server: tuple[str, Behaviour], tmp_path: Path) -> None:
    small = (
        "model.name=wrn10_1",
        "data.image_size=16",
        "train.length=1st",
        "train.batch_size=4",
        "data.remote_options={headers: {A: b}}",
    )
    run = train_digits(tmp_path / "run", f"data.source={server[0]}/pets/", *small, *LEAN)
    assert "8 images in 2 classes" in (run / "log.txt").read_text()


def test_a_missing_or_failing_image_is_a_bad_image(folder: Path, server: tuple[str, Behaviour]) -> None:
    url, behaviour = server
    splits = at(f"{url}/pets/")
    (folder / "pets/val/ape/1.png").unlink()
    behaviour.fail_first["/pets/val/ape/2.png"] = 503  # tried again
    behaviour.cut_first.add("/pets/val/ape/3.png")
    found = splits.val.read(np.arange(8), FixedViews(8), 0, replace_bad=False)
    assert [index for index, _ in found.bad] == [1]
    assert "it cannot be read" in found.bad[0][1]


def test_a_changed_folder_is_seen(folder: Path, server: tuple[str, Behaviour]) -> None:
    url = f"{server[0]}/pets/"
    assert len(at(url).train) == 8
    write_folder(folder, {f"pets/train/{name}": data for name, data in pictures("emu").items()})
    assert at(url).train.classes == ["ape", "cat & dog", "emu"]


def test_a_fresh_listing_is_shared(
    folder: Path, server: tuple[str, Behaviour], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a job have the same samples, also if an image is added while they start."""
    monkeypatch.setattr(listing, "FRESH_S", 300.0)
    url, behaviour = server
    assert len(at(f"{url}/pets/").train) == 8
    write_folder(folder, {f"pets/train/{name}": data for name, data in pictures("emu").items()})
    assert len(at(f"{url}/pets/").train) == 8
    assert behaviour.asked["/pets/train/"] == 1


def test_without_the_server_what_was_fetched_is_used(folder: Path) -> None:
    with serving_folder(folder) as (url, _):
        first = at(f"{url}/pets/")
        assert_same(first, opened(folder / "pets"))
    again = at(f"{url}/pets/")
    assert any("cannot be reached" in note and "its listing of" in note for note in again.notes)
    assert_same(again, opened(folder / "pets"))


def test_the_limit_of_the_cache(
    folder: Path,
    server: tuple[str, Behaviour],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "FRESH_S", 300.0)
    found = at(f"{server[0]}/pets/", cache_gb=1e-6)  # a thousand bytes
    for _ in range(2):
        assert_same(found, opened(folder / "pets"))
    kept = [file for file in tmp_path.glob("cache/phalanx/remote/*/objects/*/*") if file.is_file()]
    assert sum(file.stat().st_size for file in kept) < 2000
    assert capfd.readouterr().err.count("data.cache_gb is reached") == 1


def test_a_damaged_copy_is_fetched_again(folder: Path, server: tuple[str, Behaviour], tmp_path: Path) -> None:
    found = at(f"{server[0]}/pets/")
    assert_same(found, opened(folder / "pets"))
    for file in tmp_path.glob("cache/phalanx/remote/*/objects/*/*"):
        file.write_bytes(file.read_bytes()[:-30])
    assert_same(at(f"{server[0]}/pets/"), opened(folder / "pets"))


@pytest.mark.parametrize("ranges", [True, False])
def test_one_file_of_any_format(tmp_path: Path, folder: Path, server: tuple[str, Behaviour], ranges: bool) -> None:
    url, behaviour = server
    behaviour.ranges = ranges
    write_zip(folder / "pets.zip", pictures("train/ape", "train/cat", "val/ape", "val/cat").items())
    np.savez(folder / "x.npz", images=np.zeros((8, 9, 9), np.uint8), labels=np.arange(8) % 2)
    write_wds(folder / "a.tar", samples(12))
    behaviour.cut_first.add("/pets.zip")
    assert_same(at(f"{url}/pets.zip"), opened(folder / "pets.zip"))
    assert behaviour.asked["/pets.zip"] == 2  # the second from where the first ended, if the server can
    assert recognise(f"{url}/x.npz?token=abc")[0] == "npz"
    assert_same(at(f"wds:{url}/a.tar"), opened(folder / "a.tar"))
    before = behaviour.asked["/pets.zip"]
    at(f"{url}/pets.zip")
    assert behaviour.asked["/pets.zip"] == before
    time.sleep(0.01)
    write_zip(folder / "pets.zip", pictures("train/ape", "train/emu", "val/ape", "val/emu").items())
    assert at(f"{url}/pets.zip").train.classes == ["ape", "emu"]


def test_ranges_globs_and_folders_of_shards(folder: Path, server: tuple[str, Behaviour]) -> None:
    url, _ = server
    (folder / "shards").mkdir()
    parts = samples(24)
    for number in range(3):
        write_wds(folder / "shards" / f"train-{number:03d}.tar", parts[8 * number : 8 * number + 8])
    write_wds(folder / "shards" / "val-000.tar", parts[:6])
    local = opened(folder / "shards")
    assert_same(at(f"{url}/shards/"), local)
    ranged = at(f"{url}/shards/train-{{000..002}}.tar", val=f"{url}/shards/val-*.tar")
    assert_same(ranged, local)
    with pytest.raises(UserError) as error:
        at(f"{url}/shards/train-{{000..003}}.tar")
    assert_helpful(error.value, "there is nothing at", "train-003.tar")
    with pytest.raises(UserError) as error:
        at(f"{url}/shards/*.rec")
    assert_helpful(error.value, "no file matches", "train-000.tar")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nothing/", ("there is nothing at", "check the address")),
        ("/nothing.tar", ("there is nothing at", "nothing.tar")),
        ("/empty/", ("shows no files", "index pages")),
    ],
)
def test_what_is_not_there(folder: Path, server: tuple[str, Behaviour], path: str, words: tuple[str, ...]) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(UserError) as error:
        at(server[0] + path)
    assert_helpful(error.value, server[0], *words)


def test_denied(server: tuple[str, Behaviour]) -> None:
    server[1].denied = True
    for path in ("/pets/", "/pets.zip"):
        with pytest.raises(UserError) as error:
            at(server[0] + path)
        assert_helpful(error.value, "may not be read", "403", "data.remote_options")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/pets/", "http://no-such-host.invalid/x.tar"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(UserError) as error:
        at(url)
    assert_helpful(error.value, url.rpartition("/")[0], "cannot be reached", "several attempts", "check the network")


def test_another_scheme() -> None:
    with pytest.raises(UserError) as error:
        at("xyz://somewhere/pets")
    assert_helpful(error.value, "xyz://somewhere/pets", "fsspec", "xyz")


def test_wrong_options(server: tuple[str, Behaviour]) -> None:
    with pytest.raises(UserError) as error:
        at(f"{server[0]}/pets.zip", remote_options={"client_kwargs": {"no_such_option": 1}})
    assert_helpful(error.value, server[0])
