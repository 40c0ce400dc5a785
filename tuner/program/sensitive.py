"""Sensitive steps: what stays as written whatever a policy hands it, so that softmax, norms and losses keep their arithmetic.

Sensitive is what loses its meaning in 16 bits (exp, log, pow, rsqrt, div, cumsum, reductions and their kin), whatever feeds
a sensitive step in the same name scope, and whatever reads a value that a sensitive step computed. Layers end both chains:
what runs in a layer is for the policy to say. Carries, slices and branch results are followed into and out of control flow;
only floating values count, since no others are ever narrow.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from tuner import _jax_compat as compat
from tuner.program.expression import Computation, Expression, Result, Slice
from tuner.program.steps import Body, Reference, Step

SENSITIVE = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "pow", "integer_pow", "square", "sqrt", "rsqrt", "cbrt", "div", "rem"}
    | {"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"}
    | {"reduce", "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin", "sort", "top_k"}
    | {"reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add"}
    | {"scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul"}
    | {"psum", "psum_invariant", "pmax", "pmin", "reduce_scatter", "unreduced_psum", "unreduced_reduce_scatter"}
    | {"reduce_precision", "erf_inv", "lgamma", "digamma", "approx_top_k"}
)


def find_sensitive(steps: Sequence[Step]) -> frozenset[int]:
    """Identities of the sensitive ones among these steps and those inside them."""
    flow = _Flow(steps)
    found = {id(step): step for step in flow.begin()}
    pending = list(found.values())
    while pending:
        step = pending.pop()
        scopes = flow.scopes_of(step)
        feeding = (writer for writer in flow.writers_of(step) if flow.scopes_of(writer) & scopes)
        for other in (*flow.readers_of(step), *feeding):
            if id(other) not in found:
                found[id(other)] = other
                pending.append(other)
    return frozenset(found)


class _Flow:
    """Who computes and who reads which floating value, across the functions that control flow holds.

    Steps that hold such functions are no readers and writers themselves: values pass through them.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps: list[Step] = []
        self._readers: dict[int, list[Step]] = {}
        self._writers: dict[int, list[Step]] = {}  # several where a scan was cut into segments
        self._onward: dict[int, list[int]] = {}  # slot -> where control flow hands its value on to
        self._back: dict[int, list[int]] = {}
        self._known: list[tuple[Expression, int]] = []  # what depends on parameters alone, and the slot it is handed to
        self._derived: dict[int, bool] = {}  # identity of a computation -> whether anything sensitive is in it
        self._held: dict[int, bool] = {}  # the same of functions that an equation holds
        self._scopes: dict[int, frozenset[str]] = {}  # identity of a step -> the name scopes of what it does
        self._add(steps)

    def begin(self) -> Iterator[Step]:
        """The steps that are sensitive by themselves, and those that read what was so computed of parameters alone."""
        for step in self._steps:
            known = (operand for operand in step.operands if not isinstance(operand, int))
            if self._is_sensitive(step.eqn) or any(map(self._is_derived, known)):
                yield step
        for expression, slot in self._known:
            if self._is_derived(expression):
                yield from self._reached(slot)

    def readers_of(self, step: Step) -> Iterator[Step]:
        """The steps that read what this one computes."""
        for slot in step.results:
            if slot is not None and slot in self._writers:
                yield from self._reached(slot)

    def writers_of(self, step: Step) -> Iterator[Step]:
        """The steps that compute what this one reads."""
        for operand in step.operands:
            if isinstance(operand, int):
                for slot in _closure(operand, self._back):
                    yield from self._writers.get(slot, ())

    def scopes_of(self, step: Step) -> frozenset[str]:
        """The name scope of the step, and of a called function those inside it."""
        known = self._scopes.get(id(step))
        if known is None:
            known = self._scopes[id(step)] = frozenset(_scopes(step.eqn, step.scope))
        return known

    def _reached(self, slot: int) -> Iterator[Step]:
        for place in _closure(slot, self._onward):
            yield from self._readers.get(place, ())

    def _add(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.bodies:
                for body in step.bodies:
                    self._add(body.steps)
                for reference, slot in _handed_on(step):
                    self._connect(reference, slot)
            elif step.site is None:
                self._steps.append(step)
                for operand in step.operands:
                    if isinstance(operand, int):
                        self._readers.setdefault(operand, []).append(step)
                for result, variable in zip(step.results, step.eqn.outvars, strict=True):
                    if result is not None and _is_inexact(variable.aval):
                        self._writers.setdefault(result, []).append(step)

    def _connect(self, reference: Reference, slot: int) -> None:
        if not isinstance(reference, int):
            self._known.append((reference, slot))
            return
        self._onward.setdefault(reference, []).append(slot)
        self._back.setdefault(slot, []).append(reference)

    def _is_sensitive(self, eqn: compat.JaxprEqn) -> bool:
        """True for an operation that is sensitive itself, or holds one at any depth."""
        if eqn.primitive.name in SENSITIVE:
            return any(_is_inexact(atom.aval) for atom in eqn.invars)
        return any(self._holds_sensitive(compat.open_jaxpr(held)[0]) for held in compat.jaxprs_in(eqn.params))

    def _holds_sensitive(self, jaxpr: compat.Jaxpr) -> bool:
        known = self._held.get(id(jaxpr))
        if known is None:
            known = self._held[id(jaxpr)] = any(map(self._is_sensitive, jaxpr.eqns))
        return known

    def _is_derived(self, expression: Expression) -> bool:
        """True for a floating value in whose computation, of parameters alone, something sensitive is."""
        if not _is_inexact(expression.aval):
            return False
        start = _computation_of(expression)
        pending = [] if start is None else [start]
        while pending:  # a loop, not recursion: chains can be longer than Python's stack
            computation = pending[-1]
            inner = [c for c in map(_computation_of, computation.operands) if c is not None]
            needed = [c for c in inner if id(c) not in self._derived]
            if needed:
                pending.extend(needed)
                continue
            pending.pop()
            self._derived[id(computation)] = self._is_sensitive(computation.eqn) or any(
                self._derived[id(c)] for c in inner
            )
        return start is not None and self._derived[id(start)]


def _scopes(eqn: compat.JaxprEqn, scope: Any) -> Iterator[str]:
    yield compat.scope_text(scope)
    for held in compat.jaxprs_in(eqn.params):
        for inner in compat.open_jaxpr(held)[0].eqns:
            yield from _scopes(inner, scope + compat.scope_of(inner))


def _is_inexact(aval: Any) -> bool:
    """True for floating and complex values; not everything that JAX traces has a dtype."""
    return hasattr(aval, "dtype") and bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def _computation_of(expression: Expression) -> Computation | None:
    while isinstance(expression, Slice):
        expression = expression.stack
    return expression.computation if isinstance(expression, Result) else None


def _closure(slot: int, edges: dict[int, list[int]]) -> Iterator[int]:
    """The slot and all that its value passes through."""
    seen, pending = {slot}, [slot]
    while pending:
        current = pending.pop()
        yield current
        fresh = [other for other in edges.get(current, ()) if other not in seen]
        seen.update(fresh)
        pending.extend(fresh)


def _handed_on(step: Step) -> Iterator[tuple[Reference, int]]:
    """(where a value is, the slot in which control flow hands it on): into bodies, round loops, and out as results."""
    name = step.eqn.primitive.name
    running = step.bodies[1:] if name == "while" else step.bodies  # a condition hands nothing on
    for body in step.bodies:
        own = frozenset(body.own_slots)
        # Carries and slices come last among the operands, and so they do in every body.
        for argument, operand in zip(reversed(body.arguments), reversed(step.operands), strict=False):
            if isinstance(argument, int) and argument in own:
                yield operand, argument
        for last in running:
            yield from _round(name, step, last, body)
    for body in running:
        yield from ((output, slot) for output, slot in zip(body.outputs, step.results, strict=True) if slot is not None)


def _round(name: str, step: Step, last: Body, following: Body) -> Iterator[tuple[Reference, int]]:
    """What one iteration of a loop hands on to the next."""
    if name in ("scan", "while"):
        carries = compat.scan_counts(step.eqn)[1] if name == "scan" else len(following.own_slots)
        yield from zip(last.outputs[:carries], following.own_slots, strict=False)
