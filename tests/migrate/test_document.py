"""docs/migrate.md is what the table says."""

import re
from pathlib import Path

from phalanx.migrate.document import document
from phalanx.migrate.table import systems
from tests.migrate.rows import rows

PAGE = Path(__file__).parents[2] / "docs" / "migrate.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "python -m phalanx.migrate > docs/migrate.md"


def test_every_row_is_on_it() -> None:
    text = document()
    for _, _, row in rows():
        assert all(f"`{name}`" in text for name in row.names)


def test_its_links_lead_somewhere() -> None:
    text = document()
    titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
    assert re.findall(r"\(#(.*?)\)", text) == anchors
    assert len(titles) == len(systems()) + 1
