"""Child: the process that holds one task and its baseline and measures what it is asked to, until its pipe closes.

`python -m tuner.measure.child READ WRITE PARENT`, with two inherited file descriptors and the parent's process number.
It may crash, hang or run out of memory; then another takes its place. It is the only file that unpickles anything: the
task of its own parent, over the pipe.
"""

import sys

from search_spaces import Precision
from tuner import _jax_compat as compat
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.effect import Screening
from tuner.errors import TunerError, error_line
from tuner.measure.device import device_fingerprint
from tuner.measure.evaluator import Evaluator
from tuner.measure.latency import Effort
from tuner.measure.phases import Phase
from tuner.measure.screening import Choices, Kernels
from tuner.measure.sending import CannotSend
from tuner.measure.serving import Message, Server, limit_candidates, serve
from tuner.measurement import Quality
from tuner.task import Task
from tuner.task_reference import load_task
from tuner.wire import Channel, decode, encode, read_policy


class TaskServer(Server):
    """Answers questions with the evaluator of one task, whose baseline it measures as it starts.

    Args:
        channel: to the parent.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._evaluator: Evaluator | None = None
        self._answers = {
            "measure": lambda question: self._ready.measure(read_policy(question["policy"])),
            "measure_cast": lambda question: self._ready.measure_cast(question["format"]),
            "confirm": lambda question: self._ready.confirm([read_policy(policy) for policy in question["policies"]]),
            "layer_shares": lambda question: self._ready.layer_shares(question["budget_s"]),
            "compare": lambda question: self._ready.compare(
                read_policy(question["policy"]), read_policy(question["against"])
            ),
            "time_kernels": self._time_kernels,
            "screen": self._screen,
            "foresee": self._foresee,
            "calibrate": lambda question: self._ready.calibrate(_read_choices(question["choices"])),
            "try_precision": lambda question: self._ready.try_precision(
                question["operation"], Precision.parse(question["precision"])
            ),
        }

    @property
    def _ready(self) -> Evaluator:
        if self._evaluator is None:
            raise RuntimeError("asked before it was told the task")
        return self._evaluator

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
            "unlimited": limit_candidates(settings["memory_limit"]),
        }

    def _time_kernels(self, question: Message) -> dict[str, float]:
        choices, known = _read_choices(question["choices"]), decode(question["known"])
        return dict(self._ready.time_kernels(choices, known=known, budget_s=question["budget_s"]).times)

    def _screen(self, question: Message) -> Screening:
        known = decode(question["known"])
        return self._ready.screen(*_switches(question), known=known, budget_s=question["budget_s"])

    def _foresee(self, question: Message) -> list[Quality | None]:
        ordered = [{name: Precision.parse(text) for name, text in one.items()} for one in question["policies"]]
        return self._ready.foresee(*_switches(question), ordered, question["allowed"])


def _switches(question: Message) -> tuple[Choices, Kernels]:
    """What a switchboard is made of."""
    return _read_choices(question["choices"]), {
        (name, Precision.parse(text)): kernel for name, text, kernel in question["kernels"]
    }


def _read_choices(texts_of: Message) -> dict[str, list[Precision]]:
    return {name: [Precision.parse(text) for text in texts] for name, texts in texts_of.items()}


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


if __name__ == "__main__":
    serve(TaskServer, *map(int, sys.argv[1:4]))
