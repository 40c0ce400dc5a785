"""What the compiled program really does; the texts are shortened from what XLA printed."""

import jax
import numpy as np
import pytest

from search_spaces import Precision
from tuner.measure.effective import effective_inputs, effective_precisions, worst_of
from tuner.measure.executable import compile_policy
from tuner.measure.hlo import parse_hlo
from tuner.policy import Assignment
from tuner.program import capture, make_policy, uniform_policy

ON_CPU = pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA does on the CPU")


def verdicts(text, requested, kind="matmul"):
    return effective_precisions(parse_hlo(text), {name: (kind, Precision.parse(p)) for name, p in requested.items()})


def one_dot(left, right, result):
    return f"""
ENTRY %main (a: f32[8,4], b: f32[4,4]) -> f32[8,4] {{
  %a = {left}[8,4]{{1,0}} parameter(0)
  %b = {right}[4,4]{{1,0}} parameter(1)
  ROOT %dot.1 = {result}[8,4]{{1,0}} dot(%a, %b), metadata={{op_name="jit(program)/layer[fc]/dot_general"}}
}}
"""


@pytest.mark.parametrize(
    ("precision", "ran"),
    [
        ("f32/f32/f32", ("f32", "f32", "f32")),
        ("bf16/bf16/f32", ("bf16", "bf16", "f32")),
        ("bf16/bf16/bf16", ("bf16", "bf16", "bf16")),
        ("i8/i8/i32", ("s8", "s8", "s32")),
        ("i8/f32/f32", ("f32", "f32", "f32")),
        ("i8/bf16/f32", ("bf16", "bf16", "f32")),
    ],
)
def test_as_requested(precision, ran):
    assert verdicts(one_dot(*ran), {"fc": precision}) == {"fc": "as requested"}


@pytest.mark.parametrize(
    ("precision", "ran", "what"),
    [
        ("f16/f16/f16", ("f32", "f32", "f32"), "f32 x f32 -> f32"),
        ("bf16/bf16/bf16", ("bf16", "bf16", "f32"), "bf16 x bf16 -> f32"),
        ("i8/i8/i32", ("s32", "s32", "s32"), "i32 x i32 -> i32"),
        ("i8/bf16/f32", ("f32", "f32", "f32"), "f32 x f32 -> f32"),
    ],
)
def test_different_says_what_ran(precision, ran, what):
    assert verdicts(one_dot(*ran), {"fc": precision}) == {"fc": f"different: {what}"}


def test_a_layer_that_is_nowhere_is_unknown():
    assert verdicts(one_dot("f32", "f32", "f32"), {"other": "f32/f32/f32"}) == {"other": "unknown"}
    assert verdicts("", {"fc": "f32/f32/f32"}) == {"fc": "unknown"}


TWO_DOTS = """
ENTRY %main (a: bf16[8,8], c: f32[8,8]) -> f32[8,8] {
  %a = bf16[8,8]{1,0} parameter(0)
  %c = f32[8,8]{1,0} parameter(1)
  %dot.0 = f32[8,8]{1,0} dot(%a, %a), metadata={op_name="jit(program)/layer[fc]/dot_general"}
  ROOT %dot.1 = f32[8,8]{1,0} dot(%dot.0, %c), metadata={op_name="jit(program)/layer[fc]/dot_general"}
}
"""


def test_one_of_several_operations_that_runs_differently_is_reported():
    assert verdicts(TWO_DOTS, {"fc": "bf16/bf16/f32"}) == {"fc": "different: f32 x f32 -> f32"}


def test_library_calls_count_as_products():
    text = one_dot("bf16", "bf16", "f32").replace(
        "ROOT %dot.1 = f32[8,4]{1,0} dot(%a, %b)",
        'ROOT %call = (f32[8,4]{1,0}, s8[64]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm"',
    )
    assert verdicts(text, {"fc": "bf16/bf16/f32"}) == {"fc": "as requested"}


BATCH_OF_ONE = """
%after (p: f32[1,4]) -> f32[1,4] {
  %p = f32[1,4]{1,0} parameter(0)
  %bitcast.1 = f32[4]{0} bitcast(%p), metadata={op_name="jit(program)/layer[fc]/dot_general"}
  ROOT %max = f32[4]{0} maximum(%bitcast.1, %bitcast.1), metadata={op_name="jit(program)/max"}
}

%widen (q: bf16[4,4]) -> f32[4,4] {
  %q = bf16[4,4]{1,0} parameter(0)
  ROOT %convert.1 = f32[4,4]{1,0} convert(%q)
}

ENTRY %main (a: f32[1,4], b: bf16[4,4]) -> f32[1,4] {
  %a = f32[4,1]{1,0} parameter(0), metadata={op_name="inputs[0]"}
  %b = bf16[4,4]{1,0} parameter(1), metadata={op_name="ARGUMENT"}
  %wide = f32[4,4]{1,0} fusion(%b), kind=kLoop, calls=%widen
  %dot.1 = f32[1,4]{1,0} dot(%a, %wide), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %out = f32[1,4]{1,0} fusion(%dot.1), kind=kLoop, calls=%after
}
"""


def test_a_dot_without_metadata_is_known_by_its_users():
    assert verdicts(BATCH_OF_ONE, {"fc": "bf16/bf16/f32"}) == {"fc": "different: f32 x f32 -> f32"}


def test_a_dot_without_metadata_is_known_by_what_its_operands_went_through():
    text = BATCH_OF_ONE.replace("layer[fc]/dot_general", "gone").replace(
        "convert(%q)", 'convert(%q), metadata={op_name="jit(program)/layer[fc]/dot_general"}'
    )
    assert verdicts(text, {"fc": "bf16/bf16/f32"}) == {"fc": "different: f32 x f32 -> f32"}


@pytest.mark.parametrize("slot", ["fc", "fc#1"])
def test_a_dot_without_metadata_is_known_by_its_packed_weight(slot):
    text = BATCH_OF_ONE.replace("layer[fc]/dot_general", "layer[next]/dot_general")
    text = text.replace("ARGUMENT", rf"packed[\'layers\'][\'{slot}\'][\'weight\']")
    assert verdicts(text, {"fc": "bf16/bf16/f32", "next": "f32/f32/f32"}) == {
        "fc": "different: f32 x f32 -> f32",
        "next": "unknown",
    }


def test_when_users_and_operands_disagree_nothing_is_claimed():
    text = BATCH_OF_ONE.replace(
        "convert(%q)", 'convert(%q), metadata={op_name="jit(program)/layer[other]/dot_general"}'
    )
    assert verdicts(text, {"fc": "bf16/bf16/f32", "other": "bf16/bf16/f32"}) == {"fc": "unknown", "other": "unknown"}


def test_what_the_next_layer_does_first_is_not_taken_for_this_layer():
    text = BATCH_OF_ONE.replace("layer[fc]/dot_general", "layer[next]/convert_element_type")
    assert verdicts(text, {"next": "f32/f32/f32"}) == {"next": "unknown"}


def test_a_product_over_one_element_becomes_a_multiplication():
    text = one_dot("f32", "f32", "f32").replace("dot(", "multiply(")
    assert verdicts(text, {"fc": "bf16/bf16/f32"}) == {"fc": "different: f32 x f32 -> f32"}


LOOK_UP = """
%look (t: bf16[100,16], i: s32[4]) -> f32[4,16] {
  %t = bf16[100,16]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  %wide = f32[100,16]{1,0} convert(%t)
  ROOT %gather.1 = f32[4,16]{1,0} gather(%wide, %i), metadata={op_name="jit(program)/layer[tokens]/gather"}
}

ENTRY %main (t: bf16[100,16], i: s32[4]) -> f32[4,16] {
  %table = bf16[100,16]{1,0} parameter(0)
  %ids = s32[4]{0} parameter(1)
  ROOT %out = f32[4,16]{1,0} fusion(%table, %ids), kind=kLoop, calls=%look
}
"""


def test_a_look_up_is_judged_by_what_it_reads_not_by_what_it_widens_to():
    assert verdicts(LOOK_UP, {"tokens": "bf16/bf16/f32"}, "embedding") == {"tokens": "as requested"}
    assert verdicts(LOOK_UP, {"tokens": "i8/f32/f32"}, "embedding") == {"tokens": "different: bf16"}


def test_a_table_widened_as_a_whole_before_the_look_up_is_different():
    text = """
ENTRY %main (t: bf16[100,16], i: s32[4]) -> f32[4,16] {
  %t = bf16[100,16]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  %wide = f32[100,16]{1,0} convert(%t)
  ROOT %gather.1 = f32[4,16]{1,0} gather(%wide, %i), metadata={op_name="jit(program)/layer[tokens]/gather"}
}
"""
    assert verdicts(text, {"tokens": "bf16/bf16/f32"}, "embedding") == {"tokens": "different: f32"}


def test_an_input_layer_is_judged_by_the_dtype_the_program_takes():
    requested = {"x": Precision.parse("bf16"), "y": Precision.parse("f16"), "z": Precision.parse("f16")}
    given = {"x": jax.numpy.dtype("bfloat16"), "y": np.dtype("float32")}
    assert effective_inputs(requested, given) == {"x": "as requested", "y": "different: f32", "z": "unknown"}


def compiled_verdicts(rows, precision):
    def apply(params, x):
        for name in ("fc1", "fc2"):
            x = jax.nn.relu(x @ params[name]["w"] + params[name]["b"])
        return x

    rng = np.random.default_rng(0)
    params = {
        name: {"w": rng.normal(size=(64, 64)).astype(np.float32), "b": np.ones(64, np.float32)}
        for name in ("fc1", "fc2")
    }
    inputs = (np.ones((rows, 64), np.float32),)
    program = capture(apply, params, inputs)
    policy = uniform_policy(program, Precision.parse(precision))
    executable = compile_policy(apply, params, program, policy, inputs, jax.devices()[0])
    requested = dict.fromkeys(("fc1", "fc2"), ("matmul", Precision.parse(precision)))
    return effective_precisions(executable.module, requested)


@ON_CPU
@pytest.mark.parametrize("precision", ["f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32"])
def test_compiled_as_requested(precision):
    assert compiled_verdicts(64, precision) == dict.fromkeys(("fc1", "fc2"), "as requested")


@ON_CPU
@pytest.mark.parametrize(
    ("rows", "precision", "ran"),
    [
        (64, "f16/f16/f16", "f32 x f32 -> f32"),
        (1, "f16/f16/f16", "f32 x f32 -> f32"),
        (1, "bf16/bf16/f32", "f32 x f32 -> f32"),
        (1, "i8/i8/i32", "i32 x i32 -> i32"),
    ],
)
def test_what_the_cpu_widens_is_reported(rows, precision, ran):
    assert compiled_verdicts(rows, precision) == dict.fromkeys(("fc1", "fc2"), f"different: {ran}")


UNDER_A_TRANSPOSE = """
ENTRY %main (w: bf16[4,4], x: bf16[8,4]) -> f32[8,4] {
  %w = bf16[4,4]{1,0} parameter(0), metadata={op_name="packed[\\'layers\\'][\\'fc\\'][\\'weight\\']"}
  %x = bf16[8,4]{1,0} parameter(1), metadata={op_name="inputs[0]"}
  ROOT %dot.1 = f32[8,4]{1,0} dot(%x, %w), metadata={op_name="jit(program)/vmap(Linear)/NAME"}
}
"""


def test_a_product_that_took_the_name_of_a_transpose_is_told_by_its_weight():
    """As of layers under vmap, with the weight on the left: XLA turns the product round and drops the transpose."""
    assert verdicts(UNDER_A_TRANSPOSE.replace("NAME", "transpose"), {"fc": "bf16/bf16/f32"}) == {"fc": "as requested"}
    # A product of its own name belongs to nobody when that names no layer.
    assert verdicts(UNDER_A_TRANSPOSE.replace("NAME", "dot_general"), {"fc": "bf16/bf16/f32"}) == {"fc": "unknown"}


def test_of_several_shapes_the_worst_verdict_counts_and_says_where():
    found = worst_of(
        {
            "batch": {"a": "as requested", "b": "as requested", "c": "as requested", "d": "different: f32"},
            "row": {"a": "as requested", "b": "unknown", "c": "different: f32 x f32 -> f32", "d": "different: f32"},
        }
    )
    assert found == {
        "a": "as requested",
        "b": "unknown",
        "c": "different: f32 x f32 -> f32 in row",
        "d": "different: f32",
    }


@ON_CPU
@pytest.mark.parametrize(
    ("precision", "verdict"),
    [
        ("f32/f32/f32", "as requested"),
        ("bf16/bf16/f32", "different: f32 x f32 -> f32"),
        ("i8/i8/i32", "different: i32 x i32 -> i32"),
    ],
)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
def test_shifted_images_are_told_by_their_multiplications(precision, verdict, kernel):
    def apply(w, x):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=6)

    w, x = np.ones((*kernel, 1, 6), np.float32), np.ones((2, 8, 8, 6), np.float32)
    program = capture(apply, w, (x,))
    wanted = Precision.parse(precision)
    policy = make_policy(program, {"params": Assignment(precision=wanted, kernel="shifted")})
    executable = compile_policy(apply, w, program, policy, (x,), jax.devices()[0])
    assert effective_precisions(executable.module, {"params": ("conv", wanted)}) == {"params": verdict}
