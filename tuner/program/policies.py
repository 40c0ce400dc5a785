"""Policies made for a program: all layers as written, one precision everywhere, or a given mix."""

from collections.abc import Mapping

from search_spaces import ORIGINAL, Precision
from tuner.errors import PolicyError
from tuner.policy import Assignment, Policy
from tuner.program import kernels
from tuner.program.kernels import supports
from tuner.program.program import Program


def original_policy(program: Program) -> Policy:
    """The policy of the baseline: every layer exactly as the user wrote it."""
    return make_policy(program, {})


def make_policy(program: Program, chosen: Mapping[str, Assignment | Precision | str]) -> Policy:
    """A policy for every layer of a program; layers that are not chosen stay as written.

    Args:
        program: the program.
        chosen: layer name -> assignment, precision, or a precision as text.

    Raises:
        PolicyError: a layer does not exist, or cannot run in the precision chosen for it.
        SearchSpaceError: a text is no precision.
    """
    known = {layer.name: layer for layer in program.layers}
    for name in chosen:
        if name not in known:
            raise PolicyError(f"layer {name!r} does not exist; the layers are {', '.join(known) or 'none'}")
    assignments = []
    for name, layer in known.items():
        assignment = _assignment(chosen.get(name, ORIGINAL))
        reason = supports(layer, assignment.precision)
        if reason:
            raise PolicyError(
                f"layer {name!r} cannot run in {assignment.precision}: {reason}; choose another precision"
            )
        names = kernel_names(program, name, assignment.precision)
        if assignment.kernel not in names:
            allowed = ", ".join(names)
            raise PolicyError(
                f"layer {name!r} has no kernel {assignment.kernel!r} in {assignment.precision}; use {allowed}"
            )
        assignments.append((name, assignment))
    return Policy(tuple(assignments), program=program.signature)


def uniform_policy(
    program: Program, precision: Precision, choices: Mapping[str, tuple[Precision, ...]] | None = None
) -> Policy:
    """Every layer that may take the precision takes it; the others stay as written.

    Args:
        program: the program.
        precision: the precision.
        choices: layer name -> allowed precisions; left out, whatever each layer can run.
    """
    takers = {
        layer.name: precision
        for layer in program.layers
        if supports(layer, precision) is None and (choices is None or precision in choices[layer.name])
    }
    return make_policy(program, takers)


def kernel_names(program: Program, layer: str, precision: Precision) -> tuple[str, ...]:
    """The equivalent kernels that can run a layer in a precision, the plain one first.

    Raises:
        KeyError: there is no such layer.
    """
    sites = {found.name: sites for found, sites in zip(program.layers, program.sites, strict=True)}
    return kernels.kernel_names(sites[layer], precision)


def _assignment(value: Assignment | Precision | str) -> Assignment:
    if isinstance(value, Assignment):
        return value
    return Assignment(precision=Precision.parse(value) if isinstance(value, str) else value)
