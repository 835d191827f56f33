"""The composition root: the only place where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from authority import StandardAuthority, find_policies
from host import EffectRegistry, Host
from projections import Issuer, ProjectionRegistry, projector_of
from world.actor import ActorRef
from world.clock import Clock, IdSource, SystemClock, SystemIds
from world.core import Domain, load_domain
from world.errors import Refused
from world.intent import IntentBody, IntentInstance
from world.limits import Limits
from world.log import EventLog, open_log
from world.ports import Enforcement
from world.protocol import Projector, WorldProtocol
from world.references import load_reference, offered
from world.source import SourceEvent
from world.views.index import WorldIndex
from worldprotocol.workers import ProcessWorkers
