"""The errors a user can meet; each names the thing, shows the value and gives the remedy."""


class TunerError(Exception):
    """Base of every error that a user can cause and mend; `exit_code` is what the command line returns."""

    exit_code = 2


class InputError(TunerError):
    """An argument, a task, its data or a budget cannot be used as given."""


class PolicyError(TunerError):
    """A policy or a policy file does not fit, cannot be read or must not be overwritten."""


class StoreError(TunerError):
    """The database cannot be opened, read or written, or holds something else than asked for."""


class GoalMissed(TunerError):
    """Everything worked and the answer is no: nothing measured meets the goal."""

    exit_code = 1


class MeasuringStopped(TunerError):
    """Candidates end the process they are measured in, one after the other; going on would only lose more."""


class NonFiniteError(TunerError):
    """A model that checks itself computed NaN or infinite values; names the layer where they began."""


class CaptureError(TunerError):
    """The task's function cannot be traced, or its layers are not those of the policy."""


def error_line(error: BaseException) -> str:
    """The line that a traceback would end with: the error's type and the first line of its message."""
    message = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {message.strip()}" if message else type(error).__name__
