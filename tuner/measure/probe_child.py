"""Probe child: the process in which single operations are tried and timed, one of which may end it.

`python -m tuner.measure.probe_child READ WRITE PARENT`, as the child that measures candidates.
"""

import sys

from search_spaces import Precision
from tuner import _jax_compat as compat
from tuner.diagnosis import Speed
from tuner.measure.compile_cache import enable_compile_cache
from tuner.measure.failures import failure_of
from tuner.measure.phases import Phase
from tuner.measure.probe import time_precision, try_precision
from tuner.measure.serving import Message, Server, limit_candidates, serve
from tuner.measurement import ERROR, Failure
from tuner.wire import Channel

# Of one operation: to compile and run it once, and to compile all its kernels and time them.
_TRY_S = 60.0
_TIME_S = 60.0


class ProbeServer(Server):
    """Answers what one operation does in one precision.

    Args:
        channel: to the parent.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._answers = {"try": self._try, "time": self._time}

    def _start(self, question: Message, packed: bytes | None) -> Message:
        self._say(Phase(name="starting", seconds=_TRY_S))
        compat.configure(question["process"]["jax"])
        enable_compile_cache()
        return {"unlimited": limit_candidates(None)}

    def _try(self, question: Message) -> object:
        self._say(Phase(name="trying it", seconds=_TRY_S))
        return try_precision(question["operation"], Precision.parse(question["precision"]))

    def _time(self, question: Message) -> Speed | Failure:
        self._say(Phase(name="timing it", seconds=_TIME_S))
        try:
            return time_precision(question["operation"], Precision.parse(question["precision"]), question["shape"])
        except Exception as error:  # noqa: BLE001  too large for the device, or whatever else this shape meets
            return failure_of(error, ERROR)


if __name__ == "__main__":
    serve(ProbeServer, *map(int, sys.argv[1:4]))
