"""Rules for `scan`, `while`, `cond` and `shard_map`: how capture enters what they hold, and how a rewrite runs them.

Inside a body, references to what was known outside stay as they are: outer slots are read from around the body, weights
are expressions there as anywhere. Only what changes per iteration, carries and slices, gets places of its own. Carries and
branch results keep their dtypes, since every kernel hands its result on in the dtype the operation had.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from tuner import _jax_compat as compat
from tuner.program.expression import Shards, Slice, sources
from tuner.program.steps import Body, Reference, Step

if TYPE_CHECKING:
    from tuner.program.flatten import Flattener


class BodyRunner(Protocol):
    """How a rule runs one body of its step, with the rewrite's kernels."""

    def __call__(
        self,
        body: Body,
        own: Sequence[Any],
        slices: dict[int, Any],
        packed: dict[str, Any],
        carried: Sequence[Any] = (),
    ) -> tuple[list[Any], list[Any]]:
        """The body's outputs, and what is carried on besides.

        Args:
            body: which one.
            own: values of the arguments that are the body's own slots, in order.
            slices: values of `body.slices` by argument position, for those that are needed.
            packed: this iteration's packed weights by slot name.
            carried: as `Outside.carried` gives it before, or the run of a body before this one.
        """
        ...


class Outside(Protocol):
    """What a rule can ask of the rewrite around its step."""

    def read(self, reference: Reference) -> Any:
        """The value of an operand."""
        ...

    def needs(self, piece: Slice) -> bool:
        """True when the rewritten body still reads this slice itself, not only a packed weight made of it."""
        ...

    def rows_in(self, body: Body) -> dict[int, Any]:
        """What a segment of a scan reads of stacked parameters, by argument position."""
        ...

    def packed_in(self, body: Body) -> dict[str, Any]:
        """Packed weights that are stacked along the iterations, or devices, of a body, by slot name."""
        ...

    def split_axes(self, body: Body, name: str) -> tuple[Any, ...]:
        """The mesh axes that a packed weight of a `shard_map` body is split over."""
        ...

    def carried(self) -> list[Any]:
        """Arrays that go along from body to body; none unless somebody looks on."""
        ...

    def resume(self, carried: Sequence[Any]) -> None:
        """Takes them back after the last body."""
        ...


class Rule(Protocol):
    """One control-flow primitive."""

    def enter(self, flattener: "Flattener", eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        """Flattens what the equation holds."""
        ...

    def operands_read(self, step: Step) -> tuple[Reference, ...]:
        """The operands that the rule reads itself; the others reach the bodies as references."""
        ...

    def run(self, step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
        """The step's results, its bodies run by `run_body`."""
        ...


_RULES: dict[str, Rule] = {}


def register(*primitives: str) -> Callable[[type], type]:
    """Register a rule class for these primitives."""

    def add(rule: type) -> type:
        for name in primitives:
            if name in _RULES:
                raise ValueError(f"primitive {name!r} already has a control-flow rule")
            _RULES[name] = rule()
        return rule

    return add


def rule_for(primitive: str) -> Rule | None:
    """The rule of a primitive, or None."""
    return _RULES.get(primitive)


def operands_read(step: Step) -> tuple[Reference, ...]:
    """The operands that a control-flow step reads before its bodies run."""
    return _RULES[step.eqn.primitive.name].operands_read(step)


def run_step(step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
    """The results of a control-flow step whose bodies are rewritten."""
    return _RULES[step.eqn.primitive.name].run(step, outside, run_body)


def _enter(
    flattener: "Flattener",
    closed: Any,
    arguments: Sequence[Reference | None],
    scope: Any,
    executions: int,
    stacked: int,
    shards: Sequence[Shards | None] | None = None,
) -> Body:
    """A body whose arguments are outer references, or None for slots of its own; the last `stacked` are slices."""
    jaxpr, consts = compat.open_jaxpr(closed)
    with flattener.body(executions) as number:
        slices: dict[int, Slice] = {}
        own: list[int] = []
        given: list[Reference] = []
        first_slice = len(arguments) - stacked
        for position, (reference, variable) in enumerate(zip(arguments, jaxpr.invars, strict=True)):
            if (
                position >= first_slice
                and reference is not None
                and not isinstance(reference, int)
                and sources(reference)
            ):
                split = None if shards is None else shards[position]
                slices[position] = Slice(reference, number, variable.aval, split)
                given.append(slices[position])
            elif position >= first_slice or reference is None:
                own.append(flattener.new_slot())
                given.append(own[-1])
            else:
                given.append(reference)
        outputs = flattener.flatten(jaxpr, consts, given, scope)
        return Body(number, tuple(given), tuple(own), slices, tuple(flattener.steps), tuple(outputs))


@register("scan")
class _Scan:
    def enter(self, flattener: "Flattener", eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        consts, carries = compat.scan_counts(eqn)
        stacks = operands[consts + carries :]
        arguments = [*operands[:consts], *[None] * carries, *stacks]
        length = int(eqn.params["length"])
        return (_enter(flattener, eqn.params["jaxpr"], arguments, scope, length, len(stacks)),)

    def operands_read(self, step: Step) -> tuple[Reference, ...]:
        consts, carries = compat.scan_counts(step.eqn)
        return step.operands[consts : consts + carries]

    def run(self, step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
        """The scan, or one after the other the segments that it is cut into."""
        carry = [outside.read(operand) for operand in self.operands_read(step)]
        reverse = bool(step.eqn.params["reverse"])
        parts = []
        for body in reversed(step.bodies) if reverse else step.bodies:
            carry, collected = self._segment(step, body, carry, outside, run_body)
            parts.append(collected)
        if len(parts) == 1:
            return [*carry, *parts[0]]
        in_order = zip(*(reversed(parts) if reverse else parts), strict=True)
        return [*carry, *(jnp.concatenate(pieces) for pieces in in_order)]

    def _segment(
        self, step: Step, body: Body, first: list[Any], outside: Outside, run_body: BodyRunner
    ) -> tuple[list[Any], list[Any]]:
        params, rows = step.eqn.params, body.rows
        stacks = self._stacks(step, body, outside)

        def iteration(state: tuple[list[Any], list[Any]], piece: Any) -> tuple[tuple[list[Any], list[Any]], list[Any]]:
            (carry, carried), (pieces, packed) = state, piece
            own = [*carry, *(value for position, value in pieces.items() if position not in body.slices)]
            slices = {position: value for position, value in pieces.items() if position in body.slices}
            outputs, carried = run_body(body, own, slices, packed, carried)
            return (outputs[: len(carry)], carried), outputs[len(carry) :]

        (last, carried), collected = jax.lax.scan(
            iteration,
            (first, outside.carried()),
            (stacks, outside.packed_in(body)),
            length=params["length"] if rows is None else rows.stop - rows.start,
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        outside.resume(carried)
        return last, collected

    def _stacks(self, step: Step, body: Body, outside: Outside) -> dict[int, Any]:
        """What a body goes through iteration by iteration, by argument position."""
        consts, carries = compat.scan_counts(step.eqn)
        scanned = dict(enumerate(step.operands[consts + carries :], start=consts + carries))
        if body.rows is None:
            return {
                position: outside.read(operand)
                for position, operand in scanned.items()
                if position not in body.slices or outside.needs(body.slices[position])
            }
        start, stop = body.rows.start, body.rows.stop
        own = {p: outside.read(operand)[start:stop] for p, operand in scanned.items() if p not in body.slices}
        return dict(sorted((own | outside.rows_in(body)).items()))


@register("while")
class _While:
    def enter(self, flattener: "Flattener", eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        params = eqn.params
        split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carries = [None] * (len(operands) - split[1])
        condition = _enter(flattener, params["cond_jaxpr"], [*operands[: split[0]], *carries], scope, 1, 0)
        body = _enter(flattener, params["body_jaxpr"], [*operands[split[0] : split[1]], *carries], scope, 1, 0)
        return condition, body

    def operands_read(self, step: Step) -> tuple[Reference, ...]:
        return step.operands[step.eqn.params["cond_nconsts"] + step.eqn.params["body_nconsts"] :]

    def run(self, step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
        condition, body = step.bodies
        first = [outside.read(operand) for operand in self.operands_read(step)]
        results, carried = jax.lax.while_loop(
            lambda state: run_body(condition, state[0], {}, {}, state[1])[0][0],
            lambda state: run_body(body, state[0], {}, {}, state[1]),
            (first, outside.carried()),
        )
        outside.resume(carried)
        return results


@register("cond")
class _Cond:
    def enter(self, flattener: "Flattener", eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        return tuple(_enter(flattener, branch, operands[1:], scope, 1, 0) for branch in eqn.params["branches"])

    def operands_read(self, step: Step) -> tuple[Reference, ...]:
        return step.operands[:1]

    def run(self, step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
        before = outside.carried()
        branches = [lambda body=body: run_body(body, [], {}, {}, before) for body in step.bodies]
        found: tuple[list[Any], list[Any]] = jax.lax.switch(outside.read(step.operands[0]), branches)
        outside.resume(found[1])
        return found[0]


@register("shard_map")
class _ShardMap:
    def enter(self, flattener: "Flattener", eqn: Any, operands: tuple[Reference, ...], scope: Any) -> tuple[Body, ...]:
        settings = compat.shard_map_settings(eqn)
        manual = frozenset(settings["axis_names"])
        shards = [Shards(settings["mesh"], spec, manual) for spec in settings["in_specs"]]
        return (_enter(flattener, eqn.params["jaxpr"], operands, scope, 1, len(operands), shards),)

    def operands_read(self, step: Step) -> tuple[Reference, ...]:
        (body,) = step.bodies
        return tuple(operand for position, operand in enumerate(step.operands) if position not in body.slices)

    def run(self, step: Step, outside: Outside, run_body: BodyRunner) -> list[Any]:
        (body,) = step.bodies
        settings = compat.shard_map_settings(step.eqn)
        pieces = {
            position: outside.read(operand)
            for position, operand in enumerate(step.operands)
            if position not in body.slices or outside.needs(body.slices[position])
        }
        packed = outside.packed_in(body)

        def on_each_device(pieces: dict[int, Any], packed: dict[str, Any]) -> list[Any]:
            own = [value for position, value in pieces.items() if position not in body.slices]
            slices = {position: value for position, value in pieces.items() if position in body.slices}
            outputs, _ = run_body(body, own, slices, jax.tree_util.tree_map(lambda part: part[0], packed))
            return outputs

        split = jax.shard_map(
            on_each_device,
            mesh=settings["mesh"],
            in_specs=(
                {position: settings["in_specs"][position] for position in pieces},
                {name: PartitionSpec(outside.split_axes(body, name)) for name in packed},
            ),
            out_specs=list(settings["out_specs"]),
            axis_names=settings["axis_names"],
            check_vma=settings["check_vma"],
        )
        results: list[Any] = split(pieces, packed)
        return results
