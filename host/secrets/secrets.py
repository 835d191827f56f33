"""Resolution of the secret references in an effect's parameters, when the effect is performed.

Sources are read in order; the first that has a secret provides it. The values are passed to the handler alone:
results are masked (``host.secrets.masking``), and a keyed digest of each value is recorded with the result, which
shows an owner of the key whether two effects used the same value. The key is a file beside the log, created at
first use.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets as randomness
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from host.secrets.masking import MIN_SECRET_CHARS, ValueMask
from host.secrets.sources import SecretSource
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.resource_values import ObservedEffect, SecretDigest, UndeclaredEffect
from world.klis.resources.resource_reading import canonical_resource
from world.model.immutable_json import freeze
from world.model.secrets.references import references, with_references_replaced
from world.model.snapshot import EffectAnswer
from world.state.ports import Performed

__all__ = ["ResolvedSecrets", "Secrets"]

KEY_BYTES: Final = 32
_DOMAIN: Final = b"world protocol secret v1\0"
"""Separates these digests from other uses of the key."""


@dataclass(frozen=True, slots=True)
class ResolvedSecrets:
    """The parameters of one effect with the values of its secrets.

    Args:
        params: the parameters for the handler.
        digests: name and keyed digest of each secret, as recorded.
        mask: removes the values from results.
    """

    params: Any = field(repr=False)
    digests: tuple[SecretDigest, ...] = ()
    mask: ValueMask = field(default_factory=lambda: ValueMask(()), repr=False)

    def masked(self, performed: Performed) -> Performed:
        """Return the result of an effect without the values, and with the digests.

        Raises:
            RefusedError: ``INVALID_PATCH`` and others, where masking makes a patch invalid.
        """
        if not self.digests:
            return performed
        return replace(
            performed,
            result=EffectAnswer.from_wire(freeze(self.mask.value(performed.result.to_wire()))),
            observed=tuple(ObservedEffect.from_wire(self.mask.value(one.to_wire())) for one in performed.observed),
            violations=tuple(
                UndeclaredEffect.from_wire(self.mask.value(one.to_wire())) for one in performed.violations
            ),
            secrets=self.digests,
        )


class Secrets:
    """The secrets that effects may refer to.

    Args:
        sources: the sources, in order of precedence.
        key: the file with the key of the digests; created with mode 0600 where missing. None records names alone.
        uses: by secret: the only resources with which it may be used, such as ``URL:https://api.example.com/*``; other
            secrets may be used with every effect.
    """

    __slots__ = ("_key", "_sources", "_uses")

    def __init__(
        self,
        sources: Sequence[SecretSource] = (),
        *,
        key: Path | None = None,
        uses: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Store the sources; nothing is read yet.

        Raises:
            RefusedError: as ``canonical_resource``, for ``uses``.
        """
        self._sources = tuple(sources)
        self._key = key
        self._uses = {
            name: tuple(canonical_resource(text, path=f"[secrets.uses] {name}") for text in texts)
            for name, texts in (uses or {}).items()
        }

    @property
    def key_file(self) -> Path | None:
        """The file with the digests' key."""
        return self._key

    def resolve(self, params: Any, touched: Sequence[str]) -> ResolvedSecrets:
        """Replace the references in parameters by the values of their secrets.

        Args:
            params: with references.
            touched: the resources that the effect touches.

        Raises:
            RefusedError: ``SECRET_REFERENCE_INVALID``, ``SECRET_NOT_FOUND`` with the searched sources,
                ``SECRET_UNREADABLE``, ``SECRET_TOO_SHORT``, ``SECRET_NOT_ALLOWED``, ``SECRET_KEY_INVALID``.
        """
        names = references(params)
        for name in names:
            self._check_use(name, touched)
        values = {name: self.value_of(name) for name in names}
        resolved_params = (
            freeze(with_references_replaced(params, values.__getitem__)) if _is_written(params) else params
        )
        return ResolvedSecrets(
            resolved_params, tuple(self._digest(*one) for one in values.items()), ValueMask(values.values())
        )

    def value_of(self, name: str) -> str:
        """Return the value of one secret; raises as ``resolve``."""
        for source in self._sources:
            value = source.read(name)
            if value is None:
                continue
            if len(value) < MIN_SECRET_CHARS:
                raise RefusedError(
                    ErrorCode.SECRET_TOO_SHORT,
                    f"Secret {name} ({source.location_of(name)}) has fewer than {MIN_SECRET_CHARS} characters and "
                    "cannot be removed from results without disclosing it. Use a longer one.",
                    name=name,
                )
            return value
        locations = [source.location_of(name) for source in self._sources]
        searched = f"Searched: {'; '.join(locations)}." if locations else "world.toml has no [secrets]."
        raise RefusedError(
            ErrorCode.SECRET_NOT_FOUND,
            f"Secret {name} is not defined, and nothing was sent. {searched}",
            name=name,
            looked_in=locations,
        )

    def _check_use(self, name: str, touched: Sequence[str]) -> None:
        allowed = self._uses.get(name)
        if allowed is None:
            return
        for text in touched:
            resource = canonical_resource(text, literal_stars=True)
            if not any(one.covers(resource) for one in allowed):
                raise RefusedError(
                    ErrorCode.SECRET_NOT_ALLOWED,
                    f"Secret {name} may be used with {', '.join(one.text for one in allowed)} only, and the "
                    f"effect touches {resource.text}. Change [secrets.uses] in world.toml if that is intended.",
                    name=name,
                    resource=resource.text,
                )
        if not touched:
            raise RefusedError(
                ErrorCode.SECRET_NOT_ALLOWED,
                f"Secret {name} may be used with {', '.join(one.text for one in allowed)} only, and the effect's "
                "handler declares no touches. Add them to the handler.",
                name=name,
            )

    def _digest(self, name: str, value: str) -> SecretDigest:
        if self._key is None:
            return SecretDigest(name=name)
        made = hmac.new(_read_key(self._key), _DOMAIN + value.encode(), hashlib.sha256)
        return SecretDigest(name=name, digest=made.hexdigest())


def _is_written(params: Any) -> bool:
    """Whether parameters hold a reference or an escaped one."""
    return bool(with_references_replaced(params, lambda name: "") != params)


def _read_key(path: Path) -> bytes:
    """Read the key from a file, which is created where missing."""
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{randomness.token_hex(8)}")
        if not path.exists():
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(file, "w", encoding="ascii") as out:
                    out.write(randomness.token_hex(KEY_BYTES))
                    out.flush()
                    os.fsync(out.fileno())
                os.link(temporary, path)  # fails if another process has created it meanwhile
            finally:
                os.unlink(temporary)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        is_open = bool(os.stat(path).st_mode & 0o077)
    except (OSError, ValueError):
        key, is_open = b"", False
    if len(key) != KEY_BYTES or is_open:
        why = (
            "other users may read it; run `chmod 600` on it" if is_open else f"it must hold {2 * KEY_BYTES} hex digits"
        )
        raise RefusedError(
            ErrorCode.SECRET_KEY_INVALID, f"{path} cannot be used as the key of digests: {why}.", path=str(path)
        )
    return key
