"""The name scope that marks a layer's operations in profiles and compiled programs, and how to read it back."""

import re
from typing import Any

# Scope of multiplications that are a layer's product, where no single operation is.
SHIFTED_PRODUCTS = "shifted_products"
_MARK = re.compile(r"layer\[([^\]]*)\]")
_ESCAPES = {"%": "%25", "]": "%5D", "[": "%5B", "/": "%2F", "(": "%28", ")": "%29", '"': "%22", "\\": "%5C"}


def layer_scope(scope: Any, name: str) -> Any:
    """A name scope with the layer's mark at its end."""
    return scope.extend(f"layer[{''.join(_ESCAPES.get(character, character) for character in name)}]")


def layer_of_op_name(op_name: str) -> str | None:
    """The layer whose mark an operation's metadata name carries, or None."""
    marks = _MARK.findall(op_name)
    if not marks:
        return None
    name = str(marks[-1])
    for character, escape in reversed(_ESCAPES.items()):
        name = name.replace(escape, character)
    return name
