"""Operations that look alike to a kernel, so that it is traced once for all of them: a deep model costs what a layer does."""

from dataclasses import replace
from typing import Any

from tuner.program.steps import Site


class Alike:
    """A site that equals every other with the same operation: primitive, settings, types of operands and results.

    Attributes:
        site: what a kernel may read of it; its weight, layer and name scope are left out, which differ.
    """

    __slots__ = ("_hash", "_key", "site")

    def __init__(self, site: Site) -> None:
        eqn = site.eqn
        types = tuple(variable.aval for variable in (*eqn.invars, *eqn.outvars))
        self._key: tuple[Any, ...] = (
            site.kind,
            site.weight_operand,
            site.repeated,
            eqn.primitive,
            tuple(eqn.params.items()),
            types,
        )
        self._hash = hash(self._key)
        self.site = replace(site, weight=None, key=(), scope=None, executions=1, reason=None, rows=None, placement=None)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self._key == other._key
