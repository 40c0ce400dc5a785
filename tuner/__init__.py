"""Which number format should each layer of a JAX program use? Found by measurement, on this device.

This is the only public door. A name is imported when it is first asked for (PEP 562), so that `import tuner` and
`tuner --help` load neither JAX nor Optuna nor SQLAlchemy.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search_spaces import ORIGINAL as ORIGINAL
    from search_spaces import Precision as Precision
    from search_spaces import SearchSpace as SearchSpace
    from search_spaces import SearchSpaceError as SearchSpaceError
    from tuner.calibrating import calibrate as calibrate
    from tuner.errors import NonFiniteError as NonFiniteError
    from tuner.errors import TunerError as TunerError
    from tuner.measurement import Measurement as Measurement
    from tuner.metrics import Metric as Metric
    from tuner.policy import Assignment as Assignment
    from tuner.policy import Policy as Policy
    from tuner.policy_file import diff_policies as diff_policies
    from tuner.policy_file import load_policy as load_policy
    from tuner.program import Prepared as Prepared
    from tuner.program import Program as Program
    from tuner.program import make_policy as make_policy
    from tuner.program import uniform_policy as uniform_policy
    from tuner.program.capture import capture as capture
    from tuner.program.prepare import prepare as prepare
    from tuner.program.stability import find_stability as find_stability
    from tuner.search import search as search
    from tuner.search.screened import ScreenedSampler as ScreenedSampler
    from tuner.shapes import Shape as Shape
    from tuner.study import Study as Study
    from tuner.study import open_study as open_study
    from tuner.task import Task as Task
    from tuner.task_reference import load_task as load_task

__version__ = "0.1.0.dev0"

# Room -> what it shows at the door; a test compares it with the imports above.
_ROOMS = {
    "search_spaces": ("ORIGINAL", "Precision", "SearchSpace", "SearchSpaceError"),
    "tuner.calibrating": ("calibrate",),
    "tuner.errors": ("NonFiniteError", "TunerError"),
    "tuner.measurement": ("Measurement",),
    "tuner.metrics": ("Metric",),
    "tuner.policy": ("Assignment", "Policy"),
    "tuner.policy_file": ("diff_policies", "load_policy"),
    "tuner.program": ("Prepared", "Program", "make_policy", "uniform_policy"),
    # From their own files: mypy takes `tuner.program.capture` for the module of that name.
    "tuner.program.capture": ("capture",),
    "tuner.program.prepare": ("prepare",),
    "tuner.program.stability": ("find_stability",),
    "tuner.search": ("search",),
    "tuner.search.screened": ("ScreenedSampler",),
    "tuner.shapes": ("Shape",),
    "tuner.study": ("Study", "open_study"),
    "tuner.task": ("Task",),
    "tuner.task_reference": ("load_task",),
}
_DOOR = {name: room for room, names in _ROOMS.items() for name in names}


class _Door(ModuleType):
    """Keeps a door name that is also the name of a room: importing `tuner.search` must not hide `search()`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _DOOR and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door

if not TYPE_CHECKING:  # a type checker that saw it would accept every misspelt name

    def __getattr__(name: str) -> Any:
        if name not in _DOOR:
            raise AttributeError(f"module 'tuner' has no attribute {name!r}")
        value = getattr(import_module(_DOOR[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_DOOR})
