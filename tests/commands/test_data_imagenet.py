import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.data_imagenet import pack_imagenet
from phalanx.data.sources.manifest import Options, load_manifest
from phalanx.errors import UserError
from tests.data.pack.packs import parts_of, shard_sums
from tests.data.pack.test_imagenet import TRAIN, write_archives
from tests.data.samples import assert_helpful


def packed(folder: Path, archives: tuple[Path, Path, Path], **options: object) -> list[str]:
    text = io.StringIO()
    chosen = Options.model_validate({"form": "rec", **options})
    pack_imagenet(Console(file=text), *archives, folder, chosen, "phalanx data imagenet …")
    return text.getvalue().splitlines()


def test_official_archives_become_shards_and_interrupted_ones_go_on(tmp_path: Path) -> None:
    archives = write_archives(tmp_path)
    lines = packed(tmp_path / "p", archives, shards=2)
    assert any(line.startswith("train: 6 samples in 2 shards") for line in lines)
    assert any(line.startswith("val: 5 samples in 2 shards") for line in lines)
    parts = parts_of(tmp_path / "p")
    assert (parts["train"].classes, parts["val"].labels.tolist()) == (sorted(TRAIN), [0, 2, 2, 1, 0])
    before = shard_sums(tmp_path / "p")
    (tmp_path / "p" / "train-00001.rec").unlink()
    assert packed(tmp_path / "p", archives, shards=2)[0] == "before: 4 shards were there already"
    assert shard_sums(tmp_path / "p") == before
    with pytest.raises(UserError) as caught:
        packed(tmp_path / "p", archives, shards=2, resize=10)
    assert_helpful(caught.value, "resize unset, now 10")
    os.utime(archives[0], ns=(1, 1))
    with pytest.raises(UserError) as caught:
        packed(tmp_path / "p", archives, shards=2)
    assert_helpful(caught.value, "other data")
    manifest = load_manifest(tmp_path / "p")
    assert manifest is not None
    assert manifest.source == f"ImageNet: {archives[0]}, {archives[1]}"
