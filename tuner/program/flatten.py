"""Nested jaxprs -> one list of steps: calls are looked into, what depends on parameters alone becomes an expression."""

from collections.abc import Sequence
from typing import Any

from tuner import _jax_compat as compat
from tuner.program.calls import CALLBACKS, HARMLESS, KEPT_WHOLE, body_of, inner_executions, inner_operands
from tuner.program.expression import Computation, Constant, Leaf, Result, computed, sources
from tuner.program.program import Reference, Site, Step
from tuner.program.sites import PRODUCTS, find_site


class Flattener:
    """Collects steps, sites and notes while it walks a jaxpr."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.sites: list[Site] = []
        self.notes: list[str] = []
        self._slots = 0
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
            results = self._equation(eqn, operands, scope + compat.scope_of(eqn))
            env.update(zip(eqn.outvars, results, strict=True))
        return [_read(env, atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: tuple[Reference, ...], scope: Any) -> Sequence[Reference]:
        touches_parameters = any(not isinstance(o, int) and sources(o) for o in operands)
        body = body_of(eqn)
        if body is not None and (touches_parameters or self._has_products(body.jaxpr)):
            return self.flatten(body.jaxpr, body.consts, operands, scope)
        known = tuple(operand for operand in operands if not isinstance(operand, int))
        if len(known) == len(operands) and not eqn.effects:
            return computed(eqn, scope, known)
        site = find_site(eqn, scope, operands, executions=1, reason=None)
        if site is not None:
            self.sites.append(site)
        elif body is None:
            self._look_into(eqn, operands, scope, 1, None)
        if eqn.primitive.name in CALLBACKS:
            self.notes.append(f"{eqn.primitive.name} at {compat.source_line(eqn)} is kept and runs; it disturbs timing")
        slots = tuple(None if compat.is_dropped(variable) else self.new_slot() for variable in eqn.outvars)
        self.steps.append(Step(eqn, scope, operands, slots, site))
        return [-1 if slot is None else slot for slot in slots]

    def _look_into(
        self, eqn: Any, operands: Sequence[Reference | None], scope: Any, executions: int, reason: str | None
    ) -> None:
        """Lists the layers of what is kept whole; they stay as written."""
        name = eqn.primitive.name
        held = compat.jaxprs_in(eqn.params)
        if not held or name in HARMLESS:
            return
        if name not in KEPT_WHOLE and reason is None:
            self.notes.append(f"{name} at {compat.source_line(eqn)} holds a function and is bound unchanged")
        reason = reason or KEPT_WHOLE.get(name) or f"inside {name}, which is bound unchanged"
        executions *= inner_executions(eqn)
        for item in held:
            jaxpr, _ = compat.open_jaxpr(item)
            given = inner_operands(eqn, jaxpr, list(operands)) if body_of(eqn) is None else list(operands)
            self._list_layers(jaxpr, _inner_references(eqn, scope, jaxpr, given), scope, executions, reason)

    def _list_layers(self, jaxpr: Any, env: dict[Any, Reference], scope: Any, executions: int, reason: str) -> None:
        for eqn in jaxpr.eqns:
            inner_scope = scope + compat.scope_of(eqn)
            operands = tuple(
                env.get(a, -1) if not isinstance(a, compat.Literal) else Constant(a.val, a.aval) for a in eqn.invars
            )
            known = tuple(operand for operand in operands if not isinstance(operand, int))
            if len(known) == len(operands) and not eqn.effects:
                env.update(zip(eqn.outvars, computed(eqn, inner_scope, known), strict=True))
                continue
            site = find_site(eqn, inner_scope, operands, executions=executions, reason=reason)
            if site is not None:
                self.sites.append(site)
            else:
                self._look_into(eqn, operands, inner_scope, executions, reason)

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


def _inner_references(eqn: Any, scope: Any, jaxpr: Any, given: Sequence[Reference | None]) -> dict[Any, Reference]:
    """What a held jaxpr's inputs are known to come from; a slice of a stacked parameter is still that parameter."""
    env: dict[Any, Reference] = {}
    for position, (variable, reference) in enumerate(zip(jaxpr.invars, given, strict=False)):
        if isinstance(reference, Leaf | Result | Constant):
            same = reference.aval.shape == variable.aval.shape
            origin = Computation(eqn, scope, (reference,))
            env[variable] = reference if same else Result(origin, position, variable.aval, sources(reference))
    return env


def _read(env: dict[Any, Reference], atom: Any) -> Reference:
    return Constant(atom.val, atom.aval) if isinstance(atom, compat.Literal) else env[atom]
