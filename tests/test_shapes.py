import numpy as np
import pytest

import tuner
from tuner.capturing import capture_shapes, capture_task
from tuner.errors import InputError
from tuner.shapes import Shape, read_shapes, weights_text
from tuner.task import Task

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(40, 6, 8)).astype(np.float32)
PARAMS = {"w": RNG.normal(size=(8, 4)).astype(np.float32), "v": RNG.normal(size=(4, 3)).astype(np.float32)}


def apply(params, x):
    if x.shape[1] > 7:  # other layers for long inputs
        return x.mean(1) @ params["w"]
    return (x @ params["w"]).mean(1) @ params["v"]


def make_task(shapes=None, **settings):
    labels = np.arange(40) % 3
    fields = {"name": "seq", "apply": apply, "params": PARAMS, "inputs": INPUTS, "labels": labels, "batch_size": 8}
    return Task(**fields | settings, shapes=shapes)


def test_a_shape_is_examples_of_the_search_split_or_inputs_of_its_own():
    assert tuner.Shape is Shape
    task = make_task({"batch": Shape(batch_size=8), "one": Shape(inputs=INPUTS[:1, :1], weight=64)})
    (batch,), (one,) = (shape.call(task.search) for shape in task.shapes.values())
    np.testing.assert_array_equal(batch, task.search.inputs[0][:8])
    assert one.shape == (1, 1, 8)
    assert weights_text(task.shapes) == "1 x batch + 64 x one"
    assert repr(task.shapes["one"]) == "Shape(inputs=(float32[1,1,8],), weight=64)"
    assert repr(task.shapes["batch"]) == "Shape(batch_size=8, weight=1)"


def test_a_task_without_shapes_keeps_the_fingerprints_it_always_had():
    assert set(make_task().fingerprints()) == {"parameters", "data", "metric", "batch_size"}
    assert not make_task().shapes


@pytest.mark.parametrize(
    "other",
    [
        {"one": Shape(inputs=INPUTS[:1, :1], weight=2)},
        {"one": Shape(inputs=INPUTS[1:2, :1])},
        {"two": Shape(inputs=INPUTS[:1, :1])},
        {"one": Shape(batch_size=1)},
    ],
)
def test_whatever_changes_in_a_shape_changes_its_fingerprint(other):
    known = make_task({"one": Shape(inputs=INPUTS[:1, :1])}).fingerprints()["input shapes"]
    assert make_task(other).fingerprints()["input shapes"] != known
    assert make_task({"one": Shape(inputs=INPUTS[:1, :1])}).fingerprints()["input shapes"] == known


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"shapes=\{\} is no mapping of names to shapes; give one such as"),
        ([Shape(batch_size=1)], r"shapes=\[Shape\(batch_size=1, weight=1\)\] is no mapping of names to shapes"),
        ({"": Shape(batch_size=1)}, r"the shape name '' is empty or no text"),
        ({"one": 1}, r"shape 'one' is a int; give tuner.Shape\(batch_size=\.\.\., weight=\.\.\.\)"),
        ({"one": Shape()}, r"shape 'one' has neither batch_size nor inputs; give one of them"),
        ({"one": Shape(batch_size=1, inputs=INPUTS)}, r"shape 'one' has both batch_size and inputs"),
        ({"one": Shape(batch_size=0)}, r"shape 'one' has batch_size=0; give a whole number of at least 1"),
        ({"one": Shape(batch_size=1, weight=0)}, r"shape 'one' has weight=0; give a number above 0"),
        ({"one": Shape(batch_size=1, weight=float("nan"))}, r"shape 'one' has weight=nan"),
        ({"one": Shape(inputs="text")}, r"inputs of shape 'one' is a str, not an array"),
    ],
)
def test_a_shape_that_cannot_be_used_is_named(shapes, message):
    with pytest.raises(InputError, match=message):
        read_shapes(shapes)


def test_another_batch_size_would_not_change_what_is_timed_and_is_refused():
    task = make_task({"one": Shape(batch_size=1)})
    assert task.with_batch_size(8).batch_size == 8
    with pytest.raises(InputError, match=r"task 'seq' is timed with calls of its own \(one\).* leave it at 8"):
        task.with_batch_size(4)


def test_each_shape_has_a_program_with_the_same_layers():
    task = make_task({"batch": Shape(batch_size=8), "one": Shape(inputs=INPUTS[:1, :1], weight=64)})
    program = capture_task(task)
    (weight, same), (other_weight, one) = capture_shapes(task, program)
    assert (weight, other_weight) == (1, 64)
    assert same is program
    assert [layer.name for layer in one.layers] == [layer.name for layer in program.layers]
    assert one.input_avals[0].shape == (1, 1, 8)
    assert capture_shapes(make_task(), program) == ()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((1, 9, 8), np.float32), r"shape 'odd' of task 'seq' leads to other layers .*lacks 'v'"),
        (np.zeros((1, 1, 5), np.float32), r"shape 'odd' of task 'seq': JAX cannot trace 'apply' on inputs"),
        ({"x": np.zeros((1, 1, 8), np.float32)}, r"shape 'odd' of task 'seq'"),
    ],
)
def test_a_shape_that_leads_elsewhere_is_refused(inputs, message):
    task = make_task({"odd": Shape(inputs=inputs)})
    with pytest.raises(InputError, match=message):
        capture_shapes(task, capture_task(task))


def test_inputs_of_another_structure_are_refused():
    def first(params, *inputs):
        return apply(params, inputs[0])

    task = make_task({"two": Shape(inputs=(INPUTS[:1], INPUTS[:1]))}, apply=first)
    with pytest.raises(InputError, match=r"shape 'two' of task 'seq' leads to other layers"):
        capture_shapes(task, capture_task(task))


def test_parameters_that_no_scored_batch_reads_are_refused_before_anything_is_measured():
    def with_bias(params, x):
        return apply(params, x) + (params["bias"] if x.shape[1] == 1 else 0)

    task = make_task(
        {"one": Shape(inputs=INPUTS[:1, :1])}, apply=with_bias, params=PARAMS | {"bias": np.ones(3, np.float32)}
    )
    with pytest.raises(InputError, match=r"shape 'one' of task 'seq' reads parameters .* do not: bias; score batches"):
        capture_shapes(task, capture_task(task))
