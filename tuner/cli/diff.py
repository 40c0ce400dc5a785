"""`tuner diff`: what two policies assign differently."""

import sys
from pathlib import Path

import click

from tuner.cli.options import storage_option, talk_options
from tuner.cli.talk import quoted, suggest, with_storage
from tuner.errors import InputError
from tuner.policy import Policy


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--study", metavar="NAME", help="The study of points given by number alone.")
@storage_option
@talk_options
def command(before: str, after: str, study: str | None, storage: str) -> None:
    """Compare two policies, layer by layer.

    A and B are policy files, or points: STUDY:POINT, or POINT alone with --study (or when the database holds one study).
    """
    from tuner.policy_file import diff_policies
    from tuner.report.policies import write_difference

    (old, _), (new, next_command) = (_find_policy(text, study, storage) for text in (before, after))
    write_difference(diff_policies(old, new), sys.stdout, fusions=(old.fusions, new.fusions))
    suggest(next_command)


def _find_policy(text: str, study: str | None, storage: str) -> tuple[Policy, str]:
    """The policy in a file, or of a point, and what to do with it next."""
    from tuner.policy_file import load_policy
    from tuner.study import open_study

    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return load_policy(path), f"tuner verify {quoted(text)} TASK"
    name, colon, point = text.rpartition(":")
    name = name if colon else study or _only_study(text, storage)
    found = open_study(name, storage).point(point)
    if found.policy is None:
        raise InputError(f"point {text!r} is a hand-made cast without a policy; compare a point that has one")
    return found.policy, with_storage(f"tuner show {quoted(name)} {found.trial}", storage)


def _only_study(text: str, storage: str) -> str:
    from tuner.store import Store

    with Store.open(storage, create=False, read_only=True) as store:
        names = [record.name for record in store.studies()]
    if len(names) == 1:
        return names[0]
    raise InputError(
        f"{text!r} is no policy file, and as a point it needs its study; write STUDY:POINT with one of "
        f"{', '.join(names) or 'no studies here'}, or give --study NAME"
    )
