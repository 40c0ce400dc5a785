"""`tuner export`: the chosen point of a study as a policy file."""

import click

from tuner.cli.options import max_drop_option, storage_option, study_argument, talk_options
from tuner.cli.talk import quoted, suggest, with_storage
from tuner.errors import GoalMissed, InputError
from tuner.study import Choice, Study


@click.command("export")
@study_argument
@max_drop_option("Quality you are ready to give up: 1%, 0.01 or 1%rel.  [default: the study's own]")
@click.option("--minimize", metavar="latency|memory", help="What to make smallest inside the drop.  [default: latency]")
@click.option("--point", metavar="N", help="This point, whatever it costs.")
@click.option("--knee", is_flag=True, help="The point of the front with the best balance.")
@click.option("-o", "--output", metavar="FILE", required=True, help="The policy file to write.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--unconfirmed", is_flag=True, help="Take points too that were not confirmed on the holdout examples.")
@storage_option
@talk_options
def command(
    study: str,
    max_drop: str | None,
    minimize: str | None,
    point: str | None,
    knee: bool,
    output: str,
    force: bool,
    unconfirmed: bool,
    storage: str,
) -> None:
    """Write the chosen point of a study to a policy file.

    Without --point or --knee: the fastest point inside the allowed drop, confirmed on examples the search never saw.
    """
    from tuner.policy_file import save_policy
    from tuner.report.export import explain_choice
    from tuner.study import open_study

    _check_one_way(point=point, knee=knee, max_drop=max_drop, minimize=minimize)
    opened = open_study(study, storage)
    choice = _choose(opened, point, knee, max_drop, minimize or "latency", unconfirmed)
    if choice.point.policy is None:
        raise InputError(f"point {point!r} is a hand-made cast without a policy; choose a point that has one")
    written = save_policy(choice.point.policy, output, force)
    click.echo(f"Wrote {written}: {choice.point.label}, trial {choice.point.trial} of study {study}.")
    for sentence in explain_choice(choice):
        click.echo(sentence)
    task = opened.record.task_reference or "TASK"
    suggest(
        f"tuner verify {quoted(output)} {quoted(task)}",
        with_storage(f"tuner show {quoted(study)} {choice.point.trial}", storage),
    )


def _choose(
    study: Study, point: str | None, knee: bool, max_drop: str | None, minimize: str, unconfirmed: bool
) -> Choice:
    if point is None and not knee:
        return study.decide(max_drop=max_drop, minimize=minimize, confirmed_only=not unconfirmed)
    chosen = study.knee() if point is None else study.point(point)
    if not (unconfirmed or chosen.confirmed or chosen.is_baseline or chosen.is_reference):
        raise GoalMissed(
            f"trial {chosen.trial} ({chosen.label}) of study {study.name!r} is not confirmed on the holdout examples; "
            "export it anyway with --unconfirmed, or choose a point that `tuner front` shows as confirmed"
        )
    return Choice(point=chosen)


def _check_one_way(*, point: str | None, knee: bool, max_drop: str | None, minimize: str | None) -> None:
    ways = [("--point", point is not None), ("--knee", knee), ("--minimize", minimize is not None)]
    given = [name for name, is_given in ways if is_given]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} choose in different ways; give one of them")
    if max_drop is not None and given and given[0] != "--minimize":
        raise InputError(f"--max-drop does not go with {given[0]}, which takes its point at any drop; give one of them")
