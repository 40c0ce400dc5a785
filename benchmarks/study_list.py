"""Which studies there are: found by reading their modules, so that none is forgotten and none has to be importable."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "studies"
FACTORY = "task"

# Study -> its model and its data in a few words. A factory that has no entry of its own is named after its module.
ABOUT = {
    "digits_mlp": ("perceptron, 2 x 512", "scikit-learn digits"),
    "fashion_mlp": ("perceptron, 2 x 512", "Fashion-MNIST"),
    "fashion_mlp:mnist": ("perceptron, 2 x 512", "MNIST"),
    "fashion_resnet": ("ResNet, 5 blocks", "Fashion-MNIST"),
    "fashion_vit": ("ViT, 6 layers", "Fashion-MNIST"),
    "fashion_vit:scanned": ("the same, under nn.scan", "Fashion-MNIST"),
    "minilm": ("all-MiniLM-L6-v2", "VADER sentences"),
    "efficientnet_lite0": ("EfficientNet-Lite0", "Fashion-MNIST, 64 x 64"),
    "efficientnet_lite0:photographs": ("EfficientNet-Lite0", "20 photographs, 224 x 224"),
    "glass_lm": ("Llama-style, 4 layers", "alice29.txt"),
    "glass_lm:decode": ("the same, token by token", "alice29.txt"),
}
# What a study imports -> what its model is written in.
_LIBRARIES = {
    "flax.nnx": "Flax NNX",
    "flax.linen": "Flax Linen",
    "equinox": "Equinox",
    "haiku": "Haiku",
    "keras": "Keras",
    "jax.example_libraries.stax": "stax",
}
BARE = "bare JAX"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A ready study and what it is, for people."""

    reference: str
    model: str
    library: str
    data: str


def find_studies(folder: Path = FOLDER) -> list[Ready]:
    """Every public function of a study's module that says it gives a Task and takes nothing, `task` first."""
    found = []
    for path in sorted(folder.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        factories = sorted(_factories(tree), key=lambda name: name != FACTORY)
        if FACTORY in factories:
            found += [_ready(path.stem, factory, _library(tree)) for factory in factories]
    return found


def _ready(module: str, factory: str, library: str) -> Ready:
    reference = module if factory == FACTORY else f"{module}:{factory}"
    model, data = ABOUT.get(reference) or ABOUT.get(module) or (module, "-")
    return Ready(reference=reference, model=model, library=library, data=data)


def _factories(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns is not None:
            takes = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if not takes and ast.unparse(node.returns).strip("'\"") in ("tuner.Task", "Task"):
                yield node.name


def _library(tree: ast.Module) -> str:
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return next((name for module, name in _LIBRARIES.items() if module in imported), BARE)
