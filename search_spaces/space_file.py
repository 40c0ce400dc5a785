"""The TOML text of a search space: read with errors that say what to write, and written again.

description = "one line for listings"      # optional
freeze = ["head", "*/norm"]                # optional: globs of layers that stay original

[[rules]]                                  # in order: the first rule that matches a layer decides
layers = "blocks/*"                        # glob over layer names; left out: all
kinds = ["matmul", "conv"]                 # left out: all kinds
precisions = ["bf16/bf16/f32", "w8a8"]     # besides "original", which always may be tried
optional = true                            # no error when it decides for no layer; left out: false

[[groups]]                                 # optional: layers that share one precision
name = "attention"
layers = "blocks/*/attn/*"
optional = true
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from search_spaces.errors import SearchSpaceError
from search_spaces.precision import Precision
from search_spaces.rules import KINDS, Group, Rule


class SpaceParts(NamedTuple):
    """What a search space is made of, besides its name."""

    description: str
    rules: tuple[Rule, ...]
    groups: tuple[Group, ...]
    freeze: tuple[str, ...]


def read_space(text: str, name: str) -> SpaceParts:
    """The parts of the space that a TOML text describes.

    Raises:
        SearchSpaceError: it names the space, the key and the value, and says what to write.
    """
    with _located(f"space {name!r}"):
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SearchSpaceError(f"this is not valid TOML: {error}; correct that place") from error
        _check_keys(table, SpaceParts._fields)
        if not _tables(table, "rules"):
            raise SearchSpaceError("there are no rules; add [[rules]] with layers and precisions")
        return SpaceParts(
            description=_string(table, "description"),
            rules=tuple(_read_rule(item, number) for number, item in enumerate(_tables(table, "rules"), 1)),
            groups=tuple(_read_group(item, number) for number, item in enumerate(_tables(table, "groups"), 1)),
            freeze=_strings(table, "freeze"),
        )


def write_space(parts: SpaceParts) -> str:
    """The TOML text of a space; equal for equal spaces."""
    lines = []
    if parts.description:
        lines.append(f"description = {_quote(parts.description)}")
    if parts.freeze:
        lines.append(f"freeze = {_quote_all(parts.freeze)}")
    for rule in parts.rules:
        lines += ["", "[[rules]]", f"layers = {_quote(rule.layers)}"]
        if rule.kinds != KINDS:
            lines.append(f"kinds = {_quote_all(rule.kinds)}")
        lines.append(f"precisions = {_quote_all([str(precision) for precision in rule.precisions])}")
        lines += ["optional = true"] if rule.optional else []
    for group in parts.groups:
        lines += ["", "[[groups]]", f"name = {_quote(group.name)}", f"layers = {_quote(group.layers)}"]
        lines += ["optional = true"] if group.optional else []
    return "\n".join(lines).lstrip("\n") + "\n"


def _read_rule(table: Mapping[str, Any], number: int) -> Rule:
    with _located(f"rule {number}"):
        _check_keys(table, ("layers", "kinds", "precisions", "optional"))
        if "precisions" not in table:
            raise SearchSpaceError('there are no precisions; add for example precisions = ["bf16/bf16/f32"]')
        texts = _strings(table, "precisions")
        with _located("precisions"):
            precisions = tuple(Precision.parse(text) for text in texts)
        return Rule(
            layers=_string(table, "layers", default="*"),
            kinds=_strings(table, "kinds", default=KINDS),
            precisions=precisions,
            optional=_boolean(table, "optional"),
        )


def _read_group(table: Mapping[str, Any], number: int) -> Group:
    with _located(f"group {number}"):
        _check_keys(table, ("name", "layers", "optional"))
        for key, example in (("name", "attention"), ("layers", "blocks/*/attn/*")):
            if key not in table:
                raise SearchSpaceError(f'there is no {key}; add for example {key} = "{example}"')
        return Group(name=_string(table, "name"), layers=_string(table, "layers"), optional=_boolean(table, "optional"))


@contextmanager
def _located(place: str) -> Iterator[None]:
    """Errors from inside say where they come from."""
    try:
        yield
    except SearchSpaceError as error:
        raise SearchSpaceError(f"{place}: {error}") from error


def _check_keys(table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise SearchSpaceError(f"unknown key {key!r}; use one of {', '.join(known)}")


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise SearchSpaceError(f"{key} is {found!r}; start each of the {key} with a line [[{key}]]")
    return found


def _string(table: Mapping[str, Any], key: str, default: str = "") -> str:
    found = table.get(key, default)
    if not isinstance(found, str):
        raise SearchSpaceError(f'{key} is {found!r}; write one text in quotes, for example {key} = "..."')
    return found


def _strings(table: Mapping[str, Any], key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    found = table.get(key, list(default))
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise SearchSpaceError(f'{key} is {found!r}; write a list of texts, for example {key} = ["...", "..."]')
    return tuple(found)


def _boolean(table: Mapping[str, Any], key: str) -> bool:
    found = table.get(key, False)
    if not isinstance(found, bool):
        raise SearchSpaceError(f"{key} is {found!r}; write true or false")
    return found


def _quote(text: str) -> str:
    # A JSON string is a TOML basic string, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quote_all(texts: Sequence[str]) -> str:
    return f"[{', '.join(_quote(text) for text in texts)}]"
