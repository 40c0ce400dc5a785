"""`tuner doctor`: what this device runs, how fast, and what is missing."""

import sys

import click

from tuner.cli.options import json_option, storage_option, talk_options
from tuner.cli.talk import is_verbose, note, suggest, with_storage


@click.command("doctor")
@storage_option
@click.option("--again", is_flag=True, help="Probe anew, although this device was probed before.")
@json_option
@talk_options
def command(storage: str, again: bool, as_json: bool) -> None:
    """Say what this device runs, how fast, and what is missing.

    Single operations are tried and timed against float32 in a process of their own, for half a minute at most. The
    database keeps what was found: searches never propose what cannot run here.
    """
    from tuner.doctor import diagnose
    from tuner.measure.sending import leave_memory_to_child
    from tuner.report.doctor import diagnosis_json, write_diagnosis
    from tuner.report.json_text import write_json

    leave_memory_to_child()
    found = diagnose(storage, again=again, say=note, detail=note if is_verbose() else lambda text: None)
    if as_json:
        write_json(diagnosis_json(found), sys.stdout)
        return
    write_diagnosis(found, sys.stdout)
    suggest(with_storage("tuner search TASK", storage))
