"""Settings of leases, recorded in the log to reproduce recorded verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.names import NameComparison

__all__ = ["AUTHENTICATION", "MANIFEST_RULES", "WAKE_RULES", "KlisSettings"]

AUTHENTICATION: Final = ("signed", "channel", "open")
"""The values of ``authentication``, the strictest first."""
MANIFEST_RULES: Final = 3
"""Version of the rules by which manifests are read; a recorded manifest is read by the version recorded for it."""
WAKE_RULES: Final = 2
"""Version of the rules by which what was freed wakes what it blocked."""

_MINUTE = 60_000
_DAY = 24 * 60 * _MINUTE
_MAX_CLOCK_AHEAD_MS: Final = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class KlisSettings:
    """Limits and choices of KLIS; all times in milliseconds.

    Args:
        max_triples: triples of one manifest.
        max_resource_chars: characters of one resource.
        max_depth: names in one resource's path.
        min_subtree_depth: how many names a subtree's root must have; 1 refuses ``FILE:/*`` (KM-7.2).
        default_ttl_ms: time to live of a lease when the request names none.
        max_ttl_ms: longest time to live a request may name.
        max_hold_ms: how long heartbeats can keep one lease.
        max_waiting: requests in the queue at the same time.
        backoff_ms: when to ask again after the first Die; doubled with each further one of the session.
        max_backoff_ms: where doubling ends.
        max_named_conflicts: conflicts a verdict spells out, the oldest holders' first; it counts all.
        max_proposal_retries: how often the engine asks again for a proposal that dies before it is rejected.
        accept_priority: whether a manifest's priority_timestamp registers its agent; otherwise the server's clock does.
        max_signature_age_ms: how far the issued_at of a signed manifest may be from the server's clock.
        administrators: ids of the actors that may revoke leases and keys, separated by spaces (KP-4b).
        lower_case: whether paths are compared in lower case, for systems that do (KM-4.2b).
        normal_form: whether paths are compared in Unicode normalisation form C, for systems that ignore the form
            (KM-4.2b). Not recorded where it is False.
        authentication: what shows that a manifest is its agent's (KM-7.1): ``signed``, ``channel`` or ``open``; see
            ``world.klis.identity.authentication``. None in a log that does not record it, which means ``open``.
        max_clock_ahead_ms: how far the time of a commit may be beyond what passed since the commit before it
            (``world.pipeline.recorded_time``). Not recorded where it is the default.
        manifest_rules: version of the rules by which manifests are read; recorded and not configurable. 1, also where
            it is not recorded: ``*`` in an opaque name is an ordinary character, and a RENAMES needs no new name.
            2: the former is refused, the latter is required. 3: hosts of URLs have one form
                (``world.klis.resources.url_host``).
        wake_rules: version of the rules by which a proposal that died continues; recorded and not configurable. 1, also
            where it is not recorded: its timer alone requests its leases again. 2: what is freed wakes what died of it
            (``world.klis.refused_requests``), and the timer, which varies by the proposal's id, is the fallback.
    """

    max_triples: int = 10_000
    max_resource_chars: int = 4_096
    max_depth: int = 256
    min_subtree_depth: int = 1
    default_ttl_ms: int = _MINUTE
    max_ttl_ms: int = _DAY
    max_hold_ms: int = 7 * _DAY
    max_waiting: int = 100_000
    backoff_ms: int = 1_000
    max_backoff_ms: int = _MINUTE
    max_named_conflicts: int = 16
    max_proposal_retries: int = 30
    accept_priority: bool = False
    max_signature_age_ms: int = 5 * _MINUTE
    administrators: str = "operator"
    lower_case: bool = False
    normal_form: bool = False
    authentication: str | None = "channel"
    max_clock_ahead_ms: int = _MAX_CLOCK_AHEAD_MS
    manifest_rules: int = MANIFEST_RULES
    wake_rules: int = WAKE_RULES

    @property
    def names(self) -> NameComparison:
        """The comparison of file names."""
        return NameComparison(self.lower_case, self.normal_form)

    def following(self, found: NameComparison) -> KlisSettings:
        """Return the settings extended by the name comparison of a file system.

        Args:
            found: the comparison of the file system of the workspace.
        """
        case, normal_form = self.names.united(found)
        return replace(self, lower_case=case, normal_form=normal_form)

    def to_wire(self) -> dict[str, Any]:
        """Return the settings as JSON by their Python names, without unrecorded ones."""
        return {name: value for name, value in asdict(self).items() if _NOT_RECORDED.get(name) != value}

    @classmethod
    def recorded(cls, wire: Mapping[str, Any]) -> KlisSettings:
        """Return the settings of a result of ``to_wire``.

        Raises:
            RefusedError: ``INVALID_CONFIG`` for any other value.
        """
        given = dict(wire)
        rules = {name: _version(name, given.pop(name, 1)) for name in _VERSIONS}
        return replace(cls.read(given), authentication=given.get("authentication"), **rules)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> KlisSettings:
        """Return the settings with the named ones changed.

        Raises:
            RefusedError: ``INVALID_CONFIG`` for a name that does not exist or cannot be configured, a wrong type or
                value, or a number below 1 (below 0 for ``min_subtree_depth``).
        """
        known = {field.name: field.default for field in fields(cls) if field.name not in _VERSIONS}
        for name, value in given.items():
            least = 0 if name == "min_subtree_depth" else 1
            fits = name in known and type(value) is type(known[name])
            if not fits or (type(value) is int and not least <= value < 1 << 53):
                raise RefusedError(
                    ErrorCode.INVALID_CONFIG,
                    f"[klis] {name} = {value!r}: the settings are {', '.join(known)}; "
                    "numbers are whole and at least 1.",
                    name=name,
                )
        if given.get("authentication", "open") not in AUTHENTICATION:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"[klis] authentication = {given['authentication']!r}: choose one of {', '.join(AUTHENTICATION)}.",
                name="authentication",
            )
        return cls(**given)


def _version(name: str, recorded: Any) -> Any:
    """Return a recorded version of rules; raises ``RefusedError`` for one that this program does not read."""
    newest = _VERSIONS[name]
    if type(recorded) is not int or not 1 <= recorded <= newest:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{name} = {recorded!r} is recorded; this version reads 1 to {newest}. Use a newer one.",
            name=name,
        )
    return recorded


_VERSIONS: Final[Mapping[str, int]] = {"manifest_rules": MANIFEST_RULES, "wake_rules": WAKE_RULES}
"""The newest version of each kind of rules that is recorded and not configurable."""

_NOT_RECORDED: Final[Mapping[str, Any]] = {
    "authentication": None,
    "max_clock_ahead_ms": _MAX_CLOCK_AHEAD_MS,
    "manifest_rules": 1,
    "normal_form": False,
    "wake_rules": 1,
}
"""Values of settings in logs that do not record them; such logs stay in that form."""
