"""Kernel table: how long each operation takes alone, at its real shapes, in every precision and kernel it may run in.

Kernels of one precision are interchangeable, so the fastest is taken; which that is depends on device, shape and compiler
and is measured. Operations of one signature are timed once, in rounds that run every variant in rotating order, so that a
drifting machine slows all of them alike.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from search_spaces import ORIGINAL, Precision
from tuner import _jax_compat as compat
from tuner.measure.device import device_lock
from tuner.measure.executable import commit
from tuner.policy import PLAIN, Assignment
from tuner.program import Program, kernels
from tuner.program.layer import Layer
from tuner.program.sites import Ragged
from tuner.program.steps import Site

# A kernel must beat the plain one by this much to be taken: less is noise.
_WORTH = 0.97
_ROUNDS = 9
_ROUND_S = 0.4
# A variant whose first call takes this many times the fastest's, and long, is not called again.
_SLOW = 10.0

# (signature of the operation, precision, kernel) as text -> seconds of one execution; NaN where it cannot run here.
Times = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTable:
    """The timed operations of one program.

    Attributes:
        times: per operation signature, precision and kernel, in seconds; what could not run is NaN.
        signatures: layer name -> (signature, executions) of each of its operations, at every shape that is timed.
        kernels: (layer name, precision) -> names of the kernels that can run it.
        untimed: the same -> the kernel that runs it where none was timed, if that is not the plain one.
        dropped: (layer name, precision, kernel) of what is not taken, however fast alone.
        fixed: (layer name, precision) -> the kernel that is taken, whatever the times; None where those decide.
    """

    times: Times = field(default_factory=dict)
    signatures: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    kernels: Mapping[tuple[str, Precision], tuple[str, ...]] = field(default_factory=dict)
    untimed: Mapping[tuple[str, Precision], str] = field(default_factory=dict)
    dropped: frozenset[tuple[str, Precision, str]] = frozenset()
    fixed: Mapping[tuple[str, Precision], str] | None = None

    def seconds(self, layer: str, precision: Precision, kernel: str) -> float:
        """Predicted seconds of a layer in one call of the program; NaN where that is not known."""
        parts = self.signatures.get(layer, ())
        return sum(count * self.times.get(_key(s, precision, kernel), float("nan")) for s, count in parts)

    def best(self, layer: str, precision: Precision) -> str:
        """The fastest kernel of a layer in a precision; the plain one where nothing is clearly faster.

        Where nothing was timed that is the plain one too, unless it is known to be slow by far.
        """
        if self.fixed is not None:
            return self.fixed.get((layer, precision), PLAIN)
        plain = self.seconds(layer, precision, PLAIN)
        names = (n for n in self.kernels.get((layer, precision), ()) if (layer, precision, n) not in self.dropped)
        timed = {name: self.seconds(layer, precision, name) for name in names}
        timed = {name: seconds for name, seconds in timed.items() if seconds == seconds}
        if not timed:
            return self.untimed.get((layer, precision), PLAIN)
        fastest = min(timed, key=lambda name: timed[name])
        return PLAIN if plain == plain and timed[fastest] > _WORTH * plain else fastest

    def without(self, kernel: str, precision: Precision, layers: Sequence[str]) -> "KernelTable":
        """The table without a kernel in some layers."""
        return replace(self, dropped=self.dropped | {(layer, precision, kernel) for layer in layers})

    def choice(self) -> dict[str, dict[str, str]]:
        """Precision -> layer -> kernel, where that is not the plain one."""
        chosen: dict[str, dict[str, str]] = {}
        for layer, precision in self.kernels:
            kernel = self.best(layer, precision)
            if kernel != PLAIN:
                chosen.setdefault(str(precision), {})[layer] = kernel
        return chosen

    def settled(self, chosen: Mapping[str, Mapping[str, str]]) -> "KernelTable":
        """The table that takes what `choice` gave, whatever is timed afterwards."""
        fixed = {
            (layer, Precision.parse(precision)): kernel
            for precision, found in chosen.items()
            for layer, kernel in found.items()
        }
        return replace(self, fixed=fixed)

    def predicted(self, precision: Precision) -> float:
        """Seconds that all layers are predicted to take in a precision with their best kernels, as far as known.

        A layer that may not take the precision, or was not timed in it, counts as it was written.
        """
        total = 0.0
        for layer in self.signatures:
            taken = precision if (layer, precision) in self.kernels else ORIGINAL
            seconds = self.seconds(layer, taken, self.best(layer, taken))
            original = self.seconds(layer, ORIGINAL, PLAIN)
            total += seconds if seconds == seconds else (original if original == original else 0.0)
        return total


def time_kernels(
    program: Program,
    choices: Mapping[str, Sequence[Precision]],
    *,
    shapes: Sequence[tuple[float, Program]] = (),
    known: Times,
    budget_s: float,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> KernelTable:
    """The table of a program's operations, those with the most work first.

    Args:
        program: what is tuned.
        choices: layer name -> the precisions it may take.
        shapes: weight and program of each kind of call, where they are not those of `program`.
        known: times measured before on this device; they are not measured again.
        budget_s: seconds that measuring may take; what is left out then runs in its plain kernel.
        progress: called with (operations done, operations in all).
    """
    signatures: dict[str, tuple[tuple[str, float], ...]] = {}
    wanted: dict[str, tuple[Site, dict[tuple[Precision, str], None]]] = {}
    weight: dict[str, float] = {}
    layers = list(layers_in(shapes or ((1.0, program),)))
    names = _kernel_names(layers, choices)
    untimed = _untimed_kernels(layers, choices)
    for calls, layer, sites in layers:
        mine = tuple((signature_of(site), calls * site.executions) for site in sites)
        signatures[layer.name] = (*signatures.get(layer.name, ()), *mine)
        for site, (signature, _) in zip(sites, mine, strict=True):
            variants = wanted.setdefault(signature, (site, {}))[1]
            variants.update({(p, k): None for p in choices.get(layer.name, ()) for k in names[layer.name, p]})
            weight[signature] = weight.get(signature, 0) + calls * layer.flops * _groups(site)
    times = dict(known)
    started = time.perf_counter()
    ordered = sorted(wanted, key=lambda signature: -weight[signature])
    with device_lock() if budget_s > 0 else nullcontext():
        for done, signature in enumerate(ordered):
            progress(done, len(ordered))
            site, variants = wanted[signature]
            missing = [variant for variant in variants if _key(signature, *variant) not in times]
            left = budget_s - (time.perf_counter() - started)
            if missing and left > 0:
                found = _time_variants(site, list(variants), min(_ROUND_S * len(variants), left))
                times.update({_key(signature, *variant): seconds for variant, seconds in found.items()})
    return KernelTable(times=times, signatures=signatures, kernels=names, untimed=untimed)


_Part = tuple[float, Layer, Sequence[Site]]


def layers_in(shapes: Sequence[tuple[float, Program]]) -> Iterator[_Part]:
    """Every layer that may change and its operations, at each shape."""
    for calls, program in shapes:
        for layer, sites in zip(program.layers, program.sites, strict=True):
            if sites and layer.searchable:
                yield calls, layer, sites


def _kernel_names(
    layers: Sequence[_Part], choices: Mapping[str, Sequence[Precision]]
) -> dict[tuple[str, Precision], tuple[str, ...]]:
    """Per layer and precision the kernels that can run it at one shape or another."""
    names: dict[tuple[str, Precision], dict[str, None]] = {}
    for _, layer, sites in layers:
        for precision in choices.get(layer.name, ()):
            names.setdefault((layer.name, precision), {}).update(dict.fromkeys(kernels.kernel_names(sites, precision)))
    return {key: tuple(found) for key, found in names.items()}


def _untimed_kernels(
    layers: Sequence[_Part], choices: Mapping[str, Sequence[Precision]]
) -> dict[tuple[str, Precision], str]:
    """Per layer and precision the kernel for want of times, where that is not the plain one."""
    platform = jax.default_backend()
    found = {
        (layer.name, precision): kernels.untimed_kernel(sites, precision, platform)
        for _, layer, sites in layers
        for precision in choices.get(layer.name, ())
    }
    return {key: name for key, name in found.items() if name != PLAIN}


def _groups(site: Site) -> int:
    """What a grouped convolution costs more than its work says, where no kernel is made for it: its groups at worst."""
    return int(site.eqn.params.get("feature_group_count", 1))


def signature_of(site: Site) -> str:
    """Equal for operations that take the same time: kind, shapes, dtypes and settings."""
    shapes = [str(variable.aval) for variable in (*site.eqn.invars, *site.eqn.outvars)]
    settings = sorted((name, str(value)) for name, value in site.eqn.params.items())
    text = repr((site.kind, site.weight_operand, shapes, settings, *(site.repeated and [site.repeated])))
    return f"{site.kind}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _key(signature: str, precision: Precision, kernel: str) -> str:
    return f"{signature} {precision} {kernel}"


def _time_variants(
    site: Site, variants: Sequence[tuple[Precision, str]], budget_s: float
) -> dict[tuple[Precision, str], float]:
    """Seconds per variant: the median over rounds that run all of them; NaN for what cannot run."""
    calls: dict[tuple[Precision, str], Callable[[], object]] = {}
    first: dict[tuple[Precision, str], float] = {}
    for precision, kernel in variants:
        if _is_hopeless(site, precision, kernel, variants):
            continue
        try:
            call = compile_alone(site, Assignment(precision=precision, kernel=kernel))
            started = time.perf_counter()
            call()
        except Exception:  # noqa: BLE001  whatever it throws, this variant cannot run here
            continue
        calls[precision, kernel], first[precision, kernel] = call, time.perf_counter() - started
    slow = [variant for variant in calls if first[variant] > max(_ROUND_S, _SLOW * min(first.values()))]
    samples: dict[tuple[Precision, str], list[float]] = {v: [first[v]] if v in slow else [] for v in calls}
    for variant in slow:
        del calls[variant]
    started = time.perf_counter()
    for number in range(_ROUNDS):
        ordered = list(calls)
        for variant in ordered[number % len(ordered) :] + ordered[: number % len(ordered)] if ordered else ():
            before = time.perf_counter()
            calls[variant]()
            samples[variant].append(time.perf_counter() - before)
        if number >= 2 and time.perf_counter() - started > budget_s:
            break
    return {variant: float(np.median(samples[variant])) if variant in samples else float("nan") for variant in variants}


def _is_hopeless(site: Site, precision: Precision, kernel: str, variants: Sequence[tuple[Precision, str]]) -> bool:
    """True for what is known to be slower than another kernel by far, at some shapes by minutes: it is not even tried."""
    platform = jax.default_backend()
    others = (name for other, name in variants if other == precision and name != kernel)
    return kernels.runs_in_scalar_loop(site, precision, kernel, platform) and not all(
        kernels.runs_in_scalar_loop(site, precision, name, platform) for name in others
    )


def compile_alone(site: Site, assignment: Assignment) -> Callable[[], object]:
    """A call of one operation alone, its weight packed beforehand."""
    operands = [_values(variable.aval) for variable in site.eqn.invars]
    if site.eqn.primitive.name == "ragged_dot_general":
        operands[2] = _even_groups(operands[0].shape[Ragged.of(site.eqn).rows], operands[2])
    original = assignment.precision.is_original
    packed = None
    if not original and site.weight_operand is not None:
        packed = kernels.pack(site, assignment, operands[site.weight_operand])
        operands[site.weight_operand] = None

    def function(packed: Any, operands: list[Any]) -> Any:
        return compat.bind(site.eqn, operands) if original else kernels.run(site, assignment, packed, operands)

    arguments = commit((packed, operands), jax.devices()[0])
    compiled = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(compiled(*arguments))


def _even_groups(rows: int, sizes: Any) -> Any:
    """Sizes of groups that hold all rows, as evenly as they can: an empty group costs nothing on some devices."""
    return (rows // len(sizes) + (np.arange(len(sizes)) < rows % len(sizes))).astype(sizes.dtype)


def _values(aval: Any) -> Any:
    """An array of that shape; a short pattern repeated, since drawing random numbers would cost more than the timing."""
    if not jax.numpy.issubdtype(aval.dtype, jax.numpy.floating):
        return np.zeros(aval.shape, aval.dtype)
    pattern = np.random.default_rng(0).standard_normal(997)
    return np.resize(pattern, aval.shape).astype(aval.dtype)
