"""What broke others, held to every check; each program is named by the public thread that reported it."""

from typing import Any

import pytest

from tests.conformance import checks
from tests.conformance.part_f import OUT_OF_SCOPE, PROGRAMS, TABLE, Row
from tests.programs import Example
from tuner.program import Program

PRECISIONS = ("bf16/bf16/bf16", "f16/f16/f32", "i8/i8/i32")


@pytest.fixture(params=PROGRAMS, scope="module")
def row(request: Any) -> Row:
    return PROGRAMS[request.param]


@pytest.fixture(scope="module")
def example(row: Row) -> Example:
    with row.within():
        return row.make()


@pytest.fixture(scope="module")
def program(row: Row, example: Example) -> Program:
    with row.within():
        return checks.capture_example(example)


@pytest.fixture(scope="module")
def reference(row: Row, example: Example) -> Any:
    with row.within():
        return checks.run_jitted(example)


def test_as_written(row: Row, example: Example, program: Program) -> None:
    with row.within():
        checks.layers_are_found(example, program)
        checks.names_do_not_depend_on_the_batch(example, program)
        checks.all_original_is_identical(example, program)


@pytest.mark.parametrize("text", PRECISIONS)
def test_in_one_precision(row: Row, example: Example, program: Program, reference: Any, text: str) -> None:
    with row.within():
        checks.outputs_are_kept(example, program, reference, text)


def test_every_row_says_what_broke_and_is_a_program_or_has_a_reason() -> None:
    assert len({row.threads for row in TABLE}) == len(TABLE)
    assert all(row.broke and (row.make is None) == bool(row.reason) for row in TABLE)
    assert (len(PROGRAMS), len(OUT_OF_SCOPE)) == (47, 13)
