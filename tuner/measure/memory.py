"""Memory: what an executable needs on the device besides the inputs of the batch."""

import jax

from tuner.measure.executable import Executable, tree_bytes
from tuner.measurement import Memory


def measure_memory(executable: Executable) -> Memory:
    """Arguments, temporaries and outputs as the compiler has laid them out, without the inputs; and the packed weights."""
    analysis = executable.compiled.memory_analysis()
    if analysis is None:  # a back end that does not say
        total = executable.weight_bytes + tree_bytes(executable.compiled.out_info)
        return Memory(total_bytes=total, weight_bytes=executable.weight_bytes)
    arguments = int(analysis.argument_size_in_bytes)
    of_inputs = tree_bytes(executable.input_specs)
    if arguments != tree_bytes(executable.weights) + of_inputs:
        # An argument that the program never reads is dropped from it, inputs included.
        of_inputs = _bytes_of_kept_inputs(executable)
    total = arguments - of_inputs + int(analysis.temp_size_in_bytes) + int(analysis.output_size_in_bytes)
    return Memory(total_bytes=total, weight_bytes=executable.weight_bytes)


def _bytes_of_kept_inputs(executable: Executable) -> int:
    """Bytes of those inputs that the compiled program still has as arguments, known by their names."""
    module = executable.module
    entry = module.computations.get(module.entry or "")
    kept = {i.op_name for i in entry.instructions.values() if i.parameter is not None} if entry else set()
    paths = jax.tree_util.tree_flatten_with_path(executable.input_specs)[0]
    return sum(tree_bytes(leaf) for path, leaf in paths if f"inputs{jax.tree_util.keystr(path)}" in kept)
