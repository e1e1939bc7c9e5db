"""Fonts for names in any script: which fonts of this machine can show them, and in which way.

matplotlib brings DejaVu Sans: Latin, Greek, Cyrillic, Arabic, Hebrew, some emoji. For other characters the fonts of the
system are searched, once a process. matplotlib uses fonts of outlines; colour emoji are bitmaps, and Pillow draws them.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Way = Literal["text", "image", "number"]
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_JOINING = re.compile("[\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")  # parts of one emoji
_EMOJI = re.compile("[\u203c-\u3299\U0001f000-\U0001faff]")
# letters that change their shapes with their neighbours or are reordered: Indic scripts, Tibetan, Burmese, Khmer
_COMPLEX = re.compile("[\u0900-\u0dff\u0f00-\u109f\u1780-\u17ff]")
_REGIONS = (("JP", "[\u3040-\u30ff]"), ("KR", "[\u1100-\u11ff\uac00-\ud7af]"), ("SC", ""))  # of a CJK font, by letters
_PLAIN_LAST = re.compile(
    "bold|italic|oblique|slanted|light|thin|black|medium|condensed|mono|serif|display|looped|quran"
)


@dataclass(frozen=True)
class Font:
    """One face of a font file."""

    path: str
    face: int
    family: str
    style: str
    outlines: bool  # False: bitmaps only, such as most fonts of colour emoji

    def has(self, character: str) -> bool:
        return ord(character) in _characters(self.path, self.face)


@dataclass(frozen=True)
class Lettering:
    """The fonts for a set of names, in order of preference, and how each name can be drawn."""

    fonts: tuple[Font, ...]

    def way(self, name: str) -> Way:
        """`text`: matplotlib can draw it. `image`: Pillow can. `number`: no font here shows it."""
        if self._shown_by_matplotlib(name):
            return "text"
        return "image" if self.shown_by_pillow(name) else "number"

    @property
    def families(self) -> list[str]:
        """For matplotlib's `family`: it takes each letter from the first font that has it."""
        outlines = [font for font in self.fonts if font.outlines]
        for font in outlines:
            _register(font.path)
        return [font.family for font in outlines]

    def font_of(self, character: str) -> Font | None:
        """The font of one letter. If some emoji exist in colour only, all that exist in colour are of that font."""
        colour = [font for font in self.fonts if not font.outlines and _EMOJI.match(character)]
        return next((font for font in (*colour, *self.fonts) if font.has(character)), None)

    def runs(self, name: str) -> list[tuple[Font, str]]:
        """The name in parts of one font each, in the order in which they are seen."""
        runs: list[tuple[Font, str]] = []
        for character in name:
            font = runs[-1][0] if runs and self._attached(character, runs[-1][0]) else self.font_of(character)
            font = font or self.fonts[0]
            if runs and runs[-1][0] == font:
                runs[-1] = font, runs[-1][1] + character
            elif not _invisible(character):
                runs.append((font, character))
        return runs[::-1] if _right_to_left(name) else runs

    def _attached(self, character: str, before: Font) -> bool:
        """Whether a letter has the font of the one before it. The spaces of emoji are too wide for words."""
        if character.isspace():
            return before.outlines
        return _invisible(character) or bool(unicodedata.combining(character))

    def _shown_by_matplotlib(self, name: str) -> bool:
        fonts = [self.font_of(character) for character in name if not _invisible(character)]
        return all(font and font.outlines for font in fonts) and (_matplotlib_shapes() or not needs_shaping(name))

    def shown_by_pillow(self, name: str) -> bool:
        shown = all(self.font_of(character) for character in name if not _invisible(character))
        return shown and (_pillow_shapes() or not needs_shaping(name))


def lettering(names: Iterable[str]) -> Lettering:
    """The fonts for these names. System fonts are searched only for letters that DejaVu Sans lacks."""
    base = dejavu()
    text = "".join(sorted({character for name in names for character in name if not _invisible(character)}))
    missing = [character for character in text if not base.has(character)]
    chosen: list[Font] = []
    for font in _candidates(text) if missing else ():
        if found := [character for character in missing if font.has(character)]:
            chosen.append(font)
            missing = [character for character in missing if character not in found]
        if not missing:
            break
    return Lettering((base, *chosen))


def needs_shaping(name: str) -> bool:
    """Whether letters have to be joined or reordered: without that, the name would be wrong."""
    return bool(_COMPLEX.search(name)) or any(unicodedata.bidirectional(one) in ("R", "AL") for one in name)


def drawable(name: str) -> str:
    """The name on one line: bytes that are no text and control characters become �."""
    text = " ".join(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())
    return "".join("\ufffd" if unicodedata.category(one) in ("Cc", "Cs", "Cn") else one for one in text)


@functools.cache
def dejavu() -> Font:
    """The font that comes with matplotlib."""
    import matplotlib

    return next(_faces(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))))


def _candidates(text: str) -> Iterator[Font]:
    """One face of each font file of the system: outlines first, plain styles first, of the region of the letters."""
    region = next(region for region, letters in _REGIONS if re.search(letters, text))
    fonts = [_best_face(faces, region) for faces in _system_fonts()]
    yield from sorted(fonts, key=lambda font: (not font.outlines, _plainness(font), font.path))


def _best_face(faces: Sequence[Font], region: str) -> Font:
    return next((font for font in faces if font.family.endswith(region) and not _plainness(font)), faces[0])


def _plainness(font: Font) -> int:
    words = f"{font.family} {font.style}".lower().replace("sans serif", "sans")
    return len(_PLAIN_LAST.findall(words)) + ("sans" not in words)


@functools.cache
def _system_fonts() -> list[tuple[Font, ...]]:
    """The faces of each font file of the system."""
    from matplotlib import font_manager

    return [faces for path in sorted(font_manager.findSystemFonts()) if (faces := tuple(_faces(path)))]


def _faces(path: str) -> Iterator[Font]:
    """The faces of a font file; none if it cannot be read."""
    number, count = 0, 1
    while number < count:
        try:
            opened = _open(path, number)
        except (RuntimeError, OSError, TypeError, NotImplementedError):  # damaged, or an older matplotlib
            return
        count = getattr(opened, "num_faces", 1)
        yield Font(path, number, opened.family_name, opened.style_name, bool(opened.scalable))
        number += 1


@functools.cache
def _characters(path: str, face: int) -> frozenset[int]:
    return frozenset(_open(path, face).get_charmap())


def _open(path: str, face: int) -> Any:
    from matplotlib.ft2font import FT2Font

    return FT2Font(path, face_index=face) if face else FT2Font(path)  # type: ignore[call-arg,unused-ignore]


def _register(path: str) -> None:
    """Make a font file known to matplotlib, whose own list may be older than the file."""
    from matplotlib.font_manager import fontManager

    if not any(str(entry.fname) == path for entry in fontManager.ttflist):
        fontManager.addfont(path)


def _invisible(character: str) -> bool:
    return bool(_INVISIBLE.match(character) or _JOINING.match(character))


def _right_to_left(name: str) -> bool:
    strong = (unicodedata.bidirectional(character) for character in name)
    return next((kind for kind in strong if kind in ("L", "R", "AL")), "L") != "L"


@functools.cache
def _matplotlib_shapes() -> bool:
    from matplotlib import ft2font

    return hasattr(ft2font, "__libraqm_version__")  # since matplotlib 3.11


@functools.cache
def _pillow_shapes() -> bool:
    from PIL import features

    return bool(features.check("raqm"))
