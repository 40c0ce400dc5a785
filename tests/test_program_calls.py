"""Equations that hold a jaxpr: every known one is looked into, or kept whole and reported."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core
from jax.interpreters import mlir

from tests.conformance import checks
from tests.conformance.checks import Case, equations
from tests.holders import BEHIND, HOLDERS, INPUT, NAMES
from tests.programs import Example, normal
from tuner.program import calls, capture, control_flow, make_policy, prepare, uniform_policy

# What JAX makes for itself only, in gradients.
INTERNAL = {"closed_call", "core_call"}


def primitives(function: Any, *arguments: Any) -> list[str]:
    return [eqn.primitive.name for eqn in equations(jax.make_jaxpr(function)(*arguments))]


@pytest.fixture(params=HOLDERS)
def holder(request: Any) -> tuple[str, Example]:
    return request.param, HOLDERS[request.param]()


def test_the_table_has_a_program_for_every_known_primitive() -> None:
    assert {*calls._OPENERS, *control_flow._RULES, "pallas_call"} == INTERNAL.union(*NAMES.values())


def test_the_layer_inside_is_found_and_everything_holds(holder: tuple[str, Example]) -> None:
    primitive, example = holder
    assert NAMES[primitive].intersection(primitives(example.apply, example.params, *example.inputs))
    case = Case(example)
    checks.layers_are_found(example, case.program)
    checks.names_do_not_depend_on_the_batch(example, case.program)
    checks.all_original_is_identical(case)
    for text in ("bf16/bf16/f32->bf16", "i8/i8/i32"):
        checks.holds_in(case, text)


def test_all_but_kernels_by_hand_are_tuned_inside(holder: tuple[str, Example]) -> None:
    primitive, example = holder
    program = checks.capture_example(example)
    model = prepare(example.apply, example.params, uniform_policy(program, "i8/i8/i32"), program=program)
    opaque = primitive == "pallas_call"
    assert set(model.params["layers"]) == ({"behind"} if opaque else {"inside", "behind"})
    assert set(model.params["parameters"]) == ({"inside/w"} if opaque else set())
    assert program.layer("inside").searchable != opaque
    assert bool(program.notes) == opaque


def test_a_kernel_by_hand_is_bound_unchanged_and_reported_with_its_work() -> None:
    example = HOLDERS["pallas_call"]()
    program = checks.capture_example(example)
    (note,) = program.notes
    assert note.startswith("pallas_call at holders.py:")
    assert note.endswith("holds a function and is bound unchanged")
    layer = program.layer("inside")
    assert layer.reason == "inside pallas_call, which is bound unchanged"
    assert (layer.shape, layer.params) == ((6, 6), 36)
    assert (layer.executions, layer.flops) == (2, 2 * 4 * 6 * 6)  # two blocks of two rows
    model = prepare(example.apply, example.params, make_policy(program, {"behind": "bf16/bf16/f32"}), program=program)
    (theirs,) = [e for e in equations(jax.make_jaxpr(example.apply)(example.params, *example.inputs)) if is_kernel(e)]
    (ours,) = [e for e in equations(jax.make_jaxpr(model)(model.params, *example.inputs)) if is_kernel(e)]
    assert str(ours.params["jaxpr"]) == str(theirs.params["jaxpr"])


def is_kernel(eqn: Any) -> bool:
    return bool(eqn.primitive.name == "pallas_call")


def new_primitive() -> Any:
    """A primitive of a library of tomorrow, which holds a jaxpr and runs it."""
    sealed = core.Primitive("sealed")
    run = lambda *operands, jaxpr: jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *operands)[0]
    sealed.def_abstract_eval(lambda *operands, jaxpr: jaxpr.out_avals[0])
    sealed.def_impl(run)
    mlir.register_lowering(sealed, mlir.lower_fun(run, multiple_results=False))
    return sealed


def with_new_primitive(inner: Any) -> Example:
    sealed = new_primitive()
    params = {"inside": {"w": normal(6, 6)}, "behind": {"w": normal(6, 4)}}
    held = jax.make_jaxpr(inner)(params["inside"]["w"], normal(4, 6))

    def apply(params: Any, x: Any) -> Any:
        return jnp.tanh(sealed.bind(params["inside"]["w"], x, jaxpr=held)) @ params["behind"]["w"]

    return Example(apply, params, (normal(4, 6),), (INPUT, ("inside", "matmul"), BEHIND))


def test_a_new_primitive_that_holds_a_jaxpr_is_bound_unchanged_and_reported() -> None:
    example = with_new_primitive(lambda w, x: jnp.sin(x) @ w)
    case = Case(example)
    program = case.program
    checks.layers_are_found(example, program)
    checks.all_original_is_identical(case)
    (note,) = program.notes
    assert note.startswith("sealed at test_program_calls.py:")
    assert note.endswith("holds a function and is bound unchanged")
    assert program.layer("inside").reason == "inside sealed, which is bound unchanged"
    model = prepare(example.apply, example.params, uniform_policy(program, "i8/i8/i32"), program=program)
    bound = [eqn for eqn in equations(jax.make_jaxpr(model)(model.params, *example.inputs)) if "jaxpr" in eqn.params]
    (sealed,) = [eqn for eqn in bound if eqn.primitive.name == "sealed"]
    assert [variable.aval.dtype for variable in sealed.invars] == [jnp.float32, jnp.float32]
    checks.holds_in(case, "i8/i8/i32")


def test_trips_inside_a_new_primitive_count_too() -> None:
    example = with_new_primitive(lambda w, x: jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=5)[0])
    layer = capture(example.apply, example.params, example.inputs).layer("inside")
    assert (layer.executions, layer.flops) == (5, 5 * 2 * 4 * 6 * 6)


def test_the_second_registration_of_a_primitive_is_an_error() -> None:
    with pytest.raises(ValueError, match="primitive 'jit' already has an opener"):
        calls.opens("jit")(lambda eqn: None)
    with pytest.raises(ValueError, match="primitive 'scan' already has a control-flow rule"):
        control_flow.register("scan")(object)


def test_work_counts_a_scans_trips_a_loop_once_and_every_branch() -> None:
    work = {}
    for name in ("scan", "while", "cond"):
        example = HOLDERS[name]()
        layer = checks.capture_example(example).layer("inside")
        work[name] = (layer.executions, layer.flops // (2 * 4 * 6 * 6))
    assert work == {"scan": (3, 3), "while": (1, 1), "cond": (2, 2)}
