"""`tuner suggest`: the best policy of a study for another budget, measured and predicted."""

import sys

import click

from tuner.cli.options import max_drop_option, storage_option, study_argument, talk_options
from tuner.cli.talk import is_quiet, note, quoted, suggest, with_storage


@click.command("suggest")
@study_argument
@max_drop_option("Quality you are ready to give up: 1%, 0.01 or 1%rel.  [default: the study's own]")
@click.option("--memory", metavar="LIMIT", help="What it may take: 0.4x of the baseline's memory, or 100MB.")
@click.option("--measure", is_flag=True, help="Measure the predicted policy, and confirm it where it is on the front.")
@storage_option
@talk_options
def command(study: str, max_drop: str | None, memory: str | None, measure: bool, storage: str) -> None:
    """Suggest the best policy of a study for another budget.

    The fastest measured policy within the budget is shown, and the one that is predicted to be faster still, if there is
    one. Nothing is measured without --measure.
    """
    from tuner.drop import Drop
    from tuner.measure.sending import leave_memory_to_child
    from tuner.report.points import drop_text, latency_text
    from tuner.report.prediction import write_prediction
    from tuner.search.scoreboard import describe
    from tuner.search.suggest import measure_suggestion
    from tuner.search.suggest import suggest as make_suggestion
    from tuner.study import open_study

    drop = None if max_drop is None else Drop.parse(max_drop)
    if measure:
        leave_memory_to_child()
    opened = open_study(study, storage)
    found = make_suggestion(opened, max_drop=drop, memory=memory)
    if found.measured is None:
        click.echo("Nothing measured is within this budget.")
    else:
        best = found.measured.measurement
        click.echo(
            f"Best measured: trial {found.measured.trial} ({found.measured.label}), latency {latency_text(best.latency)}, "
            f"drop {drop_text(best.quality)}."
        )
        suggest(with_storage(f"tuner export {quoted(study)} --point {found.measured.trial} -o policy.json", storage))
    if found.foreseen is None:
        click.echo("Nothing that was not measured is predicted to be faster within this budget.")
        return
    click.echo("Best predicted, not measured:")
    told = found.foreseen
    write_prediction(told.policy, told.prediction, told.quality, told.baseline_bytes, sys.stdout)
    if not measure:
        note("Measure it with --measure.")
        return
    record = measure_suggestion(opened, told, progress=not is_quiet())
    outcome = "nothing yet" if record.outcome is None else describe(record.outcome)
    click.echo(f"Measured: trial {record.trial}, {outcome}.")
