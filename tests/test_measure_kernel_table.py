"""The kernel table: timed once per signature, the fastest kernel taken, what cannot run left out."""

import time
from typing import Any

import jax
import numpy as np
import pytest

from search_spaces import ORIGINAL, Precision
from tests.programs import convolutions, normal
from tuner.measure import kernel_table
from tuner.measure.kernel_table import KernelTable, time_kernels
from tuner.program import capture

F32, I8 = Precision.parse("f32/f32/f32"), Precision.parse("i8/i8/i32")
CHOICES = {"a": (ORIGINAL, F32, I8), "b": (ORIGINAL, F32), "c": (ORIGINAL, F32)}


def program() -> Any:
    params = {"a": normal(8, 4), "b": normal(8, 4), "c": normal(8, 16)}
    return capture(lambda p, x: (x @ p["a"], x @ p["b"], x @ p["c"]), params, (normal(3, 8),))


def test_every_choice_of_every_layer_gets_a_time() -> None:
    table = time_kernels(program(), CHOICES, known={}, budget_s=60)
    for layer, precisions in CHOICES.items():
        for precision in precisions:
            for kernel in table.kernels[layer, precision]:
                assert table.seconds(layer, precision, kernel) > 0


def test_layers_of_one_signature_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[str] = []

    def fake(site: Any, variants: Any, budget_s: float) -> Any:
        timed.append(str(site.eqn.invars[1].aval))
        return dict.fromkeys(variants, 1.0)

    monkeypatch.setattr(kernel_table, "_time_variants", fake)
    table = time_kernels(program(), CHOICES, known={}, budget_s=60)
    assert sorted(timed) == ["float32[8,16]", "float32[8,4]"]
    assert table.signatures["a"] == table.signatures["b"] != table.signatures["c"]


def test_what_is_known_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = time_kernels(program(), CHOICES, known={}, budget_s=60)
    monkeypatch.setattr(kernel_table, "_time_variants", lambda *_: pytest.fail("timed again"))
    assert time_kernels(program(), CHOICES, known=first.times, budget_s=60).times == first.times


def test_without_time_left_everything_runs_in_its_plain_kernel() -> None:
    table = time_kernels(program(), CHOICES, known={}, budget_s=0)
    assert table.times == {}
    assert table.best("a", I8) == "plain"
    assert table.predicted(I8) == 0


def made(times: dict[str, float]) -> KernelTable:
    return KernelTable(
        times={f"s {F32} {name}": seconds for name, seconds in times.items()},
        signatures={"a": (("s", 2),)},
        kernels={("a", F32): ("plain", "transposed", "padded")},
    )


def test_the_fastest_kernel_is_taken_when_it_is_clearly_faster() -> None:
    assert made({"plain": 1.0, "transposed": 0.5, "padded": 0.7}).best("a", F32) == "transposed"
    assert made({"plain": 1.0, "transposed": 0.99, "padded": 0.98}).best("a", F32) == "plain"


def test_a_kernel_that_cannot_run_is_never_taken() -> None:
    nan = float("nan")
    assert made({"plain": nan, "transposed": 0.5, "padded": nan}).best("a", F32) == "transposed"
    assert made({"plain": 1.0, "transposed": nan, "padded": nan}).best("a", F32) == "plain"


def test_a_prediction_counts_executions_and_the_best_kernels() -> None:
    assert made({"plain": 1.0, "transposed": 0.5, "padded": 0.7}).predicted(F32) == 2 * 0.5


def test_an_operation_that_fails_here_is_marked_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kernel_table.compile_alone

    def broken(site: Any, assignment: Any) -> Any:
        if assignment.kernel == "transposed":
            raise RuntimeError("no such kernel here")
        return whole(site, assignment)

    monkeypatch.setattr(kernel_table, "compile_alone", broken)
    table = time_kernels(program(), CHOICES, known={}, budget_s=60)
    assert np.isnan(table.seconds("a", F32, "transposed"))
    assert table.seconds("a", F32, "plain") > 0


def test_convolutions_can_be_timed() -> None:
    example = convolutions()
    captured = capture(example.apply, example.params, example.inputs)
    table = time_kernels(captured, {"depthwise": (ORIGINAL, F32)}, known={}, budget_s=60)
    assert table.kernels["depthwise", F32] == ("plain", "channels_first", "shifted")
    assert table.seconds("depthwise", F32, "shifted") > 0


def test_ragged_products_are_timed_with_groups_that_hold_all_rows() -> None:
    np.testing.assert_array_equal(kernel_table._even_groups(8, np.zeros(3, np.int32)), [3, 3, 2])
    apply = lambda p, x: jax.lax.ragged_dot(x, p["w"], np.array([3, 3, 2], np.int32))
    program = capture(apply, {"w": normal(3, 8, 5)}, (normal(8, 8),))
    table = time_kernels(program, {"w": [Precision.parse("i8/i8/i32")]}, known={}, budget_s=30)
    assert table.seconds("w", Precision.parse("i8/i8/i32"), "plain") > 0


def test_grouped_integer_convolutions_are_not_tried_in_the_scalar_loop() -> None:
    def depthwise(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, params["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
        )

    made = capture(depthwise, {"w": normal(3, 3, 1, 4)}, (normal(2, 5, 5, 4),))
    table = time_kernels(made, {"w": (ORIGINAL, F32, I8)}, known={}, budget_s=60)
    assert table.kernels["w", I8] == ("plain", "channels_first", "shifted")
    assert np.isnan(table.seconds("w", I8, "plain"))
    assert np.isnan(table.seconds("w", I8, "channels_first"))
    assert table.seconds("w", F32, "plain") > 0
    assert table.best("w", I8) == "shifted"


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA does on the CPU")
@pytest.mark.parametrize(
    ("layout", "kernel", "image", "groups", "expected"),
    [
        (("NHWC", "HWIO", "NHWC"), (3, 3, 4, 4), (2, 5, 5, 4), 1, "plain"),
        (("NHWC", "HWIO", "NHWC"), (3, 3, 1, 4), (2, 5, 5, 4), 4, "shifted"),
        (("NHWC", "HWIO", "NHWC"), (3, 3, 2, 4), (2, 5, 5, 4), 2, "patches"),
        (("NHWC", "OIHW", "NHWC"), (4, 4, 3, 3), (2, 5, 5, 4), 1, "channels_last"),
        (("NCHW", "OIHW", "NCHW"), (4, 4, 3, 3), (2, 4, 5, 5), 1, "channels_last"),
        (("NCHW", "OIHW", "NCHW"), (4, 4, 1, 1), (2, 4, 5, 5), 1, "plain"),
        (("NHC", "HIO", "NHC"), (3, 4, 4), (2, 5, 4), 1, "as_image"),
        (("NDHWC", "DHWIO", "NDHWC"), (3, 3, 3, 4, 4), (2, 5, 5, 5, 4), 1, "patches"),
    ],
)
def test_integer_convolutions_that_were_not_timed_stay_out_of_the_scalar_loop(
    layout: Any, kernel: Any, image: Any, groups: int, expected: str
) -> None:
    def apply(params: Any, x: Any) -> Any:
        strides = (1,) * (len(kernel) - 2)
        settings = {"dimension_numbers": layout, "feature_group_count": groups}
        return jax.lax.conv_general_dilated(x, params["w"], strides, "SAME", **settings)

    made = capture(apply, {"w": normal(*kernel)}, (normal(*image),))
    table = time_kernels(made, {"w": (ORIGINAL, F32, I8)}, known={}, budget_s=0)
    assert table.best("w", I8) == expected
    assert table.best("w", F32) == "plain"


def test_a_slow_variant_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, int] = {}

    def fake(site: Any, assignment: Any) -> Any:
        def call() -> None:
            name = str(assignment.precision)
            calls[name] = calls.get(name, 0) + 1
            time.sleep(0.3 if name == str(I8) else 0)

        return call

    monkeypatch.setattr(kernel_table, "compile_alone", fake)
    monkeypatch.setattr(kernel_table, "_ROUND_S", 0.01)
    table = time_kernels(program(), {"a": (ORIGINAL, I8)}, known={}, budget_s=60)
    assert calls[str(I8)] == len(table.kernels["a", I8])
    assert calls[str(ORIGINAL)] > 1
    assert table.seconds("a", I8, "plain") > 0.25
