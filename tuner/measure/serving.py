"""Serving: how a measuring process answers its parent over a pipe, until that pipe closes."""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax

from tuner.errors import TunerError, error_line
from tuner.measure.limits import available_bytes, die_with, limit_memory
from tuner.measure.phases import Phase
from tuner.measure.sending import CannotSend
from tuner.wire import Channel, encode

Message = dict[str, Any]
# Of what is free, where nobody says how much a candidate may take; the rest is for everyone else.
_SHARE = 0.9


class Server:
    """Answers questions; what it begins with and what it can answer is for its subclasses to say.

    Args:
        channel: to the parent.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._answers: dict[str, Callable[[Message], Any]] = {}

    def start(self, question: Message, packed: bytes | None) -> None:
        """Gets ready; its answer is what the parent must know about that."""
        self._answer(lambda: self._start(question, packed))

    def reply(self, question: Message) -> None:
        """Answers one question."""
        self._answer(lambda: encode(self._answers[question["ask"]](question)))

    def _answer(self, find: Callable[[], Any]) -> None:
        try:
            message = {"event": "answer", "value": find()}
        except (TunerError, CannotSend) as error:
            message = {"event": "error", "type": type(error).__name__, "message": str(error)}
        except MemoryError:
            raise  # this process is no longer of use
        except Exception as error:  # noqa: BLE001  ours or a library's bug: the parent raises it, with this trace
            trace = traceback.format_exc()
            message = {"event": "error", "type": "Exception", "message": error_line(error), "trace": trace}
        self._channel.send(message)

    def _start(self, question: Message, packed: bytes | None) -> Message:
        raise NotImplementedError

    def _say(self, phase: Phase) -> None:
        self._channel.send({"event": "phase", "name": phase.name, "seconds": phase.seconds, "index": phase.index})


def limit_candidates(wanted: int | None) -> str | None:
    """Sets the memory limit, as the device allows; None, or why there is none."""
    if jax.devices()[0].platform != "cpu":
        return None  # the client's own share of the accelerator is the limit
    if wanted is None:
        free = available_bytes()
        if free is None:
            return "the system does not say how much memory is free"
        wanted = int(_SHARE * free)
    return limit_memory(wanted)


def _listen(channel: Channel, questions: "queue.SimpleQueue[tuple[Message, bytes | None]]") -> None:
    """Reads questions until the pipe closes, which ends this process, whatever it is doing."""
    try:
        while True:
            question = channel.receive()
            questions.put((question, channel.receive_bytes() if question.get("blob") else None))
    except EOFError:
        os._exit(0)


def serve(make_server: Callable[[Channel], Server], reading: int, writing: int, parent: int) -> None:
    """Serves the parent at the other end of two pipes, as the first message says where modules are found."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    os.dup2(2, 1)  # what a program prints must not end up in what the search prints
    for descriptor in (reading, writing):
        os.set_inheritable(descriptor, False)
    channel = Channel(reading, writing)
    questions: queue.SimpleQueue[tuple[Message, bytes | None]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, questions), daemon=True).start()
    server = make_server(channel)
    first, packed = questions.get()
    sys.path[:] = first["process"]["path"]
    server.start(first, packed)
    while True:
        question, _ = questions.get()
        server.reply(question)
