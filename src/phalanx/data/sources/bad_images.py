"""Images that do not decode: counted, reported once each, and limited in number."""

from typing import Literal

from phalanx.data.base import Source
from phalanx.errors import UserError


def allowed_bad(count: int, cap: float) -> int:
    """How many images of a split may be bad: one of the smallest, too."""
    return max(1, int(cap * count + 1e-9))  # 0.29 × 100 is 28.999…


class BadImages:
    """Counts the images of a split that do not decode, each once per process, and ends the run at too many."""

    def __init__(self, source: Source, policy: Literal["skip", "stop"] = "skip", cap: float = 0.01) -> None:
        self.source, self.policy, self.cap = source, policy, cap
        self.allowed = allowed_bad(len(source), cap)
        self.seen: set[int] = set()

    def count(self, bad: list[tuple[int, str]]) -> list[tuple[str, str]]:
        """Count bad images; returns (name, reason) of the new ones. Raises UserError if the policy demands to stop."""
        new = []
        for index, reason in bad:
            if index in self.seen:
                continue
            self.seen.add(index)
            new.append((self.source.name(index), reason))
            if self.policy == "stop":
                raise UserError(
                    f"{new[-1][0]} is not a readable image",
                    why=reason,
                    remedy="repair or remove it, or data.bad_images=skip to train without it",
                )
            if len(self.seen) > self.allowed:
                raise UserError(
                    f"{len(self.seen):,} of {len(self.source):,} images are not readable, more than the "
                    f"{self.allowed:,} that data.bad_images_cap={self.cap:g} allows",
                    why=f"the last one, {new[-1][0]}: {reason}",
                    remedy="repair the data, or raise data.bad_images_cap",
                )
        return new
