import io
import json

from search_spaces import Precision
from tests.factories import make_layers
from tuner.report.layers import layers_json, refusal_notes, unavailable_notes, write_layers

CHOICES = {
    "input": tuple(map(Precision.parse, ("original", "bf16"))),
    "dense_0": tuple(map(Precision.parse, ("original", "f32/f32/f32", "i8/i8/i32"))),
    "dense_1": (Precision.parse("original"),),
}


def test_golden():
    file = io.StringIO()
    write_layers(make_layers(), CHOICES, file)
    assert file.getvalue() == (
        "layer    kind    shape  params  flops  runs  precisions\n"
        "input    input   8x64        -      -     1  bf16/bf16/bf16\n"
        "dense_0  matmul  64x32   2.05k   1.1T     1  f32/f32/f32, i8/i8/i32\n"
        "dense_1  matmul  32x10     320  5.12k     7  original only: inside scan\n"
    )


def test_a_searchable_layer_without_a_choice_says_that_the_space_is_why():
    file = io.StringIO()
    write_layers(make_layers()[:1], {}, file)
    assert "original only: not in this space" in file.getvalue()


def test_a_layer_whose_precisions_cannot_run_says_why():
    file = io.StringIO()
    write_layers(make_layers()[:1], {}, file, {"input": {Precision.parse("i4/bf16/f32"): "no room"}})
    assert "original only: i4/bf16/f32: no room" in file.getvalue()


def test_what_no_layer_can_run_yet_is_said_once():
    tf32, f32 = Precision.parse("tf32/tf32/f32"), Precision.parse("f32")
    (sentence,) = unavailable_notes({"a": {tf32: "whatever"}, "b": {tf32: "whatever", f32: "f32 already"}})
    assert sentence == (
        "tf32/tf32/f32 is left out of the space: not available yet: tf32 arrives with the accelerator kernels"
    )


def test_json_is_as_published():
    form = json.loads(json.dumps(layers_json(make_layers(), CHOICES, ["kept"])))
    assert (form["format"], form["notes"]) == (1, ["kept"])
    assert form["layers"][2] == {
        "name": "dense_1",
        "kind": "matmul",
        "shape": [32, 10],
        "params": 320,
        "flops": 5120,
        "executions": 7,
        "searchable": False,
        "reason": "inside scan",
        "precisions": ["original"],
        "refused": {},
    }


def test_what_this_device_cannot_run_is_said_once_for_all_kinds():
    refused = {"matmul": {"f16/f16/f32": "no such type"}, "dot": {"f16/f16/f32": "no such type"}}
    assert refusal_notes(refused) == [
        "f16/f16/f32 is left out of matmul and dot layers: this device cannot run it: no such type"
    ]
    form = layers_json(make_layers(), CHOICES, refused={"dense_0": {Precision.parse("f16/f16/f32"): "no such type"}})
    assert form["layers"][1]["refused"] == {"f16/f16/f32": "no such type"}
