import io
import json
import math

from tuner.effect import Effect, Screening
from tuner.report.screening import ScreenedPrecision, screening_json, write_screening

ROWS = [
    ScreenedPrecision(layer="fc", precision="original", kernel="plain", seconds=0.002, written=0.002, effect=None),
    ScreenedPrecision(
        layer="fc",
        precision="i8/i8/i32",
        kernel="transposed",
        seconds=0.001,
        written=0.002,
        effect=Effect(error=0.0123, kl=1.5e-6, examples=256),
    ),
    ScreenedPrecision(
        layer="fc",
        precision="f16/f16/f16",
        kernel="plain",
        seconds=math.nan,
        written=0.002,
        effect=Effect(error=math.inf, kl=None, examples=256),
    ),
]


def test_time_and_effect_side_by_side():
    file = io.StringIO()
    write_screening(ROWS, file)
    lines = [line.split() for line in file.getvalue().splitlines()]
    assert lines[1] == ["fc", "original", "plain", "2.00", "1.000", "-", "-"]
    assert lines[2] == ["fc", "i8/i8/i32", "transposed", "1.00", "0.500", "0.012", "1.5e-06"]
    assert lines[3] == ["fc", "f16/f16/f16", "plain", "-", "-", "inf", "-"]


def test_json_has_no_number_for_what_is_not_finite():
    form = screening_json(ROWS, Screening(missing=2))
    assert json.loads(json.dumps(form, allow_nan=False))["missing"] == 2
    assert form["layers"][2]["error"] is None
    assert form["layers"][1]["divergence"] == 1.5e-6
