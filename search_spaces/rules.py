"""Rule and Group: which layers of a program a part of a search space speaks of, and what it says."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from search_spaces.errors import SearchSpaceError
from search_spaces.precision import Precision

# matmul and conv have a weight, dot multiplies two activations, embedding looks rows up, input is an input leaf.
KINDS = ("matmul", "conv", "dot", "embedding", "input")


def matches(glob: str, name: str) -> bool:
    """True when the glob is the layer's name or describes it; `*` and `?` match slashes too, case matters."""
    # The name itself first: names may hold brackets, which a glob reads as a set of characters.
    return glob == name or fnmatchcase(name, glob)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The precisions that some layers may take; the first rule that matches a layer decides.

    Raises:
        SearchSpaceError: the glob, the kinds or the precisions are empty, or a kind does not exist.
    """

    # Glob over layer names: "blocks/*/attn/qkv".
    layers: str = "*"
    # The kinds of layers it speaks of; all of them by default.
    kinds: tuple[str, ...] = KINDS
    # What may be tried besides `original`, which always may.
    precisions: tuple[Precision, ...]
    # True: no error when it decides for no layer.
    optional: bool = False

    def __post_init__(self) -> None:
        _check_glob("layers", self.layers)
        if not self.kinds:
            raise SearchSpaceError("kinds is empty; leave it out for all kinds")
        for kind in self.kinds:
            if kind not in KINDS:
                raise SearchSpaceError(f"kinds: unknown kind {kind!r}; use one of {', '.join(KINDS)}")
        if not self.precisions:
            raise SearchSpaceError('precisions is empty; write ["original"] to keep the layers as they are')

    def speaks_of(self, name: str, kind: str) -> bool:
        """True when the rule matches a layer of this name and kind."""
        return kind in self.kinds and matches(self.layers, name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Layers that always share one precision.

    Raises:
        SearchSpaceError: the name or the glob is empty.
    """

    # How reports call it.
    name: str
    # Glob over layer names.
    layers: str
    # True: no error when it matches no layer.
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise SearchSpaceError(f"name is {self.name!r}; give the group a name")
        _check_glob("layers", self.layers)


def _check_glob(key: str, glob: str) -> None:
    if not glob.strip():
        raise SearchSpaceError(f'{key} is {glob!r}; write a layer name or a glob, for example "blocks/*"')
