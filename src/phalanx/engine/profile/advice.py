"""What to change, from the numbers of a profile. A rule speaks only where its numbers are large enough."""

from collections.abc import Callable
from dataclasses import dataclass

from phalanx.engine.profile.kinds import ACTIVATION, CONVOLUTION, COPIES, ELEMENTWISE, NORM, PRODUCT, PYTHON
from phalanx.engine.profile.numbers import Data, Numbers

LARGEST = 3  # that are named
_LEAST = 0.05  # of a step: what is smaller is not worth a change
_MUCH_PYTHON = 0.2
_OFTEN = 50  # steps between reports that cost nothing to speak of


@dataclass(frozen=True)
class Advice:
    """One change: the share of a step that it is about, the reason in numbers, and what to type."""

    share: float
    reason: str
    change: str

    def to_data(self) -> Data:
        return {"share": round(self.share, 4), "reason": self.reason, "change": self.change}


def advise(profile: Data) -> list[Advice]:
    """The largest changes, the largest first; fewer, or none, where the numbers give no more."""
    numbers = Numbers.of(profile)
    found = [advice for rule in _RULES if (advice := rule(numbers)) is not None and advice.share >= _LEAST]
    return sorted(found, key=lambda one: -one.share)[:LARGEST]


def _data(n: Numbers) -> Advice | None:
    wait = n.parts["data"]
    source = n.settings["data"]
    change = f"`phalanx bench io {source}` says how fast the input is alone; " if source else ""
    more = "another of --data-servers" if n.settings["data_servers"] else "--data-servers 1, on a host with free cores"
    return Advice(
        n.share(wait),
        f"a step waits {n.said(wait)} for its batch: data are not made as fast as they are used",
        f"{change}{more}, or smaller images by `phalanx data pack`",
    )


def _slow_worker(n: Numbers) -> Advice | None:
    slow = n.slowest
    if slow is None:
        return None
    waited = slow["others_waited_ms"]
    return Advice(
        n.share(waited),
        f"trainer-{slow['rank']} on {slow['host']} needs {slow['own_ms']:.3g} ms for its share of a step, the others "
        f"{slow['others_own_ms']:.3g}, and they wait {n.said(waited)} for it; it is slower at: {slow['at']}",
        f"look what else runs on {slow['host']}, or leave it out",
    )


def _exchange(n: Numbers) -> Advice | None:
    if n.settings["workers"] == 1:
        return None
    exposed = max(0.0, n.parts["exchange"] - n.waited)
    sent = f"{n.bytes_sent / 1e6:.3g} MB leave a worker in each step"
    if n.settings["compress"] == "none":
        change = "--compress bf16 halves what is sent"
        change += f"; optim.accumulate={2 * n.settings['accumulate']} sends it half as often (for a larger step)"
    else:
        change = f"optim.accumulate={2 * n.settings['accumulate']} exchanges half as often (for a larger step)"
    return Advice(
        n.share(exposed), f"the exchange takes {n.said(exposed)} that computing does not hide: {sent}", change
    )


def _python(n: Numbers) -> Advice | None:
    spent, batch = n.kind(PYTHON), n.settings["batch_size"]
    if n.share(spent) < _MUCH_PYTHON or n.settings["on_gpu"]:
        return None
    return Advice(
        n.share(spent),
        f"Python and the dispatch of {n.calls:.0f} operators take {n.said(spent)}, the same for any batch: "
        f"{batch} samples are few for this model",
        f"train.batch_size={2 * batch} (and the learning rate with it)",
    )


def _precision(n: Numbers) -> Advice | None:
    if n.settings["precision"] != "fp32" or not n.settings["bf16"]:
        return None
    heavy = n.kind(CONVOLUTION) + n.kind(PRODUCT)
    return Advice(
        n.share(heavy) / 2,
        f"convolutions and matrix products take {n.said(heavy)} in fp32, and {n.settings['bf16']} computes bf16 "
        "at up to twice the rate",
        "--precision bf16",
    )


def _fast_path(n: Numbers) -> Advice | None:
    if n.settings["on_gpu"] or n.settings["compile"] or n.settings["fast_path"] == "native":
        return None
    separate = n.kind(NORM) + n.kind(ACTIVATION) + n.kind(ELEMENTWISE)
    if not n.settings["channels_last"]:
        heavy = separate + n.kind(CONVOLUTION)
        return Advice(
            n.share(heavy) / 4 if n.kind(CONVOLUTION) else 0.0,
            f"convolutions, norms and activations take {n.said(heavy)} in the layout NCHW, without the fast path",
            "machine.channels_last=auto",
        )
    why = "machine.fast_path=auto" if n.settings["fast_path"] == "off" else "install gcc, then machine.fast_path=auto"
    return Advice(
        n.share(separate) / 2 if n.kind(NORM) else 0.0,
        f"norms, activations and sums take {n.said(separate)} in passes of their own, which the fast path fuses",
        why,
    )


def _copies(n: Numbers) -> Advice | None:
    spent = n.kind(COPIES)
    where = f", most of them in {n.copied_in}" if n.copied_in else ""
    change = "in a network of your own: no permute, view or cat between convolutions, and one layout throughout"
    if n.settings["precision"] != "fp32":
        batch = 2 * n.settings["batch_size"]
        change = f"weights are cast once a micro-batch, however large: train.batch_size={batch}; {change}"
    return Advice(n.share(spent), f"copies, casts and changes of layout take {n.said(spent)}{where}", change)


def _update(n: Numbers) -> Advice | None:
    spent = n.parts["update"]
    return Advice(
        n.share(spent) / 2,
        f"the update takes {n.said(spent)}, the same for any batch",
        f"optim.accumulate={2 * n.settings['accumulate']} or a larger train.batch_size: fewer updates for an epoch",
    )


def _threads(n: Numbers) -> Advice | None:
    used, cores = n.settings["threads"] * n.settings["workers_here"], n.settings["cores"]
    if n.settings["on_gpu"] or used >= cores or not n.settings.get("threads_set", True):
        return None
    computing = n.parts["forward"] + n.parts["backward"]
    return Advice(
        n.share(computing) * (1 - used / cores),
        f"computing takes {n.said(computing)} with {used} threads on {cores} cores",
        "machine.threads=auto",
    )


def _between(n: Numbers) -> Advice | None:
    if n.settings["log_every"] >= _OFTEN:
        return None
    spent = n.parts["other"]
    return Advice(
        n.share(spent),
        f"{n.said(spent)} pass between the parts of a step, where it is reported every {n.settings['log_every']} steps",
        f"train.log_every={_OFTEN}",
    )


_RULES: tuple[Callable[[Numbers], Advice | None], ...] = (
    *(_data, _slow_worker, _exchange, _python, _precision, _fast_path, _copies, _update, _threads, _between),
)
