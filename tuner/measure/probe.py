"""Probe: one operation in one precision, tried on a tiny example and timed against the same operation as written."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision, SearchSpace, preset_names
from tuner.diagnosis import BATCH_1, CONVOLUTION, GATHER, MATMUL, OPERATION_OF, Attempt, Speed
from tuner.measure.effective import effective_precisions
from tuner.measure.executable import Executable, compile_baseline, compile_policy
from tuner.measure.failures import failure_of
from tuner.measure.latency import Effort, Run, in_turns, latencies
from tuner.measurement import COMPILE_ERROR, ERROR
from tuner.policy import Assignment
from tuner.program import Program, capture, make_policy, supports
from tuner.program.calibration import calibrate
from tuner.program.policies import kernel_names

TINY = "tiny"
# matmul: rows, inner, columns. convolution: images, side, input and output channels. gather: look-ups, rows, columns.
_SIZES: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        MATMUL: {TINY: (8, 32, 16), "small": (64, 256, 256), "medium": (256, 1024, 1024), BATCH_1: (1, 1024, 1024)},
        CONVOLUTION: {TINY: (2, 8, 8, 16), "small": (8, 14, 32, 32), "medium": (8, 28, 64, 64), BATCH_1: (1, 28, 64, 64)},
        GATHER: {TINY: (8, 64, 16), "small": (64, 1000, 64), "medium": (4096, 20000, 256), BATCH_1: (1, 20000, 256)},
    }
)  # fmt: skip
_EFFORT = Effort(width=0.05, seconds=0.1, pairs=6, least_s=0.02)
# A first call that takes as long is not repeated.
_LONG_S = 0.3
# Rounding in eight bits stays far below; beyond, the result is simply wrong.
_WRONG = 0.2
# Known to the grammar and to no preset.
_FURTHER = ("w4a16", "fp8", "tf32/tf32/f32")


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """One operation at one shape, as a program of a single layer."""

    apply: Callable[..., Any]
    params: dict[str, Any]
    inputs: tuple[Any, ...]
    program: Program
    baseline: Executable


def precisions_to_probe() -> dict[str, tuple[Precision, ...]]:
    """Operation -> every precision that some preset asks of it, and those that are known and not built yet."""
    found: dict[str, dict[Precision, None]] = {MATMUL: {}, CONVOLUTION: {}, GATHER: {}}
    for name in preset_names():
        for rule in SearchSpace.load(name).rules:
            for kind in rule.kinds:
                if kind in OPERATION_OF:
                    found[OPERATION_OF[kind]].update(dict.fromkeys(rule.precisions))
    found[MATMUL].update(dict.fromkeys(map(Precision.parse, _FURTHER)))
    return {operation: tuple(precisions) for operation, precisions in found.items()}


def try_precision(operation: str, precision: Precision) -> Attempt:
    """Whether the operation runs in the precision here, and what it effectively runs as; never raises."""
    cause = COMPILE_ERROR
    try:
        example = _example(operation, TINY)
        layer = example.program.layers[-1]
        reason = supports(layer, precision)
        if reason is not None:
            return Attempt(refusal=reason)
        executable = _compile(example, precision, "plain")
        cause = ERROR
        outputs = np.asarray(jax.block_until_ready(executable(example.inputs)), np.float32)
        reason = _what_is_wrong(outputs, np.asarray(example.baseline(example.inputs)))
    except Exception as error:  # noqa: BLE001  whatever it throws, this precision cannot run here
        failure = failure_of(error, cause)
        return Attempt(refusal=f"{failure.cause}: {failure.message}")
    return Attempt(refusal=reason) if reason else Attempt(effective=_effective(example, executable, precision))


def time_precision(operation: str, precision: Precision, shape: str) -> Speed:
    """How fast the operation is in the precision, timed in turns with the operation as written."""
    example = _example(operation, shape)
    device = jax.devices()[0]
    executables = {kernel: _compile(example, precision, kernel) for kernel in _kernels(example, precision, shape)}
    calls: dict[str, Run] = {name: one.timed_call(example.inputs, device) for name, one in executables.items()}
    baseline = example.baseline.timed_call(example.inputs, device)
    baseline()
    first = {name: min(_seconds(call), _seconds(call)) for name, call in calls.items()}
    if min(first.values()) < _LONG_S:
        worth = [name for name, seconds in first.items() if seconds < _LONG_S]
        found = latencies(in_turns([baseline, *(calls[name] for name in worth)], effort=_EFFORT))
        latency, kernel = min(zip(found, worth, strict=True), key=lambda pair: pair[0].ratio)
        ratio, low, high = latency.ratio, latency.low, latency.high
        milliseconds = latency.milliseconds / latency.ratio
    else:
        kernel, baseline_s = min(first, key=lambda name: first[name]), min(_seconds(baseline) for _ in range(3))
        ratio = low = high = first[kernel] / baseline_s
        milliseconds = 1000 * baseline_s
    effective = _effective(example, executables[kernel], precision)
    return Speed(ratio=ratio, low=low, high=high, kernel=kernel, effective=effective, milliseconds=milliseconds)


def _kernels(example: Example, precision: Precision, shape: str) -> tuple[str, ...]:
    """Those worth compiling: for a single row all, elsewhere the plain one, which none beats by much at these shapes."""
    layer = example.program.layers[-1]
    names = kernel_names(example.program, layer.name, precision)
    return names if shape == BATCH_1 and layer.kind == "matmul" else names[:1]


@cache
def _example(operation: str, shape: str) -> Example:
    apply, params, inputs = _OPERATIONS[operation](*_SIZES[operation][shape])
    program = capture(apply, params, inputs)
    return Example(
        apply=apply,
        params=params,
        inputs=inputs,
        program=program,
        baseline=compile_baseline(apply, params, inputs, jax.devices()[0]),
    )


def _compile(example: Example, precision: Precision, kernel: str) -> Executable:
    name = example.program.layers[-1].name
    policy = make_policy(example.program, {name: Assignment(precision=precision, kernel=kernel)})
    found = calibrate(example.program, example.params, [example.inputs], {name: (precision,)})
    policy = found.complete(policy)
    return compile_policy(example.apply, example.params, example.program, policy, example.inputs, jax.devices()[0])


def _effective(example: Example, executable: Executable, precision: Precision) -> str:
    layer = example.program.layers[-1]
    return effective_precisions(executable.module, {layer.name: (layer.kind, precision)})[layer.name]


def _what_is_wrong(outputs: Any, exact: Any) -> str:
    if not np.isfinite(outputs).all():
        return "its results are NaN or infinite"
    error = float(np.linalg.norm(outputs - exact) / np.linalg.norm(exact))
    return f"its results are wrong, by {error:.0%}" if error > _WRONG else ""


def _seconds(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _values(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _matmul(rows: int, inner: int, columns: int) -> tuple[Any, ...]:
    return lambda params, x: x @ params["weight"], {"weight": _values(inner, columns)}, (_values(rows, inner),)


def _convolution(images: int, side: int, inputs: int, outputs: int) -> tuple[Any, ...]:
    def apply(params: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, params["weight"], (1, 1), "SAME", dimension_numbers=numbers)

    return apply, {"weight": _values(3, 3, inputs, outputs)}, (_values(images, side, side, inputs),)


def _gather(look_ups: int, rows: int, columns: int) -> tuple[Any, ...]:
    indices = np.random.default_rng(0).integers(rows, size=look_ups).astype(np.int32)
    return lambda params, ids: jnp.take(params["table"], ids, axis=0), {"table": _values(rows, columns)}, (indices,)


_OPERATIONS: dict[str, Callable[..., tuple[Any, ...]]] = {
    MATMUL: _matmul,
    CONVOLUTION: _convolution,
    GATHER: _gather,
}
