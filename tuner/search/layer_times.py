"""What each layer of a task takes alone, and what would be fastest: before any search, from the database or timed now."""

import math
from collections.abc import Mapping, Sequence

from search_spaces import ORIGINAL, Precision, SearchSpaceError, parse_format
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.isolation import CHILD
from tuner.measure import KernelTable, make_evaluator
from tuner.measurement import RESIDENT
from tuner.policy import PLAIN
from tuner.program.layer import Layer
from tuner.report.layer_times import LayerTime, LayerTimes
from tuner.search.budget import Budget
from tuner.search.kernel_times import kernel_table
from tuner.search.progress import Progress
from tuner.search.spaces import Space, resolve_space
from tuner.search.support import complete_probe, keep_probe, known_probe, refused_of
from tuner.store import Store
from tuner.task import Task, check_task

# For the layers as written, in turns with the whole program.
_SHARES_S = 30.0


def time_layers(
    task: Task, *, space: Space | None, storage: str, display: Progress, isolation: str = CHILD
) -> LayerTimes:
    """Every layer that may change, timed alone in all that it may take; what the database has is not timed again.

    Args:
        task: whose layers.
        space: what each may take; by default the preset for the device.
        storage: the database that times are read from and kept in, for searches too.
        display: told what happens.
        isolation: "child": in a process of its own, which a kernel may crash; "none": in this one.

    Raises:
        TunerError: the task or the space cannot be used as given, or the program as written does not run.
    """
    check_task(task)
    program = capture_task(task)
    made = make_evaluator(task, program, isolation=isolation, say=display.note, max_drop=Drop(1.0), baseline=RESIDENT)
    with made as evaluator, Store.open(storage) as store:
        wanted = resolve_space(space, program)
        probe = complete_probe(known_probe(store), evaluator, program, wanted.resolution, display)
        keep_probe(store, probe)
        choices = resolve_space(wanted.space, program, refused_of(probe, program, wanted.resolution)).resolution.choices
        table = kernel_table(store, evaluator, choices, Budget(trials=None, seconds=None), display, frozen=False)
        shares = evaluator.layer_shares(_SHARES_S)
        whole = evaluator.baseline.latency.milliseconds / 1000
    return layer_times(program.layers, choices, table, shares, whole)


def layer_times(
    layers: Sequence[Layer],
    choices: Mapping[str, Sequence[Precision]],
    table: KernelTable,
    shares: Mapping[str, float],
    whole: float,
) -> LayerTimes:
    """Shares of the program, and of a kernel table what would be faster.

    Args:
        layers: of the program.
        choices: layer name -> the precisions it may take.
        table: of kernel times; only those of one layer are held against each other, which were taken together.
        shares: layer name -> what it has of the program as written.
        whole: seconds that the program takes as written.
    """
    rows = []
    for layer in layers:
        if layer.name not in table.signatures or len(choices[layer.name]) < 2:
            continue
        written = table.seconds(layer.name, ORIGINAL, PLAIN)
        timed = {p: table.seconds(layer.name, p, table.best(layer.name, p)) for p in choices[layer.name]}
        known = {precision: seconds for precision, seconds in timed.items() if math.isfinite(seconds)}
        fastest = min(known, key=lambda precision: known[precision]) if known else ORIGINAL
        rows.append(
            LayerTime(
                layer=layer.name,
                written=written,
                share=shares.get(layer.name, math.nan),
                precision=str(fastest),
                kernel=table.best(layer.name, fastest),
                seconds=timed[fastest],
                same_formats=timed.get(_own(layer), written),
            )
        )
    return LayerTimes(rows=tuple(rows), whole=whole)


def _own(layer: Layer) -> Precision:
    """The precision that holds a layer in the format it has, so that another kernel may run it."""
    try:
        format = parse_format(layer.dtype)
    except SearchSpaceError:  # a dtype that no precision names
        return ORIGINAL
    return Precision(weights=format, activations=format, accumulate=format)
