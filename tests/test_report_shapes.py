import csv
import io
import json
from dataclasses import replace

import pytest

from tests.factories import DEVICE, make_confirmation, make_latency, make_measurement, make_point
from tuner.drop import Drop
from tuner.measurement import ShapeLatency
from tuner.report.export import explain_choice
from tuner.report.front import front_json, write_front, write_front_csv
from tuner.report.html import front_html
from tuner.report.policies import confirmation_text, full_point_json, write_point
from tuner.report.verification import verification_json, write_verification
from tuner.study import Choice
from tuner.verification import Verification

SHAPES = {
    "prefill": ShapeLatency(latency=make_latency(0.5), weight=1),
    "decode": ShapeLatency(latency=replace(make_latency(0.9), contended="the load was 9"), weight=64),
}
GOOD = make_point(
    1, measurement=make_measurement(0.8, shapes=SHAPES), confirmation=make_confirmation(0.81, shapes=SHAPES)
)
CAST = make_point(-1, label="astype(bf16)", policy=None)


def text_of(write, *args, **kwargs):
    file = io.StringIO()
    write(*args, file, **kwargs)
    return file.getvalue()


def test_a_front_has_a_column_per_kind_of_call_and_says_what_the_latency_is():
    text = text_of(write_front, [GOOD], [CAST], width=250)
    titles, good, cast = text.splitlines()[:3]
    for title, cell in (("prefill (95 %)", "0.500 (0.490..0.510)"), ("decode (95 %)", "0.900 (0.890..0.910)")):
        start = titles.index(title)
        assert good[start:].startswith(cell)
        assert cast[start:].startswith("-  ")
    assert titles.index("latency") < titles.index("prefill") < titles.index("quality")
    assert "Latency is that of the weighted sum 1 x prefill + 64 x decode.\n" in text
    assert "weighted" not in text_of(write_front, [make_point(1)], [])


def test_a_narrow_terminal_keeps_the_sum():
    titles = text_of(write_front, [GOOD], [], width=82).splitlines()[0]
    assert "latency" in titles
    assert "prefill" not in titles


def test_json_and_csv_have_every_kind_of_call():
    form = json.loads(json.dumps(front_json("seq", [GOOD], [CAST]), allow_nan=False))
    decode = form["points"][0]["shapes"]["decode"]
    assert (decode["weight"], decode["latency_ratio"], decode["latency_p95_ms"]) == (64, 0.9, None)
    assert decode["contended"] == "the load was 9"
    assert form["references"][0]["shapes"] == {}
    (row,) = csv.DictReader(io.StringIO(text_of(write_front_csv, [GOOD])))
    assert (row["decode_latency_ratio"], row["prefill_latency_ms"]) == ("0.9", "2.0")
    assert full_point_json(GOOD)["confirmation"]["shapes"]["prefill"]["latency_ratio"] == 0.5


def test_one_point_shows_each_with_its_weight():
    text = text_of(write_point, GOOD, width=120)
    assert "  prefill     0.500 (0.490..0.510), 2.00 ms, counted once\n" in text
    assert "  decode      0.900 (0.890..0.910), 3.60 ms, counted 64 times; contended: the load was 9\n" in text
    assert "latency 0.810 (0.800..0.820), prefill 0.500 (0.490..0.510), decode" in confirmation_text(GOOD.confirmation)


def test_notebooks_and_exports_show_each():
    page = front_html("seq", [GOOD], [CAST])
    assert page.count("<th>decode (95 %)</th>") == 2
    (said,) = (line for line in explain_choice(Choice(point=GOOD)) if "weighted" in line)
    assert said == (
        "That is the weighted sum 1 x prefill + 64 x decode: prefill 0.500 (0.490..0.510), decode 0.900 (0.890..0.910)."
    )


@pytest.mark.parametrize("recorded", [SHAPES, {}])
def test_a_verification_shows_each_beside_what_was_recorded(recorded):
    verification = Verification(
        result=make_confirmation(0.8, shapes=SHAPES),
        recorded_low=0.7,
        recorded_high=0.9,
        recorded_shapes=recorded,
        recorded_drop=0.0,
        max_drop=Drop(0.01),
        allowed_drop=0.01,
        differences={"kind": ("another", DEVICE["kind"])},
    )
    line = next(line for line in text_of(write_verification, verification).splitlines() if "decode x 64" in line)
    now, before = "0.900 (0.890..0.910)", "0.900 (0.890..0.910)" if recorded else "-"
    assert line.split("  ")[1:] == ["decode x 64", now, before] or (now in line and line.endswith(before))
    assert verification_json(verification)["measured"]["shapes"]["decode"]["weight"] == 64
