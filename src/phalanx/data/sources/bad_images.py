"""Images that do not decode: counted, reported once each, and limited in number."""

import json
import shlex
from pathlib import Path
from typing import Literal

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.errors import UserError

# Settings that do not change which samples there are. `quarantine` is one: the new list is to name all of them.
_NOT_FOR_VERIFY = {
    *("source", "val_share", "image_size", "crop_share", "interpolation", "mean", "std", "sampling", "drop_last"),
    *("threads", "prefetch", "bad_images", "bad_images_cap", "quarantine", "decode", "exif_orientation"),
    *("service", "servers", "service_key", "service_timeout_s", "service_fallback"),
}


def allowed_bad(count: int, cap: float) -> int:
    """How many images of a split may be bad: one of the smallest, too."""
    return max(1, int(cap * count + 1e-9))  # 0.29 × 100 is 28.999…


class BadImages:
    """Counts the images of a split that do not decode, each once per process, and ends the run at too many.

    `verify` is the command that finds all of them; `found_in` the list that the run writes, if it does.
    """

    def __init__(
        self,
        source: Source,
        policy: Literal["skip", "stop"] = "skip",
        cap: float = 0.01,
        *,
        verify: str | None = None,
        found_in: Path | None = None,
    ) -> None:
        self.source, self.policy, self.cap, self.verify, self.found_in = source, policy, cap, verify, found_in
        self.allowed = allowed_bad(len(source), cap)
        self.seen: set[int] = set()

    @classmethod
    def of(cls, config: DataConfig, source: Source, *, found_in: Path | None = None) -> "BadImages":
        """As the settings say."""
        verify = verify_command(config)
        return cls(source, config.bad_images, config.bad_images_cap, verify=verify, found_in=found_in)

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
                    remedy=f"repair or remove it, or data.bad_images=skip to train without it{self._leave_out()}",
                )
            if len(self.seen) > self.allowed:
                raise UserError(
                    f"{len(self.seen):,} of {len(self.source):,} images are not readable, more than the "
                    f"{self.allowed:,} that data.bad_images_cap={self.cap:g} allows",
                    why=f"the last one, {new[-1][0]}: {reason}",
                    remedy=f"repair the data, or raise data.bad_images_cap{self._leave_out()}",
                )
        return new

    def _leave_out(self) -> str:
        """How to leave out all bad images, to follow another remedy."""
        if self.verify is None:
            return ""
        so_far = ""
        if self.found_in is not None and self.found_in.is_file():
            so_far = f" ({self.found_in} has those that this run found before, and works too)"
        return f"; or find all of them with `{self.verify}`, and leave them out with data.quarantine=bad.txt{so_far}"


def verify_command(config: DataConfig) -> str:
    """The command that lists the bad samples of data: with the settings by which it is found."""
    default, words = DataConfig(), ["phalanx", "data", "verify", config.source]
    for name in DataConfig.model_fields:
        value = getattr(config, name)
        if name not in _NOT_FOR_VERIFY and value != getattr(default, name):
            words.append(f"data.{name}={_written(config, name)}")
    return shlex.join([*words, "--out", "bad.txt"])


def _written(config: DataConfig, name: str) -> str:
    value = config.model_dump(mode="json", include={name})[name]
    return value if isinstance(value, str) else json.dumps(value)
