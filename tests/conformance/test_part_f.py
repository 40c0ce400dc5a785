"""Part F is complete: every row says what broke others, and is a program of the table or says why not."""

from tests.conformance.part_f import OUT_OF_SCOPE, PROGRAMS, TABLE


def test_every_row_says_what_broke_and_is_a_program_or_has_a_reason() -> None:
    assert len({row.threads for row in TABLE}) == len(TABLE)
    assert all(row.broke and (row.make is None) == bool(row.reason) for row in TABLE)
    assert (len(PROGRAMS), len(OUT_OF_SCOPE)) == (57, 3)
