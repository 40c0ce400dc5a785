"""`tuner trials`: everything a study tried."""

import sys

import click

from tuner.cli.options import csv_option, storage_option, study_argument, talk_options
from tuner.cli.talk import quoted, suggest, with_storage


@click.command("trials")
@study_argument
@storage_option
@csv_option
@talk_options
def command(study: str, storage: str, as_csv: bool) -> None:
    """List everything a study tried, failures included."""
    from tuner.report.trials import write_trials, write_trials_csv
    from tuner.study import open_study

    records = open_study(study, storage).trials()
    if as_csv:
        write_trials_csv(records, sys.stdout)
        return
    write_trials(records, sys.stdout)
    suggest(with_storage(f"tuner front {quoted(study)}", storage))
