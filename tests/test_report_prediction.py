import io

from tests.factories import make_policy, make_quality
from tuner.effect import Prediction
from tuner.report.prediction import prediction_json, prediction_text, write_prediction

TOLD = Prediction(latency=0.4321, drop=0.001, memory=400.0, fidelity=0.0123)


def test_what_is_scored_counts_more_than_what_is_predicted():
    assert prediction_text(TOLD, None, 1000) == (
        "Predicted: latency 0.432 of the baseline, drop +0.0010, memory 400 B (0.40 of the baseline), relative error 0.012."
    )
    scored = make_quality(0.002)
    assert f"on {scored.examples} search examples" in prediction_text(TOLD, scored, 1000)


def test_what_is_not_known_is_not_said():
    assert prediction_text(Prediction(latency=0.5), None, 1000) == "Predicted: latency 0.500 of the baseline."


def test_layers_come_first():
    file = io.StringIO()
    write_prediction(make_policy("original", "i8/i8/i32", "original"), TOLD, None, 1000, file)
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["layer", "precision", "kernel"]
    assert lines[2].split() == ["dense_0", "i8/i8/i32", "plain"]
    assert lines[-1].startswith("Predicted: ")


def test_as_json():
    form = prediction_json(make_policy(), TOLD, None)
    assert (form["format"], form["latency"], form["drop_interval"]) == (1, 0.4321, None)
    assert form["layers"][0] == {"name": "input", "precision": "original", "kernel": "plain"}
