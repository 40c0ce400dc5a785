"""Failures: an exception of a candidate as the cause that the store keeps."""

from tuner.measurement import OUT_OF_MEMORY, Costs, Failure

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc", "MemoryError")
_LONGEST = 500


def failure_of(error: Exception, cause: str, costs: Costs | None = None) -> Failure:
    """The failure that an exception means: running out of memory where it says so, else `cause`."""
    text = str(error).strip() or "no message"
    if isinstance(error, MemoryError) or says_out_of_memory(text):
        cause = OUT_OF_MEMORY
    first_line = text.splitlines()[0][:_LONGEST]
    return Failure(cause=cause, message=f"{type(error).__name__}: {first_line}", costs=costs or Costs())


def says_out_of_memory(text: str) -> bool:
    """True when a message means that memory ran out."""
    return any(sign in text for sign in _OUT_OF_MEMORY)
