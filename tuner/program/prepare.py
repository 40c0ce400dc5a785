"""Prepare: a function, its parameters and a policy -> packed parameters and a pure function of them and the inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax

from tuner.errors import CaptureError, PolicyError
from tuner.policy import Policy
from tuner.policy_file import check_fits
from tuner.program import kernels
from tuner.program.capture import capture
from tuner.program.expression import evaluate
from tuner.program.gradients import refuse_gradients
from tuner.program.input_specs import text_to_specs
from tuner.program.program import Program
from tuner.program.rewrite import Rewrite, plan, run

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
    _rewrites: dict[Any, Rewrite] = field(repr=False)

    def __call__(self, params: Any, *inputs: Any) -> Any:
        """What `apply` returns, computed in the policy's precisions. Pure: it can be jitted, vmapped and sharded.

        Args:
            params: the packed parameters (`self.params`, or the same tree placed elsewhere).
            *inputs: as `apply` takes them; floating ones also in the dtype of `cast_inputs`.

        Raises:
            CaptureError: for these shapes the function has other layers than the policy.
            TypeError: it was differentiated.
        """
        rewrite = self._rewrite_for(inputs)
        flat = jax.tree_util.tree_leaves(inputs)
        outputs = refuse_gradients(partial(_run, rewrite))(params, flat)
        return jax.tree_util.tree_unflatten(rewrite.program.output_tree, outputs)

    def cast_inputs(self, *inputs: Any) -> tuple[Any, ...]:
        """The inputs in the dtypes that their layers ask for: the cast at preprocessing, done once and outside the model."""
        rewrite = self._rewrite_for(inputs)
        leaves, tree = jax.tree_util.tree_flatten(inputs)
        cast = [
            leaf if a.precision.is_original else jax.numpy.asarray(leaf).astype(a.precision.activations.dtype)
            for leaf, a in zip(leaves, rewrite.input_assignments, strict=True)
        ]
        return tuple(jax.tree_util.tree_unflatten(tree, cast))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed parameters."""
        return sum(int(leaf.nbytes) for leaf in jax.tree_util.tree_leaves(self.params))

    def _rewrite_for(self, inputs: tuple[Any, ...]) -> Rewrite:
        """The rewrite for these shapes, traced once per shape."""
        leaves, tree = jax.tree_util.tree_flatten(inputs)
        first = next(iter(self._rewrites.values()))
        if tree != first.program.input_tree:
            raise CaptureError(f"the inputs have the structure {tree}; this model takes {first.program.input_tree}")
        specs = tuple(_spec(leaf, i, first) for i, leaf in enumerate(leaves))
        key = tuple((spec.shape, str(spec.dtype), bool(getattr(spec, "weak_type", False))) for spec in specs)
        if key not in self._rewrites:
            program = capture(self._apply, self._abstract_params, jax.tree_util.tree_unflatten(tree, specs))
            _check_same_layers(program, first.program)
            self._rewrites[key] = plan(program, self.policy)
        return self._rewrites[key]


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
        PolicyError: the policy is for another program, or says nothing of its inputs and none are given.
        CaptureError: JAX cannot trace the function.
    """
    if program is None:
        if inputs is None:
            inputs = text_to_specs(policy.program.inputs if policy.program else "")
        program = capture(apply, params, inputs)
    check_fits(policy, program.signature)
    rewrite = plan(program, policy)
    return Prepared(
        pack(rewrite, params), policy, apply, jax.tree_util.tree_map(jax.typeof, params), {_key(program): rewrite}
    )


def pack(rewrite: Rewrite, params: Any) -> dict[str, Any]:
    """The packed parameters: weights of assigned layers in their formats, and what else the rewritten function reads."""
    leaves = jax.tree_util.tree_leaves(params)
    program = rewrite.program
    memo: dict[int, list[Any]] = {}
    layers: dict[str, dict[str, Any]] = {}
    for sites in program.sites:
        for site in sites:
            slot = rewrite.slots.get(id(site))
            if slot is None or slot in layers or site.weight is None:
                continue
            weight = evaluate(site.weight, leaves, memo)
            layers[slot] = kernels.pack(site, rewrite.assignments[id(site)].precision, weight)
    kept = {
        path: jax.numpy.asarray(leaf)
        for i, (path, leaf) in enumerate(zip(program.leaf_paths, leaves, strict=True))
        if i in rewrite.needed
    }
    return {PARAMETERS: kept, LAYERS: layers}


def _run(rewrite: Rewrite, params: Any, inputs: list[Any]) -> list[Any]:
    leaves = [params[PARAMETERS].get(path) for path in rewrite.program.leaf_paths]
    missing = [rewrite.program.leaf_paths[i] for i in sorted(rewrite.needed) if leaves[i] is None]
    if missing:
        raise PolicyError(
            f"the packed parameters lack {missing[0]!r}, which these input shapes need; prepare the model with them"
        )
    return run(rewrite, leaves, params[LAYERS], inputs)


def _key(program: Program) -> tuple[Any, ...]:
    return tuple((aval.shape, str(aval.dtype), bool(getattr(aval, "weak_type", False))) for aval in program.input_avals)


def _spec(leaf: Any, position: int, rewrite: Rewrite) -> Any:
    """Shape and dtype that the function would see: an input already cast for its layer counts in its own dtype."""
    aval = jax.typeof(leaf)
    assignment, own = rewrite.input_assignments[position], rewrite.program.input_avals[position]
    if assignment.precision.is_original or str(aval.dtype) != assignment.precision.activations.dtype:
        return aval
    return jax.ShapeDtypeStruct(aval.shape, own.dtype)


def _check_same_layers(program: Program, first: Program) -> None:
    """Raises unless both programs have the same layers."""
    here, there = program.signature.layers, first.signature.layers
    if here == there:
        return
    names_here, names_there = [layer[0] for layer in here], [layer[0] for layer in there]
    different = [n for n in names_here if n not in names_there] or [n for n in names_there if n not in names_here]
    shapes = ", ".join(str(aval) for aval in program.input_avals)
    raise CaptureError(
        f"for inputs {shapes} the function has other layers than the policy (first difference: {(different or names_here)[0]!r}); "
        "tune it for these shapes, or call it with shapes that lead to the same layers"
    )
