"""Executable: a program compiled ahead of time, with its weights on the device."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from tuner.errors import InputError
from tuner.measure.compile_cache import stable_locations, watch_compile_cache
from tuner.measure.hlo import Module, parse_hlo
from tuner.measure.weights import Weights, on_host
from tuner.measurement import Costs
from tuner.policy import Policy
from tuner.program import Program, prepare

PyTree = Any
# Where arrays are put: one device, or a whole mesh.
Place: TypeAlias = jax.Device | jax.sharding.Sharding


@dataclass(frozen=True, kw_only=True, eq=False)
class Executable:
    """A compiled program and the weights it is called with, both on the device.

    Attributes:
        program: what was compiled, traceable again.
        compiled: takes (weights, *inputs), inputs as `cast_inputs` gives them.
        held: the weights, which may have to make room.
        cast_inputs: what preprocessing does to the inputs of one batch.
        costs: of preparing, tracing and compiling.
        input_specs: shape and dtype of one batch's inputs, as `cast_inputs` gives them.
    """

    program: Callable[..., PyTree]
    compiled: jax.stages.Compiled
    held: Weights
    weight_bytes: int
    cast_inputs: Callable[..., tuple[PyTree, ...]]
    costs: Costs
    input_specs: tuple[PyTree, ...]

    @property
    def weights(self) -> PyTree:
        """The pytree of weights, on the device but for what was set aside."""
        return self.held.tree

    @cached_property
    def module(self) -> Module:
        """The optimized program."""
        return parse_hlo(self.compiled.as_text() or "")

    def __call__(self, inputs: tuple[PyTree, ...]) -> PyTree:
        """The outputs for one batch of the task's inputs."""
        return self.compiled(self.weights, *self.cast_inputs(*inputs))

    def timed_call(self, inputs: tuple[PyTree, ...], device: Place) -> Callable[[], object]:
        """A call on inputs that already lie on the device, which returns when its outputs are there."""
        ready = commit(self.cast_inputs(*inputs), device)
        compiled, held = self.compiled, self.held
        return lambda: jax.block_until_ready(compiled(held.tree, *ready))

    def compile_for(self, inputs: tuple[PyTree, ...], device: Place) -> "Executable":
        """The same program on the same weights, compiled for inputs of other shapes."""
        other = _compile(self.program, self.weights, self.cast_inputs, inputs, device, weight_bytes=self.weight_bytes)
        return replace(other, held=self.held)


def place_of(params: PyTree) -> Place:
    """Where a task's inputs belong: on every device of the mesh that its parameters are spread over, else on the first."""
    for leaf in jax.tree_util.tree_leaves(params):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, jax.sharding.NamedSharding) and len(sharding.device_set) > 1:
            return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return jax.devices()[0]


def commit(tree: PyTree, device: Place) -> PyTree:
    """The arrays placed there; those that are spread over several devices stay as they are."""

    def place(leaf: Any) -> Any:
        spread = isinstance(leaf, jax.Array) and len(leaf.devices()) > 1
        return leaf if spread else jax.device_put(leaf, device)

    return jax.tree_util.tree_map(place, tree)


def place_params(params: PyTree, device: Place, *, alternate: bool) -> PyTree:
    """The parameters on the device, or where only one program's fit, on the host: what is packed goes to the device.

    Raises:
        InputError: programs shall take turns on several devices.
    """
    if not alternate:
        return commit(params, device)
    if not isinstance(device, jax.Device):
        raise InputError(
            "the baseline cannot alternate with candidates whose parameters are spread over several devices; "
            "leave --baseline at resident"
        )
    return on_host(params)


def compile_baseline(
    apply: Callable[..., Any], params: PyTree, inputs: tuple[PyTree, ...], device: Place
) -> Executable:
    """The task's function exactly as the user wrote it, jitted."""
    return _compile(apply, commit(params, device), lambda *given: given, inputs, device)


def compile_policy(
    apply: Callable[..., Any],
    params: PyTree,
    program: Program,
    policy: Policy,
    inputs: tuple[PyTree, ...],
    device: Place,
) -> Executable:
    """The task's function in the precisions of a policy."""
    started = time.perf_counter()
    prepared = prepare(apply, params, policy, program=program)
    weights = jax.block_until_ready(commit(prepared.params, device))
    prepare_s = time.perf_counter() - started
    return _compile(prepared, weights, prepared.cast_inputs, inputs, device, prepare_s, prepared.weight_bytes)


def compile_cast(
    apply: Callable[..., Any], params: PyTree, dtype: Any, inputs: tuple[PyTree, ...], device: Place
) -> Executable:
    """The hand-made way: every floating parameter and input cast, nothing else changed."""

    def cast(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map(lambda leaf: _cast_leaf(leaf, dtype), tree)

    started = time.perf_counter()
    weights = jax.block_until_ready(commit(cast(params), device))
    prepare_s = time.perf_counter() - started
    return _compile(apply, weights, lambda *given: cast(given), inputs, device, prepare_s)


def _cast_leaf(leaf: Any, dtype: Any) -> Any:
    return jnp.asarray(leaf).astype(dtype) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else leaf


def _compile(
    function: Callable[..., Any],
    weights: PyTree,
    cast_inputs: Callable[..., Any],
    inputs: tuple[PyTree, ...],
    device: Place,
    prepare_s: float = 0.0,
    weight_bytes: int | None = None,
) -> Executable:
    # These argument names are read back from the compiled program: memory.py, effective.py.
    def program(packed: PyTree, *inputs: PyTree) -> PyTree:
        return function(packed, *inputs)

    began = time.perf_counter()
    given = jax.block_until_ready(commit(cast_inputs(*inputs), device))
    started = time.perf_counter()
    with stable_locations():
        lowered = jax.jit(program).lower(weights, *given)
    traced = time.perf_counter()
    with watch_compile_cache() as cache:
        compiled = lowered.compile()
    compiled_at = time.perf_counter()
    return Executable(
        program=program,
        compiled=compiled,
        held=Weights(weights),
        weight_bytes=tree_bytes(weights) if weight_bytes is None else weight_bytes,
        cast_inputs=cast_inputs,
        costs=Costs(
            prepare_s=prepare_s + started - began,
            trace_s=traced - started,
            compile_s=compiled_at - traced,
            compile_cache=cache.value,
        ),
        input_specs=jax.tree_util.tree_map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), given),
    )


def tree_bytes(tree: PyTree) -> int:
    """Bytes of all array leaves, or of what their shapes stand for."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(tree) if hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
