"""Lowering of MEL expressions to the expressions of the portable schema.

Names are looked up as parameter, computed value and field of the state, in this order. A member of a value that is read
by a path extends the path; any other member is a ``field``, and ``a[i]`` is ``at``. docs/reference/mel.md has the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lark import Token

from world.core.expressions.expression import MAX_EXPRESSION_DEPTH, OPERAND_LISTS, OPERANDS
from world.core.mel.diagnostics import Diagnostics
from world.core.mel.functions import ITERATIONS, KINDS, OPERATORS, SUGAR, arity_fault
from world.core.mel.literals import NotLiteralError, json_of, pair_key, template_parts
from world.core.mel.parsing import Node, children, parse_expression, span_of, trees
from world.core.mel.rules import Types, node_fault, raw_node
from world.core.mel.special_calls import CALLS
from world.core.mel.sugar import BUILDERS, array_node, binary, choose, get, literal
from world.core.values import kind_of

__all__ = ["PLACES", "ExpressionLowering", "NameScope"]

Expression = dict[str, Any]

PLACES: Final = {
    "state": "state initializers",
    "computed": "computed values",
    "available": "available when",
    "dispatchable": "dispatchable when",
    "action": "actions",
}
"""Where an expression may be, and how messages name it."""

_RUNTIME: Final = {
    "$runtime.random.uuid": "$system.uuid",
    "$runtime.time.timestamp": "$system.timestamp",
    "$runtime.intent.id": "meta.intentId",
    "$system.uuid": "$system.uuid",
    "$system.timestamp": "$system.timestamp",
    "$system.time.now": "$system.timestamp",
}
_SYSTEM_ROOTS: Final = ("$item", "$index", "$array", "$input", "$meta", "$runtime", "$system")


@dataclass(frozen=True, slots=True)
class NameScope:
    """What names mean where an expression is.

    Args:
        state: names of the state's fields.
        computed: short names of the computed values.
        params: the nodes of parameters by name.
        place: a key of ``PLACES``.
        in_item: whether ``$item`` is an element.
        types: of the names.
        is_patch_value: whether the expression is the whole value of a patch.
    """

    state: frozenset[str]
    computed: frozenset[str]
    types: Types
    place: str
    params: Mapping[str, Expression] = field(default_factory=dict)
    in_item: bool = False
    is_patch_value: bool = False


class ExpressionLowering:
    """Lowers the expressions of one domain; faults go to ``found``."""

    def __init__(self, found: Diagnostics) -> None:
        """Create a lowering.

        Args:
            found: collects the diagnostics.
        """
        self.found = found
        self.reads: list[tuple[tuple[int, int], str]] = []
        self._depth = 0

    def fail(self, node: Node | Token, code: str, message: str, *, hint: str = "") -> Expression:
        """Report a fault of a node and return a node in its place."""
        self.found.add(code, message, span_of(node), hint=hint)
        return literal(None)

    def lower(self, node: Node, names: NameScope) -> Expression:
        """Return the portable expression of a tree."""
        if self._depth > MAX_EXPRESSION_DEPTH:
            return self.fail(node, "E_LIMIT", f"An expression is nested deeper than {MAX_EXPRESSION_DEPTH} levels")
        self._depth += 1
        lowered = _LOWERINGS[str(node.data)](self, node, names)
        self._depth -= 1
        fault = None if id(lowered) in names.types.raw or kind_of(lowered) is None else self._rule(lowered, names)
        if fault is not None:
            self.found.add(fault[0], fault[1], span_of(node))
        return lowered

    def _rule(self, lowered: Expression, names: NameScope) -> tuple[str, str] | None:
        return node_fault(lowered, names.types, in_computed=names.place == "computed")

    def operand(self, node: Node, names: NameScope) -> Expression:
        """Return the portable expression of an operand, which is not the value of a patch itself."""
        return self.lower(node, replace(names, is_patch_value=False) if names.is_patch_value else names)

    # Values

    def _literal(self, node: Node, names: NameScope) -> Expression:
        try:
            value = json_of(node)
        except NotLiteralError as error:
            return self.fail(error.node, "E_TYPE_MISMATCH", "A literal is expected")
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return self.fail(node, "E_LIMIT", "The number is too large for a double")
        if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
            return self.fail(node, "MEL_LEXER", "The text holds half of a surrogate pair")
        return literal(value)

    def _negative(self, node: Node, names: NameScope) -> Expression:
        (inner,) = trees(node)
        if inner.data == "literal" and children(inner)[0].type == "NUMBER":
            value = self._literal(inner, names)["value"]
            return literal(None if value is None else -value)
        return {"kind": "neg", "arg": self.operand(inner, names)}

    def _not(self, node: Node, names: NameScope) -> Expression:
        return {"kind": "not", "arg": self.operand(trees(node)[0], names)}

    def _binary(self, node: Node, names: NameScope) -> Expression:
        left, right = trees(node)
        words = children(node)
        kind = OPERATORS[str(words[0])] if words else {"or_": "or", "and_": "and"}[str(node.data)]
        return binary(kind, self.operand(left, names), self.operand(right, names))

    def _nullish(self, node: Node, names: NameScope) -> Expression:
        return {"kind": "coalesce", "args": [self.operand(one, names) for one in trees(node)]}

    def _ternary(self, node: Node, names: NameScope) -> Expression:
        condition, then, otherwise = (self.operand(one, names) for one in trees(node))
        return choose(condition, then, otherwise)

    def _template(self, node: Node, names: NameScope) -> Expression:
        token = children(node)[0]
        parts: list[Expression] = []
        try:
            pieces = template_parts(token)
        except ValueError:
            return self.fail(node, "MEL_LEXER", "A place of the template is not closed", hint="Close it with }.")
        for is_place, text, at in pieces:
            if not is_place:
                parts.append(literal(text))
                continue
            tree = parse_expression(text, (token.start_pos or 0) + at, self.found)
            value = literal(None) if tree is None else self.operand(tree, names)
            parts.append(value if names.types.of(value) == "string" else {"kind": "toString", "arg": value})
        return {"kind": "concat", "args": parts} if parts else literal("")

    def _object(self, node: Node, names: NameScope) -> Expression:
        """Lower an object; with spreads it is the merge of its parts, and members between spreads are one part."""
        parts: list[Expression] = []
        is_open = False
        for entry in trees(node):
            value = self.operand(trees(entry)[0], names)
            if entry.data == "spread":
                known = names.types.of(value)
                if known not in (None, "object"):
                    self.fail(entry, "E_TYPE_MISMATCH", f"Object spread operands must be objects, got {known}")
                parts.append(value)
                is_open = False
                continue
            if not is_open:
                parts.append({"kind": "object", "fields": {}})
                is_open = True
            key = pair_key(entry)
            if key in parts[-1]["fields"]:
                self.fail(entry, "E_DUPLICATE_FIELD", f"Duplicate field {key!r}")
            parts[-1]["fields"][key] = value
        if trees(node, "spread"):
            return {"kind": "merge", "objects": parts}
        return parts[0] if parts else {"kind": "object", "fields": {}}

    def _array(self, node: Node, names: NameScope) -> Expression:
        try:
            return literal(json_of(node))
        except NotLiteralError:
            return array_node([self.operand(one, names) for one in trees(node)])

    # Names and members

    def _chain(self, node: Node, names: NameScope) -> Expression:
        """Lower a name with the members behind it."""
        path: list[Token] = []
        while node.data == "member_access":
            path.insert(0, children(node)[0])
            node = trees(node)[0]
        words = [str(one) for one in path]
        if node.data == "name":
            return self._named(node, words, names)
        if node.data == "system":
            return self._system(node, words, names)
        value = self.operand(node, names)
        for word in words:
            value = self._member(value, word, names)
        return value

    def _member(self, value: Expression, word: str, names: NameScope) -> Expression:
        if kind_of(value) == "get" and id(value) not in names.types.raw:
            return get(f"{value['path']}.{word}")
        return {"kind": "field", "object": value, "property": word}

    def _named(self, node: Node, words: list[str], names: NameScope) -> Expression:
        word = str(children(node)[0])
        value: Expression | None = None
        if word in names.params:
            value = names.params[word]
            self.reads.append((span_of(node), f"param {word}"))
            for one in words:
                value = self._member(value, one, names)
            return value
        for size in range(len(words), -1, -1):
            full = ".".join([word, *words[:size]])
            if full in names.computed:
                self.reads.append((span_of(node), f"computed {full}"))
                return get(".".join([f"computed.{full}", *words[size:]]))
        if word in names.state:
            self.reads.append((span_of(node), f"state {word}"))
            return get(".".join([word, *words]))
        known = {*names.params, *names.computed, *names.state}
        return self.fail(node, "E_UNDEFINED", f"Undefined identifier {word!r}", hint=self.found.suggest(word, known))

    def _system(self, node: Node, words: list[str], names: NameScope) -> Expression:
        root = str(children(node)[0])
        whole = ".".join([root, *words])
        if names.place == "state":
            return self.fail(node, "E002", "Dollar namespace values cannot be used in state initializers")
        if root in ("$item", "$index", "$array"):
            if names.in_item:
                return get(whole)
            message = (
                f"{root!r} is only valid in filter, map, find, every and some, and in effects on arrays and records"
            )
            return self.fail(node, "E003", message)
        if root == "$input":
            return self._input(node, words, names)
        path = _RUNTIME.get(whole) or (f"meta.{'.'.join(words)}" if root == "$meta" and words else None)
        if path is None:
            hint = (
                "What comes from outside is given as input."
                if root == "$context"
                else self.found.suggest(whole, [*_RUNTIME, "$meta.intentId", "$meta.actor", *_SYSTEM_ROOTS])
            )
            return self.fail(node, "E003", f"Invalid or retired dollar namespace reference {whole!r}", hint=hint)
        if names.place == "available" and path.startswith("meta.actor"):
            return get(path)
        if names.place != "action":
            code = {"available": "E005", "dispatchable": "E047"}.get(names.place, "E001")
            return self.fail(node, code, f"{whole!r} cannot be used in {PLACES[names.place]}")
        return get(path)

    def _input(self, node: Node, words: list[str], names: NameScope) -> Expression:
        if names.place != "action":
            code = {"available": "E005", "dispatchable": "E047"}.get(names.place, "E001")
            hint = "Write the parameter's name alone." if names.place == "dispatchable" else ""
            return self.fail(node, code, f"'$input' cannot be used in {PLACES[names.place]}", hint=hint)
        spec = names.types.input
        known = list(spec.fields or ()) if spec is not None else []
        if words and spec is not None and spec.fields is not None and words[0] not in spec.fields:
            message = f"The action has no parameter {words[0]!r}"
            return self.fail(node, "E_UNDEFINED", message, hint=self.found.suggest(words[0], known))
        return get(".".join(["input", *words]))

    def _index(self, node: Node, names: NameScope) -> Expression:
        value, at = (self.operand(one, names) for one in trees(node))
        return {"kind": "at", "array": value, "index": at}

    # Calls

    def _call(self, node: Node, names: NameScope) -> Expression:
        token = children(node)[0]
        name, arguments = str(token), trees(trees(node, "arguments")[0])
        if name not in KINDS and name not in SUGAR:
            return self._unknown(token, names)
        fault = arity_fault(name, len(arguments))
        if fault is not None:
            for one in arguments:
                self.operand(one, replace(names, in_item=True))
            return self.fail(node, "E_ARG_COUNT", fault)
        if name in CALLS:
            return CALLS[name](self, node, names)
        values = [
            self.operand(one, replace(names, in_item=True) if at and name in ITERATIONS else names)
            for at, one in enumerate(arguments)
        ]
        if name in BUILDERS:
            return BUILDERS[name](*values)
        kind = KINDS[name]
        if kind in ("min", "max") and len(values) == 1:
            return {"kind": f"{kind}Array", "array": values[0]}
        return node_of(kind, values)

    def _unknown(self, token: Token, names: NameScope) -> Expression:
        name = str(token)
        if name in ("reduce", "fold", "foldl", "foldr", "scan"):
            return self.fail(token, "E011", "reduce/fold/scan is forbidden - use sum, min, max for aggregation")
        if name in names.computed or name in names.state:
            return self.fail(token, "E_UNKNOWN_FN", f"{name!r} is no function", hint=f"Write {name} without brackets.")
        hint = self.found.suggest(name, [*KINDS, *SUGAR])
        return self.fail(token, "E_UNKNOWN_FN", f"Unknown function {name!r}", hint=hint)

    def _annotation(self, node: Node, names: NameScope) -> Expression:
        value = self.raw(node)
        if kind_of(value) is None:
            if value is not None:
                self.fail(node, "E_SCHEMA", "@schema in an expression holds a node with its kind")
            return literal(None)
        found: Expression = raw_node(value, names.types)
        return found

    def raw(self, node: Node) -> Any:
        """Return the JSON value of ``@schema(...)``; None, reported, for another annotation."""
        name, arguments = str(children(node)[0]), trees(trees(node, "arguments")[0])
        if name != "schema":
            message = "@meta can attach only to domain, type, type field, state field, computed, or action declarations"
            self.fail(node, "E053", message)
            return None
        if len(arguments) != 1:
            self.fail(node, "E_ARG_COUNT", f"@schema expects 1 argument, got {len(arguments)}")
            return None
        try:
            return json_of(arguments[0])
        except NotLiteralError as error:
            self.fail(error.node, "E055", "Annotation payloads must be JSON-like literals")
            return None


def node_of(kind: str, values: list[Expression]) -> Expression:
    """Return the node of a kind with these operands, in the order of the schema."""
    singles = [name.removesuffix("?") for name in OPERANDS.get(kind, ())]
    node: Expression = {"kind": kind, **dict(zip(singles, values, strict=False))}
    if kind in OPERAND_LISTS:
        node[OPERAND_LISTS[kind]] = values[len(singles) :]
    return node


_LOWERINGS: Final[dict[str, Callable[[ExpressionLowering, Node, NameScope], Expression]]] = {
    "literal": ExpressionLowering._literal,
    "template": ExpressionLowering._template,
    "negative": ExpressionLowering._negative,
    "not_": ExpressionLowering._not,
    "or_": ExpressionLowering._binary,
    "and_": ExpressionLowering._binary,
    "equality": ExpressionLowering._binary,
    "comparison": ExpressionLowering._binary,
    "sum": ExpressionLowering._binary,
    "product": ExpressionLowering._binary,
    "nullish": ExpressionLowering._nullish,
    "ternary": ExpressionLowering._ternary,
    "object": ExpressionLowering._object,
    "array": ExpressionLowering._array,
    "name": ExpressionLowering._chain,
    "system": ExpressionLowering._chain,
    "member_access": ExpressionLowering._chain,
    "index": ExpressionLowering._index,
    "call": ExpressionLowering._call,
    "annotation": ExpressionLowering._annotation,
}
