"""Small valid datasets in every format, as files by name: what attacks on readers begin with."""

import functools
import gzip
import io
import json
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.data.pack.packs import pack_folder
from tests.data.samples import image_bytes, noise, write_images
from tests.data.shard_files import pictures, rec_image, write_rec, write_tar, write_tfrecord, write_wds
from tests.fuzz import repair

Repair = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Dataset:
    """Files by name, and what `data.source` says, relative to their folder."""

    files: dict[str, bytes]
    source: str
    repair: Repair | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of `data`

    @contextmanager
    def written(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield Path(folder)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _made(write: Callable[[Path], object], source: str, fix: Repair | None = None) -> Dataset:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return Dataset(_files(Path(folder)), source, fix)


def _class_tar(folder: Path) -> None:
    members = [(f"{name}/{i}.jpg", image) for name in ("ape", "cat") for i, (image, _) in enumerate(pictures(2))]
    write_tar(folder / "a.tar", [*members, ("x" * 120 + "/1.jpg", pictures(1)[0][0])], form=tarfile.PAX_FORMAT)


def _odd_wds(folder: Path) -> None:
    """Long names of GNU's and of pax's, links, JSON labels."""
    with tarfile.open(folder / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for i, (image, label) in enumerate(pictures(3)):
            for name, data in ((f"{'k' * 120}{i}.jpg", image), (f"{'k' * 120}{i}.json", json.dumps({"cls": label}))):
                content = data if isinstance(data, bytes) else data.encode()
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)


def _zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name in ("ape", "cat"):
            for i, (image, _) in enumerate(pictures(2, form="PNG")):
                how = zipfile.ZIP_DEFLATED if i else zipfile.ZIP_STORED
                archive.writestr(f"{name}/{i}.png", image, how)


def _rows() -> list[dict[str, Any]]:
    return [
        {"image": {"bytes": image, "path": f"{i}.jpg"}, "label": label} for i, (image, label) in enumerate(pictures(4))
    ]


def _schema() -> Any:
    import pyarrow as pa

    features = {"image": {"_type": "Image"}, "label": {"names": ["ape", "cat", "dog"], "_type": "ClassLabel"}}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    fields = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.int64()}
    return pa.schema(fields, metadata=told)


def _parquet(folder: Path, compression: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(_rows(), schema=_schema())
    pq.write_table(table, folder / "train.parquet", row_group_size=2, compression=compression)


def _arrow(folder: Path, stream: bool, compression: str | None = None) -> None:
    import pyarrow as pa

    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    batch = pa.RecordBatch.from_pylist(_rows(), schema=_schema())
    with make(folder / "train.arrow", _schema(), options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)


def _saved_to_disk(folder: Path) -> None:
    _arrow(folder, stream=True)
    (folder / "train.arrow").rename(folder / "data-00000-of-00001.arrow")
    features = {"image": {"_type": "Image"}, "label": {"names": ["ape", "cat", "dog"], "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


IMAGES, LABELS = noise(6, 5, 5, 3), np.array([0, 1, 2, 0, 1, 2])


def _npy(folder: Path) -> None:
    np.save(folder / "X_train.npy", IMAGES)
    np.save(folder / "y_train.npy", LABELS)


def _npz(folder: Path, save: Any = np.savez) -> None:
    save(folder / "a.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:3], y_test=np.array(["a", "b", "c"])[:3])


def _hdf5(folder: Path, chunked: bool) -> None:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        more = {"chunks": (2, 5, 5, 3), "compression": "gzip"} if chunked else {}
        file.create_dataset("images", data=IMAGES, **more)
        file.create_dataset("labels", data=LABELS)
        if chunked:
            file.create_dataset("names", data=["ape", "cat", "dog"])


def _idx(folder: Path) -> None:
    for part, pack in (("train", bytes), ("t10k", gzip.compress)):
        ending = ".gz" if part == "t10k" else ""
        images = struct.pack(">4B3I", 0, 0, 8, 3, 6, 5, 5) + IMAGES[..., 0].tobytes()
        (folder / f"{part}-images-idx3-ubyte{ending}").write_bytes(pack(images))
        labels = struct.pack(">4BI", 0, 0, 8, 1, 6) + bytes(LABELS.tolist())
        (folder / f"{part}-labels-idx1-ubyte{ending}").write_bytes(pack(labels))


def _bin(folder: Path) -> None:
    record = b"".join(bytes([i % 3]) + noise(3 * 8 * 8, seed=i).tobytes() for i in range(12))
    (folder / "train.bin").write_bytes(record)


def _cifar(folder: Path) -> None:
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(bytes([number]) + noise(3072, seed=number).tobytes())
    (folder / "test_batch.bin").write_bytes(2 * (bytes([1]) + noise(3072).tobytes()))
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))


def _stl10(folder: Path) -> None:
    for part in ("train", "test"):
        (folder / f"{part}_X.bin").write_bytes(noise(2 * 3 * 96 * 96).tobytes())
        (folder / f"{part}_y.bin").write_bytes(b"\1\2")


def _svhn(folder: Path) -> None:
    from scipy.io import savemat

    for part in ("train", "test"):
        savemat(
            folder / f"{part}_32x32.mat", {"X": noise(32, 32, 3, 2), "y": np.array([[1], [10]])}, do_compression=True
        )


def _packed(folder: Path, form: str) -> None:
    with tempfile.TemporaryDirectory() as other:
        source = write_images(Path(other) / "images", {"ape": 3, "cat": 3})
        pack_folder(source, folder, form, threads=1)


def _image_folder(folder: Path) -> None:
    forms = {"png": "PNG", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF", "webp": "WEBP", "ppm": "PPM"}
    for name in ("ape", "cat"):
        (folder / name).mkdir()
        for number, (ending, form) in enumerate(forms.items()):
            (folder / name / f"{number}.{ending}").write_bytes(image_bytes(noise(9, 7, 3, seed=number), form))


def _rec(folder: Path) -> None:
    write_rec(folder / "a.rec", pictures(3))
    more = b"".join(rec_image(image, [label, 1.0], i) for i, (image, label) in enumerate(pictures(2)))
    (folder / "b.rec").write_bytes(more)


def _names_beside(folder: Path) -> None:
    """Class folders under codes, with files that name them; a quarantine."""
    write_images(folder, {"n01440764": 2, "n01443537": 2})
    (folder / "synset_words.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish\n")
    (folder / "classes.json").write_text('{"n01440764": "tench", "n01443537": "goldfish"}')
    (folder / "README.md").write_text("---\nlicense: mit\nconfigs:\n- config_name: default\n---\n")


MAKERS: dict[str, Callable[[], Dataset]] = {
    "wds": lambda: _made(lambda to: write_wds(to / "a.tar", pictures(4)), "wds:a.tar", repair.tar),
    "wds-odd": lambda: _made(_odd_wds, "wds:a.tar", repair.tar),
    "wds-gzip": lambda: _made(lambda to: write_wds(to / "a.tar.gz", pictures(2), "w:gz"), "wds:a.tar.gz"),
    "tar": lambda: _made(_class_tar, "tar:a.tar", repair.tar),
    "zip": lambda: _made(_zip, "zip:a.zip"),
    "tfrecord": lambda: _made(lambda to: write_tfrecord(to / "a.tfrecord", pictures(4)), "a.tfrecord", repair.tfrecord),
    "rec": lambda: _made(_rec, "rec:a.rec"),
    "rec-several": lambda: replace(_made(_rec, "rec:b.rec"), settings={"label_element": 0}),
    "parquet": lambda: _made(lambda to: _parquet(to, "none"), "train.parquet"),
    "parquet-snappy": lambda: _made(lambda to: _parquet(to, "snappy"), "train.parquet"),
    "arrow-stream": lambda: _made(lambda to: _arrow(to, stream=True), "train.arrow"),
    "arrow-file": lambda: _made(lambda to: _arrow(to, stream=False), "train.arrow"),
    "arrow-lz4": lambda: _made(lambda to: _arrow(to, stream=True, compression="lz4"), "train.arrow"),
    "saved-to-disk": lambda: _made(_saved_to_disk, "."),
    "npy": lambda: _made(_npy, "."),
    "npz": lambda: _made(_npz, "a.npz"),
    "npz-deflated": lambda: _made(lambda to: _npz(to, np.savez_compressed), "a.npz"),
    "hdf5": lambda: _made(lambda to: _hdf5(to, chunked=False), "a.h5"),
    "hdf5-chunks": lambda: _made(lambda to: _hdf5(to, chunked=True), "a.h5"),
    "idx": lambda: _made(_idx, "idx:."),
    "bin": lambda: _made(_bin, "bin:train.bin"),
    "cifar": lambda: _made(_cifar, "cifar:."),
    "stl10": lambda: _made(_stl10, "stl10:."),
    "svhn": lambda: _made(_svhn, "svhn:."),
    "raw": lambda: _made(lambda to: _packed(to, "raw"), "raw:.", repair.raw),
    "packed-rec": lambda: _made(lambda to: _packed(to, "rec"), "."),
    "images": lambda: _made(_image_folder, "folder:.", repair.png),
    "names": lambda: _made(_names_beside, "folder:."),
}


@functools.cache
def dataset(name: str) -> Dataset:
    return MAKERS[name]()
