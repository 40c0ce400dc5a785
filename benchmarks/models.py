"""The ready studies, each with everything that was measured of it side by side: `python -m benchmarks.models [STUDY ...]`.

For each a search of its own; then, in one interleaved run with the user's own `jax.jit`: every uniform precision with the
kernels that the search found, the cast made by hand, and the fastest and the smallest confirmed policy.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax

from benchmarks.machine import cpu_features, header
from benchmarks.side_by_side import (
    FASTEST,
    Result,
    casts,
    first_batch,
    measure,
    policy_entries,
    search_for_policies,
    table,
)
from tuner.capturing import capture_task
from tuner.errors import TunerError
from tuner.measure.executable import Executable, compile_baseline, compile_policy
from tuner.measure.layer_shares import layer_shares
from tuner.policy import Policy
from tuner.report import numbers
from tuner.task import Task
from tuner.task_reference import load_study

MAX_DROP = 0.01
# Of timing the layers of one program.
SHARES_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A study at one batch size, and the ratio that is hoped for on a CPU with AMX; None for none."""

    study: str
    batch_size: int | None = None
    ratio: float | None = None

    @property
    def name(self) -> str:
        """As it is asked for."""
        return self.study if self.batch_size is None else f"{self.study}@{self.batch_size}"


GOALS = (
    Goal(study="fashion_mlp", ratio=0.27),
    Goal(study="fashion_mlp", batch_size=1, ratio=0.75),
    Goal(study="fashion_resnet", ratio=0.22),
    Goal(study="fashion_vit", ratio=0.40),
    Goal(study="fashion_vit:scanned"),
    Goal(study="minilm", ratio=0.36),
    Goal(study="minilm:single", ratio=0.40),
    Goal(study="efficientnet_lite0:photographs", ratio=0.13),
    Goal(study="efficientnet_lite0", ratio=0.09),
    Goal(study="glass_lm", ratio=0.55),
    Goal(study="glass_lm:single", ratio=0.60),
)


def blocks(goals: Sequence[Goal], budget: str, smoke: bool = False) -> Iterator[str]:
    """Markdown, study by study, each as soon as it is measured; one that cannot be loaded says why."""
    if "amx_int8" not in cpu_features():
        yield "The goals assume AMX, which this CPU lacks: there low precisions have no faster instructions than float32."
    for goal in goals:
        yield f"## {goal.name}"
        try:
            yield from one(goal, budget, smoke)
        except TunerError as error:
            yield f"Not measured: {error}"


def one(goal: Goal, budget: str, smoke: bool) -> Iterator[str]:
    """The table of one study, and its goal with what was measured."""
    module = load_study(f"studies.{goal.study}")
    task = module.task if goal.batch_size is None else module.task.with_batch_size(goal.batch_size)
    drop = MAX_DROP if module.max_drop is None else module.max_drop
    notes: list[str] = []
    found = search_for_policies(task, drop, notes, budget=budget, space=module.space)
    entries = [*policy_entries(task, {**found.uniform, **found.chosen}), *casts(task)[:1]]
    baseline_ms, results = measure(task, entries, smoke, scored=True)
    yield f"Batch {task.batch_size}; {len(task.holdout)} holdout examples; a search of {budget}."
    yield table(baseline_ms, results)
    chosen = found.chosen.get(FASTEST)
    shares = _shares(task, chosen, smoke)
    yield "\n".join(f"- {line}" for line in [*notes, *_verdict(goal, results), shares])


def _shares(task: Task, policy: Policy | None, smoke: bool) -> str:
    """What the layers have of the time, as written and under a policy: the rest is what no precision makes faster."""
    inputs, device, program = first_batch(task), jax.devices()[0], capture_task(task)
    written = compile_baseline(task.apply, task.params, inputs, device)
    parts: list[tuple[str, Executable, Policy | None]] = [("as written", written, None)]
    if policy is not None:
        tuned = compile_policy(task.apply, task.params, program, policy, inputs=inputs, device=device)
        parts.append((FASTEST, tuned, policy))
    texts = []
    for label, executable, chosen in parts:
        calls, budget_s = [executable.timed_call(inputs, device)], 0.1 if smoke else SHARES_S
        share = min(1.0, sum(layer_shares([(1.0, program)], calls, budget_s, chosen).values()))
        texts.append(f"{label} {share:.0%} are layers, {1 - share:.0%} everything else")
    return f"of the time, {'; '.join(texts)} (each operation alone, in turns with the whole program)"


def _verdict(goal: Goal, results: dict[str, Result]) -> Iterator[str]:
    if goal.ratio is None:
        return
    if FASTEST not in results:
        yield f"goal {goal.ratio:.2f}: not met, nothing confirmed is faster than the program as written"
        return
    ratio = results[FASTEST].latency.ratio
    yield f"goal {goal.ratio:.2f}: {numbers.ratio(ratio)}, {'met' if ratio <= goal.ratio else 'not met'}"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    names = [goal.name for goal in GOALS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="90s", help="of each search (default 90s)")
    parser.add_argument(
        "--smoke", action="store_true", help="short timings: shows that it runs; the numbers mean nothing"
    )
    parser.add_argument("study", nargs="*", metavar="STUDY", help=f"of {', '.join(names)} (default all)")
    asked = parser.parse_args(argv)
    unknown = [name for name in asked.study if name not in names]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; give some of {', '.join(names)}")
    print(header(), flush=True)
    for block in blocks([g for g in GOALS if not asked.study or g.name in asked.study], asked.budget, asked.smoke):
        print(f"\n{block}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
