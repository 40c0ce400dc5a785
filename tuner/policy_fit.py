"""Whether a policy fits a program, and why not: another program, another form of its loops, inputs of other shapes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tuner.errors import PolicyError
from tuner.policy import Policy, ProgramSignature

# Kind and weight shape of a layer; None where the policy does not say.
_Facts = tuple[str, tuple[int, ...]] | None


def check_fits(policy: Policy, program: ProgramSignature, where: str = "the policy") -> None:
    """Returns when the policy has an assignment for every layer of the program, and no other.

    Args:
        policy: what should be applied.
        program: the signature of the program it should be applied to; its inputs may differ.
        where: what to call the policy in messages, such as its file.

    Raises:
        PolicyError: it is for another program, or another form of this one; the first layer that differs is named.
    """
    theirs: dict[str, _Facts] = {name: (kind, shape) for name, kind, shape in program.layers}
    known = policy.program.layers if policy.program else ()
    ours: dict[str, _Facts] = {**dict.fromkeys(policy.names), **{name: (kind, shape) for name, kind, shape in known}}
    ours = {name: ours[name] for name in policy.names}
    other_form = _loop_form_problem(ours, theirs, where)
    if other_form:
        raise PolicyError(other_form)
    inputs = inputs_text(policy.program.inputs) if policy.program else ""
    here = inputs_text(program.inputs)
    reshaped = bool(inputs and here) and inputs != here
    made_with = f"; it was made with inputs {inputs}, and these are {here}" if reshaped else ""
    shapes = "use shapes that lead to the same layers, " if reshaped else ""
    remedy = f"{made_with}; apply it to the program it was made for, {shapes}or search this one"
    for name in ours:
        if name not in theirs:
            raise PolicyError(
                f"{where} names layer {name!r}, which this program does not have (its layers: {_listed(theirs)}){remedy}"
            )
    for name in theirs:
        if name not in ours:
            raise PolicyError(f"{where} says nothing about layer {name!r} of this program{remedy}")
    for name, facts in ours.items():
        if facts is not None and theirs[name] != facts:
            raise PolicyError(
                f"{where} is for another program: layer {name!r} is {_layer_text(facts)} there "
                f"and {_layer_text(theirs[name])} here{remedy}"
            )


def difference_text(here: ProgramSignature, there: ProgramSignature) -> str:
    """How the layers of one program differ from those of another: "it has 'b' and lacks 'a'"; empty when they do not."""
    ours, theirs = ({name: (kind, shape) for name, kind, shape in one.layers} for one in (here, there))
    added, missing = (list(filter(lambda name: name not in b, a)) for a, b in ((ours, theirs), (theirs, ours)))
    parts = [f"{verb} {_quoted(names)}" for verb, names in (("has", added), ("lacks", missing)) if names]
    if parts:
        return f"it {' and '.join(parts)}"
    changed = (name for name in ours if ours[name] != theirs[name])
    texts = (f"{name!r} is {_layer_text(ours[name])} instead of {_layer_text(theirs[name])}" for name in changed)
    return next(texts, "" if list(ours) == list(theirs) else "they come in another order")


def inputs_text(inputs: str) -> str:
    """The inputs of a signature as people write them: `float32[8,64], int32[8]`; empty when it does not say."""
    try:
        return ", ".join(_leaf_texts(json.loads(inputs))) if inputs else ""
    except ValueError:
        return ""


def _leaf_texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for item in tree:
            yield from _leaf_texts(item)
    elif isinstance(tree, dict) and isinstance(tree.get("dtype"), str) and isinstance(tree.get("shape"), list):
        yield f"{tree['dtype']}[{','.join(map(str, tree['shape']))}]"
    elif isinstance(tree, dict):
        yield from _leaf_texts(list(tree.values()))


def _loop_form_problem(ours: Mapping[str, _Facts], theirs: Mapping[str, _Facts], where: str) -> str | None:
    """The sentence for a policy of a scan applied to the unrolled loop, or the other way round; None when it is neither."""
    lost = {name: facts for name, facts in ours.items() if name not in theirs}
    new = {name: facts for name, facts in theirs.items() if name not in ours}
    for one, several in _one_for_several(lost, new):
        return (
            f"{where} was made for a scan: its layer {one!r} stands for all iterations, and here each iteration has a "
            f"layer of its own ({_quoted(several)}); apply it to the scan form, or search this one"
        )
    for one, several in _one_for_several(new, lost):
        return (
            f"{where} was made for a loop whose iterations are layers of their own ({_quoted(several)}), and here "
            f"{one!r} stands for all iterations of a scan; apply it to the unrolled form, capture this one with "
            "split_scans=True, or search it"
        )
    return None


def _one_for_several(ones: Mapping[str, _Facts], others: Mapping[str, _Facts]) -> Iterator[tuple[str, list[str]]]:
    """A layer and several others of its kind and shape whose names differ from its name in a number only."""
    numbered: dict[str, list[str]] = {}
    for name in others:
        numbered.setdefault(_without_numbers(name), []).append(name)
    for one, facts in ones.items():
        several = [
            name
            for name in numbered.get(_without_numbers(one), ())
            if facts is None or others[name] is None or facts == others[name]
        ]
        if len(several) > 1:
            yield one, several


def _without_numbers(name: str) -> str:
    """A name without the parts, and ends of parts, that count: `blocks/3/w` and `blocks_3/w` give `blocks/w`."""
    parts = (re.sub(r"_?\d+$", "", part) if re.fullmatch(r"(.*_)?\d+", part) else part for part in name.split("/"))
    return "/".join(filter(None, parts))


def _layer_text(facts: _Facts) -> str:
    kind, shape = facts or ("unknown", ())
    return f"{kind} {shape}" if shape else kind


def _quoted(names: Iterable[str]) -> str:
    return _listed(map(repr, names), most=4)


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    more = f", ... {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
