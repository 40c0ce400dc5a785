"""What the tool itself costs: `python -m benchmarks.overhead`.

Bookkeeping of a search is everything but compiling, scoring and timing; what capturing and rewriting cost is in
`benchmarks.capture`.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tuner
from benchmarks import command, markdown
from benchmarks.fashion_mlp import load_task
from tuner.measure.latency import median_interval
from tuner.measurement import Costs
from tuner.search.progress import ProgressEvent
from tuner.study import Study
from tuner.task import Task

TITLE = "What the tool itself costs"
TRIALS, SMOKE_TRIALS = 24, 2
GOAL_SHARE, GOAL_MS = 0.02, 60
HELP_RUNS, SMOKE_HELP_RUNS = 10, 2


def report(smoke: bool) -> Iterator[str]:
    """The two tables."""
    with tempfile.TemporaryDirectory() as folder:
        yield bookkeeping(load_task(smoke), SMOKE_TRIALS if smoke else TRIALS, Path(folder))
    yield help_seconds(SMOKE_HELP_RUNS if smoke else HELP_RUNS)


@dataclass(frozen=True, slots=True)
class Span:
    """The trials of a search without its beginning and its confirmation: how long, how many, and what they cost."""

    search_s: float
    span_s: float
    trials: int
    costs: list[Costs]


def bookkeeping(task: Task, trials: int, folder: Path) -> str:
    """Where the time of a search goes, per trial and as a share of the search."""
    span = _search(task, trials, folder)
    preparing = sum(costs.prepare_s + costs.trace_s for costs in span.costs)
    parts = {
        "compile": sum(costs.compile_s for costs in span.costs),
        "score": sum(costs.quality_s for costs in span.costs),
        "time": sum(costs.latency_s for costs in span.costs),
        "prepare and trace": preparing,
    }
    rest = span.span_s - sum(parts.values())
    parts["sampler, store and all else"] = rest
    parts["**bookkeeping** (all but compile, score, time)"] = rest + preparing
    rows = [
        (label, f"{seconds:.3f}", f"{seconds / span.trials * 1000:.1f}", f"{seconds / span.search_s:.1%}")
        for label, seconds in parts.items()
    ]
    share, milliseconds = (rest + preparing) / span.search_s, (rest + preparing) / span.trials * 1000
    met = "met" if share < GOAL_SHARE or milliseconds < GOAL_MS else "not met"
    hits = sum(costs.compile_cache == "hit" for costs in span.costs)
    typical = statistics.median(costs.prepare_s + costs.trace_s for costs in span.costs) * 1000
    return "\n".join(
        (
            f"{task.name}, {trials} trials: {span.search_s:.1f} s in all. The table has the {span.trials} candidates between "
            "the baseline and the confirmation, the casts made by hand among them; "
            f"{hits} of {len(span.costs)} programs came from the compile cache.\n",
            markdown.table(("stage of a search", "s", "ms per candidate", "share of the search"), rows),
            f"\n- preparing and tracing, the median candidate: {typical:.1f} ms (the first ones compile what quantizes)",
            f"- bookkeeping under {GOAL_SHARE:.0%} or under {GOAL_MS} ms a candidate: {share:.1%}, {milliseconds:.1f} ms, {met}",
        )
    )


def help_seconds(runs: int) -> str:
    """Seconds of `tuner --help`, next to those of an empty Python program."""
    script = Path(sys.executable).with_name("tuner")
    prefix = [str(script)] if script.exists() else [sys.executable, "-m", "tuner"]
    programs = {"`tuner --help`": [*prefix, "--help"], "`python -c pass`": [sys.executable, "-c", "pass"]}
    seconds: dict[str, list[float]] = {label: [] for label in programs}
    for _ in range(runs):
        for label, program in programs.items():
            started = time.perf_counter()
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
            seconds[label].append(time.perf_counter() - started)
    rows = []
    for label, samples in seconds.items():
        median, low, high = median_interval(np.asarray(samples))
        rows.append((label, f"{median:.3f} ({low:.3f}..{high:.3f})"))
    return markdown.table(("program", f"s, median of {runs} (95 %)"), rows)


def _search(task: Task, trials: int, folder: Path) -> Span:
    times: list[float] = []

    def note(_: ProgressEvent) -> None:
        times.append(time.perf_counter())

    started = time.perf_counter()
    storage = f"sqlite:///{folder / 'overhead.db'}"
    study = tuner.search(task, trials=trials, max_drop=0.01, storage=storage, seed=0, progress=note)
    ended = time.perf_counter()
    # The first event ends the baseline, whose costs belong to the beginning.
    return Span(ended - started, times[-1] - times[0], len(times) - 1, _costs(study))


def _costs(study: Study) -> list[Costs]:
    """Of everything that was run but the baseline; a policy that came up again cost nothing."""
    tried = [trial.outcome.costs for trial in study.trials()[1:] if trial.outcome is not None]
    return tried + [point.measurement.costs for point in study.points() if point.is_reference]


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
