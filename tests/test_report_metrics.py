import csv
import io
import json
from dataclasses import replace

from tests.factories import NAN, make_confirmation, make_measurement, make_metric, make_point, make_study
from tuner.measurement import FurtherMetric
from tuner.report.front import front_json, limit_of, write_front, write_front_csv
from tuner.report.html import front_html, study_html
from tuner.report.policies import confirmation_text, full_point_json, write_point
from tuner.report.studies import studies_json
from tuner.report.trials import write_trials
from tuner.store import CandidateRecord, Owner, StudyCounts

NONE = FurtherMetric(value=0.4, drop=0.0, drop_low=0.0, drop_high=0.0, method="paired bootstrap", allowed=0.01)
KEPT = {"cross_entropy": make_metric(0.004, 0.01), "mse": make_metric(0.5, NAN)}
BROKEN = {"cross_entropy": make_metric(0.05, 0.01), "mse": make_metric(0.5, NAN)}
BASELINE = make_point(0, label="baseline", measurement=make_measurement(1.0, metrics={"cross_entropy": NONE}))
GOOD = make_point(1, measurement=make_measurement(0.5, metrics=KEPT), confirmation=make_confirmation(metrics=BROKEN))
CAST = make_point(-1, label="astype(bf16)", policy=None, measurement=make_measurement(1.2, metrics=BROKEN))
LIMITED = make_study(constraints={"cross_entropy": "2%rel", "mse": None})


def text_of(write, *args, **kwargs):
    file = io.StringIO()
    write(*args, file, **kwargs)
    return file.getvalue()


def test_a_front_has_a_column_per_metric_and_says_what_was_allowed():
    text = text_of(write_front, [GOOD, BASELINE], [CAST], width=250)
    titles, good, baseline, cast = text.splitlines()[:4]
    start = titles.index("cross_entropy drop")
    assert titles[start:].split("  ")[0] == "cross_entropy drop"
    assert good[start:].startswith("+0.0040 (+0.0030..+0.0050)  ")
    assert baseline[start:].startswith("0.0000  ")
    assert cast[start:].startswith("+0.0500 (+0.0490..+0.0510), allowed 0.01")
    assert "mse drop" in titles
    assert "Constraints that every point of the front keeps: cross_entropy drops by no more than 0.01." in text


def test_a_front_without_further_metrics_does_not_speak_of_constraints():
    text = text_of(write_front, [make_point(1)], [])
    assert "onstraint" not in text


def test_a_narrow_terminal_leaves_metrics_out_before_what_decides():
    titles = text_of(write_front, [GOOD, BASELINE], [], width=82).splitlines()[0]
    assert "latency" in titles
    assert "cross_entropy" not in titles


def test_json_and_csv_have_every_metric():
    form = json.loads(json.dumps(front_json("digits", [GOOD], [CAST]), allow_nan=False))
    assert form["points"][0]["metrics"]["cross_entropy"] == {
        "value": 0.4,
        "drop": 0.004,
        "drop_low": 0.003,
        "drop_high": 0.005,
        "allowed": 0.01,
        "holds": True,
    }
    assert form["points"][0]["metrics"]["mse"]["allowed"] is None
    assert form["references"][0]["metrics"]["cross_entropy"]["holds"] is False
    (row,) = csv.DictReader(io.StringIO(text_of(write_front_csv, [GOOD])))
    assert (row["cross_entropy"], row["cross_entropy_drop"], row["mse_drop"]) == ("0.4", "0.004", "0.5")


def test_one_point_shows_value_interval_limit_and_method():
    text = text_of(write_point, GOOD, width=120)
    assert "cross_entropy 0.4000, drop +0.0040 (+0.0030..+0.0050) of the 0.01 allowed, paired bootstrap\n" in text
    assert "mse           0.4000, drop +0.5000 (+0.4990..+0.5010), paired bootstrap\n" in text
    assert "cross_entropy +0.0500 (+0.0490..+0.0510), allowed 0.01, mse" in confirmation_text(GOOD.confirmation)
    assert full_point_json(GOOD)["confirmation"]["metrics"]["cross_entropy"]["holds"] is False


def test_trials_say_which_constraint_is_broken():
    record = CandidateRecord(
        id=1,
        study_id=1,
        trial=4,
        label="i8",
        key="k",
        policy=None,
        outcome=replace(CAST.measurement),
        owner=Owner.current(),
        started=LIMITED.created,
    )
    text = text_of(write_trials, [record], width=250)
    assert "breaks cross_entropy: +0.0500 (+0.0490..+0.0510), allowed 0.01" in text


def test_notebooks_show_metrics_and_constraints():
    page = front_html("digits", [GOOD, BASELINE], [CAST])
    assert page.count("<th>cross_entropy drop</th>") == 2
    assert page.count("<th>") == 2 * page.count("<td", 0, page.index("</tr>", page.index("<td")))
    assert "cross_entropy 2%rel, mse" in study_html(LIMITED, [GOOD], [])
    assert "constraints" not in study_html(make_study(), [make_point(1)], [])


def test_how_far_a_front_is_complete_counts_for_constraints_too():
    pruned = {"counts": StudyCounts(measured=3, pruned=2)}
    assert "twice the allowed one (as for every constraint)" in limit_of(replace(LIMITED, **pruned))
    assert "constraint" not in limit_of(make_study(constraints={"mse": None}, **pruned))


def test_studies_name_their_constraints():
    assert studies_json([LIMITED])["studies"][0]["constraints"] == {"cross_entropy": "2%rel", "mse": None}
