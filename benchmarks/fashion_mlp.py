"""studies.fashion_mlp in every way there is, side by side: `python -m benchmarks.fashion_mlp`.

The policy that rewrites nothing, every uniform precision, what a short search chooses, the casts made by hand, and qwix
on the same network in Flax: all timed in one interleaved run with the user's own `jax.jit`, all scored on the holdout
examples, which the search never saw.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tuner
from benchmarks import command, markdown, qwix_mlp
from search_spaces import Precision
from studies import fashion_mlp as study
from tuner.capturing import capture_task
from tuner.errors import GoalMissed, InputError
from tuner.front import LATENCY, MEMORY
from tuner.measure import device_lock
from tuner.measure.effective import AS_REQUESTED, effective_precisions
from tuner.measure.executable import Executable, compile_baseline, compile_cast, compile_policy
from tuner.measure.latency import compare
from tuner.measure.quality import Scored, Scorer
from tuner.measurement import Latency, Quality
from tuner.policy import Policy
from tuner.program import Program, original_policy, uniform_policy
from tuner.program.layer import INPUT
from tuner.report import numbers
from tuner.report.points import drop_text, policy_text
from tuner.search.spaces import resolve_space
from tuner.task import Task

TITLE = "studies.fashion_mlp"
TRIALS, SMOKE_TRIALS = 24, 2
MAX_DROP = 0.01
GOAL_RATIO, GOAL_WEIGHTS, GOAL_ORIGINAL = 0.40, 0.27, 0.03
ORIGINAL, FASTEST, SMALLEST = "policy of all `original`", "search, fastest", "search, smallest"
_TITLES = ("program", "ratio to jax.jit (95 %)", "ms", "top-1 drop (95 %)", "weights", "ran as requested")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of the table before it is measured."""

    label: str
    build: Callable[[], Executable]
    policy: Policy | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One line of the table."""

    latency: Latency
    # None where it is not finite, or was not scored.
    quality: Quality | None
    drop: str
    # Of the float32 bytes.
    weights: float
    effective: str


def report(smoke: bool) -> Iterator[str]:
    """Everything at the study's batch size, then the latencies of the same programs on one example at a time."""
    task = load_task(smoke)
    trials = SMOKE_TRIALS if smoke else TRIALS
    notes: list[str] = []
    by_hand = [*_casts(task), *_qwix(task, notes)]
    chosen = _search(task, trials, notes)
    baseline_ms, results = _measure(task, [*_policies(task, chosen), *by_hand], smoke, scored=True)
    yield f"Batch {task.batch_size}; {len(task.holdout)} holdout examples; a search of {trials} trials."
    yield _table(baseline_ms, results)
    yield "\n".join(f"- {line}" for line in [*notes, *_verdicts(results)])

    single = task.with_batch_size(1)
    by_hand = [*_casts(single), *_qwix(single, [])]
    yield "Batch 1, the policies that were chosen for the other batch size; an example's scores do not depend on its batch."
    yield _table(*_measure(single, [*_policies(single, chosen), *by_hand], smoke, scored=False))


def load_task(smoke: bool) -> Task:
    """The study's task; for a smoke run the untrained network on noise."""
    if not smoke:
        return study.task()
    inputs = np.random.default_rng(0).random((64, 784), np.float32)
    params = study.init()
    labels = np.argmax(study.apply(params, inputs), -1)
    return tuner.Task(name="smoke_mlp", apply=study.apply, params=params, inputs=inputs, labels=labels, batch_size=8)


def _table(baseline_ms: float, results: dict[str, Result]) -> str:
    rows: list[tuple[str, ...]] = [("jax.jit", "1.000", numbers.milliseconds(baseline_ms), "0.0000", "1.000", "-")]
    return markdown.table(_TITLES, [*rows, *(_row(label, result) for label, result in results.items())])


def _search(task: Task, trials: int, notes: list[str]) -> dict[str, Policy]:
    """Label -> confirmed policy that a search in a database of its own chooses."""
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder) / 'benchmark.db'}"
        found = tuner.search(task, trials=trials, max_drop=MAX_DROP, storage=storage, seed=0, progress=False)
        chosen: dict[str, Policy] = {}
        for label, minimize in ((FASTEST, LATENCY), (SMALLEST, MEMORY)):
            try:
                decision = found.decide(minimize=minimize)
            except GoalMissed as missed:
                notes.append(f"{label}: {missed}")
                continue
            policy = decision.point.policy
            if policy is None or policy.is_original:
                notes.append(f"{label}: nothing measured beats the program as written.")
                continue
            notes.append(f"{label}: {policy_text(policy)}; {len(decision.rejected)} rejected by the confirmation.")
            chosen[label] = policy
    return chosen


def _policies(task: Task, chosen: dict[str, Policy]) -> list[Entry]:
    """All original, uniform precisions (those of the device's space and the ones that save memory), and the chosen."""
    program = capture_task(task)
    spaces = [resolve_space(None, program).resolution.choices, resolve_space("memory", program).resolution.choices]
    heavy = [layer.name for layer in program.layers if layer.kind != INPUT]
    offered = {precision: choices for choices in reversed(spaces) for name in heavy for precision in choices[name]}
    uniform = {str(p): uniform_policy(program, p, choices) for p, choices in offered.items() if not p.is_original}
    policies = {ORIGINAL: original_policy(program), **dict(sorted(uniform.items(), key=_widest_first)), **chosen}
    build = partial(
        compile_policy, task.apply, task.params, program, inputs=_first_batch(task), device=jax.devices()[0]
    )
    return [Entry(label=label, build=partial(build, policy), policy=policy) for label, policy in policies.items()]


def _widest_first(item: tuple[str, Policy]) -> tuple[int, int, str]:
    precision = Precision.parse(item[0])
    return -precision.weights.bits, -precision.activations.bits, item[0]


def _casts(task: Task) -> list[Entry]:
    """The whole program in another dtype, cast by hand."""
    build = partial(compile_cast, task.apply, task.params, inputs=_first_batch(task), device=jax.devices()[0])
    names = ("bfloat16", "float16")
    return [Entry(label=f"astype({name})", build=partial(build, jnp.dtype(name))) for name in names]


def _qwix(task: Task, notes: list[str]) -> list[Entry]:
    """The same network in Flax, quantized by qwix, if that is installed."""
    inputs = _first_batch(task)
    try:
        apply, packed = qwix_mlp.quantized(task.params, inputs)
    except InputError as missing:
        notes.append(f"qwix w8a8: not measured, {missing}")
        return []
    return [Entry(label="qwix w8a8, in Flax", build=partial(compile_baseline, apply, packed, inputs, jax.devices()[0]))]


def _measure(task: Task, entries: list[Entry], smoke: bool, *, scored: bool) -> tuple[float, dict[str, Result]]:
    """(milliseconds of the user's own jit, label -> result), all from one interleaved run."""
    inputs, device, program = _first_batch(task), jax.devices()[0], capture_task(task)
    baseline = compile_baseline(task.apply, task.params, inputs, device)
    executables = [entry.build() for entry in entries]
    drops = [markdown.MISSING] * len(entries)
    qualities: list[Quality | None] = [None] * len(entries)
    with device_lock():
        if scored:
            scorer = Scorer(task.holdout, task.batch_size, task.metric, baseline, device)
            outcomes = [scorer.measure(executable) for executable in executables]
            qualities = [found.quality if isinstance(found, Scored) else None for found in outcomes]
            drops = ["not finite" if quality is None else drop_text(quality) for quality in qualities]
        latencies = compare(
            baseline.timed_call(inputs, device),
            [executable.timed_call(inputs, device) for executable in executables],
            effort=command.effort(smoke),
        )
    results = {
        entry.label: Result(
            latency=latency,
            quality=quality,
            drop=drop,
            weights=executable.weight_bytes / baseline.weight_bytes,
            effective=_effective(program, executable, entry.policy),
        )
        for entry, executable, quality, drop, latency in zip(
            entries, executables, qualities, drops, latencies, strict=True
        )
    }
    return latencies[0].milliseconds / latencies[0].ratio, results


def _first_batch(task: Task) -> tuple[Any, ...]:
    inputs, _, _ = next(task.search.batches(task.batch_size))
    return inputs


def _effective(program: Program, executable: Executable, policy: Policy | None) -> str:
    """What the compiled program really does where that is not what the policy asks for."""
    kinds = {layer.name: layer.kind for layer in program.layers if layer.kind != INPUT}
    assigned = {} if policy is None else {name: (kinds[name], policy[name].precision) for name in kinds}
    assigned = {name: pair for name, pair in assigned.items() if not pair[1].is_original}
    if not assigned:
        return markdown.MISSING
    verdicts = list(effective_precisions(executable.module, assigned).values())
    others = sorted({verdict for verdict in verdicts if verdict != AS_REQUESTED})
    counted = (f"{verdicts.count(verdict)} of {len(verdicts)} {verdict}" for verdict in others)
    return "; ".join(counted) or "yes"


def _row(label: str, result: Result) -> tuple[str, ...]:
    milliseconds = numbers.milliseconds(result.latency.milliseconds)
    return label, markdown.ratio(result.latency), milliseconds, result.drop, f"{result.weights:.3f}", result.effective


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
