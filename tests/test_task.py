import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import InputError
from tuner.metrics import METRICS, Metric
from tuner.task import Task, check_task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 8)).astype(np.float32)
Y = RNG.integers(0, 3, 100)
PARAMS = {"dense": {"kernel": jnp.ones((8, 3)), "steps": jnp.arange(3)}}
COUNTS = Metric(name="counts", score=lambda outputs, labels: {"hit": outputs.sum()}, aggregate=lambda s: s["hit"].sum())


def apply(params, x):
    return x @ params["dense"]["kernel"]


def make(**changes):
    options = {"name": "toy", "apply": apply, "params": PARAMS, "inputs": X, "labels": Y, "batch_size": 32}
    return Task(**(options | changes))


def test_the_examples_are_split_by_share_and_calibration_comes_from_the_search_split():
    task = make(holdout=0.3)
    check_task(task)
    assert (len(task.search), len(task.holdout)) == (70, 30)
    held = {row.tobytes() for row in task.holdout.inputs[0]}
    assert held.isdisjoint(row.tobytes() for row in task.search.inputs[0])
    assert held.isdisjoint(row.tobytes() for row in task.calibration.inputs[0])
    assert task.calibration.labels is None
    assert repr(task) == "Task('toy', 70 search + 30 holdout examples, batch 32, top1)"


def test_inputs_and_labels_stay_together():
    task = make(apply=lambda params, x: x[:, None] * params["dense"]["kernel"][:1], inputs=Y.astype(np.float32))
    for split in (task.search, task.holdout):
        np.testing.assert_array_equal(split.inputs[0], split.labels)


def test_explicit_holdout_and_calibration_are_taken_as_they_are():
    task = make(inputs=X[:60], labels=Y[:60], holdout=(X[60:80], Y[60:80]), calibration=X[80:])
    assert (len(task.search), len(task.holdout), len(task.calibration)) == (60, 20, 20)
    np.testing.assert_array_equal(task.holdout.labels, Y[60:80])
    again = make(inputs=X[:60], labels=Y[:60], holdout=iter([(X[60:80], Y[60:80])]), calibration=iter([X[80:]]))
    assert again.fingerprints() == task.fingerprints()


@pytest.mark.parametrize("metric", [name for name in METRICS if name not in ("top5", "mse", "psnr")])
def test_every_metric_of_class_labels_reads_a_classifier(metric):
    check_task(make(metric=metric))


@pytest.mark.parametrize("metric", ["mse", "psnr"])
def test_every_metric_of_numbers_reads_a_regression(metric):
    check_task(make(metric=metric, labels=X[:, :3]))


@pytest.mark.parametrize("metric", ["agreement", "cosine"])
def test_what_compares_with_the_program_as_written_needs_no_labels(metric):
    task = make(metric=metric, labels=None)
    check_task(task)
    assert task.search.labels is None


def test_constraints_are_further_metrics():
    task = make(constraints={"cross_entropy": "2%rel", "agreement": None})
    check_task(task)
    assert [str(constraint) for constraint in task.constraints] == ["cross_entropy 2%rel", "agreement"]
    assert make().constraints == ()
    with pytest.raises(InputError, match="metric 'mse' compares outputs with labels of the same shape"):
        check_task(make(constraints={"mse": 0.1}))
    with pytest.raises(InputError, match="constraints name 'top1', which is the metric that is optimized"):
        make(constraints={"top1": 0.1})


def test_several_inputs_pytrees_and_tasks_without_labels():
    task = make(
        apply=lambda params, x, mask: apply(params, x["x"]) * mask[:, None],
        inputs=({"x": X}, np.ones(100, np.float32)),
        labels=None,
        metric=lambda outputs, labels: outputs.sum(axis=1),
    )
    check_task(task)
    assert len(task.search.inputs) == 2


def test_a_task_does_not_change_but_copies_do():
    task = make()
    with pytest.raises(AttributeError):
        task.name = "other"
    assert task.with_batch_size(8).batch_size == 8
    assert task.with_reference("a:b").reference == "a:b"
    assert (task.batch_size, task.reference) == (32, None)
    with pytest.raises(InputError, match="batch_size=0"):
        task.with_batch_size(0)


def test_scans_are_listed_whole_unless_asked_for():
    assert not make().split_scans
    assert make(split_scans=True).split_scans
    assert make().with_split_scans().split_scans
    with pytest.raises(
        InputError, match="split_scans='yes' is neither True nor False; give True to let each iteration"
    ):
        make(split_scans="yes")


def test_one_changed_value_changes_one_fingerprint():
    def changed(**options):
        before, after = make().fingerprints(), make(**options).fingerprints()
        return [name for name in before if before[name] != after[name]]

    nudged = X.copy()
    nudged[99, 7] += 1e-6
    kernel = PARAMS["dense"]["kernel"].at[7, 2].add(1e-6)
    assert changed() == []
    assert changed(params={"dense": {"kernel": kernel, "steps": jnp.arange(3)}}) == ["parameters"]
    assert changed(inputs=nudged) == ["data"]
    assert changed(labels=np.where(np.arange(100) == 5, (Y + 1) % 3, Y)) == ["data"]
    assert changed(holdout=0.4) == ["data"]
    assert changed(calibration=X[:4] + 1) == ["data"]
    assert changed(metric="cross_entropy") == ["metric"]
    assert changed(constraints={"agreement": 0.01}) == ["metric"]
    assert changed(batch_size=33) == ["batch_size"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, r"name=' ' of the task is empty; give it a short name"),
        ({"apply": None}, r"apply=None is not callable; give a function"),
        ({"batch_size": 0}, r"batch_size=0 is not a whole number of at least 1"),
        ({"batch_size": 2.5}, r"batch_size=2.5 is not a whole number"),
        ({"params": {"a": jnp.arange(3)}}, r"params hold no floating array \(int32\)"),
        ({"params": {}}, r"params hold no floating array \(no leaf at all\)"),
        ({"inputs": X[:0], "labels": Y[:0]}, r"inputs is empty"),
        ({"labels": Y[:7]}, r"labels of inputs count 7 for 100 examples; give one label for each"),
        ({"inputs": X * np.nan}, r"inputs holds nan in example 0 \(800 NaN or infinite in all\); remove"),
        ({"holdout": 1.0}, r"holdout=1.0 is not a share between 0 and 1"),
        ({"holdout": 0}, r"holdout=0 is not a share between 0 and 1"),
        ({"holdout": 0.001}, r"holdout=0.001 of 100 examples leaves 100 to search on and 0 held out"),
        ({"holdout": "half"}, r"holdout is a str; give a share"),
        ({"holdout": (X[:, :4], Y)}, r"an example of holdout is float32\[4\] with labels .* where .* float32\[8\]"),
        ({"holdout": (X, Y)}, r"100 of the 100 examples of holdout are also in inputs; remove them"),
        ({"calibration": X}, r"50 of the 100 examples of calibration are also in holdout; remove them"),
        ({"calibration": X.astype(np.float16)}, r"calibration is float16\[8\] where one of inputs is float32\[8\]"),
        ({"metric": "accuracy"}, r"unknown metric 'accuracy'; use one of top1, top5, cross_entropy,"),
    ],
)
def test_what_cannot_be_used_is_refused_at_construction(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"apply": lambda params: params}, r"apply of task 'toy' fails .*\(32 x float32\[8\]\): TypeError: .* 1 posit"),
        ({"apply": lambda params, x: x @ jnp.ones((3, 3))}, r"TypeError: dot_general .*; make apply\(params"),
        ({"apply": lambda params, x: x if x.sum() > 0 else -x}, r"TracerBoolConversionError: Attempted boolean"),
        ({"apply": lambda params, x: (x, x)}, r"metric 'top1' reads one array of outputs, got a tuple"),
        ({"labels": Y + 1}, r"labels of the search split run from 1 to 3, and the outputs have 3 classes"),
        ({"labels": None}, r"'top1' compares outputs with labels, and labels is None; give labels, or use agreement"),
        ({"metric": "top3"}, r"metric 'top3' is 1 for every example of outputs with 3 classes"),
        ({"metric": COUNTS}, r"metric 'counts' gives \{hit: float32\[\]\} for a batch of 32; .* one score per"),
        ({"metric": "perplexity", "labels": Y + 7}, r"labels of the search split run from 7 to 9, .* have 3 classes"),
        ({"metric": lambda outputs: outputs}, r"cannot read the outputs of task 'toy' \(float32\[32,3\]\): TypeError"),
        ({"metric": lambda o, y: (o[:, 0] == y).mean()}, r"gives float32\[\] for a batch of 32; .* one score per"),
        ({"metric": lambda o, y: np.asarray(o)[:, 0]}, r"TracerArrayConversionError.*written with jax.numpy"),
    ],
)
def test_what_cannot_be_traced_is_refused_by_check_task(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        check_task(make(**changes))
    assert "\n" not in str(caught.value)


def test_importing_the_task_module_loads_no_jax():
    code = "import tuner.task, tuner.task_reference, tuner.data, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
