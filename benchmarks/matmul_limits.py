"""What this device's matrix products can do at all, in every format: `python -m benchmarks.matmul_limits`.

Where a policy is no faster than the user's own `jax.jit`, this shows whether a policy could be. Every cell is the time of
one product as a ratio to float32, taken in alternation with it. The shapes are those of studies.fashion_mlp and three
larger ones.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, machine, markdown
from search_spaces import parse_format
from search_spaces.quantize import quantize
from tuner.measure import device_lock
from tuner.measure.latency import Run, compare, time_alone
from tuner.report import numbers

TITLE = "Matrix products: what this device can do"
Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = (
    *((batch, *layer) for batch in (256, 1) for layer in ((784, 512), (512, 512), (512, 10))),
    (1, 1024, 1024),
    (256, 1024, 1024),
    (1024, 1024, 1024),
)
SMOKE_SHAPES: tuple[Shape, ...] = ((4, 8, 8), (1, 8, 8))
AGAIN = "f32/f32/f32 again"
_I8 = parse_format("i8")
# Timed long enough that the clock of CPU time, which ticks coarsely on some systems, can tell.
_CPU_SECONDS = 0.3
Product = Callable[..., Any]


def report(smoke: bool) -> Iterator[str]:
    """The table, and what bounds it."""
    shapes = SMOKE_SHAPES if smoke else SHAPES
    columns = [_measure(shape, smoke) for shape in shapes]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    titles = ["ratio to f32/f32/f32 (95 %)", *(" x ".join(map(str, shape)) for shape in shapes)]
    yield markdown.table(
        titles, ([label, *(column.get(label, markdown.MISSING) for column in columns)] for label in labels)
    )
    yield "\n".join(_bounds())


def products(shape: Shape) -> dict[str, tuple[Product, tuple[Any, ...]]]:
    """Label -> (function, operands) of every way to run a product of rows x inner by inner x columns."""
    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(rows, inner)), jnp.float32)
    w = jnp.asarray(rng.normal(size=(inner, columns)), jnp.float32)
    (x8, _), (w8, scale) = quantize(x, _I8, 1), quantize(w, _I8, 0)
    half = {name: (x.astype(name), w.astype(name)) for name in ("bfloat16", "float16")}
    x16, w16 = half["bfloat16"]
    found: dict[str, tuple[Product, tuple[Any, ...]]] = {
        AGAIN: (partial(_dot, to="float32"), (x, w)),
        "f32/f32/f32, weight transposed": (partial(_dot, to="float32", side=1), (x, _turned(w))),
        "bf16/bf16/f32": (partial(_dot, to="float32"), (x16, w16)),
        "bf16/bf16/f32, weight transposed": (partial(_dot, to="float32", side=1), (x16, _turned(w16))),
        "bf16/bf16/bf16": (partial(_dot, to="bfloat16"), (x16, w16)),
        "bf16/f32/f32 (weight widened on use)": (_widened, (x, w16)),
        "f16/f16/f16": (partial(_dot, to="float16"), half["float16"]),
        "i8/i8/i32, the product alone": (partial(_dot, to="int32"), (x8, w8)),
        "i8/i8/i32, alone, weight transposed": (partial(_dot, to="int32", side=1), (x8, _turned(w8))),
        "i8/i8/i32 with quantizing and scaling": (_dynamic, (x, w8, scale)),
        "i8/f32/f32 (weight widened on use)": (_widened, (x, w8, scale)),
    }
    if rows == 1:  # some kernels only begin at two rows
        two = partial(_padded, side=1)
        found["bf16/bf16/f32, transposed, two rows"] = (partial(two, to="float32"), (x16, _turned(w16)))
        found["i8/i8/i32, alone, transposed, two rows"] = (partial(two, to="int32"), (x8, _turned(w8)))
    return found


def _measure(shape: Shape, smoke: bool) -> dict[str, str]:
    """Row label -> cell, for one shape."""
    ways = products(shape)
    runs = {label: _compiled(function, operands) for label, (function, operands) in ways.items()}
    operands = ways[AGAIN][1]
    baseline = _compiled(jnp.matmul, operands)
    with device_lock():
        latencies = compare(baseline, list(runs.values()), effort=command.effort(smoke))
        per_cpu_second = _per_cpu_second(baseline, shape, 0.001 if smoke else _CPU_SECONDS)
        # Not among the others: its threads go on spinning for a while, which would slow whatever comes next.
        x, w = (np.array(operand) for operand in operands)
        numpy_s = time_alone(lambda: np.matmul(x, w), effort=command.effort(smoke))
    milliseconds = latencies[0].milliseconds / latencies[0].ratio
    head = {
        "f32/f32/f32, ms": numbers.milliseconds(milliseconds),
        "f32/f32/f32, GFLOP/s": f"{_billions(shape) / milliseconds * 1000:.1f}",
        "f32/f32/f32, GFLOP/s per core in use": f"{per_cpu_second:.1f}",
        "numpy in f32, ms (timed alone)": numbers.milliseconds(float(np.median(numpy_s)) * 1000),
    }
    return head | {label: markdown.ratio(latency) for label, latency in zip(runs, latencies, strict=True)}


def _bounds() -> list[str]:
    """Sentences on the hardware's own limits."""
    lines = ["Per core in use: per second of CPU time, so what other processes take away does not count."]
    peak = machine.peak_gflops_per_core()
    if peak is not None:
        lines.append(f"Peak of f32, per core, at the nominal clock: {peak[1]} = {peak[0]:.0f} GFLOP/s.")
    features = machine.cpu_features()
    if "avx2" in features and not features & {"avx512_vnni", "avx_vnni", "amx_int8"}:
        lines.append(
            "Without VNNI and AMX an i8 product widens to 16 bits and multiplies two pairs per lane and instruction, against "
            "one in f32: at best half the time of f32 at its peak, before widening and quantizing."
        )
    if features and not features & {"avx512_bf16", "amx_bf16"}:
        lines.append(
            "Without AVX512-BF16 and AMX a bf16 product is widened to f32 and cannot be faster than f32 at its peak."
        )
    return lines


def _dot(x: Any, w: Any, *, to: str, side: int = 0) -> Any:
    return jax.lax.dot_general(x, w, (((1,), (side,)), ((), ())), preferred_element_type=jnp.dtype(to))


def _padded(x: Any, w: Any, *, to: str, side: int) -> Any:
    # Without the barrier XLA takes the padding out again.
    rows = jax.lax.optimization_barrier(jnp.pad(x, ((0, 1), (0, 0))))
    return _dot(rows, w, to=to, side=side)[:1]


def _widened(x: Any, w: Any, scale: Any = None) -> Any:
    product = _dot(x, w.astype(x.dtype), to="float32")
    return product if scale is None else product * scale


def _dynamic(x: Any, w: Any, scale: Any) -> Any:
    values, own = quantize(x, _I8, 1)
    return _dot(values, w, to="int32").astype(jnp.float32) * own * scale


def _turned(w: Any) -> Any:
    return jnp.asarray(np.ascontiguousarray(np.asarray(w).T))


def _compiled(function: Product, operands: tuple[Any, ...]) -> Run:
    compiled = jax.jit(function).lower(*operands).compile()
    # Of its own: an array shared with the program that ran before would still lie in the cache.
    own = jax.tree_util.tree_map(jnp.copy, operands)
    return lambda: jax.block_until_ready(compiled(*own))


def _billions(shape: Shape) -> float:
    """Operations of one product, a multiplication and an addition counting as two."""
    return 2 * math.prod(shape) / 1e9


def _per_cpu_second(run: Run, shape: Shape, at_least_s: float) -> float:
    """Billions of operations per second of CPU time, over all threads."""
    calls, started = 0, time.process_time()
    while (seconds := time.process_time() - started) < at_least_s:
        run()
        calls += 1
    return calls * _billions(shape) / seconds


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
