"""Capture: a function and its arguments -> the Program, with every layer named."""

from collections.abc import Callable
from typing import Any

import jax

from tuner import _jax_compat as compat
from tuner.errors import CaptureError, error_line
from tuner.policy import ProgramSignature
from tuner.program import naming
from tuner.program.expression import Leaf
from tuner.program.flatten import Flattener
from tuner.program.input_specs import specs_to_text
from tuner.program.layers import distinct_names, input_layers, weight_layers
from tuner.program.leaf_notes import notes_on_leaves
from tuner.program.program import Program
from tuner.program.scan_segments import find_split_scans
from tuner.trace_problems import trace_problem


def capture(apply: Callable[..., Any], params: Any, inputs: tuple[Any, ...], *, split_scans: bool = False) -> Program:
    """The Program that `apply(params, *inputs)` runs for these shapes and dtypes.

    Args:
        apply: the function to tune.
        params: its parameters, a pytree of arrays or `jax.ShapeDtypeStruct`.
        inputs: its further positional arguments, pytrees of arrays or `jax.ShapeDtypeStruct`.
        split_scans: list the layers of a scan over stacked weights once per iteration, so that each may take a precision
            of its own; the scan is then cut into as few segments as that needs.

    Raises:
        CaptureError: JAX cannot trace the function on these arguments.
    """
    abstract_params, abstract_inputs = _abstract(params), _abstract(inputs)
    closed, output_shape = _trace(apply, abstract_params, abstract_inputs)
    jaxpr, consts = compat.open_jaxpr(closed)
    parameter_paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
    leaf_count = len(parameter_paths)
    flattener = Flattener()
    leaves = [Leaf(i, variable.aval) for i, variable in enumerate(jaxpr.invars[:leaf_count])]
    input_slots = [flattener.new_slot() for _ in jaxpr.invars[leaf_count:]]
    outputs = flattener.flatten(jaxpr, consts, [*leaves, *input_slots], compat.empty_scope())

    input_avals = tuple(variable.aval for variable in jaxpr.invars[leaf_count:])
    inputs_found, positions = input_layers(abstract_inputs, input_avals)
    leaf_paths = tuple(naming.number_repeats([naming.path_text(path) for path in parameter_paths]))
    named = [*zip(leaf_paths, leaves, strict=True), *zip(naming.input_names(abstract_inputs), input_avals, strict=True)]
    split = find_split_scans(flattener.steps) if split_scans else {}
    placed = weight_layers(flattener.sites, parameter_paths, [leaf.aval for leaf in leaves], split)
    layers = distinct_names(inputs_found, [one.layer for one in placed])
    signature = ProgramSignature(
        layers=tuple((layer.name, layer.kind, layer.shape if layer.params else ()) for layer in layers),
        inputs=specs_to_text(abstract_inputs),
        split_scans=split_scans,
    )
    return Program(
        layers=layers,
        sites=(*(() for _ in inputs_found), *(one.sites for one in placed)),
        steps=tuple(flattener.steps),
        outputs=tuple(outputs),
        input_slots=tuple(input_slots),
        input_layers=positions,
        input_avals=input_avals,
        input_tree=jax.tree_util.tree_structure(inputs),
        leaf_paths=leaf_paths,
        leaf_avals=tuple(leaf.aval for leaf in leaves),
        parameter_tree=jax.tree_util.tree_structure(params),
        output_avals=tuple(variable.aval for variable in jaxpr.outvars),
        output_tree=jax.tree_util.tree_structure(output_shape),
        notes=(*dict.fromkeys(flattener.notes), *notes_on_leaves(named, flattener.sites)),
        signature=signature,
        iterations=(*(None for _ in inputs_found), *(one.iteration for one in placed)),
        split_loops=frozenset(scan.loop for scan in split.values()),
    )


def _abstract(tree: Any) -> Any:
    """The same tree of shapes and dtypes; weak types are kept."""
    return jax.tree_util.tree_map(compat.abstract, tree)


def _trace(apply: Callable[..., Any], params: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    try:
        return jax.make_jaxpr(apply, return_shape=True)(params, *inputs)
    except Exception as error:
        name = getattr(apply, "__name__", type(apply).__name__)
        problem = trace_problem(apply, (params, *inputs), error)
        if problem:
            raise CaptureError(f"{name!r} {problem}") from error
        shapes = ", ".join(str(leaf) for leaf in jax.tree_util.tree_leaves(inputs))
        raise CaptureError(
            f"JAX cannot trace {name!r} on inputs {shapes}: {error_line(error).rstrip('.')}; "
            "make it run under jax.jit with these arguments first"
        ) from error
