"""studies.fashion_mlp in every way there is, side by side: `python -m benchmarks.fashion_mlp`.

The policy that rewrites nothing, every uniform precision, what a short search chooses, the casts made by hand, and qwix
on the same network in Flax: all timed in one interleaved run with the user's own `jax.jit`, all scored on the holdout
examples, which the search never saw.
"""

from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

import tuner
from benchmarks import command, qwix_mlp
from benchmarks.side_by_side import (
    FASTEST,
    SMALLEST,
    Entry,
    Result,
    casts,
    first_batch,
    measure,
    policy_entries,
    search_for_policies,
    table,
    uniform_policies,
)
from studies import fashion_mlp as study
from tuner.capturing import capture_task
from tuner.errors import InputError
from tuner.measure.executable import compile_baseline
from tuner.policy import Policy
from tuner.program import original_policy
from tuner.report import numbers
from tuner.task import Task

TITLE = "studies.fashion_mlp"
TRIALS, SMOKE_TRIALS = 24, 2
MAX_DROP = 0.01
GOAL_RATIO, GOAL_WEIGHTS, GOAL_ORIGINAL = 0.40, 0.27, 0.03
ORIGINAL = "policy of all `original`"


def report(smoke: bool) -> Iterator[str]:
    """Everything at the study's batch size, then the latencies of the same programs on one example at a time."""
    task = load_task(smoke)
    trials = SMOKE_TRIALS if smoke else TRIALS
    notes: list[str] = []
    by_hand = [*casts(task), *_qwix(task, notes)]
    chosen = search_for_policies(task, MAX_DROP, notes, trials=trials).chosen
    baseline_ms, results = measure(task, [*_policies(task, chosen), *by_hand], smoke, scored=True)
    yield f"Batch {task.batch_size}; {len(task.holdout)} holdout examples; a search of {trials} trials."
    yield table(baseline_ms, results)
    yield "\n".join(f"- {line}" for line in [*notes, *_verdicts(results)])

    single = task.with_batch_size(1)
    by_hand = [*casts(single), *_qwix(single, [])]
    yield "Batch 1, the policies that were chosen for the other batch size; an example's scores do not depend on its batch."
    yield table(*measure(single, [*_policies(single, chosen), *by_hand], smoke, scored=False))


def load_task(smoke: bool) -> Task:
    """The study's task; for a smoke run the untrained network on noise."""
    if not smoke:
        return study.task()
    inputs = np.random.default_rng(0).random((64, 784), np.float32)
    params = study.init()
    labels = np.argmax(study.apply(params, inputs), -1)
    return tuner.Task(name="smoke_mlp", apply=study.apply, params=params, inputs=inputs, labels=labels, batch_size=8)


def _policies(task: Task, chosen: dict[str, Policy]) -> list[Entry]:
    """All original, uniform precisions, and the chosen."""
    program = capture_task(task)
    return policy_entries(task, {ORIGINAL: original_policy(program), **uniform_policies(task), **chosen})


def _qwix(task: Task, notes: list[str]) -> list[Entry]:
    """The same network in Flax, quantized by qwix, if that is installed."""
    inputs = first_batch(task)
    try:
        apply, packed = qwix_mlp.quantized(task.params, inputs)
    except InputError as missing:
        notes.append(f"qwix w8a8: not measured, {missing}")
        return []
    return [Entry(label="qwix w8a8, in Flax", build=partial(compile_baseline, apply, packed, inputs, jax.devices()[0]))]


def _verdicts(results: dict[str, Result]) -> Iterator[str]:
    """The goals, each with what was measured."""
    original = results[ORIGINAL].latency
    met = abs(original.ratio - 1) <= GOAL_ORIGINAL
    yield f"all `original` at 1.00 +- {GOAL_ORIGINAL}: {numbers.ratio(original.ratio)}, {_met(met)}"
    if FASTEST in results:
        ratio = results[FASTEST].latency.ratio
        yield f"fastest chosen policy at no more than {GOAL_RATIO:.2f}: {numbers.ratio(ratio)}, {_met(ratio <= GOAL_RATIO)}"
        yield _drop_verdict(FASTEST, results[FASTEST])
    if SMALLEST in results:
        share = results[SMALLEST].weights
        yield f"smallest chosen policy's weights at no more than {GOAL_WEIGHTS}: {share:.3f}, {_met(share <= GOAL_WEIGHTS)}"
        yield _drop_verdict(SMALLEST, results[SMALLEST])


def _drop_verdict(label: str, result: Result) -> str:
    quality = result.quality
    if quality is None:
        return f"{label}, drop at most {MAX_DROP}: not a number, {_met(False)}"
    drop = f"{numbers.signed(quality.drop)}, at most {numbers.signed(quality.drop_high)} (95 %)"
    return f"{label}, drop at most {MAX_DROP} on {quality.examples} holdout examples: {drop}, {_met(quality.drop <= MAX_DROP)}"


def _met(met: bool) -> str:
    return "met" if met else "not met"


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
