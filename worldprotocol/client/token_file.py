"""API tokens in files and in the environment."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["given_token", "token_in"]


def given_token(file: Path | str | None) -> str | None:
    """Return the API token in a file, or that of ``WORLDCTL_TOKEN``; None where there is none.

    Args:
        file: the file; None is the environment variable.

    Raises:
        RefusedError: ``TOKEN_NOT_VALID``.
    """
    if file is not None:
        return token_in(file)
    text = os.environ.get("WORLDCTL_TOKEN", "").strip()
    if not text or _is_token(text):
        return text or None
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    raise RefusedError(
        ErrorCode.TOKEN_NOT_VALID, "WORLDCTL_TOKEN holds no token: set it to what `worldctl token create` prints."
    )


def token_in(file: Path | str) -> str:
    """Return the API token in a file.

    Raises:
        RefusedError: ``TOKEN_NOT_VALID``.
    """
    why = None
    try:
        lines = Path(file).read_text(encoding="utf-8").strip().splitlines()
        is_printed = len(lines) == 2 and lines[1].startswith("token ")  # as `worldctl token create` prints it
        text = lines[0].strip() if is_printed else "\n".join(lines)
    except (OSError, ValueError) as error:
        text, why = "", str(error)
    if _is_token(text):
        return text
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    if why is not None:
        raise RefusedError(ErrorCode.TOKEN_NOT_VALID, f"The token in {file} cannot be read: {why}.")
    raise RefusedError(
        ErrorCode.TOKEN_NOT_VALID, f"{file} holds no token: write what `worldctl token create` prints into it."
    )


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()
