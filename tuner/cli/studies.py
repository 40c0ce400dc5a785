"""`tuner studies`: the studies of a database, and `tuner studies rm`."""

import sys

import click

from tuner.cli.options import json_option, storage_option, talk_options
from tuner.cli.talk import note, quoted, suggest, with_storage


@click.group("studies", invoke_without_command=True)
@storage_option
@json_option
@talk_options
@click.pass_context
def command(context: click.Context, storage: str, as_json: bool) -> None:
    """List the studies of a database, or remove one."""
    if context.invoked_subcommand is not None:
        context.obj = storage
        return
    from tuner.report.json_text import write_json
    from tuner.report.studies import studies_json, write_studies
    from tuner.store import Store

    with Store.open(storage, create=False, read_only=True) as store:
        records = store.studies()
    if as_json:
        write_json(studies_json(records), sys.stdout)
        return
    write_studies(records, sys.stdout)
    if records:
        suggest(with_storage(f"tuner front {quoted(records[-1].name)}", storage))
    else:
        suggest(with_storage("tuner search TASK", storage))


@command.command("rm")
@click.argument("name", metavar="NAME")
@click.option("--storage", metavar="URL", help="The database with the study.")
@talk_options
@click.pass_context
def remove(context: click.Context, name: str, storage: str | None) -> None:
    """Remove a study with everything it measured; exported policy files stay."""
    url = storage if storage is not None else str(context.obj)
    from tuner.search.optuna_study import delete_optuna_study
    from tuner.store import Store

    with Store.open(url, create=False) as store:
        record = store.find_or_raise_study(name)
        # Optuna's first: what stops between the two leaves a study that can still be named, and removed again.
        delete_optuna_study(store, record.name)
        store.remove_study(record.name)
    note(f"Removed study {name!r} with {record.counts.total} candidates.")
    suggest(with_storage("tuner studies", url))
