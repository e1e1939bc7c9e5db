"""The data servers of a run, as one trainer sees them: they make its batches."""

import os
import platform
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

import zmq

from phalanx.config.schema import RunConfig
from phalanx.data.base import Batch
from phalanx.data.order import Work
from phalanx.data.pipeline import Pipeline
from phalanx.data.service.body import slot_bytes
from phalanx.data.service.lease_scheduler import LeaseScheduler, Patience
from phalanx.data.service.link import Link, MadeBatch
from phalanx.data.service.terms import terms_of


class Service:
    """Makes a pipeline's batches on data servers: a `Remote`."""

    def __init__(
        self,
        servers: Mapping[str, str],
        config: RunConfig,
        *,
        name: str = "trainer-0",
        notify: Callable[[str], None] = lambda text: None,
        patience: Patience | None = None,
    ) -> None:
        """`servers` has a key for each address. `notify` gets news for the user, in the pipeline's thread."""
        self._servers = {full_address(address): key for address, key in servers.items()}
        self._config, self._notify = config, notify
        self._patience = patience or Patience(timeout_s=config.data.service_timeout_s)
        self._trainer, self._name = name, f"{name} ({platform.node()}, process {os.getpid()})"
        self.links: list[Link] = []
        self.scheduler: LeaseScheduler | None = None
        self._reported = (time.monotonic(), dict[Link, int]())

    def batches(self, pipeline: Pipeline, works: Iterator[Work]) -> Generator[Batch]:
        """Batches of these works, each once and in order, whichever server made them. Runs in the caller's thread."""
        with ExitStack() as stack:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            stack.callback(context.term)
            pool = stack.enter_context(pipeline.pixel_pool()) if self._config.data.service_fallback else None
            terms = terms_of(self._config, pipeline, self._trainer)
            image_bytes = pipeline.framing.size**2 * pipeline.source.channels
            size = slot_bytes(pipeline.batch, pipeline.share, image_bytes)
            self.links = []
            more = (self._notify, self._config.exchange.encrypt)
            for address, key in self._servers.items():
                link = Link(context, address, key, terms, self._name, pipeline.prefetch, size, *more)
                self.links.append(stack.enter_context(closing(link)))
            self.scheduler = LeaseScheduler(
                self.links,
                works,
                lambda work: MadeBatch(*pipeline.make(work, pool)),
                self._patience,
                self._notify,
                fallback=self._config.data.service_fallback,
            )
            while (found := self.scheduler.next()) is not None:
                work, made = found
                yield pipeline.finish(work, made.hand_out(), made.bad)

    def stop(self) -> None:
        if self.scheduler is not None:
            self.scheduler.stopped = True

    def report(self) -> list[dict[str, Any]]:
        """The load of each server; rates are since the last report. May be called from another thread."""
        then, counted = self._reported
        now = time.monotonic()
        self._reported = (now, {link: link.samples for link in self.links})
        return [
            {
                "address": link.address,
                "joined": link.joined,
                "by": link.state,
                "samples_per_s": (link.samples - counted.get(link, 0)) / max(1e-9, now - then),
                "server_samples_per_s": link.status.rate,
                "queue": link.status.queue,
                "idle": link.status.idle,
                "owed": len(link.owed),
                "late": link.late,
            }
            for link in self.links
        ]


def full_address(address: str) -> str:
    """HOST:PORT is short for tcp://HOST:PORT."""
    return address if "://" in address else f"tcp://{address}"
