"""How far noise moves what a search finds: `python -m benchmarks.noise`.

The same small study is searched with two seeds, and once more while a neighbor keeps one CPU busy from beginning to end.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tuner
from benchmarks import command, markdown
from studies import digits_mlp
from tuner.errors import GoalMissed
from tuner.front import LATENCY, MEMORY, Point
from tuner.measurement import Confirmation, Latency
from tuner.report.points import label_text
from tuner.study import Study
from tuner.task import Task

TITLE = "How far noise moves what a search finds"
TRIALS, SMOKE_TRIALS = 16, 2
SEEDS_GOAL, NEIGHBOR_GOAL = 0.05, 0.10
_BURN = (sys.executable, "-c", "while True: pass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What one search found."""

    name: str
    # What to make smallest -> the chosen point, None where no point meets the goal.
    chosen: dict[str, Point | None]
    # Policy hash -> its latency in the search, and where it was confirmed, that too.
    latencies: dict[str, Latency] = field(repr=False)
    confirmed: dict[str, Latency] = field(repr=False)

    @property
    def better(self) -> set[str]:
        """The policies that are faster than the baseline beyond every interval that is known of them."""
        return {
            key
            for key, latency in self.latencies.items()
            if latency.high < 1 and self.confirmed.get(key, latency).high < 1
        }

    @property
    def contended(self) -> str:
        """How many of its measurements were disturbed to the end."""
        disturbed = sum(bool(latency.contended) for latency in self.latencies.values())
        return f"{disturbed} of {len(self.latencies)}"


def report(smoke: bool) -> Iterator[str]:
    """What was chosen in each search, and how far they agree."""
    task, trials = digits_mlp.task(), SMOKE_TRIALS if smoke else TRIALS
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder) / 'noise.db'}"  # one for all, so that kernels are timed once
        first = _search(task, "seed 0", 0, trials, storage)
        second = _search(task, "seed 1", 1, trials, storage)
        with busy_neighbor():
            disturbed = _search(task, "seed 0, one CPU busy", 0, trials, storage)
    titles = ("search", "smallest", "chosen", "in the search (95 %)", "confirmed (95 %)", "contended measurements")
    yield markdown.table(titles, [row for found in (first, second, disturbed) for row in _rows(found)])
    yield "\n".join(
        [
            *_agreement("two seeds", first, second, SEEDS_GOAL),
            *_agreement("a neighbor", first, disturbed, NEIGHBOR_GOAL),
        ]
    )


@contextmanager
def busy_neighbor() -> Iterator[None]:
    """A process that keeps one CPU busy."""
    neighbor = subprocess.Popen(_BURN)
    try:
        yield
    finally:
        neighbor.kill()
        neighbor.wait()


def _search(task: Task, name: str, seed: int, trials: int, storage: str) -> Found:
    study = tuner.search(task, trials=trials, seed=seed, study=name, storage=storage, progress=False)
    points = {point.policy.hash: point for point in study.points() if point.policy is not None}
    again = {key: p.confirmation.latency for key, p in points.items() if isinstance(p.confirmation, Confirmation)}
    return Found(
        name=name,
        chosen={aim: _chosen(study, aim) for aim in (LATENCY, MEMORY)},
        latencies={key: point.measurement.latency for key, point in points.items()},
        confirmed=again,
    )


def _chosen(study: Study, minimize: str) -> Point | None:
    try:
        return study.choose(minimize=minimize)
    except GoalMissed:
        return None


def _rows(found: Found) -> Iterator[tuple[str, ...]]:
    for aim, point in found.chosen.items():
        if point is None:
            yield found.name, aim, "none", markdown.MISSING, markdown.MISSING, found.contended
            continue
        again = point.confirmation
        confirmed = markdown.ratio(again.latency) if isinstance(again, Confirmation) else markdown.MISSING
        yield (
            found.name,
            aim,
            label_text(point.label),
            markdown.ratio(point.measurement.latency),
            confirmed,
            found.contended,
        )


def _agreement(what: str, one: Found, other: Found, goal: float) -> Iterator[str]:
    """How far two searches agree, against the goal."""
    for aim in one.chosen:
        before, after = (confirmed_ratio(found.chosen[aim]) for found in (one, other))
        moved = abs(after / before - 1)
        met = "met" if moved <= goal else "not met"
        yield f"- {what}, smallest {aim}: the confirmed ratio of what was chosen moves by {moved:.1%}; goal {goal:.0%}, {met}"
    both = one.latencies.keys() & other.latencies.keys()
    differ = (one.better ^ other.better) & both
    yield (
        f"- {what}: {len(one.better)} and {len(other.better)} policies are faster than the baseline beyond their intervals; of the "
        f"{len(both)} that both measured, {len(differ)} in one search alone"
    )


def confirmed_ratio(point: Point | None) -> float:
    """The confirmed latency ratio of a choice; where nothing was chosen the program stays as written."""
    if point is None or not isinstance(point.confirmation, Confirmation):
        return 1.0
    return point.confirmation.latency.ratio


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
