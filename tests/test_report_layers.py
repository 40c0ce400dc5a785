import io
import json

from search_spaces import Precision
from tests.factories import make_layers
from tuner.report.layers import layers_json, write_layers

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


def test_json_is_as_published():
    form = json.loads(json.dumps(layers_json(make_layers(), CHOICES)))
    assert form["format"] == 1
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
    }
