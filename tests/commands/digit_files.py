"""The validation digits as image files in class folders, as a user would have them."""

from pathlib import Path

from PIL import Image

from phalanx.data.sources.embedded import open_digits


def write_digits(folder: Path, count: int | None = None) -> Path:
    """The first `count` of them, or all."""
    source = open_digits("val", channels=1)
    for index in range(len(source) if count is None else count):
        path = folder / source.classes[source.labels[index]] / f"{index:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.images[source.rows[index], :, :, 0]).save(path)
    return folder


def write_own_dataset(folder: Path, files: Path) -> str:
    """A user's own dataset of these files; its reference."""
    (folder / "mine.py").write_text(
        "from pathlib import Path\n"
        "from PIL import Image\n"
        "class Digits:\n"
        "    classes = [str(digit) for digit in range(10)]\n"
        f"    def __init__(self, first=0): self.files = sorted(Path({str(files)!r}).glob('*/*'))[first:]\n"
        "    def __len__(self): return len(self.files)\n"
        "    def __getitem__(self, index): return Image.open(self.files[index]), int(self.files[index].parent.name)\n"
    )
    return f"{folder / 'mine.py'}:Digits"
