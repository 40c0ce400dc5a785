import csv
import io
import json
from dataclasses import replace

from tests.factories import make_confirmation, make_measurement, make_point, make_policy
from tuner.measurement import OUT_OF_MEMORY, Failure
from tuner.report.front import front_json, write_front, write_front_csv

BASELINE_NUMBERS = make_measurement(1.0)
BASELINE = make_point(
    0,
    label="baseline",
    measurement=replace(
        BASELINE_NUMBERS,
        latency=replace(BASELINE_NUMBERS.latency, low=1.0, high=1.0),
        quality=replace(BASELINE_NUMBERS.quality, drop_low=0.0, drop_high=0.0),
    ),
)
INT8 = make_point(
    3,
    label="i8/i8/i32",
    policy=make_policy("original", "i8/i8/i32", "i8/i8/i32"),
    measurement=make_measurement(
        0.312, 0.0011, 3_000, effective={"dense_0": "as requested", "dense_1": "different: f32"}
    ),
    confirmation=make_confirmation(0.32, 0.0021),
)
MIXED = make_point(
    7,
    label="1 x bf16/bf16/f32, 1 x f32/f32/f32, 1 x i8/i8/i32",
    policy=make_policy("original", "bf16/bf16/f32"),
    measurement=make_measurement(0.5, -0.001, 5_000_000, effective={"dense_0": "as requested"}),
    confirmation=Failure(cause=OUT_OF_MEMORY, message="no room"),
)
CAST = make_point(-1, label="astype(bf16)", policy=None, measurement=make_measurement(1.2, 0.002, 2_000))

GOLDEN = """\
trial  label                    latency (95 %)          ms  quality  drop (95 %)                 memory  weights  ran as requested      confirmed
    3  i8/i8/i32                0.312 (0.302..0.322)  1.25   0.8989  +0.0011 (-0.0009..+0.0031)    3 kB   1.5 kB  no: 1 different of 2  yes, +0.0021
    7  1 x bf16/bf16/f32, 1...  0.500 (0.490..0.510)  2.00   0.9010  -0.0010 (-0.0030..+0.0010)    5 MB   2.5 MB  yes                   failed: out of memory
    0  baseline                 1.000                 4.00   0.9000  0.0000                        1 kB    500 B  -                     no
    -  astype(bf16)             1.200 (1.190..1.210)  4.80   0.8980  +0.0020 (0.0000..+0.0040)     2 kB     1 kB  -                     no

For comparison, not on the front: astype(bf16).
Some layers did not run as requested, or could not be read back: `tuner show` names them.
"""


def test_golden():
    file = io.StringIO()
    write_front([INT8, MIXED, BASELINE], [CAST], file, width=200)
    assert file.getvalue() == GOLDEN


def test_a_narrow_terminal_still_shows_what_decides():
    file = io.StringIO()
    write_front([INT8, MIXED, BASELINE], [], file, width=82)
    lines = file.getvalue().splitlines()
    assert lines[0] == "trial  label                    latency (95 %)        drop (95 %)"
    assert max(map(len, lines[:4])) <= 82


def test_a_front_of_one_point_is_explained():
    file = io.StringIO()
    write_front([BASELINE], [], file)
    assert "One point only: baseline is at least as good as everything else in every objective" in file.getvalue()


def test_layers_that_could_not_be_read_back_are_never_called_right():
    unknown = replace(INT8, measurement=make_measurement(0.3, effective={"dense_0": "as requested"}))
    file = io.StringIO()
    write_front([unknown], [], file)
    assert "no: 1 unknown of 2" in file.getvalue()


def test_json_has_the_published_fields():
    form = front_json("digits", [INT8], [CAST])
    assert form["format"] == 1
    assert form["study"] == "digits"
    point = json.loads(json.dumps(form))["points"][0]
    published = (
        "trial label latency_ratio latency_low latency_high latency_ms quality quality_drop drop_low drop_high "
        "memory_bytes weight_bytes confirmed policy"
    )
    assert set(published.split()) <= set(point)
    assert (point["trial"], point["latency_ratio"], point["confirmed"]) == (3, 0.312, True)
    assert point["policy"] == {"input": "original", "dense_0": "i8/i8/i32", "dense_1": "i8/i8/i32"}
    assert form["references"][0]["policy"] == {}


def test_json_says_null_where_a_number_is_not_finite():
    nan = make_measurement(float("nan"))
    form = front_json("digits", [replace(INT8, measurement=nan)], [])
    assert json.loads(json.dumps(form, allow_nan=False))["points"][0]["latency_ratio"] is None


def test_what_was_contended_is_named():
    latency = replace(INT8.measurement.latency, contended="others kept 1.0 of 2 CPUs busy", p95_ms=1.5)
    contended = replace(INT8, measurement=replace(INT8.measurement, latency=latency))
    file = io.StringIO()
    write_front([contended, BASELINE], [], file)
    assert "Contended while it was timed: trial 3; `tuner show` says by what." in file.getvalue()
    form = json.loads(json.dumps(front_json("digits", [contended, MIXED], []), allow_nan=False))
    first, second = form["points"]
    assert (first["contended"], first["latency_p95_ms"]) == ("others kept 1.0 of 2 CPUs busy", 1.5)
    assert (second["contended"], second["latency_p95_ms"], second["throughput"]) == (None, None, None)


def test_csv_has_a_line_per_point():
    file = io.StringIO()
    write_front_csv([INT8, BASELINE], file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [row["trial"] for row in rows] == ["3", "0"]
    assert float(rows[0]["drop_high"]) > float(rows[0]["quality_drop"])


def test_ties_are_told_in_words_and_in_json():
    file = io.StringIO()
    write_front([INT8, MIXED, BASELINE], [], file, width=200, ties={7: INT8, 0: INT8})
    assert "Tied in quality with a cheaper point, within the intervals: trial 0 with 3, 7 with 3.\n" in file.getvalue()
    told = front_json("digits", [INT8, MIXED, BASELINE], [], {7: INT8})
    assert [point["tied_with"] for point in told["points"]] == [None, 3, None]
