"""The checks can fail: each is shown a model that breaks what it stands for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.conformance import checks
from tests.conformance.checks import Case, Run
from tests.programs import EXAMPLES
from tuner.program import uniform_policy


def run_of(example: str, text: str) -> Run:
    case = Case(EXAMPLES[example]())
    return Run(case, uniform_policy(case.program, text))


def broken(example: str, text: str, change: Callable[[Any], Any]) -> Run:
    """A run whose outputs, as traced and as computed, are changed before they are handed on."""
    run = run_of(example, text)
    model, inputs = run.model, run.case.example.inputs
    changed = lambda packed, *inputs: change(model(packed, *inputs))
    vars(run)["jaxpr"] = jax.make_jaxpr(changed, return_shape=True)(model.params, *inputs)
    vars(run)["outputs"] = jax.jit(changed)(model.params, *inputs)
    return run


@pytest.mark.parametrize(("text", "coarser"), [("f32/f32/f32", "bf16/bf16/f32"), ("f16/f16/f32", "i8/i8/i32")])
def test_results_of_a_coarser_format_are_not_close(text: str, coarser: str) -> None:
    run = run_of("mlp", text)
    checks.values_stay_close(run)
    vars(run)["outputs"] = run_of("mlp", coarser).outputs
    with pytest.raises(AssertionError):
        checks.values_stay_close(run)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        (checks.signatures_are_kept, lambda y: y.astype(jnp.bfloat16)),
        (checks.signatures_are_kept, lambda y: (y,)),
        (checks.signatures_are_kept, lambda y: y[:1]),
        (checks.values_stay_close, lambda y: y * 1.2),
        (checks.values_stay_close, lambda y: y.at[0, 0].set(jnp.nan)),
        (checks.random_streams_are_kept, lambda y: y + 0 * jax.random.uniform(jax.random.key(0))),
        (checks.effects_are_kept, lambda y: (jax.debug.callback(lambda total: None, y.sum()), y)[1]),
        (checks.control_flow_keeps_its_dtypes, lambda y: jax.lax.fori_loop(0, 1, lambda i, y: y, y)),
        (checks.only_the_closed_list_runs_narrow, lambda y: jnp.exp(y.astype(jnp.bfloat16)).astype(y.dtype)),
    ],
)
def test_a_broken_model_is_found(check: Callable[[Run], None], change: Callable[[Any], Any]) -> None:
    check(run_of("mlp", "bf16/bf16/f32->bf16"))
    with pytest.raises(AssertionError):
        check(broken("mlp", "bf16/bf16/f32->bf16", change))


def test_a_claim_that_all_ran_as_requested_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("mlp", "f16/f16/f32")
    for check in (checks.what_ran_is_reported, checks.nothing_is_hidden):
        check(run)
    monkeypatch.setattr(checks, "verdicts", lambda run: dict.fromkeys(("fc1", "fc2"), "as requested"))
    for check in (checks.what_ran_is_reported, checks.nothing_is_hidden):
        with pytest.raises(AssertionError):
            check(run)
