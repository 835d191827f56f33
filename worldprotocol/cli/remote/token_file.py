"""API tokens in files."""

from __future__ import annotations

from pathlib import Path

__all__ = ["token_in"]


def token_in(file: Path | str) -> str:
    """Return the API token in a file.

    Raises:
        RefusedError: ``TOKEN_NOT_VALID``.
    """
    why = None
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        text, why = "", str(error)
    if text and text.isascii() and text.isprintable():
        return text
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    if why is not None:
        raise RefusedError(ErrorCode.TOKEN_NOT_VALID, f"The token in {file} cannot be read: {why}.")
    raise RefusedError(
        ErrorCode.TOKEN_NOT_VALID, f"{file} holds no token: write what `worldctl token create` prints into it."
    )
