"""Programs side by side: each compiled, scored on the holdout examples, and timed in one interleaved run with `jax.jit`."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import tuner
from benchmarks import command, markdown
from search_spaces import Precision
from tuner.capturing import capture_task
from tuner.errors import GoalMissed
from tuner.front import LATENCY, MEMORY
from tuner.measure import device_lock
from tuner.measure.effective import AS_REQUESTED, effective_precisions
from tuner.measure.executable import Executable, compile_baseline, compile_cast, compile_policy
from tuner.measure.latency import compare
from tuner.measure.quality import Scored, Scorer
from tuner.measurement import Latency, Quality
from tuner.policy import Policy
from tuner.program import Program, uniform_policy
from tuner.program.layer import INPUT
from tuner.report import numbers
from tuner.report.points import drop_text, policy_text
from tuner.search.spaces import resolve_space
from tuner.task import Task

FASTEST, SMALLEST = "search, fastest", "search, smallest"
TITLES = ("program", "ratio to jax.jit (95 %)", "ms", "quality drop (95 %)", "weights", "ran as requested")


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


def table(baseline_ms: float, results: dict[str, Result]) -> str:
    """The lines under the user's own jit."""
    rows: list[tuple[str, ...]] = [("jax.jit", "1.000", numbers.milliseconds(baseline_ms), "0.0000", "1.000", "-")]
    return markdown.table(TITLES, [*rows, *(_row(label, result) for label, result in results.items())])


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search measured: every uniform policy with the kernels it found, and the confirmed ones it chooses."""

    uniform: dict[str, Policy]
    chosen: dict[str, Policy]


def search_for_policies(task: Task, max_drop: float | str, notes: list[str], **limits: Any) -> Found:
    """What a search in a database of its own finds; what it could not choose is added to the notes."""
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{Path(folder) / 'benchmark.db'}"
        study = tuner.search(task, max_drop=max_drop, storage=storage, seed=0, progress=False, **limits)
        uniform = {p.label: p.policy for p in study.points() if p.policy is not None and _is_uniform(p.policy)}
        chosen: dict[str, Policy] = {}
        for label, minimize in ((FASTEST, LATENCY), (SMALLEST, MEMORY)):
            try:
                decision = study.decide(minimize=minimize)
            except GoalMissed as missed:
                notes.append(f"{label}: {missed}")
                continue
            policy = decision.point.policy
            if policy is None or policy.is_original:
                notes.append(f"{label}: nothing measured beats the program as written.")
                continue
            notes.append(f"{label}: {policy_text(policy)}; {len(decision.rejected)} rejected by the confirmation.")
            chosen[label] = policy
    return Found(uniform=uniform, chosen=chosen)


def _is_uniform(policy: Policy) -> bool:
    """True for one precision wherever it can run."""
    return len({a.precision for _, a in policy.assignments if not a.precision.is_original}) == 1


def policy_entries(task: Task, policies: Mapping[str, Policy]) -> list[Entry]:
    """One line per policy."""
    build = partial(
        compile_policy, task.apply, task.params, capture_task(task), inputs=first_batch(task), device=jax.devices()[0]
    )
    return [Entry(label=label, build=partial(build, policy), policy=policy) for label, policy in policies.items()]


def uniform_policies(task: Task) -> dict[str, Policy]:
    """Label -> one precision everywhere: those of the device's space and the ones that save memory, widest first."""
    program = capture_task(task)
    spaces = [resolve_space(None, program).resolution.choices, resolve_space("memory", program).resolution.choices]
    heavy = [layer.name for layer in program.layers if layer.kind != INPUT]
    offered = {precision: choices for choices in reversed(spaces) for name in heavy for precision in choices[name]}
    found = {str(p): uniform_policy(program, p, choices) for p, choices in offered.items() if not p.is_original}
    found = {text: _calibrated(task, policy) for text, policy in found.items()}
    return dict(sorted(found.items(), key=_widest_first))


def _calibrated(task: Task, policy: Policy) -> Policy:
    needs = any(precision.is_calibrated for precision in policy.precisions.values())
    return tuner.calibrate(task, policy) if needs else policy


def _widest_first(item: tuple[str, Policy]) -> tuple[int, int, str]:
    precision = Precision.parse(item[0])
    return -precision.weights.bits, -precision.activations.bits, item[0]


def casts(task: Task) -> list[Entry]:
    """The whole program in another dtype, cast by hand."""
    build = partial(compile_cast, task.apply, task.params, inputs=first_batch(task), device=jax.devices()[0])
    names = ("bfloat16", "float16")
    return [Entry(label=f"astype({name})", build=partial(build, jnp.dtype(name))) for name in names]


def measure(task: Task, entries: list[Entry], smoke: bool, *, scored: bool) -> tuple[float, dict[str, Result]]:
    """(milliseconds of the user's own jit, label -> result), all from one interleaved run."""
    inputs, device, program = first_batch(task), jax.devices()[0], capture_task(task)
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


def first_batch(task: Task) -> tuple[Any, ...]:
    """The inputs of one call."""
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
