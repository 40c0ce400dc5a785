"""The rows of part F that a table of outputs cannot hold: donation, rounding that sticks, scores, and what really ran."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.conformance import checks
from tests.conformance.part_f import PROGRAMS
from tests.conformance.rows import WIDTH, rows_of, square
from tuner import make_policy
from tuner.measure.effective import Ran, effective_precisions
from tuner.measure.executable import compile_policy
from tuner.measure.hlo import parse_hlo
from tuner.metrics import find_metric
from tuner.program import capture, original_policy, prepare

PLAIN = (((1,), (0,)), ((), ()))


def donations(function: Any, params: Any, x: Any) -> str:
    """Which output takes the buffer of which argument, as XLA prints it."""
    text = jax.jit(function, donate_argnums=1).lower(params, x).compile().as_text()
    return "".join(re.findall(r"input_output_alias=\{ (.*?) \}", text))


@pytest.mark.parametrize("precision", ["original", "bf16/bf16/f32", "i8/i8/i32"])
def test_a_donated_input_is_used_as_in_the_users_program(precision: str) -> None:
    """jax#9675, maxtext PR#495: a warning, which would be an error here, and memory that is not freed."""
    example = PROGRAMS["jax#9675, maxtext PR#495"].make()
    program = checks.capture_example(example)
    chosen = original_policy(program) if precision == "original" else make_policy(program, {"fc": precision})
    model = prepare(example.apply, example.params, chosen, program=program)
    (x,) = example.inputs
    theirs = donations(example.apply, example.params, x)
    assert re.fullmatch(r"\{\}: \(\d+, \{\}, may-alias\)", theirs)
    assert re.sub(r"\d+", "", donations(model, model.params, x)) == re.sub(r"\d+", "", theirs)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_the_rounding_of_an_input_sticks_under_jit(precision: str) -> None:
    """jax#23007, ml_dtypes#167, openxla/xla#41605: what is simulated must be there when the program is compiled."""
    apply = lambda params, x: (x, x @ params["fc"]["w"])
    params, x = {"fc": square()}, rows_of()
    program = capture(apply, params, (x,))
    model = prepare(apply, params, make_policy(program, {"input": precision}), program=program)
    rounded = np.asarray(jnp.asarray(x, Precision.parse(precision).activations.dtype), np.float32)
    for inputs in ((x,), model.cast_inputs(x)):
        kept, product = jax.jit(model)(model.params, *inputs)
        np.testing.assert_array_equal(kept, rounded)
        np.testing.assert_allclose(product, rounded @ params["fc"]["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["mse", "cross_entropy", "top1"])
def test_scores_of_bfloat16_outputs_are_summed_in_float32(metric: str) -> None:
    """ml_dtypes#63, jax#18387 #29323: a running sum in bfloat16 sticks at 256."""
    shape = (2, 1000)
    outputs = jnp.ones(shape, jnp.bfloat16)
    labels = jnp.zeros(shape) if metric == "mse" else jnp.zeros(shape[0], jnp.int32)
    scores = jax.jit(find_metric(metric).score)(outputs, labels)
    assert scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, {"mse": 1.0, "cross_entropy": np.log(1000), "top1": 1.0}[metric], rtol=1e-5)


def probe(rows: int, precision: Precision) -> Ran:
    """What a bare product of these sizes and formats is compiled to."""
    left = jax.ShapeDtypeStruct((rows, WIDTH), precision.activations.dtype)
    right = jax.ShapeDtypeStruct((WIDTH, WIDTH), precision.weights.dtype)
    product = lambda a, b: jax.lax.dot_general(a, b, PLAIN, preferred_element_type=precision.accumulate.dtype)
    module = parse_hlo(jax.jit(product).lower(left, right).compile().as_text() or "")
    ((where, found),) = ((where, item) for where, item in module if item.opcode == "dot")
    return Ran(tuple(where.instructions[name].dtype for name in found.operands[:2]), found.dtype)


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize(
    "text", ["f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/bf16", "f16/f16/f32", "f16/f16/f16", "i8/i8/i32"]
)
def test_what_ran_is_reported_as_in_a_probe_of_the_same_signature(rows: int, text: str) -> None:
    """jax#7431 #21212 #11705 #15107: half precision that a device widens is slow, so it must be named."""
    apply = lambda params, x: jnp.tanh(x @ params["fc"]["w"])
    params, x, precision = {"fc": square()}, rows_of(rows), Precision.parse(text)
    program = capture(apply, params, (x,))
    executable = compile_policy(apply, params, program, make_policy(program, {"fc": precision}), (x,), jax.devices()[0])
    ran = effective_precisions(executable.module, {"fc": ("matmul", precision)})
    asked = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int8": "i8", "int32": "i32"}
    sides = [asked[format.dtype] for format in (precision.activations, precision.weights)]
    wanted = f"{' x '.join(sides)} -> {asked[precision.accumulate.dtype]}"
    found = str(probe(rows, precision))
    assert ran == {"fc": "as requested" if found == wanted else f"different: {found}"}
