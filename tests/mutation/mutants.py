"""Mutants of a module: its source with one small change, made by the operators of mutmut.

Not mutated, because no test should notice it: annotations and names for types, docstrings, ``__all__``, decorators,
options of classes (``frozen`` of a struct is what a decorator says of a dataclass), types handed to ``cast``,
``strict`` of ``zip``, options of dataclass fields, and the wording and details of errors (every argument of an error
after its code, and texts given to a function of the module that returns an error).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

ERRORS = frozenset(
    {
        "RefusedError",
        "DamagedLogError",
        "DivergenceError",
        "ErrorValue",
        "ValueError",
        "TypeError",
        "overruled",
        "print",
    }
)
"""Callables whose arguments after the first are read by people; the first is the error's code or subject."""

WORDING_FIRST = frozenset({"ValueError", "TypeError", "print"})
"""Those of them whose first argument is wording as well."""

TYPES = frozenset({"Callable", "Mapping", "Sequence", "Generator", "dict", "list", "set", "tuple"})
"""What may be subscripted to name a type, and is never used for anything else."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module.

    Args:
        path: of the module, from the root of the project.
        line: where the change is, from 1.
        before: the changed code, shortened.
        after: what it was changed to, shortened.
        source: the whole module with the change.
    """

    path: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What the mutant is called in reports and in the list of equivalent mutants."""
        return _name(self.path, self.before, self.after)


def _name(path: str, before: str, after: str) -> str:
    return f"{path}: {before} -> {after}"


class _Finder(cst.CSTVisitor):
    """Collects the places where an operator applies, with the replacement of each."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self._makers = _makers_of_errors(module)
        self.found: list[tuple[cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.FormattedString | cst.ConcatenatedString):
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString):
            return False
        if isinstance(node, cst.Assign) and any(
            isinstance(one.target, cst.Name) and one.target.value == "__all__" for one in node.targets
        ):
            return False
        if isinstance(node, cst.Assign) and _is_type(node.value):
            return False
        if isinstance(node, cst.Call) and self._visit_call(node):
            return False
        if isinstance(node, cst.ClassDef):
            node.body.visit(self)
            return False
        self._mutate(node)
        return True

    def _visit_call(self, node: cst.Call) -> bool:
        """Visit of the call of an error only its code; return whether the call needs no further visit."""
        name = node.func.value if isinstance(node.func, cst.Name) else ""
        if name in ERRORS:
            for code in node.args[: 0 if name in WORDING_FIRST else 1]:
                code.visit(self)
            return True
        if name in self._makers:
            for value in node.args:
                if not isinstance(value.value, cst.SimpleString):
                    value.visit(self)
            return True
        if name == "field":  # whether a member of a dataclass is compared and shown
            return True
        if name == "zip":  # strict= only asserts that the lengths are equal
            for value in node.args:
                if value.keyword is None:
                    value.visit(self)
            return True
        if name == "cast":
            for value in node.args[1:]:
                value.visit(self)
            return True
        return False

    def _mutate(self, node: cst.CSTNode) -> None:
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                made = list(operator(node))
                # The other replacements of a text differ from the first one in spelling only.
                for mutated in made[:1] if operator is operator_string else made:
                    self.found.append((node, mutated))


def _makers_of_errors(module: cst.Module) -> frozenset[str]:
    """Return the functions of a module that return an error, by their annotations."""
    made = set()
    for node in module.body:
        if isinstance(node, cst.FunctionDef) and node.returns is not None:
            returned = node.returns.annotation
            if isinstance(returned, cst.Name) and returned.value in ERRORS:
                made.add(node.name.value)
    return frozenset(made)


def _is_type(value: cst.BaseExpression) -> bool:
    """Tell whether a value is a type that only annotations use, such as ``Callable[[int], str]``."""
    return isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name) and value.value.value in TYPES


def count(source: str) -> int:
    """Return how many mutants a module has."""
    module = cst.parse_module(source)
    finder = _Finder(module)
    module.visit(finder)
    return len(finder.found)


def names(path: str, source: str) -> list[str]:
    """Return the names of all mutants of a module in the order of their numbers, see ``Mutant.name``."""
    module = cst.parse_module(source)
    finder = _Finder(module)
    module.visit(finder)
    return [_name(path, _shown(before), _shown(after)) for before, after in finder.found]


def make(path: str, source: str, numbers: Iterable[int]) -> dict[int, Mutant]:
    """Return some mutants of a module by their numbers.

    Args:
        path: of the module, from the root of the project.
        source: the module.
        numbers: which ones, from 0.
    """
    wrapper, made = MetadataWrapper(cst.parse_module(source)), {}
    finder = _Finder(wrapper.module)
    wrapper.module.visit(finder)
    positions = wrapper.resolve(PositionProvider)
    for number in numbers:
        before, after = finder.found[number]
        changed = wrapper.module.deep_replace(before, after)
        assert isinstance(changed, cst.Module)
        made[number] = Mutant(path, positions[before].start.line, _shown(before), _shown(after), changed.code)
    return made


def _shown(node: cst.CSTNode) -> str:
    if isinstance(node, cst.ComparisonTarget | cst.BaseUnaryOp | cst.BaseCompOp):
        return type(node).__name__ if not isinstance(node, cst.ComparisonTarget) else _comparison(node)
    return " ".join(cst.Module([]).code_for_node(node).split())[:160]


def _comparison(node: cst.ComparisonTarget) -> str:
    return " ".join(cst.Module([]).code_for_node(node).split())[:160]
