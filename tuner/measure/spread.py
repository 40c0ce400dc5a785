"""Spread: the batches of an evaluation over all local devices, each running whole batches of the task's own size.

A batch is never cut. Its size decides which kernels a compiler picks (a single row of bf16 runs as f32 on a CPU), and a
program may compute across its examples; so every device runs the program that one device would run, and the scores are
those of one device. Latency is measured on the one device that the user's own jit would take.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tuner.measure.compile_cache import stable_locations
from tuner.measure.executable import Executable, Place
from tuner.measure.outputs import RelativeError, floating

PyTree = Any
Inputs = tuple[PyTree, ...]
_BATCHES = "batches"
# The same program, compiled for several devices: what a compiler may order otherwise in a sum, no more.
_SAME = 1e-5


def devices_to_spread_over(params: PyTree) -> tuple[jax.Device, ...]:
    """All local devices, or those that hold copies of the parameters; none where a user has split any of them."""
    held = [leaf.sharding for leaf in jax.tree_util.tree_leaves(params) if isinstance(leaf, jax.Array)]
    several = [sharding for sharding in held if len(sharding.device_set) > 1]
    if not all(sharding.is_fully_replicated for sharding in several):
        return ()
    return tuple(sorted(several[0].device_set, key=lambda device: device.id)) if several else tuple(jax.local_devices())


class Spread:
    """A program that runs as many batches at once as there are devices, one on each.

    Args:
        executable: the program, compiled for the place that its outputs are wanted at.
        devices: where to run.
        home: where the outputs are wanted.
        inputs: one batch.
    """

    def __init__(self, executable: Executable, devices: Sequence[jax.Device], home: Place, inputs: Inputs) -> None:
        self._cast_inputs = executable.cast_inputs
        self._devices = tuple(devices)
        self._home = home
        mesh = Mesh(np.asarray(self._devices), (_BATCHES,), axis_types=(AxisType.Auto,))
        self._pieces = NamedSharding(mesh, PartitionSpec(_BATCHES))
        self._weights = jax.device_put(executable.weights, NamedSharding(mesh, PartitionSpec()))
        one_each = jax.shard_map(
            lambda weights, inputs: jax.tree_util.tree_map(
                lambda leaf: leaf[None], executable.program(weights, *inputs)
            ),
            mesh=mesh,
            in_specs=(PartitionSpec(), PartitionSpec(_BATCHES)),
            out_specs=PartitionSpec(_BATCHES),
            check_vma=False,
        )
        with stable_locations():
            lowered = jax.jit(one_each).lower(self._weights, self._together([inputs]))
        self._compiled = lowered.compile()

    def outputs(self, batches: Iterable[Inputs]) -> Iterator[PyTree]:
        """The outputs of every batch, in order, as the one-device program would give them."""
        waiting: Iterator[PyTree] = iter(())
        remaining = iter(batches)
        while group := list(itertools.islice(remaining, len(self._devices))):
            running = self._compiled(self._weights, self._together(group))
            yield from waiting  # while the next ones run
            waiting = self._apart(running, len(group))
        yield from waiting

    def _together(self, group: Sequence[Inputs]) -> Inputs:
        """Batches behind one another along the example axis, each on its own device; the last fills up what is left."""
        filled = [*group, *[group[-1]] * (len(self._devices) - len(group))]
        cast = [self._cast_inputs(*inputs) for inputs in filled]

        def join(*leaves: Any) -> jax.Array:
            placed = [jax.device_put(leaf, device) for leaf, device in zip(leaves, self._devices, strict=True)]
            shape = (len(placed) * placed[0].shape[0], *placed[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self._pieces, placed)

        joined: Inputs = jax.tree_util.tree_map(join, *cast)
        return joined

    def _apart(self, outputs: PyTree, count: int) -> Iterator[PyTree]:
        """The outputs of each of the first batches, brought home."""

        def piece(leaf: jax.Array, number: int) -> jax.Array:
            (shard,) = (s for s in leaf.addressable_shards if s.device == self._devices[number])
            at_home: jax.Array = jax.device_put(shard.data, self._home)
            return at_home[0]

        for number in range(count):
            yield jax.tree_util.tree_map(lambda leaf, number=number: piece(leaf, number), outputs)


class Spreader:
    """What scores an evaluator's candidates: one device, or all of them; decided once, on the program as written.

    All of them when there are several and more than one batch, the user has not split the parameters, scoring on one
    device took longer than compiling (every candidate is compiled once more), and the program gives the same outputs so.

    Args:
        baseline: the program as written.
        params: the user's parameters.
        home: where outputs are scored.
        inputs: one batch.
        batches: how many there are.
        scoring_s: what scoring them on one device took.
    """

    def __init__(
        self, baseline: Executable, params: PyTree, home: Place, inputs: Inputs, *, batches: int, scoring_s: float
    ) -> None:
        self._home = home
        self._inputs = inputs
        self.devices = devices_to_spread_over(params)
        pays = min(len(self.devices), batches) > 1 and scoring_s > baseline.costs.compile_s
        if not (pays and self._gives_the_same(baseline)):
            self.devices = ()

    def of(self, executable: Executable) -> Executable | Spread:
        """The program as it is scored."""
        if not self.devices:
            return executable
        try:
            return Spread(executable, self.devices, self._home, self._inputs)
        except Exception:  # noqa: BLE001  what one of the devices has no memory for, say, is scored on one
            return executable

    def _gives_the_same(self, baseline: Executable) -> bool:
        try:
            (found,) = Spread(baseline, self.devices, self._home, self._inputs).outputs([self._inputs])
        except Exception:  # noqa: BLE001  what cannot run that way, for whatever reason, runs on one device
            return False
        error, nothing_padded = RelativeError(), np.ones(0, bool)
        error.add(floating(found, nothing_padded), floating(baseline(self._inputs), nothing_padded))
        return error.value <= _SAME
