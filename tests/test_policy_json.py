import copy
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import FORMATS, Precision, SearchSpaceError
from tests.factories import DEVICE, NAN, SIGNATURE, make_policy
from tuner.errors import PolicyError
from tuner.policy import Assignment, Policy, ProgramSignature
from tuner.policy_file import policy_schema, policy_to_text
from tuner.policy_json import policy_from_json, policy_to_json
from tuner.scales import CalibratedOn, LayerScales

SCHEMA = jsonschema.Draft202012Validator(policy_schema())


def texts_that_parse(candidates):
    for text in candidates:
        try:
            Precision.parse(text)
        except SearchSpaceError:
            continue
        yield text


PRECISIONS = ["original", *texts_that_parse(f"{w}/{a}/{c}" for w in FORMATS for a in FORMATS for c in FORMATS)]
names = st.text(min_size=1, max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
above_zero = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
layer_scales = st.builds(
    LayerScales,
    scale=st.lists(above_zero, max_size=3).map(tuple),
    zero_point=st.lists(st.integers(-128, 127), max_size=3).map(tuple),
    correction=st.lists(finite, max_size=3).map(tuple),
)


@st.composite
def policies(draw):
    layers = draw(st.lists(names, unique=True, max_size=5))
    pick = st.builds(
        lambda text, kernel: Assignment(precision=Precision.parse(text), kernel=kernel),
        st.sampled_from(PRECISIONS),
        st.sampled_from(["plain", "transposed", "two rows"]),
    )
    scaled = draw(st.lists(st.sampled_from(layers), unique=True)) if layers else []
    shapes = st.lists(st.integers(0, 4096), max_size=4).map(tuple)
    table = tuple((name, draw(st.sampled_from(["matmul", "conv"])), draw(shapes)) for name in layers)
    inputs = st.sampled_from(["", '{"tuple":[{"shape":[2],"dtype":"float32"}]}', '{"dict":{"a":null}}'])
    return Policy(
        assignments=tuple((name, draw(pick)) for name in layers),
        scales=tuple((name, draw(layer_scales)) for name in scaled),
        calibrated_on=CalibratedOn(examples=8, split="search", fingerprint="ab") if scaled else None,
        program=draw(st.none() | st.just(ProgramSignature(layers=table, inputs=draw(inputs)))),
        provenance=draw(st.none() | st.just({"device": DEVICE, "trial": 3})),
    )


@given(policies())
def test_what_is_written_is_read_back_whole(policy):
    document = json.loads(policy_to_text(policy))
    SCHEMA.validate(document)
    read = policy_from_json(document, "policy.json")
    assert read == policy
    assert read.hash == policy.hash
    assert read.calibrated_on == policy.calibrated_on
    assert document["format"] == (2 if policy.scales else 1)
    assert read.program == policy.program
    assert read.provenance == policy.provenance


def test_an_order_of_layers_is_kept():
    read = policy_from_json(policy_to_json(make_policy()), "policy.json")
    assert read.names == ("input", "dense_0", "dense_1")


def test_numbers_that_json_does_not_have_become_null():
    policy = make_policy(provenance={"measured_before": [NAN, {"a": float("inf")}, 1.5, "text"]})
    assert policy_to_json(policy)["provenance"] == {"measured_before": [None, {"a": None}, 1.5, "text"]}


DOCUMENT = {
    "format": 1,
    "layers": [
        {"name": "input", "kind": "input", "shape": [], "precision": "original", "kernel": "plain"},
        {"name": "dense_0", "kind": "matmul", "shape": [64, 32], "precision": "i8/i8/i32", "kernel": "plain"},
        {"name": "dense_1", "kind": "matmul", "shape": [32, 10], "precision": "bf16/bf16/f32"},
    ],
    "scales": {"dense_0": [0.5, 2]},
    "inputs": {"tuple": [{"shape": [8, 64], "dtype": "float32"}]},
    "provenance": {"study": "digits", "trial": 7, "device": DEVICE},
}


def changed(path, value):
    """DOCUMENT with the value at the path; the field is gone for DOCUMENT itself."""
    document = copy.deepcopy(DOCUMENT)
    if not path:
        return value
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    if value is DOCUMENT:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return document


def test_the_example_is_read():
    SCHEMA.validate(DOCUMENT)
    policy = policy_from_json(DOCUMENT, "policy.json")
    assert policy.program == SIGNATURE
    assert policy.scales == (("dense_0", LayerScales(scale=(0.5, 2.0))),)  # as format 1 wrote them
    assert str(policy["dense_1"]) == "bf16/bf16/f32"


AGAIN = "export it again with `tuner export`"
MISTAKES = [
    ((), [], f"policy.json: the whole is [] where an object belongs; {AGAIN}"),
    (("format",), DOCUMENT, f"policy.json: the policy has no field 'format'; {AGAIN}"),
    (
        ("format",),
        3,
        "policy.json is of policy format 3, newer than the 2 this version reads; upgrade jax-precision-tuner",
    ),
    (("format",), 0, f"policy.json is of policy format 0, which never existed; {AGAIN}"),
    (("format",), "1", f"policy.json: field 'format' of the policy is \"1\" where a whole number belongs; {AGAIN}"),
    (("format",), True, f"policy.json: field 'format' of the policy is true where a whole number belongs; {AGAIN}"),
    (("layers",), DOCUMENT, f"policy.json: the policy has no field 'layers'; {AGAIN}"),
    (("layers",), {}, f"policy.json: field 'layers' of the policy is {{}} where a list belongs; {AGAIN}"),
    (("layers", 1), "dense_0", f'policy.json: layer 2 is "dense_0" where an object belongs; {AGAIN}'),
    (("layers", 1, "name"), DOCUMENT, f"policy.json: layer 2 has no field 'name'; {AGAIN}"),
    (("layers", 1, "name"), "", f"policy.json: layer 2 has an empty name; {AGAIN}"),
    (("layers", 1, "precision"), DOCUMENT, f"policy.json: layer 'dense_0' has no field 'precision'; {AGAIN}"),
    (
        ("layers", 1, "precision"),
        8,
        f"policy.json: field 'precision' of layer 'dense_0' is 8 where a text belongs; {AGAIN}",
    ),
    (
        ("layers", 1, "kernel"),
        None,
        f"policy.json: field 'kernel' of layer 'dense_0' is null where a text belongs; {AGAIN}",
    ),
    (("layers", 1, "shape"), DOCUMENT, f"policy.json: layer 'dense_0' has no field 'shape'; {AGAIN}"),
    (("layers", 1, "kind"), DOCUMENT, f"policy.json: layer 'dense_0' has no field 'kind'; {AGAIN}"),
    (
        ("layers", 1, "shape"),
        [64, -1],
        f"policy.json: layer 'dense_0' has shape [64, -1], not a list of sizes; {AGAIN}",
    ),
    (
        ("layers", 1, "percision"),
        "i8",
        "policy.json: layer 'dense_0' has an unknown field 'percision'; "
        "the fields are name, kind, shape, precision, kernel",
    ),
    (
        ("scale",),
        {},
        "policy.json: the policy has an unknown field 'scale'; "
        "the fields are format, layers, scales, calibration, fusions, inputs, split_scans, provenance",
    ),
    (("scales",), [], f"policy.json: field 'scales' is [] where an object belongs; {AGAIN}"),
    (
        ("scales", "dense_0"),
        1.0,
        f"policy.json: the object of scales of layer 'dense_0' is 1.0 where an object belongs; {AGAIN}",
    ),
    (
        ("scales", "dense_0"),
        {"scales": [1.0]},
        "policy.json: the object of scales of layer 'dense_0' has an unknown field 'scales'; "
        "the fields are scale, zero_point, correction",
    ),
    (
        ("scales", "dense_0"),
        {"scale": [0.0]},
        f"policy.json: a scale of layer 'dense_0' is 0, not above zero; {AGAIN}",
    ),
    (
        ("scales", "dense_0"),
        {"scale": [1.0], "zero_point": [200]},
        f"policy.json: a zero point of layer 'dense_0' is 200, no whole number from -128 to 127; {AGAIN}",
    ),
    (
        ("calibration",),
        {"examples": 8},
        f"policy.json: the calibration has no field 'split'; {AGAIN}",
    ),
    (
        ("scales", "dense_0"),
        [1.0, "2"],
        f"policy.json: a scale of layer 'dense_0' is \"2\" where a number belongs; {AGAIN}",
    ),
    (("provenance",), [], f"policy.json: field 'provenance' is [] where an object belongs; {AGAIN}"),
    (
        ("provenance", "trial"),
        "7",
        f"policy.json: field 'trial' of the provenance is \"7\" where a whole number belongs; {AGAIN}",
    ),
    (
        ("provenance", "device", "threads"),
        2,
        f"policy.json: field 'threads' of the device is 2 where a text belongs; {AGAIN}",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), MISTAKES)
def test_a_mistake_is_named(path, value, message):
    document = changed(path, value)
    with pytest.raises(PolicyError) as caught:
        policy_from_json(document, "policy.json")
    assert str(caught.value) == message
    assert not SCHEMA.is_valid(document), "the published schema would let it pass"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("layers", 2, "name"), "dense_0", "policy.json has layer 'dense_0' twice; remove one of the two lines"),
        (
            ("scales", "dense_9"),
            [1],
            f"policy.json has scales for layer 'dense_9', which it does not list; {AGAIN}",
        ),
        (("scales", "dense_0"), [10**400], "a scale of layer 'dense_0' is 1000"),
        (
            ("inputs",),
            DOCUMENT,
            f"policy.json has no field 'inputs', which belongs to the kinds of its layers; {AGAIN}",
        ),
        (
            ("layers", 1, "precision"),
            "i9/i8/i32",
            "policy.json: layer 'dense_0': precision 'i9/i8/i32': unknown format 'i9'",
        ),
        (("layers", 1, "precision"), "", "policy.json: layer 'dense_0': unknown precision ''"),
    ],
)
def test_a_mistake_beyond_the_schema_is_named_too(path, value, message):
    with pytest.raises(PolicyError) as caught:
        policy_from_json(changed(path, value), "policy.json")
    assert message in str(caught.value)


def test_a_policy_made_by_hand_needs_names_and_precisions_only():
    document = {"format": 1, "layers": [{"name": "a", "precision": "w8a8"}]}
    SCHEMA.validate(document)
    policy = policy_from_json(document, "mine.json")
    assert policy == Policy((("a", Assignment(precision=Precision.parse("i8/i8/i32"))),))
    assert policy.program is None


PATHS = [
    ("format",),
    ("layers",),
    ("layers", 0),
    ("layers", 1, "name"),
    ("layers", 1, "kind"),
    ("layers", 1, "shape"),
    ("layers", 1, "precision"),
    ("layers", 1, "kernel"),
    ("scales",),
    ("scales", "dense_0"),
    ("calibration",),
    ("provenance",),
    ("provenance", "study"),
    ("provenance", "trial"),
    ("provenance", "device"),
    ("provenance", "measured"),
    ("provenance", "confirmed"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(PATHS), json_values)
def test_what_loads_is_valid_by_the_published_schema(path, value):
    document = changed(path, value)
    try:
        policy_from_json(document, "policy.json")
    except PolicyError:
        return
    SCHEMA.validate(document)
