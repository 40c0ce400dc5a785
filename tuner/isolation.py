"""Isolation: where candidates run, in a process of their own or in this one."""

from tuner.errors import InputError

CHILD, NONE = "child", "none"
ISOLATIONS = (CHILD, NONE)


def check_isolation(isolation: str) -> str:
    """The isolation, when there is such a one.

    Raises:
        InputError: there is not.
    """
    if isolation not in ISOLATIONS:
        raise InputError(
            f"isolation {isolation!r} is neither of {', '.join(ISOLATIONS)}; give child to measure in a process of its own, "
            "or none to stay in this one, for a debugger"
        )
    return isolation
