"""`tuner front`: the best trade-offs of a study."""

import sys

import click

from tuner.cli.options import csv_option, json_option, storage_option, study_argument, talk_options
from tuner.cli.talk import quoted, suggest, with_storage


@click.command("front")
@study_argument
@storage_option
@json_option
@csv_option
@talk_options
def command(study: str, storage: str, as_json: bool, as_csv: bool) -> None:
    """Show the best trade-offs that a study found.

    No point of the front is beaten by another in every objective. Latency is a ratio to your own `jax.jit`; the drop is
    the loss of quality against it on the same examples.
    """
    from tuner.cli.talk import check_one_format
    from tuner.report.front import front_json, limits_of, write_front, write_front_csv
    from tuner.report.json_text import write_json
    from tuner.study import open_study

    check_one_format(as_json=as_json, as_csv=as_csv)
    opened = open_study(study, storage)
    front = opened.front()
    if as_json:
        write_json(front_json(study, front.points, front.references, front.ties), sys.stdout)
        return
    if as_csv:
        write_front_csv(front.points, sys.stdout)
        return
    write_front(front.points, front.references, sys.stdout, limits=limits_of(opened.record), ties=front.ties)
    name = quoted(study)
    if not front:
        task = quoted(opened.record.task_reference or "TASK")
        suggest(with_storage(f"tuner search {task} --study {name}", storage))
        return
    shown = next((point.trial for point in front if not point.is_reference), 0)
    suggest(
        with_storage(f"tuner show {name} {shown}", storage),
        with_storage(f"tuner export {name} -o policy.json", storage),
    )
