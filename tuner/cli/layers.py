"""`tuner layers`: the layers of a task and the precisions each may take."""

import sys

import click

from tuner.cli.options import (
    json_option,
    space_option,
    split_scans_option,
    storage_option,
    talk_options,
    task_argument,
)
from tuner.cli.talk import is_quiet, note, quoted, suggest, with_storage
from tuner.errors import InputError
from tuner.task_reference import StudyModule


@click.command("layers")
@task_argument
@space_option
@split_scans_option
@click.option(
    "--screen", "wants_screening", is_flag=True, help="Show what each precision of each layer alone costs and gains."
)
@click.option("--time", "wants_times", is_flag=True, help="Show what each layer takes, and what would be fastest.")
@storage_option
@json_option
@talk_options
def command(
    task: str,
    space: str | None,
    split_scans: bool,
    wants_screening: bool,
    wants_times: bool,
    storage: str,
    as_json: bool,
) -> None:
    """List the layers of a task and the precisions each may take.

    TASK is `module`, `module:factory` or `path/to/file.py[:factory]`; the factory is `task` when left out. With --screen
    every precision of every layer is timed alone, and run alone on the calibration examples; with --time it is only timed,
    and each layer shown with its share of the program as written and the precision and kernel that would be fastest. What
    is found is kept in the database, for searches too.
    What this device cannot run, as far as `tuner doctor` or a search found out, is left out with its reason.
    """
    from tuner.capturing import capture_task
    from tuner.doctor import kept_probe
    from tuner.report.json_text import write_json
    from tuner.report.layers import layers_json, refusal_notes, unavailable_notes, write_layers
    from tuner.search.spaces import resolve_space
    from tuner.search.support import refused_of
    from tuner.task_reference import load_study

    study = load_study(task)
    if wants_screening and wants_times:
        raise InputError("give --time or --screen, not both; --screen shows the times too")
    if wants_times:
        _show_times(study, space, split_scans, storage, as_json)
        return
    if wants_screening:
        _show_screening(study, space, split_scans, storage, as_json)
        return
    program = capture_task(study.task.with_split_scans() if split_scans else study.task)
    wanted = space if space is not None else study.space
    refused = refused_of(kept_probe(storage), program, resolve_space(wanted, program).resolution)
    resolution = resolve_space(wanted, program, refused).resolution
    notes = [*program.notes, *unavailable_notes(resolution.refused), *refusal_notes(refused)]
    if as_json:
        write_json(layers_json(program.layers, resolution.choices, notes, resolution.refused), sys.stdout)
        return
    write_layers(program.layers, resolution.choices, sys.stdout, resolution.refused)
    for text in notes:
        note(f"Note: {text}")
    options = (f" --space {quoted(space)}" if space else "") + (" --split-scans" if split_scans else "")
    suggest(with_storage(f"tuner search {quoted(task)}{options}", storage))


def _show_times(study: StudyModule, space: str | None, split_scans: bool, storage: str, as_json: bool) -> None:
    from tuner.report.json_text import write_json
    from tuner.report.layer_times import layer_times_json, write_layer_times
    from tuner.search.layer_times import time_layers
    from tuner.search.progress import LineProgress, SilentProgress

    tuned = study.task.with_split_scans() if split_scans else study.task
    display = SilentProgress() if is_quiet() else LineProgress(sys.stderr)
    found = time_layers(tuned, space=space if space is not None else study.space, storage=storage, display=display)
    if as_json:
        write_json(layer_times_json(found), sys.stdout)
        return
    write_layer_times(found, sys.stdout)


def _show_screening(study: StudyModule, space: str | None, split_scans: bool, storage: str, as_json: bool) -> None:
    from tuner.report.json_text import write_json
    from tuner.report.screening import screening_json, write_screening
    from tuner.search.screening import screen_task

    tuned = study.task.with_split_scans() if split_scans else study.task
    found = screen_task(tuned, space=space if space is not None else study.space, storage=storage, say=note)
    if as_json:
        write_json(screening_json(found.rows, found.screening), sys.stdout)
        return
    write_screening(found.rows, sys.stdout)
    for text in found.notes:
        note(f"Note: {text}")
