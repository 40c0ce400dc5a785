"""Task references: `module`, `module:factory` or `path/to/file.py[:factory]`, loaded into a Task."""

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.errors import InputError, error_line
from tuner.task import Task

DEFAULT_FACTORY = "task"
FORMS = "module, module:factory or path/to/file.py[:factory]"


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyModule:
    """A task and the settings its module recommends; None where it recommends nothing."""

    task: Task
    space: Any = None  # a name, a path, or a SearchSpace
    max_drop: float | str | None = None
    trials: int | None = None


def load_task(reference: str) -> Task:
    """The task that the reference names, with `task.reference` set to a form any process can load."""
    return load_study(reference).task


def load_study(reference: str) -> StudyModule:
    """The task that the reference names, and its module's `space`, `max_drop` and `trials`."""
    place, factory = _parse(reference)
    _make_importable(Path.cwd(), first=True)
    is_file = place.endswith(".py")
    if is_file:
        place = str(Path(place).expanduser().resolve())
    module = _import_file(place) if is_file else _import_module(place)
    task = _make_task(module, place, factory).with_reference(f"{place}:{factory}")
    return StudyModule(
        task=task,
        space=getattr(module, "space", None),
        max_drop=_setting(module, place, "max_drop", (int, float, str)),
        trials=_setting(module, place, "trials", (int,)),
    )


def _parse(reference: str) -> tuple[str, str]:
    place, colon, factory = reference.strip().rpartition(":")
    if not colon or factory.endswith(".py") or "\\" in factory:  # no factory; the colon was a drive letter's
        place, factory = reference.strip(), DEFAULT_FACTORY
    is_file = place.endswith(".py")
    if "/" in place and not is_file:
        raise InputError(f"task {reference!r} is a path that does not end in .py; give {FORMS}")
    if not place or not factory.isidentifier() or (not is_file and (":" in place or place.startswith("."))):
        raise InputError(f"task {reference!r} is not of the form {FORMS}")
    return place, factory


def _make_importable(folder: Path, *, first: bool) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(folder))


def _import_module(name: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(_does_not_import(name, error)) from error
        raise InputError(
            f"no module {error.name!r} for task {name!r}, neither installed nor in {Path.cwd()}; "
            f"give {FORMS}, or change to its folder"
        ) from error
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends itself must not end us
        raise InputError(_does_not_import(name, error)) from error


def _import_file(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise InputError(f"no file {path}; give {FORMS}")
    name = f"_task_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file; give {FORMS}")
    module = importlib.util.module_from_spec(spec)
    _make_importable(Path(path).parent, first=False)  # modules beside the file, as if it were run as a script
    sys.modules[name] = module  # dataclasses and inspect look their module up there
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(_does_not_import(path, error)) from error
    return module


def _does_not_import(place: str, error: BaseException) -> str:
    hint = f"install {error.name}" if isinstance(error, ModuleNotFoundError) and error.name else "mend it"
    return f"task module {place} does not import: {error_line(error)}; {hint} and try again"


def _make_task(module: ModuleType, place: str, factory: str) -> Task:
    made = getattr(module, factory, None)
    if made is None:
        names = ", ".join(_public_callables(module)) or "none"
        raise InputError(
            f"{place} has no factory {factory!r}; its public callables are: {names}. "
            f"Define {factory}() -> tuner.Task, or name one as {place}:FACTORY"
        )
    if callable(made):
        try:
            made = made()
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{place}:{factory}() fails: {error_line(error)}; it is called without arguments and must return a "
                "tuner.Task"
            ) from error
    if not isinstance(made, Task):
        raise InputError(f"{place}:{factory} gives a {type(made).__name__}, not a tuner.Task; let it return one")
    return made


def _public_callables(module: ModuleType) -> list[str]:
    """Names of the callables that the module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _setting(module: ModuleType, place: str, name: str, types: tuple[type, ...]) -> Any:
    value = getattr(module, name, None)
    if value is not None and (isinstance(value, bool) or not isinstance(value, types)):
        raise InputError(f"{place} sets {name}={value!r}; give {' or '.join(t.__name__ for t in types)}")
    return value
