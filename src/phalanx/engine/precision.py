"""All workers of a job compute in the same precision: the faster one where their CPUs have both."""

import socket

from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.step_cost import WORTH_TIMING, NotTimed, count_work, time_precisions
from phalanx.exchange.rendezvous import Rendezvous
from phalanx.machine.job_settings import JobSettings
from phalanx.machine.precision import PrecisionTimes, faster_precision
from phalanx.machine.settings import Settings


def settle_precision(
    config: RunConfig,
    spec: ModelSpec,
    job_settings: JobSettings,
    settings: Settings,
    rendezvous: Rendezvous,
    role: Role,
) -> tuple[JobSettings, RunConfig]:
    """The job's settings and configuration with the faster precision. All workers call this.

    One worker of each host times a step, and the slowest host counts. Where the precision is given, kept, or the only
    one, nothing is timed.
    """
    if not job_settings.both_precisions:
        return job_settings, config
    mine = measure(config, spec, settings) if role.local_rank == 0 else PrecisionTimes(socket.gethostname())
    texts = rendezvous.gather("precision", mine.to_json())
    decision = faster_precision(job_settings.decisions["precision"], [PrecisionTimes.from_json(text) for text in texts])
    job_settings = job_settings.with_precision(decision)
    return job_settings, config.model_copy(update={"machine": job_settings.machine})


def measure(config: RunConfig, spec: ModelSpec, settings: Settings) -> PrecisionTimes:
    """The times on this machine, or why there are none."""
    host, cost = socket.gethostname(), count_work(config, spec)
    if cost.flops is None:
        return PrecisionTimes(host, why_not="the model's work could not be counted")
    if cost.flops < WORTH_TIMING:
        return PrecisionTimes(host, why_not=f"{cost.flops / 1e9:.2g} GFLOP a micro-batch are not worth timing")
    try:
        cost = time_precisions(cost, config, spec, settings)
    except NotTimed as error:
        return PrecisionTimes(host, why_not=str(error))
    except Exception as error:  # such as a model of the user's that is trained in another way
        return PrecisionTimes(host, why_not=f"a step could not be timed: {type(error).__name__}")
    return PrecisionTimes(host, cost.timed, cost.seconds or {})
