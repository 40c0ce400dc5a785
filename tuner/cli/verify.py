"""`tuner verify`: a policy file measured again, here and on the holdout examples."""

import sys

import click

from tuner.cli.options import isolation_option, json_option, max_drop_option, talk_options, task_argument
from tuner.cli.talk import note, quoted, suggest
from tuner.errors import GoalMissed


@click.command("verify")
@click.argument("policy", metavar="FILE")
@task_argument
@max_drop_option("Quality that may be lost.  [default: what it was exported with, else 1%]")
@isolation_option
@json_option
@talk_options
def command(policy: str, task: str, max_drop: str | None, isolation: str, as_json: bool) -> None:
    """Measure a policy file again, here and on the holdout examples.

    Exits with 1 when the policy is slower than its recorded interval or loses more quality than allowed.
    """
    from tuner.isolation import CHILD, check_isolation
    from tuner.measure.sending import leave_memory_to_child
    from tuner.policy_file import load_policy
    from tuner.report.json_text import write_json
    from tuner.report.verification import verification_json, write_verification
    from tuner.task_reference import load_task
    from tuner.verification import verify_policy

    check_isolation(isolation)
    loaded = load_policy(policy)
    if isolation == CHILD:
        leave_memory_to_child()  # before the task's module does anything with JAX
    result = verify_policy(loaded, load_task(task), where=policy, max_drop=max_drop, isolation=isolation, say=note)
    if as_json:
        write_json(verification_json(result), sys.stdout)
    else:
        write_verification(result, sys.stdout)
        suggest(f"tuner search {quoted(task)}") if not result.holds else note(
            f'Next: tuner.prepare(apply, params, tuner.load_policy("{policy}")) in your own program.'
        )
    if not result.holds:
        raise click.exceptions.Exit(GoalMissed.exit_code)
