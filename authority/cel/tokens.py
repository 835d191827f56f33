"""Tokens of CEL conditions, their limits, and division at operators.

Source: design section 6; the language definition of CEL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

MAX_TEXT: Final = 4_096
"""Maximum length of a condition, in characters."""

MAX_TOKENS: Final = 400
"""Maximum number of tokens of a condition, which bounds the depth of its evaluation."""

MAX_BRACKETS: Final = 24
"""Maximum depth of nested brackets."""

TOKEN: Final = re.compile(
    r"""(?P<space>[\t\n\f\r\ ]+|//[^\n]*)
    |(?P<text>[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
        |\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*')
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+\-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[<>+\-*/%!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
CLOSES: Final = {"(": ")", "[": "]", "{": "}"}
"""Brackets by their opening sign."""


class ConditionError(Exception):
    """An invalid condition; ``authority.policies.policy_file`` adds its place."""


class Token(NamedTuple):
    """One token of a condition: its kind and its text."""

    kind: str
    text: str


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a condition without comments.

    Raises:
        ConditionError: for an unknown token, and for a text beyond the limits.
    """
    if len(text) > MAX_TEXT:
        raise ConditionError(f"a condition may have {MAX_TEXT} characters; this one has {len(text)}")
    tokens: list[Token] = []
    at = depth = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ConditionError(f"{text[at : at + 20]!r} is not a token of a condition")
        at = match.end()
        token = Token(match.lastgroup or "", match.group())
        if token.kind != "space":
            tokens.append(token)
            depth += (token.text in CLOSES) - (token.kind == "mark" and token.text in ")]}")
        if depth > MAX_BRACKETS or len(tokens) > MAX_TOKENS:
            raise ConditionError(
                f"it is too large: a condition has at most {MAX_TOKENS} tokens and {MAX_BRACKETS} nested brackets"
            )
    return tokens


def has_comment(text: str) -> bool:
    """Return whether a condition has a comment."""
    return any(match.lastgroup == "space" and match.group().startswith("//") for match in TOKEN.finditer(text))


def unwrapped(tokens: Sequence[str]) -> list[str]:
    """Return the texts of tokens without the brackets around all of them."""
    found = list(tokens)
    while found and found[0] == "(" and _closing(found) == len(found) - 1:
        found = found[1:-1]
    return found


def outer_indexes(tokens: Sequence[str]) -> list[int]:
    """Return the indexes of the tokens outside of brackets, from their texts."""
    places, depth = [], 0
    for at, token in enumerate(tokens):
        depth -= token in CLOSES.values()
        if depth == 0:
            places.append(at)
        depth += token in CLOSES
    return places


def _closing(tokens: Sequence[str]) -> int:
    """Return the index of the bracket that closes the first one; the number of tokens where it is open."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token in CLOSES) - (token in CLOSES.values())
        if depth == 0:
            return at
    return len(tokens)


def divided(text: str) -> tuple[str, list[str]]:
    """Divide a condition at ``||``, else at ``&&``, outside of all brackets.

    Returns:
        The operator and its operands; empty for a single condition.
    """
    text = text.strip()
    marks, depth, closed = [], 0, 0
    for match in TOKEN.finditer(text):
        sign = match.group() if match.lastgroup == "mark" else ""
        depth += (sign in CLOSES) - (sign in (")", "]", "}"))
        closed += sign == ")" and depth == 0
        if depth == 0 and sign in ("||", "&&", "?"):
            marks.append((sign, match.start(), match.end()))
    if not marks and closed == 1 and text.startswith("(") and text.endswith(")"):
        return divided(text[1:-1])
    signs = {sign for sign, *_ in marks}
    if not signs or "?" in signs:
        return "", []
    joint = "||" if "||" in signs else "&&"
    parts, start = [], 0
    for sign, at, end in marks:
        if sign == joint:
            parts.append(text[start:at].strip())
            start = end
    return joint, [*parts, text[start:].strip()]
