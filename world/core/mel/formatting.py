"""Formatter of MEL: the same tokens and comments with uniform spaces, lines and indentation.

Declarations, fields of the state and statements begin lines of their own; other line breaks stay where they are. As the
tokens stay the same, a formatted source compiles to the same schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lark import Lark, Token, Tree

from world.core.mel.grammar import CLOSERS, GRAMMAR
from world.core.mel.parsing import Node, tokens_of

__all__ = ["format_tokens"]

_INDENT: Final = 2
_ITEMS: Final = frozenset({"member", "statement"})
_BLOCKS: Final = frozenset({"start", "state_decl", "context_decl", "block"})
_CALLS: Final = frozenset({"call", "annotation", "once", "effect", "include", "action_decl", "flow_decl"})
_APART: Final = frozenset({"action_decl", "flow_decl", "state_decl"})  # a blank line comes before these


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="contextual",
        start="start",
        keep_all_tokens=True,
        propagate_positions=True,
        maybe_placeholders=False,
    )


@dataclass(slots=True)
class _Places:
    """What the grammar says about single tokens, by their offsets.

    Args:
        tokens: all tokens but comments, in any order.
        rules: the rule that each token is part of.
        names: tokens that are names, though another place may take them for keywords.
        items: tokens with which a line begins.
        apart: those of them that a blank line comes before.
        opening: braces that open a block.
        closing: braces that close one.
    """

    tokens: list[Token] = field(default_factory=list)
    rules: dict[int, str] = field(default_factory=dict)
    names: set[int] = field(default_factory=set)
    items: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    opening: set[int] = field(default_factory=set)
    closing: set[int] = field(default_factory=set)


def format_tokens(text: str) -> str:
    """Return a source that parses, formatted.

    Args:
        text: a source without syntax errors.
    """
    places = _places(_parser().parse(text))
    return _Layout(text, places).laid_out()


def _places(tree: Node) -> _Places:
    places = _Places()
    waiting: list[tuple[Node, str]] = [(tree, "")]
    while waiting:
        node, above = waiting.pop()
        name = str(node.data)
        if name in _ITEMS or (name == "field" and above in ("state_decl", "context_decl")):
            first = node.meta.start_pos
            places.items.add(first)
        braces = [one for one in node.children if isinstance(one, Token) and one.value in ("{", "}")]
        if name in _BLOCKS and braces:
            places.opening.add(braces[0].start_pos or 0)
            places.closing.add(braces[-1].start_pos or 0)
        if name == "start":
            _mark_start(node, places)
        for one in node.children:
            if isinstance(one, Tree):
                waiting.append((one, name))
            else:
                places.rules[one.start_pos or 0] = name
                places.tokens.append(one)
                if one.type in ("NAME", "STRING", "ONCE"):
                    places.names.add(one.start_pos or 0)
        if name in ("member", "field", "param"):
            _mark_annotated(node, places, above)
    return places


def _mark_start(node: Node, places: _Places) -> None:
    """Let the annotations of the domain and the domain itself begin lines; put blank lines between its parts."""
    before = ""
    for one in node.children:
        if isinstance(one, Tree) and one.data == "member":
            kind = str(one.children[-1].data) if isinstance(one.children[-1], Tree) else ""
            if kind in _APART or (before and kind != before):
                places.apart.add(one.meta.start_pos)
            before = kind
        if isinstance(one, Tree) and one.data == "annotation":
            places.items.add(one.meta.start_pos)
        elif isinstance(one, Token) and one.type == "DOMAIN":
            places.items.add(one.start_pos or 0)


def _mark_annotated(node: Node, places: _Places, above: str) -> None:
    """Let what follows the annotations of a declaration or a field of the state begin a line."""
    if above not in ("start", "state_decl", "context_decl"):
        return
    is_after = False
    for one in node.children:
        is_annotation = isinstance(one, Tree) and one.data == "annotation"
        if is_after:
            places.items.add(one.meta.start_pos if isinstance(one, Tree) else one.start_pos or 0)
        is_after = is_annotation
        if not is_annotation:
            return


class _Layout:
    def __init__(self, text: str, places: _Places) -> None:
        self.text = text
        self.places = places
        self.lines: list[str] = []
        self.line = ""
        self.indent = 0
        self.item_indent = 0
        self.opened: list[tuple[int, bool]] = []  # indentation of the line of each open bracket, whether it is a block
        self.blank_due = False

    def laid_out(self) -> str:
        before: Token | None = None
        comments = [one for one in tokens_of(self.text) if one.type == "COMMENT"]
        for token in sorted([*self.places.tokens, *comments], key=lambda one: one.start_pos or 0):
            self._place(before, token)
            before = token
        self._end_line()
        return "\n".join(self.lines) + "\n"

    # Lines

    def _place(self, before: Token | None, token: Token) -> None:
        at = token.start_pos or 0
        gap = "" if before is None else self.text[before.end_pos : at]
        if before is None or self._breaks(before, token, gap):
            self._end_line()
            is_first = before is None or (before.start_pos or 0) in self.places.opening
            wants_blank = gap.count("\n") > 1 or (at in self.places.apart and not self._is_after_own(before))
            if wants_blank and not is_first and at not in self.places.closing and self.lines and self.lines[-1]:
                self.lines.append("")
            self._begin(token)
        elif self._is_spaced(before, token):
            self.line += " "
        self._bracket(token)
        self.line += _tidy(token)

    def _is_after_own(self, before: Token | None) -> bool:
        """Return whether a token follows its own annotation or comment."""
        return before is not None and before.type == "COMMENT"

    def _end_line(self) -> None:
        if self.line:
            self.lines.append(self.line.rstrip())
        self.line = ""

    def _breaks(self, before: Token, token: Token, gap: str) -> bool:
        at, last = token.start_pos or 0, before.start_pos or 0
        if before.type == "COMMENT" and before.value.startswith("//"):
            return True
        if token.type == "COMMENT":
            return "\n" in gap
        is_empty = last in self.places.opening and at in self.places.closing
        if is_empty and "\n" not in gap:
            return False
        if at in self.places.items or at in self.places.closing or last in self.places.opening:
            return not is_empty
        if token.type == "ELSE" or token.value in (",", ".") or last in self.places.closing:
            return False
        return ("\n" in gap and before.value not in ("(", "[")) or ("\n" in gap and self._is_wide(before, token))

    def _is_wide(self, before: Token, token: Token) -> bool:
        return CLOSERS.get(str(before.value)) != str(token.value)

    def _begin(self, token: Token) -> None:
        at = token.start_pos or 0
        innermost = self.opened[-1] if self.opened else None
        if token.value in CLOSERS.values() and innermost is not None:
            self.indent = self._opener_indent(token)
        elif innermost is None:
            self.indent = self.item_indent = 0
        elif at in self.places.items or token.type == "COMMENT":
            self.indent = self._block_indent() + _INDENT if innermost[1] else innermost[0] + _INDENT
            if innermost[1]:
                self.item_indent = self.indent
        elif innermost[1]:
            self.indent = self._block_indent() + 2 * _INDENT
        else:
            self.indent = innermost[0] + _INDENT
        self.line = " " * self.indent

    def _opener_indent(self, token: Token) -> int:
        """Return the indentation of the line whose bracket the last of the closing brackets here belongs to."""
        count, at = 0, token.start_pos or 0
        is_block = at in self.places.closing
        while not is_block and at < len(self.text) and self.text[at] in ")]} \t":
            if at in self.places.closing:
                break
            count += self.text[at] in ")]}"
            at += 1
        return self.opened[-min(max(count, 1), len(self.opened))][0]

    def _block_indent(self) -> int:
        return next((indent for indent, is_block in reversed(self.opened) if is_block), -_INDENT)

    def _bracket(self, token: Token) -> None:
        if token.type in ("COMMENT", "STRING", "TEMPLATE"):
            return
        if token.value in CLOSERS:
            is_block = (token.start_pos or 0) in self.places.opening
            self.opened.append((self.item_indent if is_block else self.indent, is_block))
        elif token.value in CLOSERS.values() and self.opened:
            self.opened.pop()
            if (token.start_pos or 0) in self.places.closing:
                self.item_indent = self._block_indent() + _INDENT

    # Spaces

    def _is_spaced(self, before: Token, token: Token) -> bool:
        if "COMMENT" in (before.type, token.type):
            return True
        return not (self._glues_right(before, token) or self._glues_left(before, token))

    def _rule(self, token: Token) -> str:
        return self.places.rules.get(token.start_pos or 0, "")

    def _glues_right(self, before: Token, token: Token) -> bool:
        value, rule = str(before.value), self._rule(before)
        if before.type in ("STRING", "TEMPLATE"):
            return False
        if value in ("(", "[", ".", "@", "!", "..."):
            return True
        if value == "{":
            return str(token.value) == "}"
        return (value == "-" and rule in ("negative", "literal_type")) or (value == "<" and rule.endswith("_type"))

    def _glues_left(self, before: Token, token: Token) -> bool:
        value, rule = str(token.value), self._rule(token)
        if token.type in ("STRING", "TEMPLATE"):
            return False
        if value in (")", "]", ",", "."):
            return True
        if value in (":", "?"):
            return rule != "ternary"
        if value in ("<", ">"):
            return rule.endswith("_type")
        if value == "[":
            return rule in ("index", "path_index")
        if value == "(":
            return rule in _CALLS and (before.start_pos or 0) in self.places.names
        return False


def _tidy(token: Token) -> str:
    text = str(token)
    if token.type == "COMMENT" and text.startswith("//"):
        return text.rstrip()
    return text
