"""The table: every program as written, and under every policy, held to every check."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import checks
from tests.conformance.checks import Case, Run
from tests.conformance.probes import quick
from tests.conformance.table import POLICIES, PROGRAMS, SCALED
from tests.programs import EXAMPLES
from tuner.program import capture, uniform_policy

# Each operation is compiled on its own there, so not all of the examples.
WITHOUT_JIT = (
    "mlp",
    "attention",
    "called_functions",
    "weight_norm",
    "several_inputs",
    "scan_and_branches",
    "callbacks",
)


@pytest.fixture(params=PROGRAMS, scope="module")
def case(request: Any) -> Iterator[Case]:
    row = PROGRAMS[request.param]
    with row.within():
        yield Case(row.make(), quick())


def test_as_written(case: Case) -> None:
    """Layers and their names, whatever the batch; all `original` is the user's program, to the bit."""
    checks.layers_are_found(case.example, case.program)
    checks.names_do_not_depend_on_the_batch(case.example, case.program)
    checks.all_original_is_identical(case)
    again = capture(case.example.apply, case.example.params, case.example.inputs)
    assert (again.layers, again.fingerprint) == (case.program.layers, case.program.fingerprint)


@pytest.mark.parametrize("policy", POLICIES)
def test_under_a_policy(case: Case, policy: str) -> None:
    run = Run(case, POLICIES[policy](case.program))
    for check in (*checks.EVERYWHERE, checks.what_ran_is_reported):
        check(run)


@pytest.mark.parametrize("text", SCALED)
@pytest.mark.parametrize("name", EXAMPLES)
def test_in_four_and_eight_bits(name: str, text: str) -> None:
    case = Case(EXAMPLES[name](), quick())
    run = Run(case, uniform_policy(case.program, text))
    for check in (*checks.EVERYWHERE, checks.what_ran_is_reported):
        check(run)


@pytest.mark.parametrize("name", WITHOUT_JIT)
def test_all_original_also_runs_without_jit(name: str) -> None:
    case = Case(EXAMPLES[name]())
    checks.all_original_runs_without_jit(case.example, case.program)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_model_that_checks_itself_finds_nothing(name: str) -> None:
    checks.checking_changes_nothing(Case(EXAMPLES[name]()))
