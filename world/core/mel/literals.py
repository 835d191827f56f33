"""Literals of MEL: texts, numbers, and JSON values written as expressions."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from lark import Token, Tree

from world.core.mel.parsing import Node, children, is_token, trees

__all__ = ["NotLiteralError", "json_of", "number_of", "quoted", "template_parts", "text_of"]

_ESCAPE: Final = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_WORDS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


class NotLiteralError(Exception):
    """A part of an expression that is no literal.

    Args:
        node: the part.
    """

    def __init__(self, node: Node) -> None:
        """Keep the part."""
        super().__init__(str(node.data))
        self.node = node


def _unescape(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        code = found.group(1)
        if code[0] == "u" and len(code) > 1:
            number = int(code.strip("u{}"), 16)
            return chr(number) if number <= 0x10FFFF else "\ufffd"
        return _SHORT.get(code, code)

    plain = _ESCAPE.sub(replaced, text)
    return _PAIR.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def text_of(token: Token) -> str:
    """Return the text of a string token, without quotes and escapes; that of a name is the name."""
    return _unescape(str(token)[1:-1]) if token.type == "STRING" else str(token)


def quoted(text: str) -> str:
    """Return a text as a string token."""
    return json.dumps(text, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def number_of(token: Token) -> int | float:
    """Return the value of a number token; infinity where it is too large for a double."""
    written = str(token)
    if written[:2].lower() == "0x":
        whole = int(written, 16)
    elif any(mark in written for mark in ".eE"):
        return float(written)
    elif len(written) > 400:  # a double ends before this; int() takes the square of the length
        return float("inf")
    else:
        whole = int(written)
    return whole if abs(whole) <= 2**53 else float(whole) if whole < 10**308 else float("inf")


def template_parts(token: Token) -> list[tuple[bool, str, int]]:
    """Return the parts of a template: whether it is an expression, its text, and its offset within the token.

    Raises:
        ValueError: a place that is not closed.
    """
    written, parts, at = str(token)[1:-1], [], 0
    while at < len(written):
        start = _place(written, at)
        if start < 0:
            parts.append((False, _unescape(written[at:]), at + 1))
            break
        if start > at:
            parts.append((False, _unescape(written[at:start]), at + 1))
        end = written.find("}", start)
        if end < 0:
            raise ValueError(start + 1)
        parts.append((True, written[start + 2 : end], start + 3))
        at = end + 1
    return parts


def _place(written: str, at: int) -> int:
    while at < len(written):
        if written[at] == "\\":
            at += 2
        elif written.startswith("${", at):
            return at
        else:
            at += 1
    return -1


def json_of(node: Node) -> Any:
    """Return the JSON value of an expression that is a literal throughout.

    Raises:
        NotLiteralError: with the part that is none.
    """
    if node.data == "literal":
        token = children(node)[0]
        if token.type in _WORDS:
            return _WORDS[token.type]
        return number_of(token) if token.type == "NUMBER" else text_of(token)
    if node.data == "negative":
        value = json_of(trees(node)[0])
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
    if node.data == "array":
        return [json_of(one) for one in trees(node)]
    if node.data == "object" and not trees(node, "spread"):
        return {pair_key(pair): json_of(trees(pair)[0]) for pair in trees(node, "pair")}
    raise NotLiteralError(node)


def pair_key(pair: Tree[Token]) -> str:
    """Return the key of a member of an object."""
    key = pair.children[0]
    assert isinstance(key, Token)
    assert is_token(key, "NAME", "STRING")
    return text_of(key)
