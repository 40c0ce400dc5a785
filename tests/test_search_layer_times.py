"""Which precision and kernel is fastest for each layer, alone."""

import math
from typing import Any

from search_spaces import ORIGINAL, Precision
from tests.programs import normal
from tuner.measure.kernel_table import KernelTable
from tuner.program import capture
from tuner.search.layer_times import layer_times

F32, I8 = Precision.parse("f32/f32/f32"), Precision.parse("i8/i8/i32")
CHOICES = {"input": (ORIGINAL,), "a": (ORIGINAL, F32, I8), "b": (ORIGINAL,)}


def times(table: KernelTable, shares: dict[str, float]) -> Any:
    program = capture(lambda p, x: (x @ p["a"], x @ p["b"]), {"a": normal(8, 4), "b": normal(8, 4)}, (normal(3, 8),))
    choices = {layer.name: CHOICES.get(layer.name, (ORIGINAL,)) for layer in program.layers}
    return layer_times(program.layers, choices, table, shares, 0.01)


def table(**seconds: float) -> KernelTable:
    texts = {
        "original": f"s {ORIGINAL} plain",
        "f32": f"s {F32} plain",
        "turned": f"s {F32} transposed",
        "i8": f"s {I8} plain",
    }
    return KernelTable(
        times={texts[name]: value for name, value in seconds.items()},
        signatures={"a": (("s", 1),), "b": (("s", 1),)},
        kernels={("a", F32): ("plain", "transposed"), ("a", I8): ("plain",)},
    )


def test_the_fastest_is_found_and_what_other_kernels_alone_would_do() -> None:
    found = times(table(original=4e-3, f32=4e-3, turned=2e-3, i8=1e-3), {"a": 0.4})
    (row,) = found.rows  # a layer without a choice is not shown
    assert (row.layer, row.precision, row.kernel, row.seconds) == ("a", "i8/i8/i32", "plain", 1e-3)
    assert (row.written, row.share, row.same_formats) == (4e-3, 0.4, 2e-3)


def test_a_layer_that_nothing_beats_stays_as_written() -> None:
    (row,) = times(table(original=1e-3, f32=2e-3, turned=2e-3, i8=3e-3), {"a": 0.4}).rows
    assert (row.precision, row.kernel, row.gain) == ("original", "plain", 0.0)


def test_what_is_not_timed_is_not_guessed() -> None:
    (row,) = times(table(), {}).rows
    assert math.isnan(row.seconds)
    assert math.isnan(row.share)
    assert row.precision == "original"
