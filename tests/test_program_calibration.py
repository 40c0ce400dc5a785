"""Calibration: what static layers compute, against a numpy reference, and how their numbers come about."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import FORMATS, Precision
from tests import programs
from tests.test_program_kernels_scaled import rounded, weight_of
from tuner.errors import PolicyError
from tuner.policy import Policy
from tuner.program import Program, capture, make_policy, prepare, uniform_policy
from tuner.program.calibration import calibrate
from tuner.program.plan import plan
from tuner.program.static_inputs import static_input
from tuner.scales import CalibratedOn, LayerScales

ON = CalibratedOn(examples=8, split="search", fingerprint="abc")


def calibrated(program: Program, params: Any, policy: Policy, *batches: Any) -> Policy:
    wanted = {name: (precision,) for name, precision in policy.precisions.items()}
    found = calibrate(program, params, [(batch,) for batch in batches], wanted, ON)
    assert not found.problems
    return found.complete(policy)


def product(params: Any, x: Any) -> Any:
    return x @ params


def static(value: np.ndarray, scale: float, text: str, zero: int | None = None) -> np.ndarray:
    format = FORMATS[text]
    if format.kind == "float":
        steps = np.clip(value / np.float32(scale), -format.max, format.max)
        return np.asarray(jnp.asarray(steps).astype(format.dtype)).astype(np.float32) * scale
    low = -format.max - (0 if zero is None else 1)
    return (np.clip(np.rint(value / np.float32(scale)) + (zero or 0), low, format.max) - (zero or 0)) * scale


@pytest.mark.parametrize(
    "text",
    [
        "i8/i8/i32@static",
        "i4/i8/i32@static",
        "i8/i4/i32@static",
        "fp8@static",
        "i8/i8/i32@static,tensor",
        "i8/i8/i32@static,g32",
    ],
)
def test_a_static_product_rounds_by_the_largest_value_that_calibration_saw(text: str) -> None:
    w, seen = programs.normal(64, 6, seed=1), [programs.normal(8, 64, seed=2), programs.normal(8, 64, seed=3)]
    program = capture(product, w, (seen[0],))
    policy = calibrated(program, w, make_policy(program, {"params": text}), *seen)
    precision = Precision.parse(text)
    ((_, scales),) = policy.scales
    largest = max(np.abs(batch).max() for batch in seen)
    assert scales.scale == (pytest.approx(largest / precision.activations.max),)
    x = programs.normal(5, 64, seed=4) * 2  # some lie beyond what was seen, and stop there
    assert np.abs(x).max() > largest
    model = prepare(product, w, policy, program=program)
    expected = static(x, scales.scale[0], precision.activations.name) @ weight_of(w, precision)
    found = np.asarray(jax.jit(model)(model.params, x))
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)
    assert policy.calibrated_on == ON


@pytest.mark.parametrize("sizes", [(1, 0), (2, 1)])
def test_a_static_zero_point_is_undone_around_and_between_the_pixels_too(sizes: tuple[int, int]) -> None:
    dilation, padding = sizes
    x, w = np.abs(programs.normal(3, 8, 8, 4)) - 0.1, programs.normal(3, 3, 4, 5)

    def apply(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            params,
            (1, 1),
            ((padding, 2), (2, padding)),
            lhs_dilation=(dilation, 1),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    program = capture(apply, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": "i8/i8/i32@static,asym"}), x)
    ((_, scales),) = policy.scales
    assert scales.zero_point[0] < -100  # hardly anything is negative
    held = rounded(w, (0, 1, 2), "i8")
    expected = np.asarray(apply(held, static(x, scales.scale[0], "i8", scales.zero_point[0])))
    model = prepare(apply, w, policy, program=program)
    np.testing.assert_allclose(model(model.params, x), expected, rtol=1e-3, atol=1e-3)


def test_a_static_depthwise_convolution_has_a_scale_per_channel() -> None:
    x, w = programs.normal(2, 6, 6, 8), programs.normal(3, 3, 1, 8) * np.logspace(-2, 2, 8, dtype=np.float32)

    def apply(params: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, params, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=8)

    program = capture(apply, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": "i8/i8/i32@static"}), x)
    model = prepare(apply, w, policy, program=program)
    assert model.params["layers"]["params"]["scale"].shape == (1, 1, 1, 8)
    found, expected = np.asarray(model(model.params, x)), np.asarray(apply(w, x))
    for channel in range(8):
        assert np.linalg.norm(found[..., channel] - expected[..., channel]) < 0.02 * np.linalg.norm(
            expected[..., channel]
        )


@pytest.mark.parametrize("text", ["i4/f32/f32@bias", "i4/f32/f32@g32,bias", "i8/i4/i32@static,bias"])
def test_bias_correction_takes_the_mean_error_of_the_weights_away(text: str) -> None:
    x, w = programs.normal(256, 64, seed=1) + 1.0, programs.normal(64, 6, seed=2)
    program = capture(product, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": text}), x)
    ((_, scales),) = policy.scales
    precision = Precision.parse(text)
    lost = (x @ (w - weight_of(w, precision))).mean(0)
    np.testing.assert_allclose(scales.correction, lost, rtol=1e-3, atol=1e-3)
    model = prepare(product, w, policy, program=program)
    if precision.activations.name == "f32":
        assert np.abs(np.asarray(model(model.params, x) - x @ w).mean(0)).max() < 1e-3


def test_the_numbers_of_a_convolution_follow_its_layout() -> None:
    x, w = programs.normal(2, 3, 8, 8, seed=1) + 1, programs.normal(5, 3, 3, 3, seed=2)
    apply = lambda p, x: jax.lax.conv_general_dilated(x, p, (1, 1), "VALID")
    program = capture(apply, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": "i4/f32/f32@bias"}), x)
    model = prepare(apply, w, policy, program=program)
    error = np.asarray(model(model.params, x) - apply(w, x)).mean((0, 2, 3))
    assert np.abs(error).max() < 1e-3


def stacked(params: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params)[0]


SCANNED = (programs.normal(3, 16, 16) * np.array([0.05, 0.5, 2.0], np.float32)[:, None, None], programs.normal(8, 16))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("text", ["i8/i8/i32@static", "i8/i8/i32@static,bias"])
def test_every_iteration_of_a_scan_has_numbers_of_its_own(split: bool, text: str) -> None:
    w, x = SCANNED
    program = capture(stacked, w, (x,), split_scans=split)
    policy = calibrated(program, w, uniform_policy(program, text), x)
    scales = [scale for _, one in policy.scales for scale in one.scale]
    largest, state = [], x
    for one in w:
        largest.append(np.abs(state).max())
        state = np.tanh(state @ one)
    np.testing.assert_allclose(scales, np.array(largest) / 127, rtol=1e-5)
    assert len(policy.scales) == (3 if split else 1)
    model = prepare(stacked, w, policy, program=program)
    assert np.linalg.norm(model(model.params, x) - state) < 0.05 * np.linalg.norm(state)


def test_the_iterations_of_a_cut_scan_keep_their_own() -> None:
    w, x = SCANNED
    program = capture(stacked, w, (x,), split_scans=True)
    names = [layer.name for layer in program.layers if layer.kind == "matmul"]
    policy = calibrated(program, w, make_policy(program, dict.fromkeys(names[1:], "i8/i8/i32@static")), x)
    model = prepare(stacked, w, policy, program=program)
    packed = model.params["layers"][names[1]]
    np.testing.assert_allclose(packed["input_scale"], [one.scale[0] for _, one in policy.scales], rtol=1e-6)
    assert packed["input_scale"].shape == (2,)


def test_a_layer_used_twice_has_the_wider_range() -> None:
    w, x = programs.normal(16, 16), programs.normal(4, 16)
    apply = lambda p, x: (x @ p) + (3 * x) @ p
    program = capture(apply, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": "i8/i8/i32@static"}), x)
    assert policy.scales[0][1].scale == (pytest.approx(3 * np.abs(x).max() / 127),)


def test_a_table_shared_with_a_product_is_looked_up_and_multiplied() -> None:
    def apply(params: Any, ids: Any) -> Any:
        return jnp.take(params, ids, axis=0) @ params.T

    w, ids = programs.normal(12, 32), np.array([0, 3, 11], np.int32)
    program = capture(apply, w, (ids,))
    for text in ("i8/i8/i32@static", "i8/i8/i32@static,bias", "i4/i8/i32@static,asym"):
        policy = calibrated(program, w, make_policy(program, {"params": text}), ids)
        model = prepare(apply, w, policy, program=program)
        expected = apply(w, ids)
        assert np.linalg.norm(model(model.params, ids) - expected) < 0.25 * np.linalg.norm(expected)


def test_the_same_examples_give_the_same_numbers_and_the_same_policy() -> None:
    x, w = programs.normal(8, 64), programs.normal(64, 6)
    program = capture(product, w, (x,))
    policies = [
        calibrated(program, w, make_policy(program, {"params": f"i8/i8/i32@static,{observer}"}), x)
        for observer in ("mse", "mse", "p99.9")
    ]
    assert policies[0] == policies[1]
    assert policies[0].hash == policies[1].hash != policies[2].hash


def test_each_operation_says_by_which_scale_it_takes_in_its_activations() -> None:
    x, w = np.abs(programs.normal(8, 64)), programs.normal(64, 6)
    program = capture(product, w, (x,))
    for text in ("i8/i8/i32@static,asym", "i8/i8/i32@static"):
        policy = calibrated(program, w, make_policy(program, {"params": text}), x)
        found = plan(program, policy)
        (site,) = (site for step in found.steps for site in step.sites())
        static_one = static_input(found, site)
        assert static_one is not None
        assert (static_one.operand, static_one.format.name) == (0, "i8")
        assert static_one.scale.tolist() == pytest.approx(policy.scales[0][1].scale)
        assert static_one.zero_point.tolist() == ([-128] if "asym" in text else [0])
    assert static_input(plan(program, make_policy(program, {"params": "i8/i8/i32"})), site) is None


def test_what_runs_in_a_branch_that_is_not_taken_has_no_numbers() -> None:
    x, w = programs.normal(4, 8), {"a": programs.normal(8, 8), "b": programs.normal(8, 8)}
    apply = lambda p, x: jax.lax.cond(x[0, 0] > 1e9, lambda: x @ p["a"], lambda: x @ p["b"])
    program = capture(apply, w, (x,))
    found = calibrate(program, w, [(x,)], dict.fromkeys("ab", (Precision.parse("i8/i8/i32@static"),)))
    assert found.problems == {"a": "it did not run on the calibration examples"}
    assert list(found.numbers) == ["b"]


def test_activations_that_are_not_finite_have_none_either() -> None:
    x, w = programs.normal(4, 8), programs.normal(8, 8)
    x[0, 0] = 0
    apply = lambda p, x: jnp.log(jnp.abs(x)) @ p
    program = capture(apply, w, (x,))
    found = calibrate(program, w, [(x,)], {"params": (Precision.parse("i8/i8/i32@static"),)})
    assert found.problems == {"params": "1 of its activations are NaN or infinite on the calibration examples"}


@pytest.mark.parametrize(
    ("text", "scales", "lacks"),
    [
        ("i8/i8/i32@static", None, "scale"),
        ("i8/i8/i32@static,asym", LayerScales(scale=(1.0,)), "zero point"),
        ("i8/i8/i32@static,bias", LayerScales(scale=(1.0,)), "correction"),
        ("i4/f32/f32@bias", None, "correction"),
    ],
)
def test_a_policy_without_its_numbers_is_refused(text: str, scales: LayerScales | None, lacks: str) -> None:
    x, w = programs.normal(4, 8), programs.normal(8, 8)
    policy = make_policy(capture(product, w, (x,)), {"params": text})
    if scales is not None:
        policy = Policy(policy.assignments, scales=(("params", scales),), program=policy.program)
    with pytest.raises(PolicyError) as caught:
        prepare(product, w, policy)
    assert str(caught.value) == (
        f"the policy: layer 'params' runs in {text} and has no {lacks} of calibration; "
        "make it with tuner.calibrate(task, policy), or choose a precision that needs none"
    )


def test_a_wrong_number_of_numbers_is_refused() -> None:
    w, x = SCANNED
    policy = uniform_policy(capture(stacked, w, (x,)), "i8/i8/i32@static")
    (name,) = [name for name, precision in policy.precisions.items() if not precision.is_original]
    policy = Policy(policy.assignments, scales=((name, LayerScales(scale=(1.0, 2.0))),), program=policy.program)
    with pytest.raises(
        PolicyError, match=rf"the policy has 2 numbers for layer '{name}' where 1 or 3 belong; make them"
    ):
        prepare(stacked, w, policy)


def test_a_checked_model_sees_what_static_integers_would_hide() -> None:
    from tuner.errors import NonFiniteError

    logarithm = lambda p, x: jnp.log(jnp.abs(x)) @ p
    x, w = programs.normal(4, 8), programs.normal(8, 8)
    program = capture(logarithm, w, (x,))
    policy = calibrated(program, w, make_policy(program, {"params": "i8/i8/i32@static"}), x)
    model = prepare(logarithm, w, policy, check="finite")
    with pytest.raises(NonFiniteError, match=r"layer 'params' \(i8/i8/i32@static\) is the first"):
        model(model.params, np.zeros((4, 8), np.float32))
