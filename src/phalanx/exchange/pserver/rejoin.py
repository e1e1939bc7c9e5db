"""A worker that the servers took for lost joins again: at their step, with their parameters, without old gradients."""

from phalanx.exchange.base import GivenUp, Rejoined
from phalanx.exchange.pserver.gradients import PserverGradients
from phalanx.exchange.pserver.parameters import ServerParameters

_TRIES = 3  # it may be stopped again while it joins


class PserverRejoin:
    """Joins all servers again. Raises PlaceTaken where another process has this worker's place."""

    def __init__(self, parameters: ServerParameters, gradients: PserverGradients) -> None:
        self._parameters, self._gradients = parameters, gradients

    def __call__(self, given_up: GivenUp) -> Rejoined:
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                return self._rejoin(given_up)
            except GivenUp:
                if not tries_left:
                    raise
        raise given_up

    def _rejoin(self, given_up: GivenUp) -> Rejoined:
        servers, job = self._parameters.servers, self._parameters.job
        welcomes = servers.rejoin(job)
        step = int(welcomes[0]["step"])  # the first server adds up numbers, so its step counts
        dropped = self._gradients.drop(step)
        self._parameters.restart(filled=all(welcome["filled"] for welcome in welcomes))
        self._parameters.begin()
        lost = "" if dropped is None else f"; its gradient of step {dropped} was dropped"
        return Rejoined(step, f"{given_up.what}; it joined again at step {step}{lost}")
