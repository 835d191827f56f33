"""Patterns of keys and passwords, for ``worldctl doctor --secrets``.

A value is found by its own pattern (``FORMS``), or by its name: any literal with the name of a password, random-looking
texts with the name of a token or a key. Hexadecimal hashes, UUIDs, references (``${secret:NAME}``) and masked values
(``***``) are excluded. Findings contain the kind and never the value. The table covers common forms only.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from world.masking import MASK
from world.model.secrets.references import has_reference

__all__ = ["FORMS", "NAMED", "forms_in", "json_findings", "line_findings", "may_hold_secrets"]

_TABLE: Final[Mapping[str, str]] = {
    "AWS access key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/[A-Za-z0-9]{16,}",
    "Google key": r"\bAIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])|\bya29\.[A-Za-z0-9_-]{20,}",
    "Stripe key": r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "sk- key": r"\bsk-(?=[A-Za-z0-9_-]{0,256}[0-9])(?=[A-Za-z0-9_-]{0,256}[A-Z])[A-Za-z0-9_-]{20,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "JSON Web Token": r"\beyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,4096}\.",
    "private key": r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,5}PRIVATE KEY-----",
    "password in an address": r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/:@\"'?#]{0,256}:(?!\*\*\*@|\$\{)[^\s/@\"'?#]{1,512}@",
    "Authorization value": r"(?i:\b(?:bearer|basic)) +(?!\*\*\*|\$\{)[A-Za-z0-9._~+/-]{16,}=*",
}
FORMS: Final = {name: re.compile(form) for name, form in _TABLE.items()}
"""Patterns of secrets, by kind."""

NAMED: Final = "value under a secret name"
"""Kind of a value that was found by its name."""

_PASSWORD: Final = re.compile(r"(?i)(?:^|[_.-])(?:password|passwd|passphrase|pwd)$|Password$")
_TOKEN: Final = re.compile(
    r"(?i)(?:^|[_.-])(?:(?:access|auth|refresh|id|api|bearer|secret|private|client)[_-]?)?(?:token|secret)$"
    r"|(?:api|access|secret|private)[_-]?key$|^authorization$|^(?:set-)?cookie$"
)
_NAMED_WORDS: Final = (
    rb'(?i:pass(?:word|wd|phrase)|pwd|token|secret|(?:api|access|private)[_-]?key|authorization|cookie)"'
)
_QUICK: Final = re.compile(b"|".join([*(form.encode() for form in _TABLE.values()), _NAMED_WORDS]))
_ASSIGNED: Final = re.compile(r"""["']?([A-Za-z0-9_.-]{2,64})["']?\s*[=:]\s*["']?(\$\{secret:[^}]*\}|[^\s"',;}\])]+)""")
_HARMLESS: Final = re.compile(
    r"(?i)[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha256:[0-9a-f]{64}|[0-9]+"
)
_MIN_PASSWORD: Final = 6
_MIN_TOKEN: Final = 16
_MIN_BITS: Final = 3.0
"""Minimum Shannon entropy per character of a random-looking text."""


def may_hold_secrets(text: bytes) -> bool:
    """Return whether canonical JSON contains a pattern or the name of a secret."""
    return _QUICK.search(text) is not None


def forms_in(text: str) -> Iterator[str]:
    """Yield the kinds of secrets in a text."""
    return (name for name, form in FORMS.items() if form.search(text))


def json_findings(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Yield path and kind of each secret in a JSON value; a secret key is ``***`` in paths."""
    if isinstance(value, str):
        yield from ((path, form) for form in forms_in(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            forms = list(forms_in(key))
            place = f"{path}.{MASK if forms else key}"
            yield from ((place, form) for form in forms)
            found = list(json_findings(inner, place))
            yield from found
            if not found and isinstance(inner, str) and _is_named(key, inner):
                yield place, NAMED
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from json_findings(inner, f"{path}[{index}]")


def line_findings(line: str) -> Iterator[str]:
    """Yield the kinds of secrets in a line, including values of ``name =`` and ``name:``."""
    forms = list(forms_in(line))
    yield from forms
    if not forms and any(_is_named(name, value) for name, value in _ASSIGNED.findall(line)):
        yield NAMED


def _is_named(name: str, value: str) -> bool:
    if value.startswith(MASK) or has_reference(value) or _HARMLESS.fullmatch(value):
        return False
    if _PASSWORD.search(name):
        return len(value) >= _MIN_PASSWORD
    return bool(_TOKEN.search(name)) and len(value) >= _MIN_TOKEN and _bits(value) >= _MIN_BITS


def _bits(text: str) -> float:
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
