"""The composition root: the only place where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from authority import Policies, StandardAuthority
from host import EffectRegistry, Host
from projections import Issuer, ProjectionRegistry
from world.actor import ActorRef
from world.clock import Clock, IdSource, SystemClock, SystemIds
from world.core import Domain, load_domain
from world.errors import Refused
from world.intent import IntentBody, IntentInstance
from world.limits import Limits
from world.log import EventLog, open_log
from world.log.store import Durability
from world.ports import Enforcement
from world.protocol import WorldProtocol
from world.references import load_reference
from world.views.index import WorldIndex
from worldprotocol.pipeline import SourcePipeline
from worldprotocol.workers import ProcessWorkers


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process composed around a log."""

    domain: Domain
    projections: ProjectionRegistry
    policies: Policies
    authority: StandardAuthority
    executor: Host
    issuer: Issuer
    ids: IdSource
    pipeline: SourcePipeline


def load_any_domain(domain: Domain | str | Path, *, base: Path | None = None) -> Domain:
    """Return a domain from an object, a reference (``module:attribute``, ``file.py:attribute``) or a file.

    Raises:
        Refused: ``NOT_LOADED``, ``NOT_A_DOMAIN``, and what ``world.core.load_domain`` refuses.
    """
    if isinstance(domain, Domain):
        return domain
    text = str(domain)
    if isinstance(domain, Path) or text.endswith((".json", ".yaml", ".yml")):
        return load_domain((base or Path()) / text)
    found = load_reference(text, base=base)
    if not isinstance(found, Domain):
        raise Refused("NOT_A_DOMAIN", f"{text!r} is a {type(found).__name__}; it should be a Domain.")
    return found
