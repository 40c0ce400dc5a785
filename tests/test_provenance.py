import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

from tests.factories import (
    DEVICE,
    NAN,
    SIGNATURE,
    make_confirmation,
    make_latency,
    make_measurement,
    make_metric,
    make_policy,
    make_study,
)
from tuner.errors import PolicyError
from tuner.measurement import Failure, FurtherMetric, Latency, Memory, Quality, ShapeLatency
from tuner.policy_file import load_policy, policy_schema, policy_to_text
from tuner.provenance import FIELDS, recorded_confirmation, recorded_measurement, with_provenance
from tuner.store import CandidateRecord, Owner

STUDY = make_study(id=3, constraints={"cross_entropy": "2%rel", "mse": None})
METRICS = {"cross_entropy": make_metric(0.004, 0.008), "mse": make_metric(0.1, NAN)}


def make_candidate(**kwargs):
    fields = {
        "id": 12,
        "study_id": 3,
        "trial": 7,
        "label": "trial 7",
        "key": "key",
        "policy": make_policy("bf16", program=None),
        "outcome": make_measurement(0.4, 0.003, effective={"dense_0": "as requested"}, metrics=METRICS),
        "confirmation": make_confirmation(0.41, 0.004, metrics={"cross_entropy": make_metric(0.005, 0.008)}),
        "owner": Owner.current(),
        "started": STUDY.created,
    }
    return CandidateRecord(**fields | kwargs)


def test_an_exported_policy_says_where_it_comes_from_and_what_was_measured():
    candidate = make_candidate()
    policy = with_provenance(STUDY, candidate)
    assert policy == candidate.policy
    assert policy.program == SIGNATURE
    policy.save("policy.json")
    loaded = load_policy("policy.json")
    assert loaded.provenance["study"] == "digits"
    assert loaded.provenance["trial"] == 7
    assert loaded.provenance["device"] == DEVICE
    assert loaded.provenance["constraints"] == {"cross_entropy": "2%rel", "mse": None}
    read = recorded_measurement(loaded)
    assert repr(dict(read.metrics)) == repr(METRICS)
    assert dataclasses.replace(read, costs=candidate.outcome.costs, metrics=METRICS) == candidate.outcome
    assert recorded_confirmation(loaded) == candidate.confirmation


def test_what_is_written_is_valid_and_has_every_field_that_the_schema_knows():
    document = json.loads(policy_to_text(with_provenance(STUDY, make_candidate())))
    jsonschema.validate(document, policy_schema())
    assert set(document["provenance"]) == set(FIELDS)
    schema = policy_schema()["$defs"]
    assert set(schema["provenance"]["properties"]) == set(FIELDS)
    one = schema["numbers"]["properties"]["metrics"]["additionalProperties"]
    names = [field.name for field in dataclasses.fields(FurtherMetric)]
    assert one["required"] == list(one["properties"]) == names
    for part, cls in (("latency", Latency), ("quality", Quality), ("memory", Memory)):
        fields = dataclasses.fields(cls)
        required = [field.name for field in fields if field.default is dataclasses.MISSING]
        described = schema["latency"] if part == "latency" else schema["numbers"]["properties"][part]
        assert described["required"] == required
        assert list(described["properties"]) == [field.name for field in fields]


def test_every_kind_of_call_is_written_and_read_back():
    shapes = {
        "prefill": ShapeLatency(latency=make_latency(0.5), weight=1),
        "decode": ShapeLatency(latency=make_latency(0.9), weight=64.5),
    }
    policy = with_provenance(
        STUDY,
        make_candidate(outcome=make_measurement(0.4, shapes=shapes), confirmation=make_confirmation(shapes=shapes)),
    )
    jsonschema.validate(json.loads(policy_to_text(policy)), policy_schema())
    policy.save("policy.json")
    loaded = load_policy("policy.json")
    assert dict(recorded_measurement(loaded).shapes) == dict(recorded_confirmation(loaded).shapes) == shapes


def test_a_file_of_an_older_version_lacks_what_was_not_measured_then():
    document = json.loads(policy_to_text(with_provenance(STUDY, make_candidate())))
    for field in ("p95_ms", "p99_ms", "throughput", "calls", "baseline", "contended"):
        del document["provenance"]["measured"]["latency"][field]
    jsonschema.validate(document, policy_schema())
    Path("policy.json").write_text(json.dumps(document))
    assert recorded_measurement(load_policy("policy.json")).latency == make_measurement(0.4).latency


def test_a_number_that_was_nan_is_nan_again():
    measurement = make_measurement()
    measurement = dataclasses.replace(measurement, quality=dataclasses.replace(measurement.quality, fidelity=NAN))
    policy = with_provenance(STUDY, make_candidate(outcome=measurement))
    policy.save("policy.json")
    jsonschema.validate(json.loads(policy_to_text(policy)), policy_schema())
    fidelity = recorded_measurement(load_policy("policy.json")).quality.fidelity
    assert fidelity != fidelity


@pytest.mark.parametrize("confirmation", [None, Failure(cause="error", message="")])
def test_without_a_confirmation_it_says_so(confirmation):
    policy = with_provenance(STUDY, make_candidate(confirmation=confirmation))
    assert policy.provenance["confirmed"] is None
    assert recorded_confirmation(policy) is None


def test_a_policy_made_by_hand_has_no_numbers():
    assert recorded_measurement(make_policy()) is None
    assert recorded_confirmation(make_policy()) is None


def test_what_cannot_be_exported_is_named():
    with pytest.raises(PolicyError, match=r"trial -1 \(astype\) is a reference point without a policy; choose another"):
        with_provenance(STUDY, make_candidate(policy=None, trial=-1, label="astype"))
    with pytest.raises(PolicyError, match=r"trial 7 \(trial 7\) was not measured; choose another point"):
        with_provenance(STUDY, make_candidate(outcome=None))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("measured",), 3, "the measurement is 3 where an object belongs"),
        (("measured", "latency"), None, "field 'latency' of the measurement is null where an object belongs"),
        (("measured", "latency", "ratio"), "fast", "field 'ratio' of latency of the measurement is \"fast\""),
        (("measured", "quality", "examples"), 1.5, "field 'examples' of quality of the measurement is 1.5"),
        (("measured", "memory"), {}, "memory of the measurement has no field 'total_bytes'"),
        (("measured", "effective"), {"a": 1}, "the effective precision of layer 'a' is 1 where a text belongs"),
        (("measured", "shapes"), {"one": 3}, "the shape 'one' is 3 where an object belongs"),
        (("measured", "shapes"), {"one": {"latency": {}}}, "the shape 'one' has no field 'weight'"),
        (("measured", "shapes"), {"one": {"weight": 1}}, "the shape 'one' has no field 'latency'"),
        (("confirmed", "quality"), {}, "quality of the confirmation has no field 'value'"),
    ],
)
def test_a_mistake_in_the_numbers_is_named(tmp_path, path, value, message):
    document = json.loads(policy_to_text(with_provenance(STUDY, make_candidate())))
    holder = document["provenance"]
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    (tmp_path / "policy.json").write_text(json.dumps(document))
    with pytest.raises(PolicyError) as caught:
        load_policy("policy.json")
    assert str(caught.value).startswith(f"policy.json: {message}")
    assert not jsonschema.Draft202012Validator(policy_schema()).is_valid(document)


def test_further_facts_are_kept():
    document = json.loads(policy_to_text(with_provenance(STUDY, make_candidate())))
    document["provenance"]["note"] = "for the demo"
    jsonschema.validate(document, policy_schema())
