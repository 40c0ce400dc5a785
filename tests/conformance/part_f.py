"""Part F: every thread we know of in which a change of precision broke a JAX program, each with a program or a reason."""

from tests.conformance import (  # noqa: F401  # fill the table
    part_f_control,
    part_f_gradients,
    part_f_numbers,
    part_f_products,
    part_f_types,
)
from tests.conformance.rows import TABLE as TABLE
from tests.conformance.rows import Row as Row

PROGRAMS = {row.threads: row for row in TABLE if row.make is not None}
OUT_OF_SCOPE = {row.threads: row.reason for row in TABLE if row.make is None}
