"""`tuner predict`: the policy that a search would try first, before anything is measured."""

import sys

import click

from tuner.cli.options import json_option, max_drop_option, space_option, storage_option, talk_options, task_argument
from tuner.cli.talk import note, quoted, suggest, with_storage


@click.command("predict")
@task_argument
@max_drop_option("Quality you are ready to give up: 1%, 0.01 or 1%rel.  [default: the task's own, else 1%]")
@space_option
@storage_option
@json_option
@talk_options
def command(task: str, max_drop: str | None, space: str | None, storage: str, as_json: bool) -> None:
    """Predict the best policy of a task without measuring any.

    TASK is `module`, `module:factory` or `path/to/file.py[:factory]`; the factory is `task` when left out. Every layer is
    timed and run alone, and what that adds up to is shown; only `tuner search` measures whole policies.
    """
    from tuner.drop import Drop
    from tuner.measure.sending import leave_memory_to_child
    from tuner.report.json_text import write_json
    from tuner.report.prediction import prediction_json, write_prediction
    from tuner.search.foresight import foresee_task
    from tuner.search.settings import DEFAULT_DROP
    from tuner.task_reference import load_study

    asked = None if max_drop is None else Drop.parse(max_drop)
    leave_memory_to_child()  # before the task's module does anything with JAX
    study = load_study(task)
    own = DEFAULT_DROP if study.max_drop is None else Drop.parse(study.max_drop)
    drop = own if asked is None else asked
    wanted = space if space is not None else study.space
    found = foresee_task(study.task, max_drop=drop, space=wanted, storage=storage, say=note)
    if as_json:
        write_json(prediction_json(found.policy, found.prediction, found.quality), sys.stdout)
    else:
        write_prediction(found.policy, found.prediction, found.quality, found.baseline_bytes, sys.stdout)
    for text in found.notes:
        note(f"Note: {text}")
    options = f" --max-drop {drop}" + (f" --space {quoted(space)}" if space else "")
    suggest(with_storage(f"tuner search {quoted(task)}{options}", storage))
