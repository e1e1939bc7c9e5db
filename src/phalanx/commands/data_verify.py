"""`phalanx data verify`: decode every sample, check every checksum, and list what is broken."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from phalanx.commands.data_settings import data_config, portable, print_notes, write_out
from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import Whole
from phalanx.data.pack.checksums import damaged_files
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.manifest import load_manifest
from phalanx.data.sources.open import open_parts
from phalanx.data.sources.raw import RawSource
from phalanx.errors import EXIT_OURS, UserError
from phalanx.machine.cores import cores
from phalanx.observe.progress import megabytes, progress
from phalanx.observe.tables import print_line, printable, tab_separated

AT_ONCE = 256  # samples between two reports of progress
SIDE = 32  # a JPEG is decoded in full for any size; a small result only saves the work after it
MAX_SHOWN = 50


@dataclass
class Findings:
    """The errors found: files, and samples by name; each with its reason."""

    checked: int = 0
    files: list[tuple[str, str]] = field(default_factory=list)
    samples: list[tuple[str, str]] = field(default_factory=list)
    missing: int = 0  # of the samples


def verify_data(console: Console, source: str, settings: list[str], out: Path | None) -> int:
    """Returns 1 if anything is damaged, else 0. `out` gets the bad samples, in the format of data.quarantine."""
    config = data_config(source, settings)
    findings = Findings()
    findings.files += _damaged_files(console, recognise(source, config.remote_options)[1])
    # Missing files of a list are findings here, however many there are.
    parts, notes = _opened(config.model_copy(update={"bad_images": "skip", "bad_images_cap": 1.0}), findings)
    print_notes(console, notes)
    with progress(console, "checked", sum(map(len, parts))) as advance:
        for part in parts:
            findings.samples += part.left_out
            findings.checked += len(part.left_out)
            findings.missing += len(part.left_out)
            for bad, count in _broken(part):
                findings.samples += [(portable(part.name(index)), reason) for index, reason in bad]
                findings.checked += count
                advance(count)
    if out is not None:
        write_out(out, "".join(f"{line}\n" for line in _lines(findings.samples)).encode())
    _report(console, findings, out)
    return EXIT_OURS if findings.files or findings.samples else 0


def _damaged_files(console: Console, folder: Path) -> list[tuple[str, str]]:
    """The damaged files of a packed folder."""
    manifest = load_manifest(folder)
    if manifest is None or not manifest.finished:
        return []
    with megabytes(console, "checksums", sum(map(manifest.num_bytes, manifest.splits))) as advance:
        found = list(damaged_files(folder, manifest, advance))
    mend = f"remove it and run `{manifest.command}` again to restore it"
    return [(str(path), f"{reason}; {mend}") for path, reason in found]


def _opened(config: DataConfig, findings: Findings) -> tuple[list[Labelled], list[str]]:
    """The splits. A damaged file is read up to the damage, which is added to the findings."""
    try:
        parts, notes = open_parts(config, threads=cores())
    except UserError as refusal:
        try:
            parts, notes = open_parts(config.model_copy(update={"salvage": True}), threads=cores())
        except UserError:
            if not findings.files:
                raise refusal from None
            parts, notes = {}, [f"{refusal.what}: {refusal.why}; no sample can be checked"]
        else:
            findings.files = findings.files or [(refusal.what, refusal.why)]  # its checksum may have found that already
    return list(parts.values()), notes


def _broken(source: Labelled) -> Iterator[tuple[list[tuple[int, str]], int]]:
    """(index, reason) of samples that do not decode, and the number of samples checked, chunk by chunk."""
    whole = Whole(min(SIDE, source.image_size))
    with ThreadPoolExecutor(cores()) as pool:
        for low in range(0, len(source), AT_ONCE):
            indices = np.arange(low, min(low + AT_ONCE, len(source)))
            bad = source.read(indices, whole, 0, replace_bad=False).bad
            if isinstance(source, RawSource):  # its pixels do not pass a decoder, which would find errors
                reasons = pool.map(source.damage, indices.tolist())
                bad = [(index, reason) for index, reason in zip(indices.tolist(), reasons, strict=True) if reason]
            yield sorted(bad), len(indices)


def _lines(pairs: list[tuple[str, str]]) -> list[str]:
    return [printable(tab_separated(pair)) for pair in pairs]


def _report(console: Console, findings: Findings, out: Path | None) -> None:
    lines = _lines([*findings.files, *findings.samples])
    shown = lines[:MAX_SHOWN] if console.is_terminal else lines
    for line in shown:
        print_line(console, line)
    if len(shown) < len(lines):
        console.print(Text(f"… and {len(lines) - len(shown):,} more" + ("" if out else ": --out FILE writes them all")))
    broken, files = len(findings.samples) - findings.missing, len(findings.files)
    if not findings.samples and not files:
        console.print(Text(f"all {findings.checked:,} samples are good"))
        return
    found = [f"{findings.missing:,} of {findings.checked:,} samples are missing"] if findings.missing else []
    found += [f"{broken:,} of {findings.checked:,} samples do not decode"] if broken else []
    found += [f"{files:,} file{'s are' if files > 1 else ' is'} damaged"] if files else []
    console.print(Text("; ".join(found)))
    if out is not None and findings.samples:
        console.print(Text(f"to train without them: data.quarantine={out}"), soft_wrap=True)
