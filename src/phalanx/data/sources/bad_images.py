"""Images that do not decode: counted, reported once, and no more of them than allowed."""

from typing import Literal

from phalanx.data.base import Source
from phalanx.errors import UserError


class BadImages:
    """Keeps count of a split's images that do not decode, each once a process, and ends the run where it must."""

    def __init__(self, source: Source, policy: Literal["skip", "stop"] = "skip", cap: float = 0.01) -> None:
        self.source, self.policy, self.cap = source, policy, cap
        self.allowed = max(1, int(cap * len(source) + 1e-9))  # 0.29 × 100 is 28.999…
        self.met: set[int] = set()

    def sync_step(self, bad: list[tuple[int, str]]) -> list[tuple[str, str]]:
        """(name, reason) of those not met before. UserError where the policy is to stop, or there are too many."""
        new = []
        for index, reason in bad:
            if index in self.met:
                continue
            self.met.add(index)
            new.append((self.source.name(index), reason))
            if self.policy == "stop":
                raise UserError(
                    f"{new[-1][0]} is not a readable image",
                    why=reason,
                    remedy="mend or remove it, or data.bad_images=skip to train without it",
                )
            if len(self.met) > self.allowed:
                raise UserError(
                    f"{len(self.met):,} of {len(self.source):,} images are not readable, more than the "
                    f"{self.allowed:,} that data.bad_images_cap={self.cap:g} allows",
                    why=f"the last one, {new[-1][0]}: {reason}",
                    remedy="mend the data, or raise data.bad_images_cap",
                )
        return new
