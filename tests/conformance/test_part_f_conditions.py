"""The rows of part F that a table of outputs cannot hold: donation, rounding that sticks, scores, and what really ran."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.conformance import checks
from tests.conformance.checks import Case, Run
from tests.conformance.part_f import PROGRAMS
from tests.conformance.rows import rows_of, square
from tuner import make_policy
from tuner.metrics import find_metric
from tuner.program import capture, original_policy, prepare, uniform_policy


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


FLOAT32 = "different: f32 x f32 -> f32"


@pytest.mark.parametrize(
    ("threads", "text", "said"),
    [
        ("jax#7431, jax PR#7462", "f16/f16/f32", FLOAT32),
        ("jax#7431, jax PR#7462", "f16/f16/f16", FLOAT32),
        ("jax#21212 #11705 #15107", "bf16/bf16/f32", FLOAT32),
        ("jax#21212 #11705 #15107", "bf16/bf16/bf16", FLOAT32),
        ("jax#21212 #11705 #15107", "i8/i8/i32", "different: i32 x i32 -> i32"),
    ],
)
def test_what_a_cpu_widens_is_said(threads: str, text: str, said: str) -> None:
    """jax#7431 #21212 #11705 #15107: half precision that a device widens is slow, so it must be named."""
    if jax.default_backend() != "cpu":
        pytest.skip("what this device widens is another matter; the table asks a probe there")
    case = Case(PROGRAMS[threads].make())
    assert checks.verdicts(Run(case, uniform_policy(case.program, text))) == {"fc": said, "out": said}
