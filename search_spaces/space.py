"""SearchSpace: which precisions each layer may take, by ordered rules over layer names and kinds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from search_spaces.errors import SearchSpaceError
from search_spaces.precision import Precision
from search_spaces.resolution import AnyLayer, Resolution, resolve_space
from search_spaces.rules import Group, Rule
from search_spaces.space_file import SpaceParts, read_space, write_space

_SUFFIX = ".toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpace:
    """Layer -> the precisions it may take.

    `original` may always be tried. A layer that no rule matches stays original, as does every frozen one.

    Raises:
        SearchSpaceError: two groups have the same name.
    """

    # What reports and errors call it: the preset, or the file as the user named it.
    name: str
    # The first rule that matches a layer decides.
    rules: tuple[Rule, ...]
    # Layers that move together.
    groups: tuple[Group, ...] = ()
    # Globs of layers that stay original.
    freeze: tuple[str, ...] = ()
    # One line for listings.
    description: str = ""

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise SearchSpaceError(f"space {self.name!r}: two groups are called {name!r}; rename one")

    @classmethod
    def load(cls, name_or_path: str | Path) -> "SearchSpace":
        """The preset of that name, or the space in a file whose name ends in .toml.

        Raises:
            SearchSpaceError: there is no such preset or file, or its text cannot be used.
        """
        name = str(name_or_path)
        text = _read_file(Path(name)) if name.endswith(_SUFFIX) else preset_text(name)
        return cls.parse(text, name)

    @classmethod
    def parse(cls, text: str, name: str) -> "SearchSpace":
        """The space that a TOML text describes; `name` is what its errors call it.

        Raises:
            SearchSpaceError: the text is not TOML, or a key or value in it cannot be used.
        """
        return cls(name=name, **read_space(text, name)._asdict())

    def to_toml(self) -> str:
        """Text that `parse` reads back as this space; comments of the file it came from are gone."""
        parts = SpaceParts(description=self.description, rules=self.rules, groups=self.groups, freeze=self.freeze)
        return write_space(parts)

    def resolve(self, layers: Sequence[AnyLayer], supported: Callable[[AnyLayer, Precision], str | None]) -> Resolution:
        """The choices of every layer of one program.

        Args:
            layers: the program's layers, in order.
            supported: says why a layer cannot run in a precision, or None when it can.

        Raises:
            SearchSpaceError: a rule, group or freeze has no effect on these layers (and is not optional), or a layer
                is in two groups.
        """
        return resolve_space(self, layers, supported)


def preset_names() -> tuple[str, ...]:
    """The names of the spaces that come with the package, sorted."""
    entries = (files("search_spaces") / "presets").iterdir()
    return tuple(sorted(entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX)))


def preset_text(name: str) -> str:
    """The TOML text of a preset, with its comments: what a user copies and edits.

    Raises:
        SearchSpaceError: no preset has that name.
    """
    if name not in preset_names():
        raise SearchSpaceError(
            f"unknown search space {name!r}; use one of {', '.join(preset_names())}, or a path ending in {_SUFFIX}"
        )
    return (files("search_spaces") / "presets" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def describe_preset(name: str) -> str:
    """The one line that a preset says of itself.

    Raises:
        SearchSpaceError: no preset has that name.
    """
    return read_space(preset_text(name), name).description


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SearchSpaceError(f"cannot read the search space {str(path)!r}: {reason}; check the path") from error
    except UnicodeDecodeError as error:
        raise SearchSpaceError(
            f"cannot read the search space {str(path)!r}: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from error
