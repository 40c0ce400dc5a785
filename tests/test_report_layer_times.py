"""The table of layers by time."""

import io
import json
import math

from tuner.report.layer_times import LayerTime, LayerTimes, explain, layer_times_json, write_layer_times


def row(layer: str, **fields: object) -> LayerTime:
    usual: dict[str, object] = {
        "written": 0.004,
        "share": 0.4,
        "precision": "f32/f32/f32",
        "kernel": "shifted",
        "seconds": 0.001,
        "same_formats": 0.001,
    }
    return LayerTime(layer=layer, **{**usual, **fields})  # type: ignore[arg-type]


FASTEST_IN_I8 = row("conv", share=0.2, precision="i8/i8/i32", kernel="plain", same_formats=0.002)
ALL = LayerTimes(rows=(row("depthwise"), FASTEST_IN_I8), whole=0.01)


def test_a_layer_gains_its_share_less_what_it_takes_then() -> None:
    assert math.isclose(row("depthwise").gain, 0.4 * 0.75)
    assert math.isclose(ALL.predicted, 1 - 0.3 - 0.15)
    assert math.isclose(ALL.predicted_in_same_formats, 1 - 0.3 - 0.1)


def test_the_table_and_what_it_comes_to() -> None:
    file = io.StringIO()
    write_layer_times(ALL, file)
    lines = file.getvalue().splitlines()
    assert lines[0].split("  ")[0] == "layer"
    assert lines[1].split() == ["depthwise", "40.0%", "4.00", "f32/f32/f32", "shifted", "1.00", "0.250", "30.0%"]
    assert "these layers take 60% of the 10.0 ms" in file.getvalue()
    assert "predicted to take 0.550 of that" in file.getvalue()
    assert "other kernels alone, 0.600." in file.getvalue()


def test_what_is_not_timed_is_said_and_counts_for_nothing() -> None:
    gone = row("late", written=math.nan, share=math.nan, seconds=math.nan, same_formats=math.nan, precision="original")
    times = LayerTimes(rows=(row("depthwise"), gone), whole=0.01)
    assert times.predicted == 0.7
    assert explain(times)[-1] == "1 layer is not timed for want of time; the same command goes on from here."
    file = io.StringIO()
    write_layer_times(times, file)
    assert file.getvalue().splitlines()[2].split() == ["late", "-", "-", "original", "shifted", "-", "-", "-"]
    form = json.loads(json.dumps(layer_times_json(times), allow_nan=False))
    assert form["layers"][1]["seconds"] is None
    assert form["untimed"] == 1
