"""Optimized HLO as a graph: computations of instructions with dtypes, operands, metadata and calls.

Reads the text that `Compiled.as_text()` prints, as much of it as is needed to tell which operation runs in which dtype.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
# The common instruction: an array result, operands without parentheses. Everything else is taken apart step by step.
_PLAIN = re.compile(r"\s+(ROOT )?%([\w.\-]+) = ([a-z]\w*)\[\S* ([a-z][\w\-]*)\(([^()]*)\)(.*)")
_START = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_DTYPE = re.compile(r"\(*([a-z]\w*)\[")
_NAME = re.compile(r"%([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"|(?:branch_computations|called_computations)=\{([^}]*)\}"
)
_TARGET = re.compile(r'custom_call_target="([^"]*)"')


@dataclass(eq=False, slots=True)
class Instruction:
    """One line of HLO; `dtype` is that of the result, or of its first element for a tuple."""

    name: str
    opcode: str
    dtype: str
    operands: tuple[str, ...]
    op_name: str | None
    calls: tuple[str, ...]
    target: str | None
    is_root: bool
    # Position among the parameters of its computation, for a parameter.
    parameter: int | None


@dataclass(eq=False, slots=True)
class Computation:
    """Instructions by name, in order."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)
    users: dict[str, list[Instruction]] = field(default_factory=dict)
    # Who calls it: (the caller's computation, the calling instruction).
    callers: list[tuple["Computation", Instruction]] = field(default_factory=list)

    @property
    def root(self) -> Instruction | None:
        """The instruction whose result is the computation's."""
        return next((i for i in reversed(self.instructions.values()) if i.is_root), None)

    def parameter(self, number: int) -> Instruction | None:
        """The parameter at a position."""
        return next((i for i in self.instructions.values() if i.parameter == number), None)


@dataclass(eq=False, slots=True)
class Module:
    """Every computation of a compiled program by name, and the entry's name."""

    computations: dict[str, Computation]
    entry: str | None

    def __iter__(self) -> Iterator[tuple[Computation, Instruction]]:
        for computation in self.computations.values():
            for instruction in computation.instructions.values():
                yield computation, instruction


def parse_hlo(text: str) -> Module:
    """The graph of an HLO module's text; lines that are no instructions are skipped."""
    module = Module({}, None)
    current: Computation | None = None
    for line in text.splitlines():
        if current is None:
            header = _HEADER.match(line)
            if header is not None:
                current = Computation(header[2])
                module.computations[current.name] = current
                module.entry = current.name if header[1] else module.entry
        elif line.startswith("}"):
            current = None
        else:
            instruction = _parse_instruction(line)
            if instruction is not None:
                current.instructions[instruction.name] = instruction
    _link(module)
    return module


def _parse_instruction(line: str) -> Instruction | None:
    plain = _PLAIN.match(line)
    if plain is not None:
        root, name, dtype, opcode, inside, attributes = plain.groups()
        return _instruction(name, root, dtype, opcode, inside, attributes)
    start = _START.match(line)
    if start is None:
        return None
    type_end = _end_of_type(line, start.end())
    dtype = _DTYPE.match(line, start.end())
    opcode = _OPCODE.match(line, type_end)
    if opcode is None:
        return None
    operands_end = _closing(line, opcode.end() - 1)
    inside, attributes = line[opcode.end() : operands_end], line[operands_end + 1 :]
    return _instruction(start[2], start[1], dtype[1] if dtype else "", opcode[1], inside, attributes)


def _instruction(name: str, root: str | None, dtype: str, opcode: str, inside: str, attributes: str) -> Instruction:
    op_name = _OP_NAME.search(attributes) if "op_name=" in attributes else None
    target = _TARGET.search(attributes) if opcode == "custom-call" else None
    is_parameter = opcode == "parameter"
    return Instruction(
        name=name,
        opcode=opcode,
        dtype=dtype,
        operands=() if is_parameter or opcode == "constant" else tuple(_NAME.findall(inside)),
        op_name=_unescape(op_name[1]) if op_name else None,
        calls=_called(attributes) if "=%" in attributes or "computations=" in attributes else (),
        target=target[1] if target else None,
        is_root=root is not None,
        parameter=int(inside) if is_parameter and inside.isdigit() else None,
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _called(attributes: str) -> tuple[str, ...]:
    names: list[str] = []
    for one, several in _CALLED.findall(attributes):
        names += [one] if one else [name.strip().lstrip("%") for name in several.split(",")]
    return tuple(names)


def _end_of_type(line: str, start: int) -> int:
    """Where the result type ends: after the closing parenthesis of a tuple, else at the next space."""
    if line[start] == "(":
        return _closing(line, start) + 1
    end = line.find(" ", start)
    return len(line) if end < 0 else end


def _closing(line: str, opening: int) -> int:
    """Position of the parenthesis that closes the one at `opening`."""
    depth = 0
    for position in range(opening, len(line)):
        if line[position] == "(":
            depth += 1
        elif line[position] == ")":
            depth -= 1
            if depth == 0:
                return position
    return len(line)


def _link(module: Module) -> None:
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            for operand in instruction.operands:
                computation.users.setdefault(operand, []).append(instruction)
            for called in instruction.calls:
                if called in module.computations:
                    module.computations[called].callers.append((computation, instruction))
