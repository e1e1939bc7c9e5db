"""Who outside of the run's folder hears of a run: loggers and notifications. Only the first trainer has them."""

from collections.abc import Callable
from pathlib import Path

from phalanx.config.schema import RunConfig
from phalanx.observe.loggers.base import logged_run
from phalanx.observe.loggers.make import LOGGERS, require_packages
from phalanx.observe.loggers.relay import Relay
from phalanx.observe.notify import Notifier, check_target
from phalanx.runs.events import Sink


def check_outside(config: RunConfig) -> None:
    """Refuse what cannot work, before any work is done."""
    require_packages(config.log.to)
    for target in config.log.notify:
        check_target(target)


def open_outside(config: RunConfig, folder: Path, tell: Callable[[str], None]) -> list[Sink]:
    """The sinks; each has a thread of its own. `tell` shows the user a message."""
    if not config.log.to and not config.log.notify:
        return []
    run = logged_run(folder, config.log.project)
    return [
        *(Relay(name, LOGGERS[name](), run, tell) for name in dict.fromkeys(config.log.to)),
        *(Notifier(target, folder, tell) for target in config.log.notify),
    ]
