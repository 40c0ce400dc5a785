"""`tuner search`: measure candidates and keep the front."""

import sys
from functools import partial

import click

from tuner.cli.options import (
    isolation_option,
    max_drop_option,
    space_option,
    split_scans_option,
    storage_option,
    talk_options,
    task_argument,
)
from tuner.cli.talk import is_quiet, is_verbose, note, quoted, sentence, suggest, with_storage
from tuner.errors import GoalMissed
from tuner.study import Study


@click.command("search")
@task_argument
@space_option
@click.option("--trials", metavar="N", help="Trials of the study in all, baseline included; a resume completes them.")
@click.option("--budget", metavar="TIME", help="Wall-clock time of this run: 5m, 90s, 1h30m.  [default: 10m]")
@max_drop_option("Quality you are ready to give up: 1%, 0.01 or 1%rel.  [default: the task's own, else 1%]")
@click.option(
    "--sampler",
    metavar="NAME",
    default="screened",
    show_default=True,
    help="screened, nsga2, tpe, gp, random, exhaustive.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sampler.")
@click.option("--goal", metavar="GOAL", help="Stop when a candidate reaches it: latency<=0.5x,drop<=1%,memory<=0.4x.")
@click.option(
    "--patience",
    metavar="N",
    type=int,
    help="Stop when N trials add under 0.1% hypervolume; 0: never.  [default: 30 or more, only without --trials]",
)
@click.option("--study", metavar="NAME", help="What to call the study.  [default: the task's name]")
@storage_option
@click.option("--batch-size", metavar="N", help="Examples per call.  [default: the task's own]")
@click.option("--objectives", metavar="LIST", help="One or more of latency,quality,memory.  [default: all]")
@click.option("--start", metavar="FILE", help="A policy file to try right after the baseline.")
@click.option(
    "--around",
    metavar="TRIAL",
    type=int,
    help="Measure what each layer of that trial costs and gains: one layer back as written at a time.",
)
@isolation_option
@click.option(
    "--deadline",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="To compile a candidate, and for one call of it.",
)
@click.option(
    "--memory-limit", metavar="SIZE", help="What a candidate may take beyond the baseline: 8GB.  [default: nearly all]"
)
@split_scans_option
@click.option(
    "--baseline",
    metavar="resident|alternate",
    default="resident",
    show_default=True,
    help="Time candidates beside the baseline, or, where weights do not fit twice, in turns with it: wider intervals.",
)
@talk_options
def command(
    task: str,
    space: str | None,
    trials: str | None,
    budget: str | None,
    max_drop: str | None,
    sampler: str,
    seed: int,
    goal: str | None,
    patience: int | None,
    study: str | None,
    storage: str,
    batch_size: str | None,
    objectives: str | None,
    start: str | None,
    around: int | None,
    isolation: str,
    deadline: str,
    memory_limit: str | None,
    split_scans: bool,
    baseline: str,
) -> None:
    """Search for the best precision of every layer, by measurement.

    TASK is `module`, `module:factory` or `path/to/file.py[:factory]`; the factory is `task` when left out. Stop with
    Ctrl-C at any time: the same command goes on where it stopped, and nothing is measured twice.
    """
    from tuner.isolation import CHILD
    from tuner.measure.sending import leave_memory_to_child
    from tuner.search.budget import read_count
    from tuner.search.runner import run_search
    from tuner.search.settings import check_settings
    from tuner.task_reference import load_study

    if isolation == CHILD:
        leave_memory_to_child()  # before the task's module does anything with JAX
    wanted_trials = None if trials is None else read_count(trials, "--trials")
    examples = None if batch_size is None else read_count(batch_size, "--batch-size")
    checked = partial(
        check_settings,
        storage=storage,
        trials=wanted_trials,
        budget=budget,
        max_drop=max_drop,
        space=space,
        sampler=sampler,
        seed=seed,
        goal=goal,
        patience=patience,
        objectives=None if objectives is None else objectives.split(","),
        start=start,
        around=around,
        isolation=isolation,
        deadline=deadline,
        memory_limit=memory_limit,
        baseline=baseline,
    )
    checked(study="unnamed" if study is None else study)  # before the task is loaded, which may take minutes
    loaded = load_study(task)
    tuned = loaded.task if examples is None else loaded.task.with_batch_size(examples)
    tuned = tuned.with_split_scans() if split_scans else tuned
    settings = checked(
        study=tuned.name if study is None else study,
        recommended_trials=loaded.trials,
        recommended_drop=loaded.max_drop,
        recommended_space=loaded.space,
    )
    try:
        found = run_search(tuned, settings, progress=not is_quiet(), verbose=is_verbose())
    except KeyboardInterrupt:
        note("Stopped; everything measured is kept. The same command goes on from here.")
        raise
    _report(found, task, storage)


def _report(found: Study, task: str, storage: str) -> None:
    """The front, the point that would be exported, and what to do next."""
    from tuner.report.front import limits_of, write_front

    front = found.front()
    write_front(front.points, front.references, sys.stdout, limits=limits_of(found.record), ties=front.ties)
    name = quoted(found.name)
    try:
        chosen = found.choose()
    except GoalMissed as error:
        note(f"Nothing to export yet: {sentence(error)}")
        suggest(with_storage(f"tuner trials {name}", storage))
        return
    if chosen.is_baseline:
        note(f"Nothing measured is faster than the baseline inside the allowed drop of {found.record.max_drop}.")
        again = f"tuner search {quoted(task)} --study {name} --budget 10m"
        suggest(
            with_storage(f"tuner export {name} --minimize memory -o policy.json", storage), with_storage(again, storage)
        )
        return
    note(f"Fastest inside the allowed drop of {found.record.max_drop}: {chosen.label} (trial {chosen.trial}).")
    export = f"tuner export {name} -o policy.json"
    suggest(with_storage(export, storage), with_storage(f"tuner show {name} {chosen.trial}", storage))
