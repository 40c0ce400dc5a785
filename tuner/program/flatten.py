"""Nested jaxprs -> one list of steps: calls are looked into, what depends on parameters alone becomes an expression."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner import _jax_compat as compat
from tuner.program import control_flow
from tuner.program.calls import CALLBACKS, HARMLESS, body_of
from tuner.program.expression import Computation, Constant, Result, computed, sources
from tuner.program.sites import PRODUCTS, find_site
from tuner.program.steps import Body, Reference, Site, Step


class Flattener:
    """Collects steps, sites and notes while it walks a jaxpr."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.sites: list[Site] = []
        self.notes: list[str] = []
        self._slots = 0
        self._bodies = 0  # how many functions held by control flow were entered
        self._body = 0  # the number of the one being walked
        self._executions = 1
        self._products: dict[int, bool] = {}  # per jaxpr, by identity: one function may be called many times

    def new_slot(self) -> int:
        """A place for one value that depends on the inputs."""
        self._slots += 1
        return self._slots - 1

    def flatten(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Reference], scope: Any) -> list[Reference]:
        """Appends the steps of one jaxpr; returns where its outputs are found."""
        env: dict[Any, Reference] = dict(zip(jaxpr.invars, arguments, strict=True))
        env.update((v, Constant(c, v.aval)) for v, c in zip(jaxpr.constvars, consts, strict=True))
        for eqn in jaxpr.eqns:
            operands = tuple(_read(env, atom) for atom in eqn.invars)
            results = self._equation(eqn, operands, compat.scope_within(scope, eqn))
            env.update(zip(eqn.outvars, results, strict=True))
        return [_read(env, atom) for atom in jaxpr.outvars]

    @contextmanager
    def body(self, executions: int) -> Iterator[int]:
        """Inside, steps belong to a new body that runs so often per run of the one around it; gives its number."""
        outside = self.steps, self._body, self._executions
        self._bodies += 1
        self.steps, self._body, self._executions = [], self._bodies, self._executions * executions
        try:
            yield self._body
        finally:
            self.steps, self._body, self._executions = outside

    def _equation(self, eqn: Any, operands: tuple[Reference, ...], scope: Any) -> Sequence[Reference]:
        body = body_of(eqn)
        if body is not None and (_touch_parameters(operands) or self._has_products(body.jaxpr)):
            return self.flatten(body.jaxpr, body.consts, body.arguments(operands), scope)
        known = tuple(operand for operand in operands if not isinstance(operand, int))
        if len(known) == len(operands) and not eqn.effects:
            return computed(eqn, scope, known, self._body)
        site = find_site(eqn, scope, operands, number=len(self.sites), executions=self._executions, reason=None)
        bodies: tuple[Body, ...] = ()
        if site is not None:
            self.sites.append(site)
        elif body is None:
            bodies = self._held_bodies(eqn, operands, scope)
        if eqn.primitive.name in CALLBACKS:
            self.notes.append(f"{eqn.primitive.name} at {compat.source_line(eqn)} is kept and runs; it disturbs timing")
        slots = tuple(None if compat.is_dropped(variable) else self.new_slot() for variable in eqn.outvars)
        self.steps.append(Step(eqn, scope, operands, slots, site, bodies))
        return [-1 if slot is None else slot for slot in slots]  # nothing reads what is thrown away

    def _held_bodies(self, eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        """What a control-flow equation holds, flattened; nothing where no layer is inside."""
        held = compat.jaxprs_in(eqn.params)
        name = eqn.primitive.name
        if not held or name in HARMLESS:
            return ()
        rule = control_flow.rule_for(name)
        if rule is not None:
            before = len(self.sites)
            bodies = rule.enter(self, eqn, operands, scope)
            return bodies if len(self.sites) > before else ()
        self.notes.append(f"{name} at {compat.source_line(eqn)} holds a function and is bound unchanged")
        self._list_layers(eqn, operands, scope, f"inside {name}, which is bound unchanged", self._executions)
        return ()

    def _list_layers(self, eqn: Any, operands: Sequence[Reference], scope: Any, reason: str, executions: int) -> None:
        """Lists the layers of what is kept whole; they stay as written."""
        executions *= compat.repetitions(eqn)
        for item in compat.jaxprs_in(eqn.params):
            jaxpr, _ = compat.open_jaxpr(item)
            given = compat.inner_operands(eqn, jaxpr, operands, missing=-1)
            env = dict(zip(jaxpr.invars, [_seen_inside(eqn, scope, reference) for reference in given], strict=True))
            for inner in jaxpr.eqns:
                inner_scope = compat.scope_within(scope, inner)
                inside = tuple(_read(env, atom, missing=-1) for atom in inner.invars)
                site = find_site(
                    inner, inner_scope, inside, number=len(self.sites), executions=executions, reason=reason
                )
                if site is not None:
                    self.sites.append(site)
                    continue
                known = tuple(operand for operand in inside if not isinstance(operand, int))
                if len(known) == len(inside) and not compat.jaxprs_in(inner.params):
                    env.update(zip(inner.outvars, computed(inner, inner_scope, known, -1), strict=True))
                self._list_layers(inner, inside, inner_scope, reason, executions)

    def _has_products(self, jaxpr: Any) -> bool:
        """True when a called function holds an operation that carries precision, at any depth."""
        known = self._products.get(id(jaxpr))
        if known is None:
            known = any(
                eqn.primitive.name in PRODUCTS
                or any(self._has_products(compat.open_jaxpr(held)[0]) for held in compat.jaxprs_in(eqn.params))
                for eqn in jaxpr.eqns
            )
            self._products[id(jaxpr)] = known
        return known


def _touch_parameters(operands: tuple[Reference, ...]) -> bool:
    return any(not isinstance(operand, int) and sources(operand) for operand in operands)


def _seen_inside(eqn: Any, scope: Any, reference: Reference) -> Reference:
    """A parameter as a function that is kept whole receives it: still known to be that parameter."""
    if isinstance(reference, int):
        return -1
    return Result(Computation(eqn, scope, (reference,), -1), 0, reference.aval, sources(reference))


def _read(env: dict[Any, Reference], atom: Any, missing: int | None = None) -> Reference:
    if isinstance(atom, compat.Literal):
        return Constant(atom.val, atom.aval)
    return env[atom] if missing is None else env.get(atom, missing)
