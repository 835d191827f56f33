"""Parser of MEL: source text to a tree of Lark, with every syntax error of one run.

An error is reported with what was expected there; the statement or declaration around it is blanked, and the rest is
parsed again, ``MAX_SYNTAX_ERRORS`` times at most. Nothing else than a diagnostic comes out of any text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from lark import Lark, TextSlice, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from world.core.mel.diagnostics import Diagnostics, suggestion
from world.core.mel.grammar import CLOSERS, GRAMMAR, TOKEN_TEXTS
from world.sizes import MAX_MEL_BYTES, MAX_MEL_DEPTH

__all__ = ["Node", "children", "is_token", "parse_expression", "parse_source", "span_of", "tokens_of", "trees"]

Node: TypeAlias = Tree[Token]

MAX_SYNTAX_ERRORS: Final = 20
"""Syntax errors that one run reports."""

MAX_PLACE_DEPTH: Final = 20
"""Levels of an expression in a place of a template."""

STARTERS: Final = frozenset(
    [
        "type",
        "state",
        "computed",
        "action",
        "flow",
        "when",
        "once",
        "onceIntent",
        "patch",
        "effect",
        "fail",
        "stop",
        "include",
        "context",
        "domain",
    ]
)
"""Words with which a declaration or a statement begins."""

_KEYWORDS: Final = STARTERS | {"available", "dispatchable", "unset", "merge", "with", "else", "true", "false", "null"}
_BEFORE_VALUES: Final = frozenset({"when", "merge", "with"})  # a brace behind these opens an object
_MAX_EXPECTED: Final = 8


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="contextual",
        start=["start", "expression"],
        propagate_positions=True,
        maybe_placeholders=False,
    )


@lru_cache(maxsize=1)
def _lexer() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic")


def is_token(node: Any, *kinds: str) -> bool:
    """Return whether a child of a tree is a token of one of these kinds; of any kind where none is given."""
    return isinstance(node, Token) and (not kinds or node.type in kinds)


def children(node: Node, *kinds: str) -> list[Token]:
    """Return the tokens of these kinds among the children of a tree."""
    return [one for one in node.children if isinstance(one, Token) and (not kinds or one.type in kinds)]


def trees(node: Node, *names: str) -> list[Node]:
    """Return the trees of these names among the children of a tree; all of them where no name is given."""
    return [one for one in node.children if isinstance(one, Tree) and (not names or one.data in names)]


def span_of(node: Node | Token) -> tuple[int, int]:
    """Return the offsets of the first character of a node and behind its last one."""
    if isinstance(node, Token):
        return node.start_pos or 0, node.end_pos or 0
    if node.meta.empty:
        return 0, 0
    return node.meta.start_pos, node.meta.end_pos


def tokens_of(text: str) -> list[Token]:
    """Return all tokens of a text without lexical errors, comments included."""
    return [token for token in _lexer().lex(text, dont_ignore=True) if token.type != "SPACE"]


def parse_source(found: Diagnostics) -> Node | None:
    """Parse a source; None where it has syntax errors, which are added to ``found``."""
    text = found.source.text
    if len(text) > MAX_MEL_BYTES or len(text.encode("utf-8", "replace")) > MAX_MEL_BYTES:
        message = f"The source has more than {MAX_MEL_BYTES} bytes (MAX_MEL_BYTES)."
        found.add("E_LIMIT", message, (0, 0), hint="Split the domain, or write it as YAML.")
        return None
    tokens = _lexical(text, found)
    if found.errors or _too_deep(tokens, found):
        return None
    for _ in range(MAX_SYNTAX_ERRORS):
        try:
            tree = _parser().parse(text, start="start")
        except (UnexpectedToken, UnexpectedCharacters, UnexpectedEOF) as error:
            if found.errors and getattr(getattr(error, "token", None), "type", "$END") == "$END":
                return None  # what was blanked may be why the end comes too early
            place = _report(error, tokens, text, found)
            start, end = _region(tokens, place)
            if start == end:
                return None
            text = text[:start] + _blank(text[start:end]) + text[end:]
            tokens = [token for token in tokens if not start <= (token.start_pos or 0) < end]
            continue
        return None if found.errors or _is_nested_too_deep(tree, found) else tree
    return None


def parse_expression(text: str, offset: int, found: Diagnostics) -> Node | None:
    """Parse the expression in a place of a template; None where it has a syntax error, which is added to ``found``.

    Args:
        text: the expression.
        offset: of its first character in the source.
        found: collects the diagnostics of the source.
    """
    source = found.source.text
    try:
        tree = _parser().parse(TextSlice(source, offset, offset + len(text)), start="expression")
    except (UnexpectedToken, UnexpectedCharacters, UnexpectedEOF):
        found.add("MEL_PARSER", f"{text[:40]!r} is no expression", (offset, offset + len(text)))
        return None
    return None if _is_nested_too_deep(tree, found, MAX_PLACE_DEPTH) else trees(tree)[0]


def _blank(text: str) -> str:
    return "".join(one if one == "\n" else " " for one in text)


def _lexical(text: str, found: Diagnostics) -> list[Token]:
    """Return the tokens of a text without comments; report what is no token and go on at the next line."""
    tokens: list[Token] = []
    start = 0
    for _ in range(MAX_SYNTAX_ERRORS):
        padded = _blank(text[:start]) + text[start:]
        tokens = []
        try:
            for token in _lexer().lex(padded):
                if token.value == "*" and tokens and tokens[-1].value == "/" and tokens[-1].end_pos == token.start_pos:
                    return _report_comment(tokens, found)
                tokens.append(token)
        except UnexpectedCharacters as error:
            place = error.pos_in_stream or 0
            end = text.find("\n", place)
            _report_character(text, place, found)
            start = len(text) if end < 0 or text[place] == "`" else end
            if start <= place:
                start = place + 1
            continue
        break
    return tokens


def _report_comment(tokens: list[Token], found: Diagnostics) -> list[Token]:
    """Report the comment that the last token begins and nothing ends; return the tokens before it."""
    place = tokens.pop().start_pos or 0
    line, column = found.source.position(place)
    message = f"Unterminated comment starting at line {line}:{column}"
    found.add("MEL_LEXER", message, (place, place + 2), hint="Close it with */.")
    return tokens


def _report_character(text: str, place: int, found: Diagnostics) -> None:
    line, column = found.source.position(place)
    character = text[place]
    if character in "\"'`":
        kind = "template" if character == "`" else "string"
        end = text.find("\n", place)
        message = f"Unterminated {kind} starting at line {line}:{column}"
        found.add("MEL_LEXER", message, (place, len(text) if end < 0 else end), hint=f"Close it with {character}.")
    elif character.isdigit():
        end = next((at for at in range(place, len(text)) if not (text[at].isalnum() or text[at] in "._")), len(text))
        found.add("MEL_LEXER", f"Malformed number {text[place:end][:40]!r}", (place, end))
    elif character == "$":
        found.add("E004", _RESERVED, (place, place + 1), hint=_DOLLAR)
    else:
        hint = {"&": "Write &&.", "=": "Write == to compare.",
                ";": "MEL separates statements by their keywords alone."}  # fmt: skip
        found.add("MEL_LEXER", f"Unexpected character {character!r}", (place, place + 1), hint=hint.get(character, ""))


def _too_deep(tokens: Sequence[Token], found: Diagnostics) -> bool:
    depth = 0
    for token in tokens:
        depth += (token.value in CLOSERS) - (token.value in CLOSERS.values())
        if depth > MAX_MEL_DEPTH:
            _add_depth(found, span_of(token))
            return True
    return False


def _is_nested_too_deep(tree: Node, found: Diagnostics, limit: int = MAX_MEL_DEPTH) -> bool:
    waiting: list[tuple[Node, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > limit:
            _add_depth(found, span_of(node), limit)
            return True
        waiting.extend((one, depth + 1) for one in node.children if isinstance(one, Tree))
    return False


def _add_depth(found: Diagnostics, span: tuple[int, int], limit: int = MAX_MEL_DEPTH) -> None:
    found.add("E_LIMIT", f"The source is nested deeper than {limit} levels", span)


def _report(error: Exception, tokens: Sequence[Token], text: str, found: Diagnostics) -> int:
    """Add the diagnostic of a syntax error and return its offset."""
    expected = sorted(_texts(getattr(error, "accepts", None) or getattr(error, "expected", None) or ()))
    token = getattr(error, "token", None)
    if isinstance(error, UnexpectedCharacters):
        place = error.pos_in_stream or 0
        token = next((one for one in tokens if (one.start_pos or 0) <= place < (one.end_pos or 0)), None)
        expected = sorted(_texts(error.allowed or ()))
    elif token is None or token.type == "$END":
        place = len(text.rstrip())
        token = None
    else:
        place = token.start_pos or 0
    word = None if token is None else str(token.value)
    end = place + (1 if word is None else len(word))
    at = next((index for index, one in enumerate(tokens) if one.start_pos == place), len(tokens))
    if word is not None and word.startswith("$") and _is_name(tokens, at, expected):
        found.add("E004", _RESERVED, (place, end), hint=_DOLLAR)
        return place
    shown = "The file ends too early" if word is None else f"Unexpected {word!r}"
    wanted = f". Expected {_listed(expected)}." if expected else "."
    hint = _hint(tokens, at, word, expected)
    found.add("MEL_PARSER", f"{shown}{wanted}", (place, min(end, len(text))), hint=hint)
    return place


def _is_name(tokens: Sequence[Token], at: int, expected: list[str]) -> bool:
    """Return whether a word with ``$`` is where a name is expected, or the rest of one."""
    before = tokens[at - 1] if at else None
    is_rest = before is not None and before.end_pos == tokens[at].start_pos and before.value[-1:].isidentifier()
    return is_rest or "a name" in expected


def _texts(names: Any) -> Iterator[str]:
    for name in names:
        terminal = next((one for one in _parser().terminals if one.name == name), None)
        if name in TOKEN_TEXTS:
            yield TOKEN_TEXTS[name]
        elif terminal is not None and "\\b" in terminal.pattern.value:
            yield f"'{name.lower()}'"
        elif terminal is not None and terminal.pattern.type == "str":
            yield f"'{terminal.pattern.value}'"


def _listed(expected: list[str]) -> str:
    shown = expected[:_MAX_EXPECTED]
    if len(shown) == 1 and len(expected) == 1:
        return shown[0]
    last = shown.pop() if len(expected) <= _MAX_EXPECTED else f"{len(expected) - _MAX_EXPECTED} more"
    return f"{', '.join(shown)} or {last}"


_RESERVED: Final = "Identifier contains the reserved character '$'"
_DOLLAR: Final = "'$' is reserved for $item, $input and the other values of the system."

_HINTS: Final = {
    "let": "MEL has no variables; write computed, or a field of the state.",
    "var": "MEL has no variables; write computed, or a field of the state.",
    "const": "MEL has no variables; write computed, or a field of the state.",
    "if": "Write when CONDITION { ... }, or a ? b : c in an expression.",
    "for": "MEL has no loops; use filter, map, find, every and some.",
    "while": "MEL has no loops; use filter, map, find, every and some.",
    "function": "MEL has no functions of its own; write computed, or flow and include.",
    "import": "A MEL file imports nothing; it holds one domain.",
    "return": "Write stop, or fail with a code.",
    "effect": "An effect is a statement; it is no expression.",
    "domain": "A file holds exactly one domain.",
}


def _hint(tokens: Sequence[Token], at: int, word: str | None, expected: list[str]) -> str:
    if word is None:
        return "A brace or bracket is not closed." if _is_open(tokens) else ""
    before = tokens[at - 1] if at else None
    if before is not None and before.value == "effect" and "'.'" not in expected:
        return _HINTS["effect"]
    if word in _HINTS:
        return _HINTS[word]
    if word.startswith("$") and "'.'" in expected:
        return _DOLLAR
    if word == "(" and at > 1 and tokens[at - 2].value == ".":
        return f"MEL has no methods; write {before}(...) with the value as its first argument."
    if word == "?." or (word == "." and before is not None and before.value == "?"):
        return "MEL has no optional chaining; a member of null is null."
    following = tokens[at + 1].value if at + 1 < len(tokens) else ""
    if following == "=" and "'patch'" in expected:
        return f"Write patch {word} = ..."
    keywords = [one.strip("'") for one in expected if one.strip("'") in _KEYWORDS]
    return suggestion(word, keywords) if word not in keywords else ""


def _is_open(tokens: Sequence[Token]) -> bool:
    return sum((one.value in CLOSERS) - (one.value in CLOSERS.values()) for one in tokens) > 0


def _region(tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """Return the offsets of the statement or declaration around an error; an empty region at the end of the text."""
    at = next((index for index, one in enumerate(tokens) if (one.start_pos or 0) >= place), len(tokens))
    if at == len(tokens):
        return place, place
    opened: list[tuple[int, int]] = []  # (index of a block's brace, index where its newest item begins)
    brackets: list[str] = []
    for index in range(at):
        value = tokens[index].value
        if value in CLOSERS:
            if value == "{" and not brackets and _opens_block(tokens, index):
                opened.append((index, index + 1))
            else:
                brackets.append(value)
        elif value in CLOSERS.values():
            if brackets:
                brackets.pop()
            elif opened:
                opened.pop()
                _begin(opened, index + 1)
        elif not brackets and str(value) in STARTERS and not _is_inner(tokens, index):
            _begin(opened, index)
    if not opened:
        return place, place
    start = min(opened[-1][1], at)
    return tokens[start].start_pos or 0, _end(tokens, at, len(brackets))


def _begin(opened: list[tuple[int, int]], index: int) -> None:
    if opened:
        opened[-1] = opened[-1][0], index


def _is_inner(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a word that could begin a statement is a name, or the ``when`` of a clause."""
    before = str(tokens[index - 1].value) if index else ""
    after = str(tokens[index + 1].value) if index + 1 < len(tokens) else ""
    is_clause = tokens[index].value == "when" and before in ("available", "dispatchable", ")", "onceIntent")
    return is_clause or before == "." or after in (":", ",", ")", ".", "=")


def _opens_block(tokens: Sequence[Token], index: int) -> bool:
    if not index:
        return True
    before = tokens[index - 1]
    if str(before.value) in _BEFORE_VALUES:
        return False
    return before.type in ("NAME", "SYSTEM", "STRING", "NUMBER", "TEMPLATE") or before.value in (
        ")", "]", "}", "{", *_KEYWORDS
    )  # fmt: skip


def _end(tokens: Sequence[Token], at: int, depth: int) -> int:
    """Return the offset where the next item begins, or the block around the error ends.

    Args:
        tokens: of the text.
        at: index of the token in error.
        depth: brackets that are open there within its item.
    """
    for index in range(at, len(tokens)):
        token = tokens[index]
        if token.value in CLOSERS:
            depth += 1
        elif token.value in CLOSERS.values():
            if not depth:
                return token.start_pos if index > at else token.end_pos or 0  # type: ignore[return-value]
            depth -= 1
            is_last = not depth and token.value == "}"
            following = tokens[index + 1] if index + 1 < len(tokens) else None
            if is_last and following is not None and str(following.value) in STARTERS | {"}", "@"}:
                return token.end_pos or 0
        elif index > at and not depth and str(token.value) in STARTERS and not _is_inner(tokens, index):
            return token.start_pos or 0
    return tokens[-1].end_pos or 0
