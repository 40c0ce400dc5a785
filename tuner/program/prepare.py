"""Prepare: a function, its parameters and a policy -> packed parameters and a pure function of them and the inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec

from tuner.errors import CaptureError, PolicyError
from tuner.policy import Assignment, Policy
from tuner.policy_fit import check_fits, difference_text
from tuner.program import kernels
from tuner.program.capture import capture
from tuner.program.expression import Slice, evaluate, slices_in, split_axes
from tuner.program.gradients import refuse_gradients
from tuner.program.input_specs import text_to_specs
from tuner.program.plan import Plan, plan
from tuner.program.policies import check_runs
from tuner.program.program import Program
from tuner.program.rewrite import run
from tuner.program.steps import Site

PARAMETERS, LAYERS = "parameters", "layers"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model in the precisions of a policy.

    Attributes:
        params: the packed parameters, a pytree of arrays: `{"parameters": {path: array}, "layers": {name: {...}}}`.
        policy: what it runs.
    """

    params: dict[str, Any]
    policy: Policy
    _apply: Callable[..., Any] = field(repr=False)
    _abstract_params: Any = field(repr=False)
    _plans: dict[Any, Plan] = field(repr=False)

    def __repr__(self) -> str:
        return f"Prepared({self.policy!r}, {self.weight_bytes:,} bytes)"

    def __call__(self, params: Any, *inputs: Any) -> Any:
        """What `apply` returns, computed in the policy's precisions. Pure: it can be jitted, vmapped and sharded.

        Args:
            params: the packed parameters (`self.params`, or the same tree placed elsewhere).
            *inputs: as `apply` takes them; floating ones also in the dtype of `cast_inputs`.

        Raises:
            PolicyError: the parameters are not packed ones.
            CaptureError: for these shapes the function has other layers than the policy.
            TypeError: it was differentiated.
        """
        _check_packed(params)
        plan = self._plan_for(inputs)
        flat = jax.tree_util.tree_leaves(inputs)
        outputs = refuse_gradients(partial(_run, plan))(params, flat)
        return jax.tree_util.tree_unflatten(plan.program.output_tree, outputs)

    def cast_inputs(self, *inputs: Any) -> tuple[Any, ...]:
        """The inputs in the dtypes that their layers ask for: the cast at preprocessing, done once and outside the model."""
        plan = self._plan_for(inputs)
        leaves, tree = jax.tree_util.tree_flatten(inputs)
        cast = [
            leaf if a.precision.is_original else jax.numpy.asarray(leaf).astype(a.precision.activations.dtype)
            for leaf, a in zip(leaves, plan.input_assignments, strict=True)
        ]
        return tuple(jax.tree_util.tree_unflatten(tree, cast))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed parameters."""
        return sum(int(leaf.nbytes) for leaf in jax.tree_util.tree_leaves(self.params))

    def _plan_for(self, inputs: tuple[Any, ...]) -> Plan:
        """The plan for these shapes, traced once per shape."""
        leaves, tree = jax.tree_util.tree_flatten(inputs)
        first = next(iter(self._plans.values()))
        if tree != first.program.input_tree:
            raise CaptureError(f"the inputs have the structure {tree}; this model takes {first.program.input_tree}")
        specs = tuple(_spec(leaf, i, first) for i, leaf in enumerate(leaves))
        key = tuple((spec.shape, str(spec.dtype), bool(getattr(spec, "weak_type", False))) for spec in specs)
        if key not in self._plans:
            given = jax.tree_util.tree_unflatten(tree, specs)
            program = capture(
                self._apply, self._abstract_params, given, split_scans=first.program.signature.split_scans
            )
            _check_same_layers(program, first.program)
            self._plans[key] = plan(program, self.policy)
        return self._plans[key]


def prepare(
    apply: Callable[..., Any],
    params: Any,
    policy: Policy,
    *,
    inputs: tuple[Any, ...] | None = None,
    program: Program | None = None,
) -> Prepared:
    """The model that runs `apply` in a policy's precisions.

    Args:
        apply: the function, `apply(params, *inputs)`.
        params: its parameters, a pytree of arrays.
        policy: a policy of this program.
        inputs: examples or shapes of the inputs; left out, those that the policy was made with.
        program: the captured program, when it is at hand; saves a trace.

    Returns:
        The packed parameters (`.params`) and, called, a pure function of them and the inputs.

    Raises:
        PolicyError: the policy is for another program, asks for what this version cannot run, or says nothing of its
            inputs and none are given.
        CaptureError: JAX cannot trace the function.
    """
    if program is None:
        if inputs is None:
            inputs = text_to_specs(policy.program.inputs if policy.program else "")
        split_scans = policy.program is not None and policy.program.split_scans
        program = capture(apply, params, inputs, split_scans=split_scans)
    check_fits(policy, program.signature)
    check_runs(policy, program)
    found = plan(program, policy)
    return Prepared(
        pack(found, params), policy, apply, jax.tree_util.tree_map(jax.typeof, params), {_key(program): found}
    )


def pack(plan: Plan, params: Any) -> dict[str, Any]:
    """The packed parameters: weights of assigned layers in their formats, and what else the rewritten function reads."""
    leaves = jax.tree_util.tree_leaves(params)
    memo: dict[int, list[Any]] = {}
    layers = {
        packing.name: _pack_weight(packing.owner, plan.assignments[id(packing.owner)], leaves, memo)
        for packing in plan.packings
    }
    kept = {
        path: jax.numpy.asarray(leaf)
        for i, (path, leaf) in enumerate(zip(plan.program.leaf_paths, leaves, strict=True))
        if i in plan.needed
    }
    for part in plan.rows.values():
        kept[part.name] = jax.numpy.asarray(evaluate(part.stack, leaves, memo))[part.rows.start : part.rows.stop]
    return {PARAMETERS: kept, LAYERS: layers}


def _pack_weight(site: Site, assignment: Assignment, leaves: list[Any], memo: dict[int, list[Any]]) -> dict[str, Any]:
    """One packed weight; under a scan, those of all its iterations at once, stacked along the first axis."""
    weight = site.weight
    assert weight is not None  # only sites with a weight have a slot
    pieces = slices_in(weight)

    def pack_within(loops: list[int], memo: dict[int, list[Any]]) -> dict[str, Any]:
        if not loops:
            return kernels.pack(site, assignment, evaluate(weight, leaves, memo))
        mine = [piece for piece in pieces if piece.loop == loops[0]]
        stacks = [_segment(site, loops[0], evaluate(piece.stack, leaves, memo)) for piece in mine]

        def one(*values: Any) -> dict[str, Any]:
            return pack_within(loops[1:], {**memo, **{id(p): [v] for p, v in zip(mine, values, strict=True)}})

        packed: dict[str, Any] = _for_each_piece(mine, one)(*stacks)
        return packed

    return pack_within(sorted({piece.loop for piece in pieces}), memo)


def _segment(site: Site, loop: int, stack: Any) -> Any:
    """Of a stack the iterations that the site runs in."""
    if site.rows is None or site.rows.loop != loop:
        return stack
    return jax.numpy.asarray(stack)[site.rows.start : site.rows.stop]


def _for_each_piece(pieces: list[Slice], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on all slices at once: along the first axis of stacks, or on every device of a mesh.

    What the devices of a mesh compute is stacked along a new first axis, which is split as their pieces are.
    """
    shards = pieces[0].shards
    if shards is None:
        return jax.vmap(function)
    return jax.shard_map(
        lambda *values: jax.tree_util.tree_map(lambda part: part[None], function(*values)),
        mesh=shards.mesh,
        in_specs=tuple(piece.shards.spec for piece in pieces if piece.shards is not None),
        out_specs=PartitionSpec(split_axes(pieces)),
        axis_names=set(shards.manual_axes),
        check_vma=False,
    )


def _run(plan: Plan, params: Any, inputs: list[Any]) -> list[Any]:
    leaves = [params[PARAMETERS].get(path) for path in plan.program.leaf_paths]
    missing = [plan.program.leaf_paths[i] for i in sorted(plan.needed) if leaves[i] is None]
    if missing:
        raise PolicyError(
            f"the packed parameters lack {missing[0]!r}, which these input shapes need; prepare the model with them"
        )
    rows = {part.name: params[PARAMETERS][part.name] for part in plan.rows.values()}
    return run(plan, leaves, params[LAYERS], rows, inputs)


def _check_packed(params: Any) -> None:
    """Raises unless these are packed parameters; those of `apply` are what people try first."""
    if isinstance(params, Mapping) and {PARAMETERS, LAYERS} <= params.keys():
        return
    keys = f" of {', '.join(map(repr, list(params)[:4]))}" if isinstance(params, Mapping) else ""
    raise PolicyError(
        f"the first argument of a prepared model is its packed parameters, not a {type(params).__name__}{keys}; "
        "call it as model(model.params, *inputs)"
    )


def _key(program: Program) -> tuple[Any, ...]:
    return tuple((aval.shape, str(aval.dtype), bool(getattr(aval, "weak_type", False))) for aval in program.input_avals)


def _spec(leaf: Any, position: int, plan: Plan) -> Any:
    """Shape and dtype that the function would see: an input already cast for its layer counts in its own dtype."""
    aval = jax.typeof(leaf)
    assignment, own = plan.input_assignments[position], plan.program.input_avals[position]
    if assignment.precision.is_original or str(aval.dtype) != assignment.precision.activations.dtype:
        return aval
    return jax.ShapeDtypeStruct(aval.shape, own.dtype)


def _check_same_layers(program: Program, first: Program) -> None:
    """Raises unless both programs have the same layers."""
    difference = difference_text(program.signature, first.signature)
    if difference:
        shapes, theirs = (", ".join(map(str, one.input_avals)) for one in (program, first))
        raise CaptureError(
            f"for inputs {shapes} the function has other layers than for {theirs}, which this model was prepared for: "
            f"{difference}; call it with shapes that lead to the same layers, or search with these"
        )
