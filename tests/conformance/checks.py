"""What must hold for every program and every policy, each as one function; the tests call them with their own programs."""

import collections
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import FORMATS, Format, Precision
from tests import narrow_rules
from tests.conformance import bounds
from tests.conformance.probes import expected_verdict, quick
from tests.programs import Example
from tuner import _jax_compat as compat
from tuner.measure.effective import AS_REQUESTED, effective_precisions
from tuner.measure.hlo import parse_hlo
from tuner.policy import Policy
from tuner.program import Prepared, Program, capture, original_policy, prepare, uniform_policy
from tuner.program.layer import INPUT

# Outputs under this key depend on no layer: they are the same to the bit in every precision.
EXACT = "exact"
HOLDING = ("scan", "while", "cond", "shard_map")
HALVES = {"bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, eq=False)
class Case:
    """One program, captured and run as the user wrote it; everything is done once, when it is asked for.

    Attributes:
        settings: of XLA, for the program as it is written.
    """

    example: Example
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        return capture_example(self.example)

    @cached_property
    def jaxpr(self) -> tuple[Any, Any]:
        """The user's own jaxpr, and shape, dtype and weak type of the outputs."""
        return jax.make_jaxpr(self.example.apply, return_shape=True)(self.example.params, *self.example.inputs)

    @cached_property
    def compiled(self) -> Any:
        return jax.jit(self.example.apply).lower(self.example.params, *self.example.inputs).compile(self.settings)

    @cached_property
    def reference(self) -> Any:
        return self.compiled(self.example.params, *self.example.inputs)

    @cached_property
    def own_formats(self) -> frozenset[str]:
        """The 16-bit floats that the user's own program computes in."""
        dtypes = {
            str(getattr(v.aval, "dtype", "")) for eqn in equations(self.jaxpr[0]) for v in (*eqn.invars, *eqn.outvars)
        }
        return frozenset(dtypes & HALVES.keys())

    def allowed(self, formats: tuple[Format, ...]) -> list[float]:
        """How far each output may be from the reference when layers are rounded to these formats."""
        run = lambda params, inputs: self.compiled(params, *inputs)
        own = tuple(FORMATS[HALVES[dtype]] for dtype in self.own_formats)
        expected = [as_numpy(leaf) for leaf in leaves(self.reference)]
        return bounds.allowed(run, self.example.params, self.example.inputs, expected, (*formats, *own))


@dataclass(frozen=True, eq=False)
class Run:
    """A case under one policy, prepared, traced and compiled once."""

    case: Case
    policy: Policy

    @cached_property
    def model(self) -> Prepared:
        example = self.case.example
        return prepare(example.apply, example.params, self.policy, program=self.case.program)

    @cached_property
    def jaxpr(self) -> tuple[Any, Any]:
        return jax.make_jaxpr(self.model, return_shape=True)(self.model.params, *self.case.example.inputs)

    @cached_property
    def compiled(self) -> Any:
        def program(packed: Any, *inputs: Any) -> Any:  # the name by which packed weights are recognized
            return self.model(packed, *inputs)

        return jax.jit(program).lower(self.model.params, *self.case.example.inputs).compile(quick())

    @cached_property
    def outputs(self) -> Any:
        return self.compiled(self.model.params, *self.case.example.inputs)


def capture_example(example: Example) -> Program:
    return capture(example.apply, example.params, example.inputs)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def as_numpy(value: Any) -> np.ndarray:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr and of what they hold, at any depth."""
    for eqn in compat.open_jaxpr(jaxpr)[0].eqns:
        yield eqn
        for held in compat.jaxprs_in(eqn.params):
            yield from equations(held)


def operation_counts(compiled: Any) -> collections.Counter[str]:
    """Operations of the optimized program; arguments are none: a parameter that nothing reads is not handed to ours."""
    return collections.Counter(re.findall(r"= \S+ (?!parameter)([a-z\-]+)\(", compiled.as_text()))


def layers_are_found(example: Example, program: Program) -> None:
    assert tuple((layer.name, layer.kind) for layer in program.layers) == example.layers


def all_original_is_identical(case: Case) -> None:
    """To the bit, with the operations of the user's own program, nothing more."""
    example, program, theirs = case.example, case.program, case.compiled
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    ours = jax.jit(model).lower(model.params, *example.inputs).compile(case.settings)
    assert operation_counts(ours) == operation_counts(theirs)
    expected, found = theirs(example.params, *example.inputs), ours(model.params, *example.inputs)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(as_numpy(mine), as_numpy(other))


def all_original_runs_without_jit(example: Example, program: Program) -> None:
    model = prepare(example.apply, example.params, original_policy(program), program=program)
    expected, found = example.apply(example.params, *example.inputs), model(model.params, *example.inputs)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(as_numpy(mine).astype(float), as_numpy(other).astype(float), rtol=2e-2, atol=1e-4)


def signatures_are_kept(run: Run) -> None:
    """Structure, shapes, dtypes and weak types of the outputs as written."""
    (_, expected), (_, found) = run.case.jaxpr, run.jaxpr
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for mine, other in zip(leaves(found), leaves(expected), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (other.shape, other.dtype, other.weak_type)
    assert [(v.shape, v.dtype) for v in leaves(run.outputs)] == [(v.shape, v.dtype) for v in leaves(expected)]


def effects_are_kept(run: Run) -> None:
    """The effects, and every callback."""
    theirs, ours = run.case.jaxpr[0], run.jaxpr[0]
    assert set(map(str, ours.effects)) == set(map(str, theirs.effects))
    callbacks = lambda jaxpr: _counted(jaxpr, lambda eqn: "callback" in eqn.primitive.name)
    assert callbacks(ours) == callbacks(theirs)


def random_streams_are_kept(run: Run) -> None:
    """Every draw of random bits is there, as often, from keys of the same kind and to the same width; none is new.

    Keys that no draw uses may go, as what depends on parameters and constants alone does when nothing reads it.
    """
    theirs, ours = run.case.jaxpr[0], run.jaxpr[0]
    draws = lambda jaxpr: _counted(jaxpr, lambda eqn: eqn.primitive.name in ("random_bits", "rng_bit_generator"))
    keys = lambda jaxpr: _counted(jaxpr, lambda eqn: eqn.primitive.name.startswith(("random_", "threefry")))
    assert draws(ours) == draws(theirs)
    assert keys(ours) <= keys(theirs)


def control_flow_keeps_its_dtypes(run: Run) -> None:
    """Carries, branch results and collected outputs have the types that the user's program has there."""
    holding = lambda jaxpr: _counted(jaxpr, lambda eqn: eqn.primitive.name in HOLDING)
    assert holding(run.jaxpr[0]) == holding(run.case.jaxpr[0])


def _counted(jaxpr: Any, wanted: Callable[[Any], bool]) -> collections.Counter[tuple[str, ...]]:
    """How often each of these equations is there, by its name and the types of its results."""
    found = (eqn for eqn in equations(jaxpr) if wanted(eqn))
    return collections.Counter((eqn.primitive.name, *(v.aval.str_short() for v in eqn.outvars)) for eqn in found)


def only_the_closed_list_runs_narrow(run: Run) -> None:
    """In 16 bits run layers, what of the closed list is not sensitive, and what the user's own program runs so."""
    if run.case.own_formats:
        return
    allowed = narrow_rules.ALLOWED | narrow_rules.PRODUCTS | {"convert_element_type", "reduce_precision"}
    for eqn in equations(run.jaxpr[0]):
        halves = [v for v in (*eqn.invars, *eqn.outvars) if str(getattr(v.aval, "dtype", "")) in HALVES]
        if halves and not compat.jaxprs_in(eqn.params):
            assert eqn.primitive.name in allowed, eqn
    if not any(eqn.primitive.name in HOLDING for eqn in equations(run.jaxpr[0])):
        assert list(narrow_rules.unsound(narrow_rules.operations(run.jaxpr[0]))) == []


def weights_are_packed(run: Run) -> None:
    """Every layer that has a weight holds it in the format of the policy."""
    packed = run.model.params["layers"]
    for layer in run.case.program.layers:
        precision = run.policy[layer.name].precision
        if precision.is_original or layer.kind == INPUT or not layer.params:
            continue
        mine = [part for name, part in packed.items() if name.split("#")[0] == layer.name]
        assert mine, layer.name
        expected = "uint8" if precision.weights.name == "i4" else precision.weights.dtype
        assert {str(part["weight"].dtype) for part in mine} == {expected}, layer.name


def values_stay_close(run: Run) -> None:
    """Within the bound that follows from the formats; integers, keys and what depends on no layer equal."""
    named = jax.tree_util.tree_flatten_with_path(run.case.reference)[0]
    allowed = run.case.allowed(bounds.formats_of(run.policy))
    for found, (path, expected), bound in zip(leaves(run.outputs), named, allowed, strict=True):
        mine, other = as_numpy(found), as_numpy(expected)
        if bounds.is_floating(expected) and EXACT not in jax.tree_util.keystr(path):
            assert np.isfinite(mine.astype(float)).all()
            assert bounds.distance(mine, other) <= bound, (jax.tree_util.keystr(path), bounds.size(other.astype(float)))
        else:
            np.testing.assert_array_equal(mine, other)


def verdicts(run: Run) -> dict[str, str]:
    """What is reported of every layer that does not stay as written."""
    return effective_precisions(parse_hlo(run.compiled.as_text() or ""), _asked(run))


def _asked(run: Run) -> dict[str, tuple[str, Precision]]:
    chosen = {layer.name: (layer.kind, run.policy[layer.name].precision) for layer in run.case.program.layers}
    return {name: (kind, p) for name, (kind, p) in chosen.items() if kind != INPUT and not p.is_original}


def what_ran_is_reported(run: Run) -> None:
    """As a bare operation of the same signature runs, never what was only asked for.

    In a narrow region what is about the operation is narrow too; where a device widens that, it may widen the operation.
    """
    if any(precision.output is not None for _, precision in _asked(run).values()):
        nothing_is_hidden(run)
    else:
        assert verdicts(run) == _bare(run)


def nothing_is_hidden(run: Run) -> None:
    """The same where XLA may change an operation with what is about it: then more may be widened, and is reported."""
    found_of = verdicts(run)
    for name, bare in _bare(run).items():
        found = found_of[name]
        assert found == bare or (bare == AS_REQUESTED and found.startswith("different: ")), name


def _bare(run: Run) -> dict[str, str]:
    program = run.case.program
    sites = {layer.name: sites for layer, sites in zip(program.layers, program.sites, strict=True)}
    return {name: expected_verdict(sites[name], precision) for name, (_, precision) in _asked(run).items()}


EVERYWHERE = (
    signatures_are_kept,
    effects_are_kept,
    random_streams_are_kept,
    control_flow_keeps_its_dtypes,
    only_the_closed_list_runs_narrow,
    weights_are_packed,
    values_stay_close,
)


def checking_changes_nothing(case: Case) -> None:
    """A model that checks itself has the types of one that does not, and finds nothing in a healthy program."""
    example, policy = case.example, uniform_policy(case.program, "f32/f32/f32")
    model = prepare(example.apply, example.params, policy, program=case.program, check="finite")
    plain = prepare(example.apply, example.params, policy, program=case.program)
    traced = [jax.make_jaxpr(one, return_shape=True)(one.params, *example.inputs)[1] for one in (model, plain)]
    for mine, other in zip(*map(leaves, traced), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (other.shape, other.dtype, other.weak_type)
    for mine, other in zip(leaves(model(model.params, *example.inputs)), leaves(case.reference), strict=True):
        np.testing.assert_allclose(as_numpy(mine).astype(float), as_numpy(other).astype(float), rtol=1e-3, atol=1e-4)


def holds_in(case: Case, text: str) -> None:
    """Every check, for one precision wherever it can be."""
    run = Run(case, uniform_policy(case.program, text))
    for check in (*EVERYWHERE, nothing_is_hidden):
        check(run)


def names_do_not_depend_on_the_batch(example: Example, program: Program) -> None:
    """Twice the examples, and as few as there can be."""
    doubled = lambda leaf: np.concatenate([leaf, leaf])
    for change in (doubled, lambda leaf: leaf[: example.least]):
        inputs = jax.tree_util.tree_map(
            lambda leaf, change=change: change(leaf) if getattr(leaf, "ndim", 0) >= 2 else leaf, example.inputs
        )
        other = capture(example.apply, example.params, inputs)
        assert [(layer.name, layer.kind) for layer in other.layers] == [
            (layer.name, layer.kind) for layer in program.layers
        ]
