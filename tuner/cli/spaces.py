"""`tuner spaces`: the search spaces that come with the tuner."""

import click

from tuner.cli.options import talk_options
from tuner.cli.talk import suggest


@click.command("spaces")
@click.argument("name", required=False)
@talk_options
def command(name: str | None) -> None:
    """List the search spaces that come with the tuner, or print one.

    NAME prints that space as TOML, to copy and edit: `tuner spaces cpu > mine.toml`.
    """
    from search_spaces import SearchSpace, preset_names, preset_text

    if name is None:
        names = preset_names()
        width = max(map(len, names))
        for preset in names:
            click.echo(f"{preset:<{width}}  {SearchSpace.load(preset).description}")
        suggest("tuner spaces NAME > mine.toml", "tuner layers TASK --space NAME")
        return
    click.echo(preset_text(name), nl=False)
    suggest(f"tuner spaces {name} > mine.toml", "tuner search TASK --space mine.toml")
