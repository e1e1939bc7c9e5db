"""UserError: what happened, why, and what to do about it; and near matches for a mistyped name."""

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_OURS = 1
EXIT_USER = 2
EXIT_REFORM = 75  # a trainer that lost a peer, saved where it stood, and waits to be started in a new group


class UserError(Exception):
    """`phalanx.Error`: what the user can correct. The command line prints it without a traceback and exits with 2.

    >>> try:
    ...     phalanx.train("digits", epoch=5)
    ... except phalanx.Error as error:
    ...     print(error.what, "-", error.remedy)
    train() has no argument 'epoch' - did you mean epochs, warmup_epochs, lr_step_epochs?
    """

    lost = ""  # the role whose loss is the cause, such as trainer-1, where another process is

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(what, why, remedy)

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.remedy:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)


def parse_error(lines: Iterable[str]) -> UserError | None:
    """The last error among the lines that a process printed, as `error: WHAT`, `  why: WHY`, `  try: REMEDY`."""
    marks = {"what": "error: ", "why": "  why: ", "remedy": "  try: "}
    parts: dict[str, str] = {}
    for line in lines:
        found = next((part for part, mark in marks.items() if line.startswith(mark)), None)
        if found == "what":
            parts = {}
        if found is not None:
            parts[found] = line.removeprefix(marks[found])
        elif parts:  # a part of several lines
            parts[list(parts)[-1]] += f"\n{line}"
    return UserError(**parts) if "what" in parts else None


def nearest(name: str, valid: Iterable[str], count: int = 3) -> str:
    """The valid names closest to a mistyped one, as a phrase for an error: `did you mean a, b?`."""
    names = list(valid)
    close = get_close_matches(name.lower(), names, n=count, cutoff=0.5)
    close += [known for known in names if name and name.lower() in known.lower() and known not in close]
    if close:
        return f"did you mean {', '.join(close[:count])}?"
    shown = sorted(names)
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return f"one of: {', '.join(shown[:12])}{more}"
