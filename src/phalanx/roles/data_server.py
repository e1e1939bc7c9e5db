"""`phalanx serve-data`, and the data servers of a job: open the data, then make the batches that trainers request."""

import os
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.data.service.client import full_address
from phalanx.data.service.serve import serve
from phalanx.data.service.terms import terms_of
from phalanx.data.sources.open import open_data
from phalanx.data.training import open_beside, training_pipeline
from phalanx.machine.cores import cores
from phalanx.machine.settings import keep_freed_memory
from phalanx.net.key import key_for, key_of, own_key


def serve_data(console: Console, config: RunConfig, bind: str, threads: int | None, key_file: Path | None) -> None:
    """Serve until Ctrl-C."""
    address = full_address(bind)
    given = key_of(os.environ) if key_file is None else own_key(key_file)
    key = key_for([address], given)
    origin = str(key_file) if key_file else "from the environment" if given else "yours" if key else "none"
    origin += "" if given else ", so only your processes on this machine are served"
    console.print(Text(f"key: {origin}"), soft_wrap=True)
    threads = threads or config.data.threads or cores()
    _serve(config, address, key, threads, None, console)


def serve_role(role: Role, config: RunConfig) -> None:
    """Run a data server of a job."""
    threads = config.data.threads or max(1, cores() // role.local_world)
    log = role.run / "logs" / f"{role.name}.jsonl" if role.run else None
    _serve(config, role.data[role.rank], key_for(role.data, role.key), threads, log, Console())


def _serve(config: RunConfig, address: str, key: str, threads: int, log: Path | None, console: Console) -> None:
    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    keep_freed_memory()
    splits = open_data(config.data, threads=threads)
    unlabeled, notes = open_beside(config, splits, threads)
    for note in [*splits.notes, *notes]:
        say(f"note: {note}")
    pipeline = training_pipeline(config, splits.train, batch=1, threads=threads, unlabeled=unlabeled)
    say(f"{threads} threads decode and augment")
    encrypt = config.exchange.encrypt == "on"
    serve(pipeline, terms_of(config, pipeline, "the data server"), address, key, encrypt=encrypt, log=log, say=say)
