"""What capture knows about layers, and what it says when it cannot."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import programs
from tuner.errors import CaptureError, PolicyError
from tuner.program import capture, original_policy, prepare


def captured(example: programs.Example) -> Any:
    return capture(example.apply, example.params, example.inputs)


def test_a_layer_knows_shape_size_work_and_line() -> None:
    layer = captured(programs.mlp()).layer("fc1")
    assert (layer.shape, layer.dtype, layer.params) == ((12, 16), "float32", 12 * 16)
    assert layer.flops == 2 * 8 * 12 * 16
    assert layer.executions == 1
    assert layer.source is not None
    assert layer.source.startswith("programs.py:")
    assert layer.searchable
    assert layer.reason is None


def test_convolution_work_counts_groups() -> None:
    program = captured(programs.convolutions())
    assert program.layer("stem").flops == 2 * (2 * 8 * 8 * 8) * (3 * 3 * 3)
    assert program.layer("depthwise").flops == 2 * (2 * 8 * 8 * 8) * (3 * 3)


def test_tied_weights_are_one_layer_with_two_operations() -> None:
    program = captured(programs.tied_embedding())
    assert [layer.executions for layer in program.layers] == [2]
    assert len(program.sites[0]) == 2


def test_trip_counts_enter_executions_and_work() -> None:
    layer = captured(programs.scan_and_branches()).layer("layers")
    assert layer.executions == 4
    assert layer.flops == 4 * 2 * 3 * 6 * 6
    assert captured(programs.nested_scans()).layer("{blocks,gain}").executions == 2 * 3


def test_integer_and_grouped_batch_operations_are_listed_with_the_reason() -> None:
    def apply(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, params["w"], (1,), "VALID", dimension_numbers=("NHC", "HIO", "NHC"), batch_group_count=2
        )

    program = capture(apply, {"w": np.ones((2, 3, 4), np.float32)}, (np.ones((4, 5, 3), np.float32),))
    assert program.layer("w").reason == "it has 2 batch groups, so examples share their scales"
    integers = capture(lambda p, x: x @ p["w"], {"w": np.ones((3, 3), np.int32)}, (np.ones((2, 3), np.int32),))
    assert integers.layer("w").reason == "its operands are int32, not floating point"


def test_callbacks_are_named_because_they_disturb_timing() -> None:
    def apply(params: Any, x: Any) -> Any:
        jax.debug.print("x {}", x.sum())
        return x @ params["w"]

    program = capture(apply, {"w": np.ones((3, 3), np.float32)}, (np.ones((2, 3), np.float32),))
    assert len(program.notes) == 1
    assert "is kept and runs; it disturbs timing" in program.notes[0]


def test_an_unknown_primitive_that_holds_a_function_is_reported() -> None:
    from jax.extend import core
    from jax.interpreters import mlir

    sealed = core.Primitive("sealed")
    sealed.def_abstract_eval(lambda w, x, *, jaxpr: jaxpr.out_avals[0])
    sealed.def_impl(lambda w, x, *, jaxpr: x @ w)
    mlir.register_lowering(sealed, mlir.lower_fun(lambda w, x, *, jaxpr: x @ w, multiple_results=False))
    inner = jax.make_jaxpr(lambda w, x: x @ w)(jnp.ones((3, 3)), jnp.ones((2, 3)))

    def apply(params: Any, x: Any) -> Any:
        return sealed.bind(params["w"], x, jaxpr=inner)

    program = capture(apply, {"w": np.ones((3, 3), np.float32)}, (np.ones((2, 3), np.float32),))
    assert any("sealed" in note and "is bound unchanged" in note for note in program.notes)
    assert program.layer("w").reason == "inside sealed, which is bound unchanged"


def test_names_of_lists_tuples_and_bare_arrays() -> None:
    x = np.ones((2, 3), np.float32)
    w = np.ones((3, 3), np.float32)
    in_list = capture(lambda p, x: x @ p[0] @ p[1], [w, w], (x,))
    assert [layer.name for layer in in_list.layers[1:]] == ["0", "1"]
    nested = capture(lambda p, x: x @ p["a"][0] @ p["a"][1], {"a": [w, w]}, (x,))
    assert [layer.name for layer in nested.layers[1:]] == ["a/0", "a/1"]
    bare = capture(lambda p, x: x @ p, w, (x,))
    assert [layer.name for layer in bare.layers[1:]] == ["params"]


def test_a_parameter_called_input_keeps_names_apart() -> None:
    w = np.ones((3, 3), np.float32)
    program = capture(lambda p, x: x @ p["input"]["w"], {"input": {"w": w}}, (w,))
    names = [layer.name for layer in program.layers]
    assert len(set(names)) == len(names) == 2


def test_a_product_of_two_parameters_belongs_to_the_weight() -> None:
    params = {"w": programs.normal(6, 6), "a": programs.normal(6, 2), "b": programs.normal(2, 6)}
    program = capture(lambda p, x: x @ (p["w"] + p["a"] @ p["b"]), params, (programs.normal(3, 6),))
    assert [layer.name for layer in program.layers] == ["input", "{a,b,w}"]
    assert program.layers[1].params == 36 + 12 + 12


def test_batch_dimensions_of_an_einsum_are_work() -> None:
    params = {"experts": {"w": programs.normal(4, 6, 5)}}
    program = capture(
        lambda p, x: jnp.einsum("ebi,eio->ebo", x, p["experts"]["w"]), params, (programs.normal(4, 3, 6),)
    )
    assert program.layer("experts").flops == 2 * math.prod((4, 3, 6, 5))


def test_a_function_that_cannot_be_traced_is_named_with_its_error() -> None:
    def branchy(params: Any, x: Any) -> Any:
        return x @ params if x.sum() > 0 else x

    with pytest.raises(CaptureError, match=r"^'branchy' branches in Python on a value that is known only when it runs"):
        capture(branchy, np.ones((3, 3), np.float32), (np.ones((2, 3), np.float32),))


def test_a_function_that_fails_on_the_data_names_the_shapes() -> None:
    match = (
        r"^JAX cannot trace '<lambda>' on inputs float32\[2,4\]: TypeError: .*; make it run under jax.jit with these"
    )
    with pytest.raises(CaptureError, match=match):
        capture(lambda p, x: x @ p, np.ones((3, 3), np.float32), (np.ones((2, 4), np.float32),))


def test_the_scan_form_and_the_unrolled_form_have_layers_of_their_own() -> None:
    def scanned(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0]

    def unrolled(params: Any, x: Any) -> Any:
        for i in range(3):
            x = jnp.tanh(x @ params["w"][i])
        return x

    params, x = {"w": programs.normal(3, 6, 6)}, programs.normal(2, 6)
    policy = original_policy(capture(scanned, params, (x,)))
    with pytest.raises(PolicyError, match=r"'w/0'|'w'"):
        prepare(unrolled, params, policy)
