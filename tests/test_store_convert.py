import dataclasses
import itertools
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tests.factories import make_confirmation, make_latency, make_measurement, make_metric, make_policy, make_study
from tests.test_policy_json import policies
from tuner.errors import StoreError
from tuner.measurement import (
    Confirmation,
    Costs,
    Failure,
    FurtherMetric,
    Latency,
    Measurement,
    Memory,
    Quality,
    ShapeLatency,
)
from tuner.store import Owner, Store

OWNER = Owner(host="here", pid=1, started="today")
# SQLite has no negative zero.
numbers = st.floats(allow_nan=True, allow_infinity=True).map(lambda number: number + 0.0)
sizes = st.integers(0, 2**62)
latencies = st.builds(
    Latency,
    ratio=numbers,
    low=numbers,
    high=numbers,
    milliseconds=numbers,
    baseline_spread=numbers,
    pairs=st.integers(0, 1000),
    p95_ms=numbers,
    p99_ms=numbers,
    throughput=numbers,
    calls=st.integers(0, 1000),
    baseline=st.sampled_from(["resident", "alternate"]),
    contended=st.sampled_from(["", "2 of 2 CPUs were busy with other programs"]),
)
qualities = st.builds(
    Quality,
    value=numbers,
    drop=numbers,
    drop_low=numbers,
    drop_high=numbers,
    examples=st.integers(0, 10**6),
    method=st.sampled_from(["mcnemar", "paired bootstrap"]),
    fidelity=numbers,
)
# Kept as JSON, which has no infinity.
json_numbers = st.floats(allow_nan=True, allow_infinity=False)
further = st.dictionaries(
    st.sampled_from(["cross_entropy", "agreement"]),
    st.builds(
        FurtherMetric,
        value=json_numbers,
        drop=json_numbers,
        drop_low=json_numbers,
        drop_high=json_numbers,
        method=st.sampled_from(["mcnemar", "paired bootstrap"]),
        allowed=json_numbers,
    ),
)
seconds = st.floats(0, 1e6)
costs = st.builds(Costs, prepare_s=seconds, trace_s=seconds, compile_s=seconds, quality_s=seconds, latency_s=seconds)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
measurements = st.builds(
    Measurement,
    latency=latencies,
    quality=qualities,
    memory=st.builds(Memory, total_bytes=sizes, weight_bytes=sizes),
    costs=costs,
    effective=st.dictionaries(texts, texts, max_size=3),
    metrics=further,
)
failures = st.builds(Failure, cause=texts, message=texts, layer=st.none() | texts, costs=costs)
confirmations = st.builds(Confirmation, latency=latencies, quality=qualities, metrics=further)


def comparable(outcome):
    """Equal for equal outcomes, where NaN equals NaN."""
    if isinstance(outcome, Confirmation):
        return repr(dataclasses.replace(outcome, metrics=dict(outcome.metrics), shapes=dict(outcome.shapes)))
    if not isinstance(outcome, Measurement):
        return repr(outcome)
    plain = dataclasses.replace(outcome, effective={}, metrics=dict(outcome.metrics), shapes=dict(outcome.shapes))
    return repr(plain), dict(outcome.effective)


@pytest.fixture
def store():
    with Store.open() as store:
        yield store


names = (f"study {number}" for number in itertools.count())


def kept(store, outcome, confirmation=None, policy=None):
    """The candidate as it comes back out of the file."""
    study = store.create_study(make_study(next(names)))
    claimed = store.claim(study.id, key="k", policy=policy, label="a", trial=1, owner=OWNER)
    store.record(claimed, outcome)
    if confirmation is not None:
        store.confirm(claimed, confirmation)
    return store.find_candidate(study.id, "k")


in_one_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_one_file
@given(measurements | failures, st.none() | confirmations | failures)
def test_outcomes_come_back_as_they_were(store, outcome, confirmation):
    candidate = kept(store, outcome, confirmation)
    assert comparable(candidate.outcome) == comparable(outcome)
    assert comparable(candidate.confirmation) == comparable(confirmation)


@in_one_file
@given(policies())
def test_policies_come_back_as_they_were_with_the_program_of_their_study(store, policy):
    read = kept(store, make_measurement(), policy=policy).policy
    assert read == policy
    assert read.hash == policy.hash
    assert read.program == make_study().program
    assert read.provenance is None


def test_every_kind_of_call_comes_back(store):
    shapes = {
        "prefill": ShapeLatency(latency=make_latency(0.5), weight=1.0),
        "decode": ShapeLatency(latency=make_latency(0.9), weight=64.0),
    }
    candidate = kept(store, make_measurement(shapes=shapes), make_confirmation(shapes=shapes))
    assert dict(candidate.outcome.shapes) == dict(candidate.confirmation.shapes) == shapes
    assert dict(kept(store, make_measurement()).outcome.shapes) == {}


def test_constraints_of_a_study_come_back(store):
    constraints = {"cross_entropy": "2%rel", "agreement": None}
    study = store.create_study(make_study("limited", constraints=constraints))
    assert dict(study.constraints) == dict(store.find_study("limited").constraints) == constraints
    assert dict(store.create_study(make_study("free")).constraints) == {}


def test_what_breaks_a_constraint_is_never_on_the_stored_front(store):
    study = store.create_study(make_study("limited"))
    outcomes = [make_measurement(1.0), make_measurement(0.2, metrics={"agreement": make_metric(0.05, 0.01)})]
    outcomes.append(make_measurement(0.5, metrics={"agreement": make_metric(0.01, 0.01)}))
    for trial, outcome in enumerate(outcomes):
        store.record(
            store.claim(study.id, key=str(trial), policy=make_policy(), label="a", trial=trial, owner=OWNER), outcome
        )
    assert [c.trial for c in store.candidates(study.id) if c.on_front] == [2]


def test_numbers_from_numpy_are_numbers(store):
    latency = dataclasses.replace(make_latency(), ratio=np.float32(0.5), pairs=np.int64(7))
    outcome = dataclasses.replace(make_measurement(), latency=latency, costs=Costs(compile_s=np.float64(1.5)))
    read = kept(store, outcome).outcome
    assert (read.latency.ratio, read.latency.pairs, read.costs.compile_s) == (0.5, 7, 1.5)
    assert type(read.latency.ratio) is float


def test_records_cannot_be_changed(store):
    candidate = kept(store, make_measurement(effective={"a": "as requested"}), make_confirmation(), make_policy())
    with pytest.raises(dataclasses.FrozenInstanceError):
        candidate.label = "b"
    with pytest.raises(TypeError):
        candidate.outcome.effective["a"] = "b"


def test_times_are_kept_in_utc(store):
    elsewhere = datetime(2025, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    study = store.create_study(make_study(created=elsewhere))
    assert study.created == elsewhere
    assert store.find_study("digits").created == datetime(2025, 1, 2, 1, tzinfo=UTC)


def test_a_policy_that_cannot_be_read_is_named(store):
    kept(store, make_measurement(), policy=make_policy())
    with store.writing() as session:
        session.execute(text("""UPDATE tuner_candidate SET policy = '{"format": 9}'"""))
    with pytest.raises(StoreError, match=r"candidate 1 in precision\.db is of policy format 9, newer than"):
        store.candidates(1)
