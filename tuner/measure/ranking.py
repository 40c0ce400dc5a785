"""Ranking: which precisions are likely to be fast here, from one layer and a fraction of a second each."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from search_spaces import Precision
from tuner import _jax_compat as compat
from tuner.measure.device import device_lock
from tuner.measure.executable import commit
from tuner.program import Program, kernels, supports
from tuner.program.layer import CONV, DOT, MATMUL, Layer
from tuner.program.steps import Site

_BUDGET_S = 1.5
_SLICE_S = 0.05


def rank_by_speed(program: Program, precisions: Sequence[Precision]) -> list[Precision]:
    """The precisions, fastest first, by one layer timed alone at its real shape: the one with the most FLOPs.

    It only decides what is measured first. Precisions that the layer cannot take, that fail, or that the time did
    not suffice for come last, in the order given.
    """
    heaviest = _heaviest(program)
    if heaviest is None:
        return list(precisions)
    layer, site = heaviest
    seconds: dict[Precision, float] = {}
    started = time.perf_counter()
    with device_lock():
        for precision in precisions:
            if time.perf_counter() - started > _BUDGET_S:
                break
            if supports(layer, precision) is not None:
                continue
            try:
                seconds[precision] = _time(site, precision)
            except Exception:  # noqa: BLE001  a precision that cannot run here is ranked last, whatever it throws
                continue
    return sorted(precisions, key=lambda precision: seconds.get(precision, float("inf")))


def _heaviest(program: Program) -> tuple[Layer, Site] | None:
    pairs = [
        (layer, sites[0])
        for layer, sites in zip(program.layers, program.sites, strict=True)
        if layer.searchable and layer.kind in (MATMUL, CONV, DOT) and sites
    ]
    return max(pairs, key=lambda pair: pair[0].flops, default=None)


def _time(site: Site, precision: Precision) -> float:
    """Seconds of the fastest call within a twentieth of a second."""
    operands = [_values(variable.aval) for variable in site.eqn.invars]
    if precision.is_original or site.weight_operand is None:
        weight, held = None, operands
    else:
        weight = kernels.pack(site, precision, operands[site.weight_operand])
        held = [None if i == site.weight_operand else operand for i, operand in enumerate(operands)]

    def function(weight: Any, held: list[Any]) -> Any:
        if precision.is_original:
            return compat.bind(site.eqn, held)
        return kernels.run(site, precision, weight, held)

    arguments = commit((weight, held), jax.devices()[0])
    compiled = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(compiled(*arguments))
    samples: list[float] = []
    started = time.perf_counter()
    while not samples or (time.perf_counter() - started < _SLICE_S and len(samples) < 20):
        before = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        samples.append(time.perf_counter() - before)
    return min(samples)


def _values(aval: Any) -> Any:
    """An array of that shape; a short pattern repeated, since drawing random numbers would cost more than the timing."""
    pattern = np.random.default_rng(0).standard_normal(997)
    return np.resize(pattern, aval.shape).astype(aval.dtype)
