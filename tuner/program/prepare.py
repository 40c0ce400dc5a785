"""Prepare: a function, its parameters and a policy -> packed parameters and a pure function of them and the inputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
from jax.sharding import PartitionSpec

from tuner.errors import CaptureError, InputError, PolicyError
from tuner.policy import Policy
from tuner.policy_fit import check_fits, difference_text
from tuner.program import kernels
from tuner.program.capture import capture
from tuner.program.checked import FiniteCheck, raise_for, refuse_inside
from tuner.program.expression import Expression, Slice, evaluate, slices_in, split_axes
from tuner.program.gradients import refuse_gradients
from tuner.program.input_specs import text_to_specs
from tuner.program.plan import Plan, plan
from tuner.program.policies import check_runs
from tuner.program.program import Program
from tuner.program.rewrite import run
from tuner.program.steps import Site
from tuner.program.watch import Watch

PARAMETERS, LAYERS = "parameters", "layers"
FINITE = "finite"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model in the precisions of a policy.

    Attributes:
        params: the packed parameters, a pytree of arrays: `{"parameters": {path: array}, "layers": {name: {...}}}`.
        policy: what it runs.
        check: "finite" when it refuses to hand on NaN or infinite values.
    """

    params: dict[str, Any]
    policy: Policy
    check: str | None
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
            NonFiniteError: it was prepared with `check="finite"`, and something is not. Inside `jax.jit` JAX raises its
                own error with the same message, when the outputs are waited for.
        """
        if self.check is not None:
            return self._call_checked(params, inputs)
        plan, flat = self._begin(params, inputs)
        outputs = refuse_gradients(partial(run_packed, plan))(params, flat)
        return jax.tree_util.tree_unflatten(plan.program.output_tree, outputs)

    def checked(self, params: Any, *inputs: Any) -> tuple[Any, Any]:
        """(fault, outputs) as values: for programs that cannot raise, such as exported ones or those on several devices.

        The fault is a whole number that `raise_for` makes an exception of. Arguments and errors are those of a call.

        Raises:
            PolicyError: it was not prepared with `check="finite"`.
        """
        if self.check is None:
            raise PolicyError('this model checks nothing; make it with tuner.prepare(..., check="finite")')
        plan, flat = self._begin(params, inputs)

        def run(params: Any, flat: list[Any]) -> tuple[Any, list[Any]]:
            watch = FiniteCheck(plan)
            outputs = run_packed(plan, params, flat, watch)
            return watch.fault, outputs

        fault, outputs = refuse_gradients(run)(params, flat)
        return fault, jax.tree_util.tree_unflatten(plan.program.output_tree, outputs)

    def raise_for(self, fault: Any) -> None:
        """Returns where there is no fault.

        Args:
            fault: as of `checked`.

        Raises:
            NonFiniteError: an input, a layer's result or an output is NaN or infinite; names the first.
        """
        raise_for(fault, self.policy, self._first_plan)

    def _call_checked(self, params: Any, inputs: tuple[Any, ...]) -> Any:
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves((params, inputs))):
            fault, outputs = self._compiled(params, *inputs)
            self.raise_for(fault)
            return outputs
        fault, outputs = self.checked(params, *inputs)
        leaves, tree = jax.tree_util.tree_flatten(outputs)
        return jax.tree_util.tree_unflatten(tree, refuse_inside(fault, leaves, self.raise_for))

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        return jax.jit(self.checked)

    @property
    def _first_plan(self) -> Plan:
        return next(iter(self._plans.values()))

    def _begin(self, params: Any, inputs: tuple[Any, ...]) -> tuple[Plan, list[Any]]:
        _check_packed(params)
        return self._plan_for(inputs), jax.tree_util.tree_leaves(inputs)

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
        first = self._first_plan
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
            self._plans[key] = plan(program, self.policy, watched=self.check is not None)
        return self._plans[key]


def prepare(
    apply: Callable[..., Any],
    params: Any,
    policy: Policy,
    *,
    inputs: tuple[Any, ...] | None = None,
    program: Program | None = None,
    check: str | None = None,
) -> Prepared:
    """The model that runs `apply` in a policy's precisions.

    Args:
        apply: the function, `apply(params, *inputs)`.
        params: its parameters, a pytree of arrays.
        policy: a policy of this program.
        inputs: examples or shapes of the inputs; left out, those that the policy was made with.
        program: the captured program, when it is at hand; saves a trace.
        check: "finite": a call raises where an input, a layer's result or an output is NaN or infinite, and names the
            first; inside `jax.jit`, too, where there is one device. Called outside of it, the model compiles itself and
            waits for its outputs. It costs one more pass over each array that is checked.

    Returns:
        The packed parameters (`.params`) and, called, a pure function of them and the inputs.

    Raises:
        PolicyError: the policy is for another program, asks for what this version cannot run, or says nothing of its
            inputs and none are given.
        CaptureError: JAX cannot trace the function.
        InputError: `check` is neither of these.
    """
    if check not in (None, FINITE):
        raise InputError(f"check={check!r} is not available; give {FINITE!r}, or None to check nothing")
    if program is None:
        if inputs is None:
            inputs = text_to_specs(policy.program.inputs if policy.program else "")
        split_scans = policy.program is not None and policy.program.split_scans
        program = capture(apply, params, inputs, split_scans=split_scans)
    check_fits(policy, program.signature)
    check_runs(policy, program)
    found = plan(program, policy, watched=check is not None)
    abstract = jax.tree_util.tree_map(jax.typeof, params)
    return Prepared(pack(found, params), policy, check, apply, abstract, {_key(program): found})


def pack(plan: Plan, params: Any) -> dict[str, Any]:
    """The packed parameters: weights of assigned layers in their formats, and what else the rewritten function reads."""
    leaves = jax.tree_util.tree_leaves(params)
    memo: dict[int, list[Any]] = {}
    layers = {packing.name: _pack_calibrated(plan, packing.owner, leaves, memo) for packing in plan.packings}
    kept = {
        path: jax.numpy.asarray(leaf)
        for i, (path, leaf) in enumerate(zip(plan.program.leaf_paths, leaves, strict=True))
        if i in plan.needed
    }
    for part in plan.rows.values():
        kept[part.name] = jax.numpy.asarray(evaluate(part.stack, leaves, memo))[part.rows.start : part.rows.stop]
    return {PARAMETERS: kept, LAYERS: layers}


def _pack_calibrated(plan: Plan, site: Site, leaves: list[Any], memo: dict[int, list[Any]]) -> dict[str, Any]:
    """One packed weight with the calibrated numbers of its layer."""
    assignment, layer = plan.assignments[id(site)], plan.names[id(site)]
    packed = _pack_weight(plan, site, leaves, memo)
    numbers = plan.scales.get(layer, ()) if assignment.precision.is_calibrated else ()
    return kernels.with_numbers(site, assignment, packed, numbers, layer) if numbers else packed


def _pack_weight(plan: Plan, site: Site, leaves: list[Any], memo: dict[int, list[Any]]) -> dict[str, Any]:
    """One packed weight; under a scan, those of all its iterations at once, stacked along the first axis."""
    weight, assignment, affine = site.weight, plan.assignments[id(site)], plan.affines.get(id(site))
    assert weight is not None  # only sites with a weight have a slot

    def packed(memo: dict[int, list[Any]]) -> dict[str, Any]:
        given = evaluate(weight, leaves, memo)
        if affine is None:
            return kernels.pack(site, assignment, given)
        scale, offset = affine.scale_and_offset(lambda expression: evaluate(expression, leaves, memo))
        return kernels.pack(site, assignment, given, scale, offset)

    return for_all_iterations(site, packed, leaves, memo, () if affine is None else affine.values)


def for_all_iterations(
    site: Site,
    function: Callable[[dict[int, list[Any]]], dict[Any, Any]],
    leaves: list[Any],
    memo: dict[int, list[Any]],
    more: Sequence[Expression] = (),
) -> dict[Any, Any]:
    """What a function of a weight gives, where the weight is one slice per iteration: for all of them, stacked.

    Args:
        site: the operation whose weight it is.
        function: finds in its argument the slices that the weight is evaluated with.
        leaves: parameter values by position.
        memo: as of `evaluate`.
        more: what the function evaluates besides the weight.
    """
    assert site.weight is not None  # it is called for weights
    pieces = list({id(piece): piece for value in (site.weight, *more) for piece in slices_in(value)}.values())

    def within(loops: list[int], memo: dict[int, list[Any]]) -> dict[Any, Any]:
        if not loops:
            return function(memo)
        mine = [piece for piece in pieces if piece.loop == loops[0]]
        stacks = [_segment(site, loops[0], evaluate(piece.stack, leaves, memo)) for piece in mine]

        def one(*values: Any) -> dict[Any, Any]:
            return within(loops[1:], {**memo, **{id(p): [v] for p, v in zip(mine, values, strict=True)}})

        found: dict[Any, Any] = _for_each_piece(mine, one)(*stacks)
        return found

    return within(sorted({piece.loop for piece in pieces}), memo)


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


def run_packed(plan: Plan, params: Any, inputs: list[Any], watch: Watch | None = None) -> list[Any]:
    """The flat outputs of packed parameters and flat inputs, with someone looking on."""
    leaves = [params[PARAMETERS].get(path) for path in plan.program.leaf_paths]
    missing = [plan.program.leaf_paths[i] for i in sorted(plan.needed) if leaves[i] is None]
    if missing:
        raise PolicyError(
            f"the packed parameters lack {missing[0]!r}, which these input shapes need; prepare the model with them"
        )
    rows = {part.name: params[PARAMETERS][part.name] for part in plan.rows.values()}
    return run(plan, leaves, params[LAYERS], rows, inputs, watch)


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
