"""The rules that hold for the whole tree, each with a test that it would notice the rule being broken."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("search_spaces", "tuner", "studies")
FOLDERS = (*PACKAGES, "tests", "benchmarks")
LONGEST_FILE = 400

# Room -> rooms it must not import. Rooms are the longest matching prefix of a module's name.
_ABOVE = {
    "search_spaces": {"tuner", "studies"},
    "tuner": {"studies"},
    "tuner.program": {"tuner.measure", "tuner.search", "tuner.cli"},
    "tuner.measure": {"tuner.search", "tuner.cli"},
    "tuner.search": {"tuner.cli"},
    # Leaves: anyone may import them, so they must not know who decides and who asks.
    **{
        f"tuner.{leaf}": {"tuner.cli", "tuner.search"}
        for leaf in (
            "adapters",
            "store",
            "report",
            "export",
            "policy",
            "policy_file",
            "front",
            "files",
            "measurement",
            "errors",
        )
    },
}
FORBIDDEN = {room: _ABOVE[room] | {"tests", "benchmarks"} for room in _ABOVE} | {"studies": {"tests", "benchmarks"}}

# Only these rooms import the heavy ones as they are loaded; the rest is what `tuner --help` may come across.
HEAVY = {"jax", "jaxlib", "optuna", "sqlalchemy", "tensorflow_datasets"}
HEAVY_ROOMS = (
    "search_spaces.nibbles",
    "search_spaces.quantize",
    "studies",
    "tuner._jax_compat",
    "tuner.measure",
    "tuner.program",
    "tuner.search",
    "tuner.store",
)

# Import name -> distribution, where they differ by more than dashes.
DISTRIBUTIONS = {"haiku": "dm_haiku", "PIL": "pillow", "sklearn": "scikit_learn"}

# The child unpickles the task that its own parent sends it over a pipe, never what lies in a file.
PIPE_END = "tuner/measure/child.py"
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "shelve", "joblib", "marshal", "jsonpickle"}


class Import(NamedTuple):
    """One imported name; `eager` when it happens as the module is imported and is no type-only import."""

    module: str
    line: int
    eager: bool


def sources(root: Path, folders: tuple[str, ...] = FOLDERS) -> Iterator[tuple[Path, str, ast.Module]]:
    """(path, dotted module name, tree) of every Python file."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield path, name, ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(tree: ast.AST, eager: bool = True) -> Iterator[Import]:
    """Every import below `tree`; `from a import b` counts as `a` and as `a.b`, which may be a module too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield Import(module, node.lineno, eager)
            yield from (Import(f"{module}.{alias.name}", node.lineno, eager) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.body, []), eager=False)
            yield from imports(ast.Module(node.orelse, []), eager)
        else:
            runs_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, eager and not runs_later)


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def uphill_imports(root: Path) -> list[str]:
    """Imports against the one direction, wherever in the file they stand."""
    found = []
    for path, name, tree in sources(root, PACKAGES):
        if name == "tuner":
            continue  # the door shows names of every room
        rooms = [room for room in FORBIDDEN if within(name, room)]
        forbidden = {above for room in rooms for above in FORBIDDEN[room]}
        for module, line, _ in imports(tree):
            found += [f"{path.relative_to(root)}:{line} imports {up}" for up in forbidden if within(module, up)]
    return sorted(set(found))


def heavy_imports(root: Path) -> list[str]:
    """One chain of imports at module level from each light module that reaches a heavy one."""
    eager = {name: [i.module for i in imports(tree) if i.eager] for _, name, tree in sources(root, PACKAGES)}
    light = [name for name in eager if not any(within(name, room) for room in HEAVY_ROOMS)]
    return sorted(filter(None, (_chain_to_heavy(name, eager) for name in light)))


def _chain_to_heavy(start: str, eager: dict[str, list[str]]) -> str | None:
    chains = {start: start}
    waiting = [start]
    for name in waiting:  # grows while it is walked: breadth first, so the chain is a shortest one
        for module in eager.get(name, ()):
            if module.split(".")[0] in HEAVY:
                return f"{chains[name]} -> {module}"
            for loaded in accumulate(module.split("."), "{}.{}".format):  # importing a.b.c runs a and a.b first
                if loaded in eager and loaded not in chains:
                    chains[loaded] = f"{chains[name]} -> {loaded}"
                    waiting.append(loaded)
    return None


def unpickling(root: Path) -> list[str]:
    """Whatever could run code that lies in a file or a database."""
    found = []
    for path, _, tree in sources(root):
        where = path.relative_to(root)
        roots = [(i.line, i.module.split(".")[0]) for i in imports(tree)]
        found += [f"{where}:{line} {module}" for line, module in roots if module in UNPICKLERS]
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                found.append(f"{where}:{node.value.lineno} allow_pickle")
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("cloudpickle.load", "cloudpickle.loads"):
                if where.as_posix() == PIPE_END and ast.unparse(node) == "cloudpickle.loads":
                    continue
                found.append(f"{where}:{node.lineno} {ast.unparse(node)}")
    return sorted(set(found))


def jax_internals(root: Path) -> list[str]:
    """Uses of jax._src outside the one file that may."""
    found = []
    for path, name, tree in sources(root):
        if name == "tuner._jax_compat":
            continue
        where = path.relative_to(root)
        found += [f"{where}:{i.line}" for i in imports(tree) if within(i.module, "jax._src")]
        attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        found += [f"{where}:{node.lineno}" for node in attributes if ast.unparse(node) == "jax._src"]
    return sorted(set(found))


def long_files(root: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path, _, _ in sources(root)}
    return [f"{path.relative_to(root)}: {n} lines" for path, n in lengths.items() if n > LONGEST_FILE]


def undeclared_imports(root: Path) -> list[str]:
    """Imports in the packages of what pyproject.toml does not require, if only as an extra."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *chain.from_iterable(project.get("optional-dependencies", {}).values())]
    declared = {re.split(r"[^\w-]", line)[0].lower().replace("-", "_") for line in lines}
    known = declared | set(PACKAGES) | sys.stdlib_module_names
    found = set()
    for path, _, tree in sources(root, PACKAGES):
        for module, line, _ in imports(tree):
            top = module.split(".")[0]
            if DISTRIBUTIONS.get(top, top) not in known:
                found.add(f"{path.relative_to(root)}:{line} imports {top}")
    return sorted(found)


RULES = (uphill_imports, heavy_imports, unpickling, jax_internals, long_files, undeclared_imports)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule):
    assert rule(ROOT) == []


def test_the_rules_see_the_whole_tree():
    names = {name for _, name, _ in sources(ROOT)}
    assert {"search_spaces.precision", "tuner", "tuner.policy", "tuner.program.layer", "tests.conftest"} <= names


def plant(root: Path, files: dict[str, str]) -> Path:
    """A tree with these files, named without their suffix."""
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("search_spaces/space", "from tuner.errors import InputError"),
        ("search_spaces/space", "import tuner"),
        ("tuner/task", "import studies.digits_mlp"),
        ("tuner/program/rewrite", "from tuner.measure import device_name"),
        ("tuner/program/rewrite", "from tuner import search"),
        ("tuner/measure/quality", "def f():\n    from tuner.search.objective import objective"),
        ("tuner/search/runner", "import tuner.cli.main as cli"),
        ("tuner/store/models", "if TYPE_CHECKING:\n    from tuner.search import runner"),
        ("tuner/front", "import tuner.cli"),
        ("studies/digits", "from tests.conftest import ROOT"),
    ],
)
def test_an_uphill_import_is_noticed(tmp_path, file, text):
    assert len(uphill_imports(plant(tmp_path, {file: text}))) == 1


def test_downhill_imports_are_fine(tmp_path):
    files = {
        "search_spaces/space": "import tomllib",
        "tuner/program/rewrite": "from tuner.policy import Policy\nfrom search_spaces import Precision",
        "tuner/search/runner": "from tuner.measure import Evaluator\nfrom tuner.store import Store",
        "tuner/searching": "import tuner.cli",  # a name that only begins like a room
        "studies/digits": "from tuner import Task",
    }
    assert uphill_imports(plant(tmp_path, files)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import jax",
        "from jax import numpy as jnp",
        "class A:\n    import optuna",
        "try:\n    import jaxlib.xla_client\nexcept ImportError:\n    pass",
        "from tuner.store import models",
        "import tuner.store.records",  # whose package imports the heavy one
    ],
)
def test_a_heavy_import_is_noticed_through_other_modules(tmp_path, text):
    files = {
        "tuner/front": "import tuner.shapes",
        "tuner/shapes": text,
        "tuner/store/__init__": "from tuner.store.models import Row",
        "tuner/store/models": "import sqlalchemy",
        "tuner/store/records": "x = 1",
    }
    chains = [chain.split(" -> ") for chain in heavy_imports(plant(tmp_path, files))]
    assert [chain[0] for chain in chains] == ["tuner.front", "tuner.shapes"]
    assert chains[0][1:] == chains[1]


def test_an_import_inside_a_function_or_for_types_only_is_light(tmp_path):
    text = "def f():\n    import jax\nif TYPE_CHECKING:\n    import optuna"
    assert heavy_imports(plant(tmp_path, {"tuner/front": text, "tuner/cli/front": "import tuner.front"})) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "def f():\n    from dill import loads",
        "import joblib",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "cloudpickle.loads(data)",
        "from cloudpickle import dumps\nload = cloudpickle.load",
    ],
)
def test_unpickling_is_noticed(tmp_path, text):
    assert len(unpickling(plant(tmp_path, {"studies/cache": text}))) == 1


def test_only_the_end_of_the_pipe_may_unpickle_and_only_bytes(tmp_path):
    text = "cloudpickle.loads(packed)\ncloudpickle.load(file)"
    assert unpickling(plant(tmp_path, {"tuner/measure/child": text})) == ["tuner/measure/child.py:2 cloudpickle.load"]
    assert len(unpickling(plant(tmp_path, {"tuner/measure/process": text}))) == 1 + 2  # the file planted before, too


def test_reading_data_is_fine(tmp_path):
    assert unpickling(plant(tmp_path, {"studies/cache": "np.load(path, allow_pickle=False)\njson.loads(text)"})) == []


@pytest.mark.parametrize(
    "text", ["import jax._src.core", "from jax._src import core", "from jax import _src", "jax._src.core.Jaxpr"]
)
def test_jax_internals_are_noticed_outside_their_file(tmp_path, text):
    assert len(jax_internals(plant(tmp_path, {"tuner/program/rewrite": text}))) == 1
    assert len(jax_internals(plant(tmp_path, {"tuner/_jax_compat": text}))) == 1  # the file planted before, still alone


def test_an_undeclared_import_is_noticed(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["jax>=0.10", "tensorflow-datasets"]\n')
    text = "import os\nimport jax.numpy\nimport tensorflow_datasets\nfrom tuner import Task\nimport scipy.special"
    found = undeclared_imports(plant(tmp_path, {"studies/new": text}))
    assert found == ["studies/new.py:5 imports scipy"]


def test_a_long_file_is_noticed(tmp_path):
    plant(tmp_path, {"tuner/short": "x = 1\n" * LONGEST_FILE, "tuner/long": "x = 1\n" * (LONGEST_FILE + 1)})
    assert long_files(tmp_path) == ["tuner/long.py: 401 lines"]
