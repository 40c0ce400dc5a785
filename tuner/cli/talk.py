"""What the commands say beside their result: hints and notes on stderr, so that stdout can be piped."""

import click

from tuner.errors import InputError

VERBOSE = "tuner.verbose"
QUIET = "tuner.quiet"


def is_quiet() -> bool:
    """True under `-q`: results and errors only."""
    return bool(click.get_current_context().meta.get(QUIET))


def is_verbose() -> bool:
    """True under `-v`: every candidate, and where an error comes from."""
    return bool(click.get_current_context().meta.get(VERBOSE))


def note(text: str) -> None:
    """Print a remark on stderr, unless under `-q`."""
    if not is_quiet():
        click.echo(text, err=True)


def suggest(*commands: str) -> None:
    """Print the next sensible command (or two) on stderr, unless under `-q`."""
    for number, command in enumerate(commands):
        note(f"{'Next:' if number == 0 else '  or:'} {command}")


def sentence(error: Exception) -> str:
    """The error's message on one line."""
    return " ".join(str(error).split())


def quoted(argument: str) -> str:
    """The argument as a shell would need it."""
    import shlex

    return shlex.quote(argument)


def with_storage(command: str, storage: str) -> str:
    """The command with `--storage` where it is not the default."""
    from tuner.cli.options import DEFAULT_STORAGE

    return command if storage == DEFAULT_STORAGE else f"{command} --storage {quoted(storage)}"


def check_one_format(*, as_json: bool, as_csv: bool) -> None:
    """Raise when two machine formats are asked for at once."""
    if as_json and as_csv:
        raise InputError("--json and --csv cannot both be printed; give one of them")
