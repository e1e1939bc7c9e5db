"""Whatever is in a list, it is read or refused with a reason: no crash, no hang."""

import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.schema import DataConfig
from phalanx.data.sources.lists.flat_folder import open_flat_folder
from phalanx.data.sources.lists.open import open_list, open_list_val
from phalanx.errors import UserError
from tests.data.sources.lists.list_samples import write_files

CELLS = [
    *("a.png", "b", "deep/c.png", "./a.png", "/a.png", "deep\\c.png", "C:\\x\\a.png", "gone.png", "", " "),
    *("image", "id", "label", "split", "train", "val", "cat", "cat dog", "cat|dog", "[1, 2]", "['a']", "is_valid"),
    *("0", "1", "1.0", "0.5", "-1", "nan", "1e400", "9" * 30, "True", '"', "'", "#", "\ufeff", "é", "\x00", "\x85"),
]
SEPARATORS = [",", ";", "\t", "|", " ", ", "]
LINES = st.lists(st.lists(st.sampled_from(CELLS), min_size=1, max_size=5), min_size=1, max_size=8)


def read(data: bytes, ending: str, config: DataConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), ["a.png", "b.jpg", "deep/c.png", "val/x.png", "val/y.png"])
        path = files / f"train{ending}"
        path.write_bytes(data)
        for classes in (None, ["cat", "dog"]):
            with suppress(UserError):
                source = open_list(path, classes, channels=None, pool=None, config=config, part="train")
                assert len(source) == len(source.names) == len(source.labels) > 0
                assert source.labels.ndim == 1 + config.multi_label
                assert np.all((source.labels >= 0) & (source.labels < max(2, len(source.classes))))
                assert all(Path(source.name(i)).exists() for i in range(len(source)))
                open_list_val(path, source.classes, channels=None, pool=None, config=config)
        with suppress(UserError):
            open_flat_folder(files / "val", path, ["cat", "dog"], channels=None, pool=None, config=config)


CONFIGS = st.builds(
    lambda several, **others: DataConfig(multi_label=several[0], label_element=several[1], **others),
    several=st.sampled_from([(False, None), (True, None), (False, 0), (False, 1)]),
    label_field=st.sampled_from([None, None, "label", "1", "0,1"]),
    image_field=st.sampled_from([None, None, "image", "0"]),
    bad_images_cap=st.sampled_from([0.01, 1.0]),
)


@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".txt", ".lst"]), CONFIGS)
@settings(max_examples=50, deadline=None)
def test_any_bytes(data: bytes, ending: str, config: DataConfig) -> None:
    read(data, ending, config)


@given(
    LINES,
    st.sampled_from(SEPARATORS),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.sampled_from([".csv", ".tsv", ".txt", ".lst"]),
    CONFIGS,
)
@settings(max_examples=150, deadline=None)
def test_tables_of_any_cells(
    lines: list[list[str]], separator: str, end: str, encoding: str, ending: str, config: DataConfig
) -> None:
    text = "".join(separator.join(cells) + end for cells in lines)
    read(text.encode(encoding, errors="replace"), ending, config)
