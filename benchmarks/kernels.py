"""What each kernel does for each kind of operation on this device: `python -m benchmarks.kernels`.

Every cell is the time of one operation alone, as a ratio to the plain kernel of the same precision, taken in alternation with
it, with its 95 % interval; the plain kernel itself is held against the operation as written. The operations are those of the
ready studies' models and of the layouts that users come with: a name, what is called, and its shapes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, markdown
from search_spaces import Precision
from tuner.measure import device_lock
from tuner.measure.kernel_table import compile_alone
from tuner.measure.latency import Effort, Run, compare
from tuner.policy import PLAIN, Assignment
from tuner.program import Program, capture, kernels
from tuner.program.steps import Site

TITLE = "Kernels: each against the plain one of its precision"
PRECISIONS = ("f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One operation: a function of a weight and inputs, and their shapes."""

    name: str
    apply: Callable[..., Any]
    weight: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]


def _product(name: str, equation: str, weight: tuple[int, ...], x: tuple[int, ...], repeat: int = 0) -> Case:
    def apply(w: Any, x: Any) -> Any:
        return jnp.einsum(equation, x, jnp.broadcast_to(w, (repeat, *w.shape)) if repeat else w)

    return Case(name=name, apply=apply, weight=weight, inputs=(x,))


def _pair(name: str, equation: str, left: tuple[int, ...], right: tuple[int, ...]) -> Case:
    def apply(w: Any, x: Any, y: Any) -> Any:
        return jnp.einsum(equation, x, y) + 0 * w.sum()

    return Case(name=name, apply=apply, weight=(1,), inputs=(left, right))


def _convolution(
    name: str, image: tuple[int, ...], kernel: tuple[int, ...], stride: int = 1, groups: int = 1, layout: str = "last"
) -> Case:
    space = "DHW"[3 - (len(image) - 2) :]
    numbers = (
        (f"N{space}C", f"{space}IO", f"N{space}C") if layout == "last" else (f"NC{space}", f"OI{space}", f"NC{space}")
    )

    def apply(w: Any, x: Any) -> Any:
        strides = (stride,) * len(space)
        settings: dict[str, Any] = {"dimension_numbers": numbers, "feature_group_count": groups}
        return jax.lax.conv_general_dilated(x, w, strides, "SAME", **settings)

    return Case(name=name, apply=apply, weight=kernel, inputs=(image,))


def cases() -> list[Case]:
    """The operations, the small ResNet's at batches of 1 and 64 first."""
    found = []
    for batch in (1, 64):
        for side, inputs, outputs, taps, stride in (
            (28, 1, 32, 3, 1),
            (28, 32, 32, 3, 1),
            (28, 32, 64, 3, 2),
            (28, 32, 64, 1, 2),
            (14, 64, 64, 3, 1),
            (14, 64, 128, 3, 2),
            (7, 128, 128, 3, 1),
        ):
            name = f"{taps}x{taps}, {batch} x {side} x {side} x {inputs} -> {outputs}, stride {stride}"
            found.append(_convolution(name, (batch, side, side, inputs), (taps, taps, inputs, outputs), stride))
    found += [
        _convolution("depthwise 3x3, 8 x 56 x 56 x 144", (8, 56, 56, 144), (3, 3, 1, 144), groups=144),
        _convolution("depthwise 5x5, 32 x 4 x 4 x 672", (32, 4, 4, 672), (5, 5, 1, 672), groups=672),
        _convolution("grouped (4) 3x3, 8 x 14 x 14 x 128", (8, 14, 14, 128), (3, 3, 32, 128), groups=4),
        _convolution("grouped (32) 3x3, 8 x 14 x 14 x 128", (8, 14, 14, 128), (3, 3, 4, 128), groups=32),
        _convolution("NCHW 3x3, 8 x 64 x 14 x 14", (8, 64, 14, 14), (64, 64, 3, 3), layout="first"),
        _convolution("one-dimensional 3, 8 x 512 x 64", (8, 512, 64), (3, 64, 64)),
        _convolution("one-dimensional NCH 3, 8 x 64 x 512", (8, 64, 512), (64, 64, 3), layout="first"),
        _product("matmul 1 x 784 -> 512", "bk,kn->bn", (784, 512), (1, 784)),
        _product("matmul 256 x 784 -> 512", "bk,kn->bn", (784, 512), (256, 784)),
        _product("matmul 16 x 64 x 384 -> 1536", "bsk,kn->bsn", (384, 1536), (16, 64, 384)),
        _product("repeated weight 16 x 64 x 384 -> 384", "bsk,bkn->bsn", (384, 384), (16, 64, 384), repeat=16),
        _pair("scores, batch and heads first", "bhqd,bhkd->bhqk", (16, 12, 64, 32), (16, 12, 64, 32)),
        _pair("scores, heads inside", "bqhd,bkhd->bhqk", (16, 64, 12, 32), (16, 64, 12, 32)),
        _pair("scores of one token", "bqhd,bkhd->bhqk", (1, 1, 12, 64), (1, 512, 12, 64)),
    ]
    return found


SMOKE_CASES = (
    _convolution("3x3, small", (1, 5, 5, 2), (3, 3, 2, 2)),
    _product("matmul, small", "bk,kn->bn", (8, 4), (1, 8)),
)


def report(smoke: bool) -> Iterator[str]:
    """One table per precision: an operation per line, beside the plain kernel all others that can run it."""
    titles = ("operation", "as written, ms", "plain / as written (95 %)", "kernel / plain (95 %)")
    for text in PRECISIONS[:1] if smoke else PRECISIONS:
        yield f"{text}:"
        rows = (_row(case, Precision.parse(text), _effort(smoke)) for case in (SMOKE_CASES if smoke else cases()))
        yield markdown.table(titles, rows)


def _effort(smoke: bool) -> Effort:
    return command.effort(smoke) if smoke else Effort(width=0.05, seconds=1.0, pairs=15)


def _row(case: Case, precision: Precision, effort: Effort) -> tuple[str, str, str, str]:
    rng = np.random.default_rng(0)
    weight, *inputs = (rng.standard_normal(shape, np.float32) for shape in (case.weight, *case.inputs))
    site = _site(capture(case.apply, weight, tuple(inputs)))
    with device_lock():
        written = compile_alone(site, Assignment())
        runs = dict(_runs(site, precision))
        plain = runs.pop(PLAIN, None)
        (itself, *_) = compare(written, [written if plain is None else plain], effort=effort)
        found = compare(written if plain is None else plain, list(runs.values()), effort=effort) if runs else []
    cells = (f"{name} {markdown.ratio(latency)}" for name, latency in zip(runs, found, strict=True))
    return (
        case.name,
        f"{itself.milliseconds / itself.ratio:.3g}",
        "not run; kernels / as written:" if plain is None else markdown.ratio(itself),
        ", ".join(cells) or markdown.MISSING,
    )


def _site(program: Program) -> Site:
    """The one operation of a program."""
    return next(site for sites in program.sites for site in sites)


def _runs(site: Site, precision: Precision) -> Iterator[tuple[str, Run]]:
    """The kernels that run here, those left out that are known to take minutes."""
    for name in kernels.kernel_names([site], precision):
        if kernels.runs_in_scalar_loop(site, precision, name, jax.default_backend()):
            continue
        try:
            run = compile_alone(site, Assignment(precision=precision, kernel=name))
            run()
        except Exception:  # noqa: BLE001  whatever it throws, it cannot run here
            continue
        yield name, run


def main(argv: list[str] | None = None) -> int:
    """Prints the report."""
    return command.run({TITLE: report}, argv)


if __name__ == "__main__":
    raise SystemExit(main())
