"""WebDataset archives: how members make samples, which of them are image and label, and every kind of tar."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.webdataset import open_webdataset
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, needs_real_data
from tests.data.shard_files import pictures, wanted, wds_members, write_tar, write_wds

Members = list[tuple[str, bytes]]


def opened(*paths: Path, **settings: Any) -> ShardSource:
    return open_webdataset(list(paths), wanted(**settings))


def refused(*paths: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(*paths, **settings)
    return caught.value


def images(source: ShardSource) -> list[bytes]:
    return [source.encoded(i) for i in range(len(source))]


def test_images_and_labels_in_order(tmp_path: Path) -> None:
    samples = pictures(7)
    path = write_wds(tmp_path / "a.tar", samples)
    source = opened(path)
    assert images(source) == [image for image, _ in samples]
    assert source.labels.tolist() == [label for _, label in samples]
    assert (source.classes, source.notes) == (["0", "1", "2"], ())
    assert source.name(3) == f"{path}: 000003.jpg"
    read = source.read(np.arange(7), FixedViews(8), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (7, [])


def test_members_of_a_sample(tmp_path: Path) -> None:
    members: Members = [
        ("./n01/a.x.json", b"{}"),  # neither image nor label
        ("./n01/a.cls", b"1\n"),
        ("./n01/a.JPEG", b"first"),
        ("./n02/a.png", b"second"),  # another folder, another sample
        ("./n02/a.cls", b"0"),
        ("n03/b.webp", b"third"),
        ("n03/b.json", b'{"label": 2, "width": 3}'),
        ("n03/._b.jpg", b"what macOS adds"),
        ("n03/c.jpg", b"fourth"),
        ("n03/c.json", b'{"label": 7}'),
        ("n03/c.cls", b"1"),  # goes before the .json
        ("readme", b"no ending"),
    ]
    source = opened(write_tar(tmp_path / "a.tar", members))
    assert images(source) == [b"first", b"second", b"third", b"fourth"]
    assert source.labels.tolist() == [1, 0, 2, 1]
    assert source.name(0) == f"{tmp_path / 'a.tar'}: ./n01/a.JPEG"


@pytest.mark.parametrize(
    ("content", "classes"),
    [
        ({"label": 1}, ["0", "1"]),
        ({"cls": 1.0}, ["0", "1"]),
        ({"class": "tabby"}, ["tabby"]),
        ({"label": "1"}, ["0", "1"]),
        ({"label": [1]}, ["0", "1"]),
    ],
)
def test_labels_in_json(tmp_path: Path, content: dict[str, object], classes: list[str]) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"i"), ("a.json", json.dumps(content).encode())])
    assert opened(path).classes == classes


def test_class_names_as_labels(tmp_path: Path) -> None:
    first = write_tar(tmp_path / "a.tar", wds_members("a", b"i", "dog") + wds_members("b", b"j", "ape"))
    second = write_tar(tmp_path / "b.tar", wds_members("a", b"k", "cat") + wds_members("b", b"l", "dog\n"))
    source = opened(first, second)
    assert (source.classes, source.labels.tolist()) == (["ape", "cat", "dog"], [2, 0, 1, 2])
    mixed = write_tar(tmp_path / "c.tar", wds_members("a", b"i", "dog") + wds_members("b", b"j", 3))
    assert_helpful(refused(mixed), "numbers and names as labels: 3 and 'dog'")


def test_fields_by_setting(tmp_path: Path) -> None:
    members: Members = [
        ("a.left.png", b"left"),
        ("a.right.png", b"right"),
        ("a.cls", b"1"),
        ("a.txt", b"2"),
        ("a.json", b'{"fine": 3, "list": [5, 6]}'),
    ]
    path = write_tar(tmp_path / "a.tar", members)
    assert_helpful(refused(path), "2 images", "left.png, right.png", "data.image_field=left.png")
    source = opened(path, image_field="right.png")
    assert (images(source), source.labels.tolist()) == ([b"right"], [1])
    assert opened(path, image_field=".LEFT.png", label_field="txt").labels.tolist() == [2]
    assert opened(path, image_field="left.png", label_field="fine").labels.tolist() == [3]
    assert opened(path, image_field="left.png", label_field="list", label_element=1).labels.tolist() == [6]
    assert_helpful(refused(path, image_field="left.png", label_field="list"), "2 values", "data.label_element")
    assert_helpful(refused(path, image_field="left.png", label_field="none"), "no label", "data.label_field")
    assert_helpful(refused(path, image_field="jpg"), "holds no samples", ".left.png (1)")


def test_one_image_without_a_second_dot_is_meant(tmp_path: Path) -> None:
    members: Members = [
        ("a.mask.png", b"mask"),
        ("a.jpg", b"image"),
        ("a.cls", b"0"),
        ("b.input.png", b"only"),
        ("b.cls", b"1"),
    ]
    assert images(opened(write_tar(tmp_path / "a.tar", members))) == [b"image", b"only"]


def test_members_that_do_not_follow_one_another(tmp_path: Path) -> None:
    members: Members = [(f"{i}.jpg", bytes([i])) for i in range(5)]
    members += [(f"{i}.cls", str(i).encode()) for i in (3, 1, 4, 0, 2)]
    source = opened(write_tar(tmp_path / "a.tar", members))
    assert (images(source), source.labels.tolist()) == ([bytes([i]) for i in range(5)], [0, 1, 2, 3, 4])


def test_what_is_left_over(tmp_path: Path) -> None:
    members = [*wds_members("a", b"i", 0), ("b.cls", b"1"), ("c.txt", b"a caption")]
    source = opened(write_tar(tmp_path / "a.tar", members))
    assert "1 labels without an image are left out; other members end in .txt (1)" in source.notes[0]
    path = write_tar(tmp_path / "b.tar", [*members, ("d.png", b"j"), ("e.png", b"k")])
    assert_helpful(refused(path), "2 images of", "first d.png", ".txt (1)", "data.label_field")
    path = write_tar(tmp_path / "c.tar", [("x/a.bin", b"1"), ("x/b.bin", b"2")])
    assert_helpful(refused(path), "holds no samples", ".bin (2)")
    path = write_tar(tmp_path / "d.tar", [("a.jpg", b"i"), ("a.jpg", b"j"), ("a.cls", b"0")])
    assert_helpful(refused(path), "a.jpg twice")


@pytest.mark.parametrize("label", [b"", b"-1", b"\xff", b"1e5\0", b"x" * 300, b"9" * 30])
def test_labels_that_are_none(tmp_path: Path, label: bytes) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"i"), ("a.cls", label)])
    assert_helpful(refused(path), "the label of a.cls (offset 1,536 of", str(path))


@pytest.mark.parametrize(
    "text", ["{", '{"label": {}}', '{"label": [1, 2]}', "[" * 100_000, '{"label": NaN}', '{"label": 1e999}']
)
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"i"), ("a.json", text.encode())])
    assert_helpful(refused(path), "the label of a.json", str(path))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folder", ["", "f" * 90 + "/", "g" * 60 + "/" + "h" * 70 + "/", "ordentlich groß/"])
def test_long_names_in_every_dialect(tmp_path: Path, form: int, folder: str) -> None:
    samples = pictures(2)
    members = [member for i, sample in enumerate(samples) for member in wds_members(f"{folder}img_{i}", *sample)]
    path = write_tar(tmp_path / "a.tar", members, form=form)
    source = opened(path)
    assert images(source) == [image for image, _ in samples]
    assert [source.name(i) for i in range(2)] == [f"{path}: {folder}img_{i}.jpg" for i in range(2)]
    if len(folder) > 100 and form != tarfile.USTAR_FORMAT:
        key = "k" * 300
        path = write_tar(tmp_path / "b.tar", wds_members(key, b"i", 0), form=form)
        assert opened(path).name(0) == f"{path}: {'k' * 196}.jpg"


def test_folders_links_and_what_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        folder = tarfile.TarInfo("folder.jpg")
        folder.type = tarfile.DIRTYPE
        other = tarfile.TarInfo("link.md")
        other.type, other.linkname = tarfile.SYMTYPE, "a.jpg"
        tar.addfile(other)
        tar.addfile(folder)
        for name, data in wds_members("a", b"i", 0):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    assert images(opened(path)) == [b"i"]
    for kind, words in ((tarfile.LNKTYPE, "a hard link"), (tarfile.SYMTYPE, "a symbolic link"), (b"S", "sparse")):
        with tarfile.open(path, "w") as tar:
            info = tarfile.TarInfo("b.jpg")
            info.type, info.linkname = kind, "a.jpg"
            tar.addfile(info)
        assert_helpful(refused(path), f"b.jpg is {words}", "pack the archive again")


def test_pax_sizes_and_sparse_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for headers, words in (
        ({"GNU.sparse.major": "1"}, "sparse"),
        ({"size": "12x"}, "size"),
        ({"size": "9" * 17}, "ends"),
    ):
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("a.jpg")
            info.pax_headers = headers
            tar.addfile(info)
        assert_helpful(refused(path), words)


def test_archives_one_after_the_other(tmp_path: Path) -> None:
    samples = pictures(4)
    parts = [write_wds(tmp_path / f"{i}.tar", samples[2 * i : 2 * i + 2]).read_bytes() for i in range(2)]
    (tmp_path / "both.tar").write_bytes(b"".join(parts))
    assert images(opened(tmp_path / "both.tar")) == [image for image, _ in samples]


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    whole = write_wds(tmp_path / "a.tar", pictures(3)).read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        places = {info.name: info.offset for info in tar.getmembers()}
    path = tmp_path / "cut.tar"
    last = places["000002.jpg"]
    for length in (last + 1, last + 511, last + 512, last + 600):
        path.write_bytes(whole[:length])
        assert_helpful(refused(path), f"damaged at offset {last:,}", "2 samples before it are good", "data.salvage")
    assert len(opened(path, salvage=True)) == 2
    path.write_bytes(whole[: places["000002.cls"]])
    assert_helpful(refused(path), f"damaged at offset {places['000002.cls']:,}", "no end marker")
    assert len(opened(path, salvage=True)) == 2, "the last image has lost its label"
    path.write_bytes(whole[:last])
    assert_helpful(refused(path), "no end marker")


def test_a_flipped_bit_in_a_header(tmp_path: Path) -> None:
    path = write_wds(tmp_path / "a.tar", pictures(2))
    whole = path.read_bytes()
    second = 512 + len(pictures(2)[0][0]) + -len(pictures(2)[0][0]) % 512
    for place in (0, 124, 148, 257, 511):
        data = bytearray(whole)
        data[second + place] ^= 1
        path.write_bytes(data)
        assert_helpful(refused(path), f"damaged at offset {second:,}", "checksum")


def test_a_size_larger_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for size in (2**33, 2**62):
        info = tarfile.TarInfo("a.jpg")
        info.size = size
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        assert_helpful(refused(path), "damaged at offset 0", f"into the {size:,} of a.jpg")


def test_gzipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    samples = pictures(4)
    plain = write_wds(tmp_path / "plain.tar", samples[:2])
    packed = write_wds(tmp_path / "packed.tgz", samples[2:], "w:gz")
    source = opened(plain, packed)
    assert images(source) == [image for image, _ in samples]
    assert source.name(3) == f"{packed}: 000001.jpg"
    kept = sorted((tmp_path / "cache" / "phalanx" / "unpacked").glob("*.tgz.*"))
    assert len(kept) == 1
    misnamed = tmp_path / "really-packed.tar"
    misnamed.write_bytes(gzip.compress(plain.read_bytes()))
    assert images(opened(misnamed)) == [image for image, _ in samples[:2]]


@needs_real_data
def test_real_files(tmp_path: Path) -> None:
    link = tmp_path / "sample.tar"
    link.symlink_to(REAL / "foreign/wds/WebDataset.jl/sample.tar")
    source = opened(link)
    assert (len(source), source.classes, source.name(0)) == (90, [str(i) for i in range(10)], f"{link}: 10.png")
    read = source.read(np.arange(90), FixedViews(28), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (90, [])
