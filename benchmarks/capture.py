"""What capturing and rewriting cost, and how that grows: `python -m benchmarks.capture`.

*Capture + rewrite* is everything that the tool does in Python before a compiler runs: `tuner.capture(apply, ...)`, deciding
from a policy what runs how, and tracing the function that `tuner.prepare` returns. It is a ratio to `jax.make_jaxpr(apply)`,
which JAX does anyway: of the two traces in it, one of the function as written and one of the rewritten one, the first is
that very trace. Packing the weights is not in it; that is arithmetic on the device, once per policy.

Every function is new to JAX in every sample, the process is warm, and Python's garbage collector runs as a user has it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

import tuner
from benchmarks import command, markdown, transformer
from search_spaces import Precision
from tuner._jax_compat import jaxprs_in, open_jaxpr
from tuner.measure import device_lock
from tuner.measure.latency import Effort, compare
from tuner.measurement import Latency
from tuner.policy import Policy
from tuner.program import original_policy, prepare, uniform_policy
from tuner.program.plan import plan
from tuner.report import numbers

TITLE = "Capture and rewrite"
# 1, 4 and 16 times as many layers.
LAYERS, SMOKE_LAYERS = (24, 96, 384), (1, 2)
GOAL_ORIGINAL, GOAL_I8 = 2.0, 3.5
I8 = Precision.parse("i8/i8/i32")
# A sample of the largest takes seconds, so few pairs; what is compared differs by more than the interval.
_TRACING = Effort(width=0.03, seconds=8.0, pairs=6)
_BOTH = "capture + rewrite"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One size of one form of the transformer."""

    layers: int
    equations: int
    equations_i8: int
    make_jaxpr_ms: float
    capture: Latency
    original: Latency
    i8: Latency


def report(smoke: bool) -> Iterator[str]:
    """The table of the Python loop, that of the scan, and what became of the goals."""
    sizes, effort = (SMOKE_LAYERS, command.SMOKE) if smoke else (LAYERS, _TRACING)
    loop = [_row(size, transformer.make(size), transformer.apply, effort) for size in sizes]
    yield f"A transformer as a Python loop; ratios to `jax.make_jaxpr` of it (95 %).\n\n{_table(loop)}"
    scan = [_row(size, transformer.make_stacked(size), transformer.apply_stacked, effort) for size in sizes]
    yield f"The same as a scan over stacked parameters.\n\n{_table(scan)}"
    yield "\n".join(f"- {verdict}" for verdict in (*_verdicts(loop), _depth(sizes, effort)))


def _row(layers: int, made: tuple[Any, Any], apply: Callable[..., Any], effort: Effort) -> Row:
    params, x = made
    program = tuner.capture(apply, params, (x,))
    models = [prepare(apply, params, policy, program=program) for policy in _policies(program)]
    candidates: list[Callable[[], object]] = [
        lambda: tuner.capture(_unknown(apply), params, (x,)),
        *(_capture_and_rewrite(apply, params, x, model) for model in models),
    ]
    with device_lock():
        capture, original, i8 = compare(lambda: _trace(apply, params, x), candidates, effort=effort)
    return Row(
        layers=layers,
        equations=_equations(apply, params, x),
        equations_i8=_equations(models[1], models[1].params, x),
        make_jaxpr_ms=capture.milliseconds / capture.ratio,
        capture=capture,
        original=original,
        i8=i8,
    )


def _policies(program: tuner.Program) -> tuple[Policy, Policy]:
    return original_policy(program), uniform_policy(program, I8)


def _capture_and_rewrite(apply: Callable[..., Any], params: Any, x: Any, model: tuner.Prepared) -> Callable[[], object]:
    def both() -> object:
        program = tuner.capture(_unknown(apply), params, (x,))
        # `prepare` makes such a plan and packs; the model traced here is one that was packed before.
        return plan(program, model.policy), _trace(model, model.params, x)

    return both


def _table(rows: list[Row]) -> str:
    titles = ("layers", "equations", f"in {I8}", "make_jaxpr, ms", "capture", f"{_BOTH}, all original", f"all {I8}")
    return markdown.table(titles, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    return (
        *(str(row.layers), f"{row.equations:,}", f"{row.equations_i8:,}", numbers.milliseconds(row.make_jaxpr_ms)),
        *(markdown.ratio(latency) for latency in (row.capture, row.original, row.i8)),
    )


def _verdicts(rows: list[Row]) -> Iterator[str]:
    """The goals, each with what was measured."""
    first, last = rows[0], rows[-1]
    for label, goal, found in (
        ("all `original`", GOAL_ORIGINAL, first.original),
        (f"all {I8}", GOAL_I8, first.i8),
    ):
        met = "met" if found.ratio <= goal else "not met"
        yield f"{first.layers} layers, {label} at no more than {goal:g}: {numbers.ratio(found.ratio)}, {met}"
    growth = {
        label: (a.milliseconds / first.equations, b.milliseconds / last.equations)
        for label, a, b in (("all `original`", first.original, last.original), (f"all {I8}", first.i8, last.i8))
    }
    for label, (small, large) in growth.items():
        yield f"{label}, time per equation at {last.equations:,} equations to that at {first.equations:,}: {large / small:.2f}"


def _depth(sizes: tuple[int, ...], effort: Effort) -> str:
    """Capture of the scan at every depth, side by side."""
    made = [transformer.make_stacked(size) for size in sizes]
    runs = [lambda p=p, x=x: tuner.capture(_unknown(transformer.apply_stacked), p, (x,)).layers for p, x in made]
    with device_lock():
        deeper = compare(runs[0], runs[1:], effort=effort)
    found = ", ".join(
        f"{size} layers {markdown.ratio(latency)}" for size, latency in zip(sizes[1:], deeper, strict=True)
    )
    return f"capture and listing of the scan to that of {sizes[0]} layers: {found}"


def _trace(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.make_jaxpr(_unknown(function))(*arguments)


def _unknown(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same as another function object: JAX keeps the traces of those it knows."""
    return lambda *given: function(*given)


def _equations(function: Callable[..., Any], *arguments: Any) -> int:
    def count(jaxpr: Any) -> int:
        inside = [open_jaxpr(inner)[0] for eqn in jaxpr.eqns for inner in jaxprs_in(eqn.params)]
        return len(jaxpr.eqns) + sum(map(count, inside))

    return count(_trace(function, *arguments).jaxpr)


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
