import math
from datetime import UTC, datetime

import pytest

from tests.factories import make_measurement, make_policy
from tuner.effect import Prediction
from tuner.measurement import SLOW, Failure
from tuner.search.accuracy import accuracy_note, accuracy_of
from tuner.store import CandidateRecord, Owner


def record(trial, predicted, outcome, label="trial"):
    return CandidateRecord(
        id=trial,
        study_id=1,
        trial=trial,
        label=label,
        key=str(trial),
        policy=make_policy(),
        outcome=outcome,
        owner=Owner.current(),
        started=datetime.now(UTC),
        predicted=predicted,
    )


def test_the_order_and_the_size_of_the_errors():
    found = accuracy_of([0.5, 0.6, 0.9, 0.8], [0.5, 0.5, 1.0, 0.8])
    assert found.spearman == pytest.approx(0.9487, abs=1e-4)  # as scipy.stats.spearmanr says
    assert found.median_error == pytest.approx(0.05)
    assert accuracy_of([1, 2, 3], [3, 2, 1]).spearman == pytest.approx(-1.0)
    assert math.isnan(accuracy_of([1.0, 1.0, 1.0], [1, 2, 3]).spearman)
    assert accuracy_of([1.0, 2.0], [1.0, 2.0]) is None


def test_the_note_is_about_what_is_no_slower_where_there_is_enough_of_it():
    records = [record(n, Prediction(latency=n / 10), make_measurement(n / 10)) for n in range(3, 8)]
    records += [record(20, Prediction(latency=0.1), make_measurement(5.0)), record(21, None, make_measurement(0.5))]
    records.append(record(22, Prediction(latency=1.0), Failure(cause=SLOW, message="slow")))
    assert accuracy_note(records) == (
        "Predicted before it was measured: latency with Spearman 1.00, median error 0.0%, of 5 policies no slower than "
        "the baseline."
    )
    assert accuracy_note(records[:1]) is None
    slow = [record(n, Prediction(latency=n), make_measurement(float(n))) for n in (2, 3, 4)]
    assert accuracy_note(slow).endswith("of 3 policies.")
