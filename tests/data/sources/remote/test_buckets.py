"""Data in S3, served by moto, and in GCS, served by a small local server: the same as on disk."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import Splits, open_data
from phalanx.data.sources.remote import failures, listing
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful
from tests.data.shard_files import pictures as samples
from tests.data.shard_files import write_wds
from tests.data.sources.archives.test_zip import assert_same, opened, pictures, write_folder
from tests.data.sources.remote.servers import serving_gcs

MEMBERS = pictures("train/ape", "train/cat & dog", "val/ape", "val/cat & dog")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(failures, "OPENING_WAITS_S", (0.01, 0.02))
    monkeypatch.setattr(failures, "READING_WAITS_S", (0.01, 0.02))
    monkeypatch.setattr(listing, "FRESH_S", 0.0)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket with class folders and shards, filled by boto3."""
    import boto3

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"data-{os.urandom(4).hex()}"
    client = boto3.client("s3")
    client.create_bucket(Bucket=name)
    for key, data in MEMBERS.items():
        client.put_object(Bucket=name, Key=f"pets/{key}", Body=data)
    client.put_object(Bucket=name, Key="pets/", Body=b"")  # as consoles make folders
    for part in range(2):
        file = write_wds(tmp_path / f"train-{part:03d}.tar", samples(16)[8 * part : 8 * part + 8])
        client.put_object(Bucket=name, Key=f"shards/{file.name}", Body=file.read_bytes())
    yield client, name
    for each in client.list_objects_v2(Bucket=name)["Contents"]:
        client.delete_object(Bucket=name, Key=each["Key"])


def at(url: str, **settings: Any) -> Splits:
    return open_data(DataConfig.model_validate({"source": url, "val_share": 0.25, **settings}), threads=2)


@pytest.mark.parametrize("ending", ["", "/"])
def test_class_folders_in_s3(bucket: Any, tmp_path: Path, ending: str) -> None:
    client, name = bucket
    local = opened(write_folder(tmp_path / "pets", MEMBERS))
    found = at(f"s3://{name}/pets{ending}")
    assert_same(found, local)
    assert found.train.name(0) == f"s3://{name}/pets/train/ape/0.png"
    assert found.train.description.startswith(f"class folders in s3://{name}/pets/train, ")
    # A changed object is another one.
    other = list(MEMBERS.values())[-1]
    client.put_object(Bucket=name, Key="pets/train/ape/0.png", Body=other)
    again = at(f"s3://{name}/pets{ending}")
    images = [each.train.read(np.array([0]), FixedViews(8), 0, replace_bad=False).images for each in (found, again)]
    assert np.any(images[0] != images[1])


def test_shards_in_s3(bucket: Any, tmp_path: Path) -> None:
    _, name = bucket
    local = opened(Path(f"{tmp_path}/train-{{000..001}}.tar"))
    for path in ("shards/train-{000..001}.tar", "shards/*.tar", "shards/"):
        assert_same(at(f"s3://{name}/{path}"), local)
    with pytest.raises(UserError) as error:
        at(f"s3://{name}/shards/train-{{000..002}}.tar")
    assert_helpful(error.value, f"s3://{name}/shards", "there is nothing at")


def test_a_lost_object_is_a_bad_image(bucket: Any) -> None:
    client, name = bucket
    splits = at(f"s3://{name}/pets/")
    client.delete_object(Bucket=name, Key="pets/val/ape/2.png")
    found = splits.val.read(np.arange(8), FixedViews(8), 0, replace_bad=False)
    assert [index for index, _ in found.bad] == [2]


@pytest.mark.parametrize("path", ["pets2/", "pets2", "nothing.tar"])
def test_nothing_in_s3(bucket: Any, path: str) -> None:
    _, name = bucket
    for url in (f"s3://{name}/{path}", f"s3://no-such-bucket-here/{path}"):
        with pytest.raises(UserError) as error:
            at(url)
        assert_helpful(error.value, url, "there is nothing at", "AWS_ENDPOINT_URL")


def test_no_credentials_for_s3(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    _, name = bucket
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(UserError) as error:
        at(f"s3://{name}/pets/")
    assert_helpful(error.value, "may not be read", "credentials", "AWS_ACCESS_KEY_ID", "anon: true")
    assert len(at(f"s3://{name}/pets/", remote_options={"anon": True}).train) == 8


def test_class_folders_in_gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Over http alone: gcsfs's newer parts ask the server over gRPC first.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    core = pytest.importorskip("gcsfs.core", reason="gcsfs is not installed")
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.setitem(registry._registry, "gs", core.GCSFileSystem)
    shard = write_wds(tmp_path / "train-000.tar", samples(16))
    objects = {"data": {f"pets/{name}": data for name, data in MEMBERS.items()} | {"a/b.tar": shard.read_bytes()}}
    with serving_gcs(objects) as url:
        options = {"token": "anon", "endpoint_url": url}
        found = at("gs://data/pets/", remote_options=options)
        assert_same(found, opened(write_folder(tmp_path / "pets", MEMBERS)))
        assert found.train.name(0) == "gs://data/pets/train/ape/0.png"
        assert_same(at("gs://data/a/b.tar", remote_options=options), opened(shard))
        with pytest.raises(UserError) as error:
            at("gs://data/other/", remote_options=options)
        assert_helpful(error.value, "gs://data/other/", "there is nothing at")
