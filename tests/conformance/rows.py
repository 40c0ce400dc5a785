"""A row of part F: public threads in which a change of precision broke a JAX program, and the program that stands for them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.programs import Example, normal

WIDTH = 6  # nearly all weights are squares of this width, so that what packs them is compiled once
INPUT = ("input", "input")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One or more threads about the same mistake.

    Attributes:
        threads: where it was reported; names the row.
        broke: what broke others, in one line.
        make: the program, or None when it is out of scope.
        reason: why it is out of scope, else None.
        within: the configuration under which the program is run.
    """

    threads: str
    broke: str
    make: Callable[[], Example] | None = None
    reason: str | None = None
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


TABLE: list[Row] = []


def program(
    threads: str, broke: str, within: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Callable[[Callable[[], Example]], Callable[[], Example]]:
    """Adds the decorated program to the table."""

    def add(make: Callable[[], Example]) -> Callable[[], Example]:
        TABLE.append(Row(threads=threads, broke=broke, make=make, within=within))
        return make

    return add


def out_of_scope(threads: str, broke: str, reason: str) -> None:
    TABLE.append(Row(threads=threads, broke=broke, reason=reason))


def matmul(name: str) -> tuple[str, str]:
    return (name, "matmul")


def square(seed: int = 0) -> dict[str, Any]:
    """Parameters of one layer whose products stay of the size of its inputs."""
    return {"w": normal(WIDTH, WIDTH, seed=seed) / 2}


def stack(count: int = 3) -> dict[str, Any]:
    return {"w": normal(count, WIDTH, WIDTH) / 2}


def rows_of(count: int = 4, seed: int = 0) -> Any:
    """One batch of inputs."""
    return normal(count, WIDTH, seed=seed)
