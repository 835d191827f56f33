"""Differences between a program and what is in force in the realm that it opens: schema, code of actions, policies.

Nothing is rejected because of them: a proposal that needs what differs is held until it is adopted, or until a program
with the adopted code opens the realm (``world.pipeline.adopted_code.holding``). Sources: WP-schema; CARD-policy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from authority.policies.policy_diff import differences
from world.core import Domain
from world.core.migrations import Misfit, misfits
from world.engine.administration import adopt_policy, found
from world.engine.domain_adoption import adopt_domain
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted
from world.limits import Limits
from world.model.record import Record, Shown, WireForm
from world.pipeline.adopted_code.adoption_plan import AdoptionPlan, plan_adoption
from world.pipeline.preparation.preparing import prepare_adoption
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.archive import Archive
from world.state.realm_view import RealmView
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.bootstrap import Components

__all__ = [
    "DEVELOPMENT",
    "ChangedPolicy",
    "OnChange",
    "ProgramChanges",
    "changes_of",
    "check_development",
    "found_realm",
    "is_development",
    "meet_changes",
    "plan_for",
]

OnChange = Literal["adopt", "refuse", "hold"]
"""What opening a realm does where the program differs from what is in force.

``adopt`` adopts the domain and the given policies in one commit, with migrations. ``refuse`` raises
``PROGRAM_DIFFERS``. ``hold`` opens the realm, and proposals that need what differs wait; under another schema too.
"""

DEVELOPMENT: Final = "WORLD_DEVELOPMENT"
"""Environment variable that ``worldctl dev`` sets: opening adopts, in realms that were created for development only."""

_LOGGER: Final = logging.getLogger("worldprotocol")

WAYS_OUT: Final = (
    'Adopt it (`worldctl adopt`, `worldctl policy adopt NAME`, on_change="adopt"), or run the program with the code in '
    "force; until then the proposals that need it are held."
)


class ChangedPolicy(Record, frozen=True):
    """A policy in force that the program has in another version, or not at all.

    Args:
        name: its name.
        in_force: hash of the adopted policy.
        loaded: hash of the program's policy; None where none of the name is loaded.
        rules: the differences rule by rule; see ``authority.policies.policy_diff.differences``.
    """

    name: str
    in_force: str
    loaded: str | None
    rules: tuple[Mapping[str, Any], ...] = ()
    SHOWN: ClassVar = {"loaded": Shown()}


@dataclass(frozen=True, slots=True)
class ProgramChanges(WireForm):
    """What differs between a program and what is in force; false where nothing does.

    Args:
        schema: hashes of the schema in force and of the loaded one; None where they are equal.
        places: by branch, the places of its head that the loaded schema refuses.
        code: names of the domain's functions whose code differs, such as ``action:sell``.
        policies: the policies in force that differ or are not loaded.
    """

    schema: tuple[str, str] | None = None
    places: Mapping[str, tuple[Misfit, ...]] | None = None
    code: tuple[str, ...] = ()
    policies: tuple[ChangedPolicy, ...] = ()
    WIRE: ClassVar = "schema=hashes places=misfits code policies"

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return bool(self.schema or self.code or self.policies)

    @property
    def hashes(self) -> dict[str, str] | None:
        """The hashes of both schemas by what they are."""
        return None if self.schema is None else {"inForce": self.schema[0], "loaded": self.schema[1]}

    @property
    def misfits(self) -> dict[str, tuple[Misfit, ...]]:
        """The refused places by branch."""
        return dict(self.places or {})

    @property
    def differs(self) -> bool:
        """Whether something differs that the program has, and not only policies that it did not load."""
        return bool(self.schema or self.code or any(one.loaded is not None for one in self.policies))

    def __str__(self) -> str:
        """Return the report as a sentence, with the two ways out."""
        parts = []
        if self.schema is not None:
            parts.append(f"the schema ({self.schema[0][:12]} is in force, {self.schema[1][:12]} is loaded)")
        parts += [f"the code of {one}" for one in self.code]
        for policy in self.policies:
            rules = ", ".join(f"{one['rule']} {one['kind']}" for one in policy.rules if "rule" in one)
            what = "is not loaded" if policy.loaded is None else f"has changed ({rules})" if rules else "has changed"
            parts.append(f"the policy {policy.name} {what}")
        if not parts:
            return "The program is as it was adopted."
        return f"The program differs from what is in force: {'; '.join(parts)}. {WAYS_OUT}"


def changes_of(archive: Archive, parts: Components) -> ProgramChanges:
    """Return what differs between a program and what is in force.

    Args:
        archive: archive of the log.
        parts: the components of this process.
    """

    def look(realm: RealmView) -> tuple[Any, dict[str, str], list[PolicyAdopted]]:
        heads = {name: branch.head for name, branch in realm.branches.items()}
        return realm.domain, heads, list(realm.policies.values())

    adopted, heads, policies = archive.peek(look)
    changed = tuple(one for one in (_policy(parts, event) for event in policies) if one is not None)
    if adopted is None:
        return ProgramChanges(policies=changed)
    loaded = parts.domain.schema.hash
    if adopted.schema_hash == loaded:
        return ProgramChanges(code=tuple(parts.domain.changed(adopted.sources)), policies=changed)
    domain = parts.domain
    places = {
        name: tuple(misfits(domain.schema, archive.state(head), domain.state_faults)) for name, head in heads.items()
    }
    return ProgramChanges((adopted.schema_hash, loaded), places, _code(parts.domain, adopted.sources), changed)


def _code(domain: Domain, recorded: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the names of functions that both schemas have and whose code differs."""
    return tuple(name for name in domain.changed(recorded) if name in recorded and name in domain.sources())


def _policy(parts: Components, event: PolicyAdopted) -> ChangedPolicy | None:
    try:
        described = parts.authority.describe_policy(event.name, event.policy)
    except RefusedError:
        return ChangedPolicy(event.name, event.policy_hash, None)
    if described["hash"] == event.policy_hash:
        return None
    return ChangedPolicy(
        event.name, event.policy_hash, str(described["hash"]), tuple(differences(event.policy, described))
    )


def meet_changes(archive: Archive, parts: Components, protocol: Writer, on_change: OnChange | None) -> bool:
    """Adopt, refuse or report what differs between a program and what is in force, when it opens a realm.

    Args:
        archive: archive of the log.
        parts: the components of this process.
        protocol: the writer of the log.
        on_change: see ``OnChange``; None refuses another schema, and otherwise warns.

    Returns:
        False where another schema stays in force, so that commands other than submissions are refused.

    Raises:
        RefusedError: ``SCHEMA_MISMATCH``, ``PROGRAM_DIFFERS``, ``NOT_A_DEVELOPMENT_REALM``; with ``adopt``, the codes
            of ``world.engine.domain_adoption.adopt_domain``.
    """
    if on_change is None and is_development():
        archive.peek(check_development)
        on_change = "adopt"
    if on_change == "adopt":
        if archive.peek(lambda realm: realm.domain is not None):
            protocol.run(_adopting(parts.policy_names), prepare=prepare_adoption)
        return True
    changes = changes_of(archive, parts)
    if on_change == "refuse":
        _refuse(changes)
    elif on_change == "hold":
        protocol.holds_submissions = True
    else:
        _refuse_schema(changes)
        _warn(changes)
    return changes.schema is None


def _refuse(changes: ProgramChanges) -> None:
    """Refuse a program that differs; raises ``RefusedError`` ``PROGRAM_DIFFERS``."""
    if changes:
        raise RefusedError(ErrorCode.PROGRAM_DIFFERS, str(changes), changes=changes.to_wire())


def _refuse_schema(changes: ProgramChanges) -> None:
    """Refuse a domain with another schema than the one in force (WP-schema); raises ``SCHEMA_MISMATCH``."""
    if changes.schema is None:
        return
    in_force, loaded = changes.schema
    raise RefusedError(
        ErrorCode.SCHEMA_MISMATCH,
        f"Schema {in_force[:12]} is in force in the log, but the loaded domain has schema {loaded[:12]}. Open the "
        "realm with the domain in force, or adopt the new one (`worldctl adopt`, Realm.open_to_adopt, "
        'on_change="adopt").',
        in_force=in_force,
        at_hand=loaded,
        changes=changes.to_wire(),
    )


def _warn(changes: ProgramChanges) -> None:
    """Log a warning where something differs that the program has."""
    if changes.differs:
        _LOGGER.warning("%s", changes)


def is_development() -> bool:
    """Return whether ``worldctl dev`` runs this process."""
    return os.environ.get(DEVELOPMENT) == "1"


def check_development(realm: RealmView) -> None:
    """Refuse a realm that was not created for development.

    Raises:
        RefusedError: ``NOT_A_DEVELOPMENT_REALM``.
    """
    if realm.founded is not None and not realm.founded.development:
        raise RefusedError(
            ErrorCode.NOT_A_DEVELOPMENT_REALM,
            "This realm was not created for development, so `worldctl dev` adopts nothing in it. Create one with "
            "`worldctl init --dev` (Realm.create(development=True)), or adopt explicitly with `worldctl adopt`.",
        )


def _adopting(names: Sequence[str]) -> Callable[[UnitOfWork], bool]:
    """Return the command that adopts the loaded domain, and the policies that the operator gave, in one commit."""

    def command(work: UnitOfWork) -> bool:
        adopted = [adopt_domain(work, OPERATOR), *(adopt_policy(work, name, OPERATOR) for name in names)]
        return any(adopted)

    command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.protocol
    return command


def found_realm(
    protocol: Writer,
    policies: Iterable[str],
    data: Mapping[str, Any] | None,
    by: str,
    *,
    development: bool = False,
) -> None:
    """Found a realm and adopt policies in one commit.

    Args:
        protocol: the writer of a log without a realm.
        policies: names of loaded policies.
        data: initial data that differs from the domain's defaults.
        by: actor id that the log records.
        development: whether ``worldctl dev`` may adopt changes in it; it always may in a realm that it creates.
    """

    def command(work: UnitOfWork) -> None:
        place = protocol.archive.log.place()
        found(work, by, data, place=place, development=development or is_development())
        for name in policies:
            adopt_policy(work, name, by)

    protocol.run(command)


def plan_for(archive: Archive, domain: Domain, limits: Limits) -> AdoptionPlan:
    """Return what the adoption of a domain would do to the realm of a log.

    Args:
        archive: archive of the log.
        domain: the domain to adopt.
        limits: limits of the pipeline, with the time limit of a migration.

    Raises:
        RefusedError: ``NOT_FOUNDED``.
        DamagedLogError: a head's state cannot be restored.
    """
    return plan_adoption(archive.realm(), domain, archive.checked_state, limits.in_time)
