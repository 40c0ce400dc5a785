"""Task: what is tuned. A function, its parameters, evaluation data and a metric, checked and split."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.constraints import Constraint, Constraints, read_constraints
from tuner.data import (
    PyTree,
    Split,
    count_shared,
    describe,
    is_floating,
    is_iterable_of_batches,
    layout,
    read_examples,
    shuffled,
    split_examples,
)
from tuner.errors import InputError, error_line
from tuner.fingerprint import hash_text, hash_tree
from tuner.metrics import BASELINE, Metric, Score, find_metric
from tuner.scores import reads_class_numbers
from tuner.shapes import Shapes, read_shapes, shapes_fingerprint
from tuner.trace_problems import trace_problem

# The slice of the search split that calibrates, unless calibration examples are given.
CALIBRATION_EXAMPLES = 256
# Data sets repeat themselves a little; more than this share in two splits is a mistake.
NATURAL_DUPLICATES = 0.01


@dataclass(frozen=True, init=False, eq=False)
class Task:
    """A function with parameters, the examples it is judged on, and how.

    `Task(...)` takes a plain function and its parameters; `Task.from_nnx`, `from_linen`, `from_equinox`, `from_haiku` and
    `from_keras` take a model of that library. The examples are shuffled once, always in the same way, and kept in three splits: `search` decides, `holdout`
    confirms what was chosen, `calibration` (a slice of `search` unless given) sets scales.
    """

    name: str
    apply: Callable[..., Any]
    params: PyTree
    batch_size: int
    metric: Metric
    constraints: tuple[Constraint, ...]
    search: Split
    holdout: Split
    calibration: Split
    reference: str | None
    split_scans: bool
    shapes: Shapes

    def __init__(
        self,
        *,
        name: str,
        apply: Callable[..., Any],
        params: PyTree,
        inputs: Any,
        labels: Any = None,
        batch_size: int = 256,
        metric: str | Metric | Score = "top1",
        constraints: Constraints | None = None,
        holdout: Any = 0.5,
        calibration: Any = None,
        split_scans: bool = False,
        shapes: Shapes | None = None,
    ) -> None:
        """Checks and splits.

        Args:
            name: names the study and what is exported.
            apply: `apply(params, *inputs)` gives the outputs of one batch; traceable by JAX.
            params: any pytree of arrays. What lies under an outermost key that begins with `~` is state: carried, never
                cast.
            inputs: an array or pytree (one positional input of `apply`), a tuple of them (several), or an iterable of
                batches, read once: of (inputs, labels) pairs when `labels` is None, of inputs alone otherwise.
            labels: one entry per example, or None when the metric or the iterable needs none.
            batch_size: examples per call while scoring and timing.
            metric: "top1", "top5" (or any k), "cross_entropy", "perplexity", "mse", "psnr"; without labels "agreement" or
                "cosine", which compare with the program as written; a `Metric`; or a callable(outputs, labels) ->
                per-example scores.
            constraints: further metrics -> the drop that each may have, such as {"cross_entropy": "2%rel", "agreement":
                0.01}; what drops by more is on no front. None instead of a drop measures and shows the metric.
            holdout: share of the examples kept from the search, explicit (inputs, labels), or an iterable of such
                batches.
            calibration: inputs that set activation scales; by default a slice of the search split.
            split_scans: let the iterations of a scan over stacked weights take different precisions.
            shapes: the calls that are timed, where they are not the batches that are scored: name -> `tuner.Shape`. Each
                has its own latency; their weighted sum is what a search makes small.

        Raises:
            InputError: something cannot be used as given; the message names it, shows it and says what to do.
        """
        _check_arguments(name, apply, batch_size)
        _check_params(params)
        found = find_metric(metric)
        search, held = _split(read_examples(inputs, labels), holdout)
        values = {
            "name": name,
            "apply": apply,
            "params": params,
            "batch_size": batch_size,
            "metric": found,
            "constraints": read_constraints(constraints, found),
            "search": search,
            "holdout": held,
            "calibration": _calibration(calibration, search, held, batch_size),
            "reference": None,
            "split_scans": _check_split_scans(split_scans),
            "shapes": read_shapes(shapes),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @classmethod
    def from_nnx(cls, model: Any, *, call: Callable[..., Any] | None = None, **settings: Any) -> "Task":
        """A task on a Flax NNX module, in evaluation mode.

        Args:
            model: the module; it is not changed.
            call: how a batch goes through the model, `call(model, *inputs)`; by default `model(*inputs)`. The same for
                every library here.
            **settings: what `Task` takes: name, inputs, labels, batch_size, metric, holdout, calibration.
        """
        from tuner.adapters import nnx

        apply, params = nnx.to_function(model, call=call)
        return cls(apply=apply, params=params, **settings)

    @classmethod
    def from_linen(
        cls, module: Any, variables: Any, *, rngs: Any = None, call: Callable[..., Any] | None = None, **settings: Any
    ) -> "Task":
        """A task on a Flax Linen module and the variables of `module.init`, or what training made of them."""
        from tuner.adapters import linen

        apply, params = linen.to_function(module, variables, rngs=rngs, call=call)
        return cls(apply=apply, params=params, **settings)

    @classmethod
    def from_equinox(
        cls, model: Any, state: Any = None, *, call: Callable[..., Any] | None = None, **settings: Any
    ) -> "Task":
        """A task on an Equinox module of one example, in inference mode and under `jax.vmap` unless `call` is given."""
        from tuner.adapters import equinox

        apply, params = equinox.to_function(model, state, call=call)
        return cls(apply=apply, params=params, **settings)

    @classmethod
    def from_haiku(
        cls,
        transformed: Any,
        params: Any,
        state: Any = None,
        *,
        rng: Any = None,
        call: Callable[..., Any] | None = None,
        **settings: Any,
    ) -> "Task":
        """A task on what `hk.transform` or `hk.transform_with_state` gave, with its parameters, state and random key."""
        from tuner.adapters import haiku

        apply, named = haiku.to_function(transformed, params, state, rng=rng, call=call)
        return cls(apply=apply, params=named, **settings)

    @classmethod
    def from_keras(cls, model: Any, *, call: Callable[..., Any] | None = None, **settings: Any) -> "Task":
        """A task on a built Keras 3 model or layer that runs on JAX, called with `training=False`."""
        from tuner.adapters import keras

        apply, params = keras.to_function(model, call=call)
        return cls(apply=apply, params=params, **settings)

    def __repr__(self) -> str:
        return (
            f"Task({self.name!r}, {len(self.search)} search + {len(self.holdout)} holdout examples, "
            f"batch {self.batch_size}, {self.metric.name})"
        )

    def fingerprints(self) -> dict[str, str]:
        """Hex digests of parameters, data, metric, batch size and input shapes, if any; one changed value changes one of them."""
        splits = (self.search, self.holdout, self.calibration)
        shapes = {"input shapes": shapes_fingerprint(self.shapes)} if self.shapes else {}
        return {
            "parameters": hash_tree(self.params),
            "data": hash_text(*(split.fingerprint() for split in splits)),
            "metric": self._metric_fingerprint(),
            "batch_size": hash_text(str(self.batch_size)),
            **shapes,
        }

    def _metric_fingerprint(self) -> str:
        more = [constraint.fingerprint for constraint in self.constraints]
        return hash_text(self.metric.fingerprint, *more) if more else self.metric.fingerprint

    def with_batch_size(self, batch_size: int) -> "Task":
        """The same task, scored and timed in batches of another size."""
        _check_arguments(self.name, self.apply, batch_size)
        if self.shapes and batch_size != self.batch_size:
            raise InputError(
                f"task {self.name!r} is timed with calls of its own ({', '.join(self.shapes)}), which another batch size "
                f"({batch_size}) would not change; leave it at {self.batch_size}, or change the shapes of the task"
            )
        return self._with(batch_size=batch_size)

    def with_split_scans(self, split_scans: bool = True) -> "Task":
        """The same task, each iteration of a scan over stacked weights listed as layers of its own, or not."""
        return self._with(split_scans=_check_split_scans(split_scans))

    def with_params(self, params: PyTree) -> "Task":
        """The same task with its parameters held elsewhere."""
        return self._with(params=params)

    def with_reference(self, reference: str) -> "Task":
        """The same task, knowing where another process can load it from (`module:factory`)."""
        return self._with(reference=reference)

    def _with(self, **changes: Any) -> "Task":
        changed = copy.copy(self)
        for field, value in changes.items():
            object.__setattr__(changed, field, value)
        return changed


def check_task(task: Task) -> None:
    """Traces `apply` and the metric on one batch of each split; raises InputError when either refuses."""
    import jax

    for what, split in (("search", task.search), ("holdout", task.holdout)):
        inputs, labels, _ = next(split.batches(task.batch_size))
        try:
            outputs = jax.eval_shape(task.apply, task.params, *inputs)
        except Exception as error:
            problem = trace_problem(task.apply, (task.params, *inputs), error)
            if problem:
                raise InputError(f"apply of task {task.name!r} {problem}") from error
            raise InputError(
                f"apply of task {task.name!r} fails on a batch of its {what} split ({task.batch_size} x "
                f"{layout(Split(inputs))}): {error_line(error)}; make apply(params, *inputs) run on these arrays"
            ) from error
        for metric in (task.metric, *(constraint.metric for constraint in task.constraints)):
            _check_metric(task, metric, outputs, labels)


def _check_metric(task: Task, metric: Metric, outputs: Any, labels: Any) -> None:
    import jax

    reference = "reference outputs" if metric.against == BASELINE else "labels"
    try:
        scores = jax.eval_shape(metric.score, outputs, outputs if metric.against == BASELINE else labels)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"metric {metric.name!r} cannot read the outputs of task {task.name!r} ({describe(outputs)}): "
            f"{error_line(error)}; it must be written with jax.numpy and accept (outputs, {reference})"
        ) from error
    leaves = [scores] if metric.aggregate is None else jax.tree_util.tree_leaves(scores)
    shapes = [getattr(leaf, "shape", None) for leaf in leaves]
    per_example = [shape is not None and shape[:1] == (task.batch_size,) for shape in shapes]
    if not all(per_example) or not leaves or (metric.aggregate is None and shapes != [(task.batch_size,)]):
        raise InputError(
            f"metric {metric.name!r} gives {describe(scores)} for a batch of {task.batch_size}; "
            "it must give one score per example (do not average over the batch)"
        )
    if reads_class_numbers(metric.score):
        _check_class_numbers(task, outputs.shape[-1])


def _check_class_numbers(task: Task, classes: int) -> None:
    for what, split in (("search", task.search), ("holdout", task.holdout)):
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"labels of the {what} split run from {low} to {high}, and the outputs have {classes} classes; "
                f"number the classes from 0 to {classes - 1}"
            )


def _check_arguments(name: Any, apply: Any, batch_size: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"name={name!r} of the task is empty; give it a short name, such as 'mnist'")
    if not callable(apply):
        raise InputError(f"apply={apply!r} is not callable; give a function apply(params, *inputs) -> outputs")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"batch_size={batch_size!r} is not a whole number of at least 1; 256 is a good start")


def _check_split_scans(split_scans: Any) -> bool:
    if not isinstance(split_scans, bool):
        raise InputError(
            f"split_scans={split_scans!r} is neither True nor False; give True to let each iteration of a scan over "
            "stacked weights take a precision of its own"
        )
    return split_scans


def _check_params(params: PyTree) -> None:
    import jax

    leaves = jax.tree_util.tree_leaves(params)
    if any(isinstance(leaf, float) or is_floating(getattr(leaf, "dtype", None)) for leaf in leaves):
        return
    kinds = sorted({str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in leaves})
    raise InputError(
        f"params hold no floating array ({', '.join(kinds) or 'no leaf at all'}), so no precision can be chosen; "
        "give the parameters that apply takes as its first argument"
    )


def _split(examples: Split, holdout: Any) -> tuple[Split, Split]:
    if isinstance(holdout, (int, float)):
        if not 0 < holdout < 1:
            raise InputError(
                f"holdout={holdout!r} is not a share between 0 and 1; give one such as 0.5, or explicit (inputs, labels)"
            )
        return split_examples(examples, holdout)
    if isinstance(holdout, tuple) and len(holdout) == 2:
        held = read_examples(*holdout, paired=False, what="holdout")
    elif is_iterable_of_batches(holdout, paired=True):
        held = read_examples(holdout, None, what="holdout")
    else:
        raise InputError(
            f"holdout is a {type(holdout).__name__}; give a share such as 0.5, explicit (inputs, labels), "
            "or an iterable of such batches"
        )
    _check_same_layout(examples, held, "holdout")
    _check_disjoint("holdout", held, "inputs", examples)
    return examples.pick(shuffled(len(examples))), held


def _calibration(calibration: Any, search: Split, holdout: Split, batch_size: int) -> Split:
    if calibration is None:
        return Split(search.pick(slice(0, max(CALIBRATION_EXAMPLES, batch_size))).inputs)
    given = read_examples(calibration, None, paired=False, what="calibration")
    _check_same_layout(Split(search.inputs), given, "calibration")
    _check_disjoint("calibration", given, "holdout", holdout)
    return given


def _check_same_layout(examples: Split, other: Split, what: str) -> None:
    if layout(examples) != layout(other):
        raise InputError(
            f"an example of {what} is {layout(other)} where one of inputs is {layout(examples)}; "
            "give both the same structure, shapes and dtypes"
        )


def _check_disjoint(what: str, split: Split, other_name: str, other: Split) -> None:
    shared = count_shared(split, other)
    if shared > NATURAL_DUPLICATES * len(split):
        raise InputError(
            f"{shared} of the {len(split)} examples of {what} are also in {other_name}; "
            "remove them from one of the two: what confirms must not be what decided"
        )
