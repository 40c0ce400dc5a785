"""`tuner verify`: a policy file measured again, here and on the holdout examples."""

import sys

import click

from tuner.cli.options import json_option, max_drop_option, talk_options, task_argument
from tuner.cli.talk import note, quoted, suggest
from tuner.errors import GoalMissed


@click.command("verify")
@click.argument("policy", metavar="FILE")
@task_argument
@max_drop_option("Quality that may be lost.  [default: what it was exported with, else 1%]")
@json_option
@talk_options
def command(policy: str, task: str, max_drop: str | None, as_json: bool) -> None:
    """Measure a policy file again, here and on the holdout examples.

    Exits with 1 when the policy is slower than its recorded interval or loses more quality than allowed.
    """
    from tuner.policy_file import load_policy
    from tuner.report.json_text import write_json
    from tuner.report.verification import verification_json, write_verification
    from tuner.task_reference import load_task
    from tuner.verification import verify_policy

    loaded = load_policy(policy)
    result = verify_policy(loaded, load_task(task), where=policy, max_drop=max_drop)
    if as_json:
        write_json(verification_json(result), sys.stdout)
    else:
        write_verification(result, sys.stdout)
        suggest(f"tuner search {quoted(task)}") if not result.holds else note(
            f'Next: tuner.prepare(apply, params, tuner.load_policy("{policy}")) in your own program.'
        )
    if not result.holds:
        raise click.exceptions.Exit(GoalMissed.exit_code)
