"""The options and arguments that commands share, each defined once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tuner.cli.talk import QUIET, VERBOSE

DEFAULT_STORAGE = "sqlite:///precision.db"

Command = TypeVar("Command", bound=Callable[..., Any])


def _remember(key: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        context.meta[key] = value

    return callback


def talk_options(command: Command) -> Command:
    """`-v` and `-q`, on every command."""
    quiet = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_remember(QUIET), help="Results and errors only."
    )
    verbose = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember(VERBOSE),
        help="Say more, and where an error comes from.",
    )
    return verbose(quiet(command))


def storage_option(command: Command) -> Command:
    """`--storage URL`."""
    return click.option(
        "--storage", metavar="URL", default=DEFAULT_STORAGE, show_default=True, help="The database with the studies."
    )(command)


def space_option(command: Command) -> Command:
    """`--space NAME|FILE`."""
    return click.option(
        "--space",
        metavar="NAME|FILE",
        help="What each layer may take: a name that `tuner spaces` lists or a TOML file. "
        "[default: the task's own, else the one for this device]",
    )(command)


def isolation_option(command: Command) -> Command:
    """`--isolation child|none`."""
    return click.option(
        "--isolation",
        metavar="child|none",
        default="child",
        show_default=True,
        help="Run candidates in a process of their own, which may crash or hang; or in this one, for a debugger.",
    )(command)


def split_scans_option(command: Command) -> Command:
    """`--split-scans`."""
    return click.option(
        "--split-scans",
        is_flag=True,
        help="Let each iteration of a scan over stacked weights take a precision of its own.",
    )(command)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, versioned and stable.")(command)


def csv_option(command: Command) -> Command:
    """`--csv`."""
    return click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line per entry.")(command)


def max_drop_option(help: str) -> Callable[[Command], Command]:
    """`--max-drop DROP`."""
    return click.option("--max-drop", metavar="DROP", help=help)


task_argument = click.argument("task", metavar="TASK")
study_argument = click.argument("study", metavar="STUDY")
