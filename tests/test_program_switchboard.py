from dataclasses import replace

import jax
import numpy as np
import pytest

from search_spaces import ORIGINAL, Precision
from tests import programs
from tuner.program import capture, make_policy, prepare, supports
from tuner.program.switchboard import CannotSwitch, Switchboard, single_changes

ASKED = [Precision.parse(text) for text in ("f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32", "bf16", "f16")]
EXAMPLES = [
    programs.mlp,
    programs.weight_on_the_left,
    programs.attention,
    programs.convolutions,
    programs.tied_embedding,
    programs.sliced_stack,
    programs.several_inputs,
    programs.scan_and_branches,
    programs.scan_over_layers,
    programs.nested_scans,
    programs.while_with_condition,
    programs.function_called_twice,
]


def choices_of(program):
    return {layer.name: [ORIGINAL, *(p for p in ASKED if supports(layer, p) is None)] for layer in program.layers}


def leaves(tree):
    floating = (
        leaf for leaf in jax.tree_util.tree_leaves(tree) if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
    )
    return [np.asarray(leaf, np.float64) for leaf in floating]


def distance(found, expected):
    return max(
        np.abs(a - b).max(initial=0) / (np.abs(b).max(initial=0) + 1e-6) for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_a_switch_does_what_the_policy_does(example):
    case = example()
    program = capture(case.apply, case.params, case.inputs)
    choices = choices_of(program)
    board = Switchboard(program, case.params, choices, {})
    run = jax.jit(board.__call__)
    written = leaves(jax.jit(case.apply)(case.params, *case.inputs))
    assert distance(leaves(run(board.params, board.switches({}), *case.inputs)), written) < 1e-5
    rng = np.random.default_rng(0)
    for _ in range(3):
        chosen = {name: taken[rng.integers(len(taken))] for name, taken in choices.items()}
        model = prepare(case.apply, case.params, make_policy(program, chosen), program=program)
        expected = leaves(jax.jit(model)(model.params, *model.cast_inputs(*case.inputs)))
        found = leaves(run(board.params, board.switches(chosen), *case.inputs))
        assert distance(found, expected) < 1e-5, chosen


def test_it_is_compiled_once_for_all_policies():
    case = programs.mlp()
    program = capture(case.apply, case.params, case.inputs)
    choices = choices_of(program)
    board = Switchboard(program, case.params, choices, {})
    run = jax.jit(board.__call__)
    for name, precision in single_changes(program, choices):
        run(board.params, board.switches({name: precision}), *case.inputs)
    assert run._cache_size() == 1


def test_the_own_format_of_a_layer_is_no_change():
    case = programs.mlp()
    program = capture(case.apply, case.params, case.inputs)
    choices = choices_of(program)
    changes = single_changes(program, choices)
    assert ("fc1", Precision.parse("bf16/bf16/f32")) in changes
    assert ("fc1", Precision.parse("f32/f32/f32")) not in changes
    board = Switchboard(program, case.params, choices, {})
    assert not board.switches({"fc1": Precision.parse("f32/f32/f32")}).any()


def test_a_narrow_result_is_rounded():
    case = programs.mlp()
    program = capture(case.apply, case.params, case.inputs)
    narrow = Precision.parse("f32/f32/f32->bf16")
    board = Switchboard(program, case.params, {"fc1": [narrow]}, {})
    run = jax.jit(board.__call__)
    written = run(board.params, board.switches({}), *case.inputs)
    found = run(board.params, board.switches({"fc1": narrow}), *case.inputs)
    assert 1e-5 < distance(leaves(found), leaves(written)) < 1e-1


def test_layers_listed_by_iteration_have_no_switchboard():
    case = programs.scan_over_layers()
    program = capture(case.apply, case.params, case.inputs, split_scans=True)
    with pytest.raises(CannotSwitch, match="listed by iteration of a scan"):
        Switchboard(program, case.params, choices_of(program), {})


def test_a_kernel_runs_where_it_is_asked_for():
    case = programs.mlp()
    program = capture(case.apply, case.params, case.inputs)
    int8 = Precision.parse("i8/i8/i32")
    board = Switchboard(program, case.params, {"fc1": [int8]}, {("fc1", int8): "transposed"})
    plain = Switchboard(program, case.params, {"fc1": [int8]}, {})
    assert board.params["layers"]["0:fc1"]["weight"].shape == plain.params["layers"]["0:fc1"]["weight"].shape[::-1]
    found, expected = (
        leaves(jax.jit(one.__call__)(one.params, one.switches({"fc1": int8}), *case.inputs)) for one in (board, plain)
    )
    assert distance(found, expected) < 1e-5


def test_inputs_are_switched():
    case = replace(programs.mlp(), layers=())
    program = capture(case.apply, case.params, case.inputs)
    narrow = Precision.parse("bf16")
    board = Switchboard(program, case.params, {"input": [narrow]}, {})
    found = board(board.params, board.switches({"input": narrow}), *case.inputs)
    rounded = [jax.numpy.asarray(x).astype("bfloat16").astype("float32") for x in case.inputs]
    assert distance(leaves(found), leaves(case.apply(case.params, *rounded))) < 1e-6
