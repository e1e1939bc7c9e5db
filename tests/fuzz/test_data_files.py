"""Attacks on the files of datasets, in every format: only UserError, no hang, and bounded memory."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from phalanx.config.schema import DataConfig
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.open import open_data, open_parts
from tests.data.samples import FixedViews
from tests.fuzz.budget import fuzz
from tests.fuzz.datasets import MAKERS, Dataset, dataset
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged

MOST_READ = 20  # samples of a source


@pytest.fixture(autouse=True, scope="module")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def read_all(made: Dataset, **settings: Any) -> None:
    """Open a dataset as `phalanx data info` and as training do, and read its samples."""
    with made.written() as folder, contextlib.chdir(folder), guarded():
        config = DataConfig(source=made.source, **made.settings, **settings)
        parts, notes = open_parts(config, threads=0)
        assert sum(map(len, notes)) < 100_000
        for source in parts.values():
            count = min(len(source), MOST_READ)
            read = source.read(np.arange(count), FixedViews(8), 0, replace_bad=False)
            assert len(read.images) + len(read.bad) == count
            for index in range(count):
                assert source.name(index)
                with contextlib.suppress(OSError, BadImage):
                    source.stored(index)
        open_data(config, threads=0)


@pytest.mark.parametrize("name", MAKERS)
def test_valid_files_are_read(name: str) -> None:
    """What the attacks begin with is right: otherwise they would not get far."""
    with dataset(name).written() as folder, contextlib.chdir(folder):
        parts, _ = open_parts(DataConfig(source=dataset(name).source, **dataset(name).settings), threads=0)
        for source in parts.values():
            read = source.read(np.arange(len(source)), FixedViews(8), 0, replace_bad=False)
            assert len(read.images) == len(source) > 1


@pytest.mark.parametrize("name", MAKERS)
@fuzz(examples=12, data=st.data())
def test_damaged_files(name: str, data: st.DataObject) -> None:
    made = dataset(name)
    victim = data.draw(st.sampled_from(sorted(made.files)))
    contents = [made.files[victim], *made.files.values()][:4]
    content = data.draw(damaged(contents if data.draw(st.booleans()) else contents[:1], made.repair))
    settings = {"salvage": True} if data.draw(st.integers(0, 3)) == 0 else {}
    read_all(replace(made, files={**made.files, victim: content}), **settings)


@pytest.mark.parametrize("name", MAKERS)
@fuzz(examples=3, content=st.binary(max_size=2000), magic=st.integers(0, 600))
def test_any_bytes(name: str, content: bytes, magic: int) -> None:
    made = dataset(name)
    victim = min(made.files)
    read_all(replace(made, files={**made.files, victim: made.files[victim][:magic] + content}))
