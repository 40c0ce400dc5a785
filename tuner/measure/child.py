"""Child: the process that holds one task and its baseline and measures what it is asked to, until its pipe closes.

`python -m tuner.measure.child READ WRITE PARENT`, with two inherited file descriptors and the parent's process number.
It may crash, hang or run out of memory; then another takes its place. It is the only file that unpickles anything: the
task of its own parent, over the pipe.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax

from search_spaces import Precision
from tuner import _jax_compat as compat
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.errors import TunerError, error_line
from tuner.measure.device import device_fingerprint
from tuner.measure.evaluator import Evaluator, Phase
from tuner.measure.latency import Effort
from tuner.measure.limits import available_bytes, die_with, limit_memory
from tuner.measure.sending import CannotSend
from tuner.task import Task
from tuner.task_reference import load_task
from tuner.wire import Channel, decode, encode, read_policy

Message = dict[str, Any]
# Of what is free, where nobody says how much a candidate may take; the rest is for everyone else.
_SHARE = 0.9


class Server:
    """Answers questions with one evaluator.

    Args:
        channel: to the parent.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._evaluator: Evaluator | None = None
        self._answers: dict[str, Callable[[Message], Any]] = {
            "measure": lambda question: self._ready.measure(read_policy(question["policy"])),
            "measure_cast": lambda question: self._ready.measure_cast(question["format"]),
            "confirm": lambda question: self._ready.confirm([read_policy(policy) for policy in question["policies"]]),
            "time_kernels": self._time_kernels,
        }

    @property
    def _ready(self) -> Evaluator:
        if self._evaluator is None:
            raise RuntimeError("asked before it was told the task")
        return self._evaluator

    def start(self, question: Message, packed: bytes | None) -> None:
        """Loads the task and measures the baseline; its answer is what the parent must know about both."""
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
        self._say(Phase(name="loading the task"))
        compat.configure(question["process"]["jax"])
        _check_device(question["device"])
        task = _load(question["task"], packed)
        settings = question["settings"]
        self._evaluator = Evaluator(
            task,
            capture_task(task),
            max_drop=Drop.parse(settings["max_drop"]),
            objectives=settings["objectives"],
            deadline_s=settings["deadline_s"],
            reference_ms=settings["reference_ms"],
            effort=Effort(**settings["effort"]),
            seed=settings["seed"],
            baseline=settings["baseline"],
            on_phase=self._say,
        )
        return {
            "baseline": encode(self._evaluator.baseline),
            "unlimited": _limit(settings["memory_limit"]),
        }

    def _time_kernels(self, question: Message) -> dict[str, float]:
        choices = {name: [Precision.parse(text) for text in texts] for name, texts in question["choices"].items()}
        known = decode(question["known"])
        return dict(self._ready.time_kernels(choices, known=known, budget_s=question["budget_s"]).times)

    def _say(self, phase: Phase) -> None:
        self._channel.send({"event": "phase", "name": phase.name, "seconds": phase.seconds, "index": phase.index})


def _load(how: Message, packed: bytes | None) -> Task:
    """The task, by value or by reference.

    Raises:
        CannotSend: it does not arrive here, or is another one than the parent has.
    """
    if packed is not None:
        import cloudpickle

        try:
            task: Task = cloudpickle.loads(packed)
        except Exception as error:
            raise CannotSend(f"the task does not load in another process ({error_line(error)})") from error
        return task
    try:
        task = load_task(how["reference"]).with_batch_size(how["batch_size"]).with_split_scans(how["split_scans"])
    except TunerError as error:
        raise CannotSend(str(error)) from error
    found = task.fingerprints()
    different = [name for name, digest in how["fingerprints"].items() if found.get(name) != digest]
    if different:
        raise CannotSend(f"{how['reference']} gives other {different[0]} each time it is called")
    return task


def _check_device(expected: Message) -> None:
    """Raises CannotSend when what is measured here would not compare with what the parent measured."""
    found = device_fingerprint()
    for name, value in expected.items():
        if found.get(name) != value:
            raise CannotSend(f"another process finds another device here ({name} {found.get(name)!r}, not {value!r})")


def _limit(wanted: int | None) -> str | None:
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


def main(reading: int, writing: int, parent: int) -> None:
    """Serves the parent at the other end of the two pipes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    os.dup2(2, 1)  # what a program prints must not end up in what the search prints
    for descriptor in (reading, writing):
        os.set_inheritable(descriptor, False)
    channel = Channel(reading, writing)
    questions: queue.SimpleQueue[tuple[Message, bytes | None]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, questions), daemon=True).start()
    server = Server(channel)
    first, packed = questions.get()
    sys.path[:] = first["process"]["path"]
    server.start(first, packed)
    while True:
        question, _ = questions.get()
        server.reply(question)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
