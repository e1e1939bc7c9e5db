"""Training from class folders, RecordIO, TFRecord and tars of the same images: the weights' SHA-256 of each.

    python -m benchmarks.same_weights FOLDER [--steps 20]

FOLDER holds train/ and val/ with class folders.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from crc32c import crc32c
from tests.data.shard_files import example, tf_record

from phalanx.data.sources.folders import open_class_folders

MODEL, SIZE = "cifar_resnet20", 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        places = {"class folders": arguments.folder}
        for kind in ("rec", "wds"):
            places[kind] = Path(scratch, kind)
            _phalanx("data", "pack", str(arguments.folder), str(places[kind]), "--format", kind)
        places["tfrecord"] = _tfrecord(arguments.folder, Path(scratch, "tfrecord"))
        for kind, place in places.items():
            out = Path(scratch, f"run of {kind}")
            settings = [f"train.length={arguments.steps}st", f"data.image_size={SIZE}", "--model", MODEL]
            _phalanx("train", "images", "--data", str(place), "--out", str(out), *settings)
            (model,) = out.glob("checkpoints/step-*/model.safetensors")
            print(f"{kind}: {hashlib.sha256(model.read_bytes()).hexdigest()}", flush=True)


def _tfrecord(folder: Path, target: Path) -> Path:
    target.mkdir()
    for part, name in (("train", "train"), ("val", "validation")):
        source = open_class_folders(folder / part, channels=None, pool=None)
        with (target / f"x-{name}.tfrecord-00000-of-00001").open("wb") as file:
            for index in range(len(source)):
                label = int(source.labels[index])
                file.write(tf_record(example({"image": source.encoded(index), "label": [label]}), crc32c))
        (target / "label.labels.txt").write_text("\n".join(source.classes))
    return target


def _phalanx(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "phalanx", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    main()
