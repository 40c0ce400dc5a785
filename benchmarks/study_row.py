"""One ready study, searched in a process of its own: `python -m benchmarks.study_row REFERENCE BUDGET STARTED`.

It prints JSON; STARTED is when its parent started it, in seconds of the epoch. A process of its own, so that the time to load includes every import, the memory is that of one search, and a study that
cannot be run leaves the others alone.
"""

import json
import resource
import sys
import tempfile
import time
from typing import Any

import tuner
from benchmarks import markdown
from tuner.capturing import capture_task
from tuner.errors import GoalMissed, TunerError
from tuner.measurement import Confirmation
from tuner.program.layer import INPUT
from tuner.report import numbers
from tuner.report.points import drop_text
from tuner.shapes import weights_text
from tuner.study import Study
from tuner.task import Task
from tuner.task_reference import StudyModule, load_study

# Of the resource module: kilobytes on Linux, bytes on a Mac.
_UNIT = 1 if sys.platform == "darwin" else 1024


def measure(reference: str, budget: str, started: float) -> dict[str, str]:
    """The cells of one row that are measured; only those of loading where the budget is "0"."""
    module = load_study(f"studies.{reference}")
    layers = [layer for layer in capture_task(module.task).layers if layer.kind != INPUT]
    loaded = time.time() - started
    # On a busy machine only the second of these says something of the study.
    seconds = f"{loaded:.1f} ({time.process_time():.1f} of CPU)"
    cells = {"batch": _calls(module.task), "layers": str(len(layers)), "loaded": seconds}
    return cells if budget == "0" else cells | _searched(module, budget)


def _searched(module: StudyModule, budget: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        study = tuner.search(
            module.task,
            budget=budget,
            max_drop=module.max_drop,
            space=module.space,
            storage=f"sqlite:///{folder}/study.db",
            progress=False,
        )
        baseline = study.point("baseline").measurement
        return {
            "score": f"{numbers.quality(baseline.quality.value)} {module.task.metric.name}",
            "ms": numbers.milliseconds(baseline.latency.milliseconds),
            **_best(study),
            "peak": numbers.size(_peak_bytes()),
        }


def _best(study: Study) -> dict[str, str]:
    """Label, latency, drop and weights of the fastest confirmed policy inside the study's own drop, by default 1 %."""
    try:
        point = study.choose()
    except GoalMissed:
        return {"best": "none", "ratio": "-", "drop": "-", "weights": "-"}
    if not isinstance(point.confirmation, Confirmation) or point.is_baseline:
        return {"best": point.label, "ratio": "1", "drop": "0", "weights": "1"}
    share = point.measurement.memory.weight_bytes / study.point("baseline").measurement.memory.weight_bytes
    confirmed = point.confirmation
    return {
        "best": point.label,
        "ratio": markdown.ratio(confirmed.latency),
        "drop": drop_text(confirmed.quality),
        "weights": f"{share:.3f}",
    }


def _calls(task: Task) -> str:
    """The batch size, or what is timed."""
    return weights_text(task.shapes) or str(task.batch_size)


def _peak_bytes() -> int:
    """The most that the search and the largest of its children held, together."""
    return _UNIT * sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(argv: list[str]) -> int:
    """Prints the cells, or why there are none, as the last line."""
    reference, budget, started = argv
    answer: dict[str, Any]
    try:
        answer = measure(reference, budget, float(started))
    except TunerError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
