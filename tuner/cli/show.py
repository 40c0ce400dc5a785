"""`tuner show`: one point of a study."""

import sys

import click

from tuner.cli.options import json_option, storage_option, study_argument, talk_options
from tuner.cli.talk import note, quoted, suggest, with_storage
from tuner.study import Study


@click.command("show", context_settings={"ignore_unknown_options": True})
@study_argument
@click.argument("point", metavar="POINT")
@storage_option
@click.option(
    "--stability", is_flag=True, help="Run it on one batch; show which layer goes non-finite, saturates or underflows."
)
@json_option
@talk_options
def command(study: str, point: str, storage: str, stability: bool, as_json: bool) -> None:
    """Show one point of a study, layer by layer.

    What each layer costs and gains is shown where that was measured. POINT is the number of a trial, or a label such as
    `astype(bf16)`. With --stability it may be a trial that failed.
    """
    from tuner.leave_one_out import leave_one_out, unmeasured_layers
    from tuner.report.json_text import write_json
    from tuner.report.policies import full_point_json, write_point
    from tuner.study import open_study

    opened = open_study(study, storage)
    if stability:
        _show_stability(opened, point, as_json)
        return
    found = opened.point(point)
    effects = leave_one_out(found, opened.points())
    if as_json:
        write_json(full_point_json(found, effects), sys.stdout)
        return
    write_point(found, sys.stdout, effects=effects)
    name = quoted(study)
    if found.is_reference:
        suggest(with_storage(f"tuner front {name}", storage))
        return
    export = with_storage(f"tuner export {name} --point {found.trial} -o policy.json", storage)
    compared = f"tuner diff {quoted(f'{study}:0')} {quoted(f'{study}:{found.trial}')}"
    suggest(export, *([] if found.is_baseline else [with_storage(compared, storage)]))
    unknown = unmeasured_layers(found, effects)
    reference = opened.record.task_reference
    if unknown and reference is not None:
        note(f"What {len(unknown)} of its layers cost and gain is not measured yet:")
        again = f"tuner search {quoted(reference)} --study {name} --around {found.trial}"
        suggest(with_storage(again, storage))


def _show_stability(study: Study, point: str, as_json: bool) -> None:
    from tuner.report.json_text import write_json
    from tuner.report.stability import stability_json, write_stability

    found = study.stability(point)
    if as_json:
        write_json(stability_json(found), sys.stdout)
    else:
        write_stability(found, sys.stdout)
