"""`phalanx data fetch`: downloads public datasets and checks their published checksums."""

import hashlib
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.text import Text

from phalanx.atomic import PART
from phalanx.commands.data_download import download
from phalanx.errors import UserError
from phalanx.observe.tables import print_rows


@dataclass(frozen=True)
class Published:
    """A published file. `bytes` is for the progress bar."""

    name: str
    md5: str
    bytes: int


@dataclass(frozen=True)
class Dataset:
    """A published dataset: its files, and the folder that they unpack to, if they are archives."""

    title: str
    url: str  # of the folder with the files
    files: tuple[Published, ...]
    unpacks_to: str | None
    train: str  # a command that uses it; the folder is added


DATASETS = {
    "cifar10": Dataset(
        "CIFAR-10",
        "https://www.cs.toronto.edu/~kriz/",
        (Published("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
        "cifar-10-batches-bin",
        "phalanx train cifar10-resnet20 --data",
    ),
    "cifar100": Dataset(
        "CIFAR-100",
        "https://www.cs.toronto.edu/~kriz/",
        (Published("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
        "cifar-100-binary",
        "phalanx train cifar100-wrn28-10 --data",
    ),
    "mnist": Dataset(
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            Published("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            Published("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            Published("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            Published("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        None,
        "phalanx train fashion-mnist --data",
    ),
    "fashion-mnist": Dataset(
        "Fashion-MNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            Published("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            Published("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            Published("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            Published("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        None,
        "phalanx train fashion-mnist --data",
    ),
}


def fetch_dataset(console: Console, dataset: Dataset, folder: Path, origin: str | None) -> None:
    """Put a dataset into a folder. Files that exist already are checked and stay; `origin` is a local copy or a URL."""
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in dataset.files:
            place = folder / (dataset.unpacks_to or file.name)
            if _is_there(place, file):
                console.print(Text(f"{place} is there already"), soft_wrap=True)
                continue
            # Not `write_atomically`: the next call must find, by name, what a lost connection left, and resume it.
            part = folder / f".{file.name}{PART}"
            copy = _local_copy(origin, file)
            if copy is None:
                download(console, _address(dataset, file, origin), part, file.bytes)
            else:
                shutil.copyfile(copy, part)
            _refuse_other(part, file, copy)
            if dataset.unpacks_to:
                _unpack(part, place)
                part.unlink()
            else:
                part.rename(place)
    print_rows(console, {"data": f"{dataset.title} in {folder}", "use": f"{dataset.train} {folder}"})


def _is_there(place: Path, file: Published) -> bool:
    """Whether a file or unpacked folder exists. A folder is complete if it exists; a file must be the published one."""
    if not place.exists():
        return False
    if place.is_file() and _md5(place) != file.md5:
        raise UserError(
            f"{place} is not the published file",
            why=f"its MD5 is {_md5(place)}, and {file.md5} is published",
            remedy="move it away, or fetch into another folder",
        )
    return True


def _local_copy(origin: str | None, file: Published) -> Path | None:
    """The local file of `--from`, which may be its folder; None for a URL."""
    if origin is None or "://" in origin:
        return None
    place = Path(origin).expanduser()
    place = place / file.name if place.is_dir() else place
    if not place.is_file():
        raise UserError(
            f"there is no file {place}", why="--from names it", remedy=f"name {file.name}, or the folder that it is in"
        )
    return place


def _address(dataset: Dataset, file: Published, origin: str | None) -> str:
    """The URL of a file. An origin that ends in a slash, or is for several files, is their folder."""
    if origin is None:
        return dataset.url + file.name
    alone = len(dataset.files) == 1 and not origin.endswith("/")
    return origin if alone else f"{origin.rstrip('/')}/{file.name}"


def _refuse_other(part: Path, file: Published, copy: Path | None) -> None:
    found = _md5(part)
    if found == file.md5:
        return
    part.unlink()
    raise UserError(
        f"{copy or file.name} is not the published {file.name}",
        why=f"its MD5 is {found}, and {file.md5} is published",
        remedy="run the command again; the wrong file is deleted"
        if copy is None
        else "check the copy; data in a known format can also be used where it is, with --data PATH",
    )


def _unpack(archive: Path, place: Path) -> None:
    """Unpack the folder of an archive; it is renamed as a whole. Anything but regular files inside of it is refused."""
    unfinished = place.with_name(f".{place.name}{PART}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if member.isdir():
                    continue
                if not member.isfile() or path.parts[0] != place.name or ".." in path.parts or path.is_absolute():
                    raise tarfile.TarError(f"{member.name!r} is not a regular file in {place.name}/")
                target = unfinished.joinpath(*path.parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
        unfinished.rename(place)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(
            f"{archive.name.removeprefix('.').removesuffix(PART)} cannot be unpacked",
            why=str(error),
            remedy="fetch it again",
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written",
            why=error.strerror or str(error),
            remedy="make room or fix the permissions, then run the command again: it resumes",
        ) from error
