"""Photographs, and servers of them that end with their test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.service.servers import Servers, configured, write_photographs


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("photographs") / "data")


@pytest.fixture
def servers(photographs: Path, tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path, configured(photographs))
    yield servers
    servers.kill()


@pytest.fixture(scope="module")
def standing(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A server that several tests share, and none of them harms."""
    servers = Servers(tmp_path_factory.mktemp("standing"), configured(photographs))
    servers.start(0)
    yield servers
    servers.kill()
