"""Fonts: what the font of matplotlib shows, what it cannot, and fonts of the machine, with and without any."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from PIL import features

from phalanx.observe import fonts
from phalanx.observe.class_names import class_names, legend_text
from phalanx.observe.fonts import dejavu, drawable, lettering, needs_shaping
from phalanx.observe.text_images import text_image

PRIVATE = "\U0010fffd"  # for private use: no font has it
OWN = Path(matplotlib.get_data_path(), "fonts", "ttf")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the system's fonts, empty at first."""
    from matplotlib import font_manager

    found = lambda: [str(path) for path in tmp_path.iterdir()]  # noqa: E731
    monkeypatch.setattr(font_manager, "findSystemFonts", found)
    fonts._system_fonts.cache_clear()
    yield tmp_path
    fonts._system_fonts.cache_clear()


def test_latin_arabic_hebrew_and_some_emoji_need_no_other_font(installed: Path) -> None:
    names = ["Straße", "Ελλάδα", "собака", "قطة صغيرة", "חתול", "🐱", "$a_b^2$", "a\u200db"]
    chosen = lettering(names)
    assert chosen.families == ["DejaVu Sans"]
    assert {chosen.way(name) for name in names} <= ({"text"} if fonts._matplotlib_shapes() else {"text", "image"})


def test_names_that_no_font_shows_are_numbered_with_a_legend(installed: Path) -> None:
    shown = class_names(["cat", "狗", "dog\ttail\n", "🐶 dog"])
    assert shown.shown == ["cat", "#1", "dog tail", "#3"]
    assert shown.numbered == [1, 3]
    assert shown.note(Path("a/c-classes.tsv")) == (
        "no font here shows 2 of the 4 class names; c-classes.tsv says which number is which"
    )
    assert class_names(["cat"]).note(Path("c.tsv")) == ""
    assert legend_text(["cat", "狗", "dog\ttail\n"]) == "0\tcat\n1\t狗\n2\tdog tail\n"


def test_a_font_of_the_machine_is_used_for_what_the_own_one_lacks(installed: Path) -> None:
    missing = "\u2a53"  # of matplotlib's fonts, only those for mathematics have this sign
    assert lettering([missing]).way(missing) == "number"
    (installed / "damaged.ttf").write_bytes(b"no font")
    shutil.copy(OWN / "STIXGeneralBol.ttf", installed / "bold.ttf")
    shutil.copy(OWN / "STIXGeneral.ttf", installed / "plain.ttf")
    fonts._system_fonts.cache_clear()
    names = ["cat", f"cat {missing}", PRIVATE]
    chosen = lettering(names)
    assert [Path(font.path).name for font in chosen.fonts] == ["DejaVuSans.ttf", "plain.ttf"]
    assert chosen.families == ["DejaVu Sans", "STIXGeneral"]
    assert [chosen.way(name) for name in names] == ["text", "text", "number"]
    assert [(font.family, text) for font, text in chosen.runs(f"cat {missing} {missing}")] == [
        ("DejaVu Sans", "cat "),
        ("STIXGeneral", f"{missing} {missing}"),
    ]


def test_a_cjk_font_of_this_machine_is_found() -> None:
    chosen = lettering(["狗"])
    if len(chosen.fonts) == 1:
        pytest.skip("no font with Chinese letters on this machine")
    assert chosen.way("狗") == "text"
    assert chosen.families[1] != "DejaVu Sans"
    assert text_image("狗", chosen, 20, (0, 0, 0)).getbbox() is not None


def test_right_to_left_parts_are_seen_from_the_right(installed: Path) -> None:
    shutil.copy(OWN / "STIXGeneral.ttf", installed / "plain.ttf")
    fonts._system_fonts.cache_clear()
    chosen = lettering(["\u2a53"])
    assert [text for _, text in chosen.runs("قطة\u2a53")] == ["\u2a53", "قطة"]
    assert [text for _, text in chosen.runs("cat\u2a53")] == ["cat", "\u2a53"]


def test_what_has_to_be_joined_is_known() -> None:
    assert [needs_shaping(name) for name in ("cat", "狗", "قطة", "חתול", "बाघ", "ж")] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.skipif(not features.check("raqm"), reason="Pillow without libraqm does not join letters")
def test_letters_are_joined() -> None:
    """An Arabic word is narrower than its letters one by one, because they are joined."""
    chosen = lettering(["قطة"])
    alone = sum(text_image(letter, chosen, 40, (0, 0, 0)).width for letter in "قطة")
    assert text_image("قطة", chosen, 40, (0, 0, 0)).width < 0.9 * alone


def test_names_are_on_one_line_and_of_letters() -> None:
    assert drawable("a\n b\tc") == "a b c"
    assert drawable(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf�"
    assert drawable("a\x07b") == "a�b"
    assert dejavu().has("�")
    assert class_names(["a very long name of a class"], 10).shown == ["a very lo…"]
