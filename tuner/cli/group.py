"""The group of commands: each is imported only when invoked, so that `tuner --help` is instant."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

import click

# In the order in which a person meets them; the help is each command's own first line (a test compares them).
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "doctor": "Say what this device runs, how fast, and what is missing.",
        "layers": "List the layers of a task and the precisions each may take.",
        "spaces": "List the search spaces that come with the tuner, or print one.",
        "predict": "Predict the best policy of a task without measuring any.",
        "search": "Search for the best precision of every layer, by measurement.",
        "studies": "List the studies of a database, or remove one.",
        "front": "Show the best trade-offs that a study found.",
        "trials": "List everything a study tried, failures included.",
        "show": "Show one point of a study, layer by layer.",
        "diff": "Compare two policies, layer by layer.",
        "suggest": "Suggest the best policy of a study for another budget.",
        "export": "Write the chosen point of a study to a policy file.",
        "verify": "Measure a policy file again, here and on the holdout examples.",
    }
)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports `tuner.cli.<name>` when one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tuner.cli.{cmd_name}")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"tuner.cli.{cmd_name}.command is a {type(command).__name__}, not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from tuner import __version__

        click.echo(f"tuner {__version__}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def tuner() -> None:
    """Find, by measurement on this device, which number format each layer of a JAX program should use."""
