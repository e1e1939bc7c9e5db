"""Rates, sizes, times and money as users write them: 25Gbit, 300GB/s, 16GB, 6h."""

import re

from phalanx.errors import UserError

_NUMBER = r"\s*(\d+(?:\.\d+)?)\s*"
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(_NUMBER + r"([kmgt]?)(bits?|b)(?:/s|ps)?\s*", re.IGNORECASE)
_SIZE = re.compile(_NUMBER + r"([kmgt]?)(i?)b\s*", re.IGNORECASE)
_TIME = re.compile(_NUMBER + r"(us|µs|ms|s|min|h|d)\s*")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_rate(text: str, what: str) -> float:
    """Bytes a second. `25Gbit` (or 25Gbit/s, 25Gbps) is in bits, `12.5GB/s` in bytes."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{what} {text!r} is no rate",
            why="it has no unit" if re.fullmatch(_NUMBER, text) else "its form is not known",
            remedy=f"write {text.strip() if re.fullmatch(_NUMBER, text) else 25}Gbit (bits) or 12.5GB/s (bytes)",
        )
    amount = float(found[1]) * _PREFIX[found[2].lower()]
    in_bytes = found[3] == "B"
    if amount <= 0:
        raise UserError(f"{what} {text!r} is no rate", why="nothing would ever arrive", remedy="write 25Gbit")
    return amount if in_bytes else amount / 8


def parse_size(text: str, what: str) -> float:
    """Bytes: 16GB, 512MB, 1.5TB; GiB counts in powers of 1024."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f"{what} {text!r} is no size", why="it needs a number and a unit", remedy="write 16GB")
    if found[3]:
        return float(found[1]) * 1024.0 ** list(_PREFIX).index(found[2].lower())
    return float(found[1]) * _PREFIX[found[2].lower()]


def parse_time(text: str, what: str) -> float:
    """Seconds: 6h, 30min, 2d, 20us."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UserError(
            f"{what} {text!r} is no time", why="it needs a number and a unit", remedy="write 6h, 30min or 2d"
        )
    return float(found[1]) * _SECONDS[found[2]]


def show_time(seconds: float) -> str:
    """As a person would say it: 5 h 09 min, 83 min, 12 s, 4.2 ms."""
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:.1f} d"
    if seconds >= 2 * 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02} min"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else show_ms(seconds)


def show_ms(seconds: float) -> str:
    """Milliseconds; of long steps seconds."""
    if seconds >= 10:
        return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.1f} s"
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def show_bytes(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def show_rate(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
