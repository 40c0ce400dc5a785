"""The command line. `main` parses, calls, and turns every error of ours into one sentence and an exit code."""

import os
import sys
import traceback
from collections.abc import Sequence

import click

from tuner.cli.group import tuner
from tuner.cli.talk import VERBOSE, sentence
from tuner.errors import TunerError

BAD_INPUT = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of one command line: 0, 1 the answer is no, 2 bad input, 130 Ctrl-C.

    Args:
        argv: the arguments without the program's name; those of this process when left out.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    meta: dict[str, object] = {}
    try:
        with tuner.make_context("tuner", arguments) as context:
            meta = context.meta
            tuner.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as nothing:
        click.echo(nothing.format_message())
        return 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return _complain(_usage(error), error.exit_code, meta)
    except TunerError as error:
        return _complain(sentence(error), error.exit_code, meta)
    except ValueError as error:
        if not _is_about_spaces(error):
            raise
        return _complain(sentence(error), BAD_INPUT, meta)
    except BrokenPipeError:
        # The reader (`head`, a closed pager) has seen enough; Python would complain again at exit without this.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _is_about_spaces(error: ValueError) -> bool:
    """True for the errors of search_spaces, which is imported only where it is used: it would double `--help`."""
    from search_spaces import SearchSpaceError

    return isinstance(error, SearchSpaceError)


def _usage(error: click.ClickException) -> str:
    """Click's message as one sentence, with the command whose help says more."""
    text = error.format_message().rstrip()
    text = text if text.endswith((".", "?", "!")) else f"{text}."
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{text} See '{error.ctx.command_path} --help'."
    return text


def _complain(text: str, exit_code: int, meta: dict[str, object]) -> int:
    if meta.get(VERBOSE):
        traceback.print_exc()
    click.echo(f"Error: {text}", err=True)
    return exit_code
