"""Recorded logs, and the realm that they were recorded from.

``garden.py`` stays as it was when its logs were recorded, byte for byte: the hash of its rules covers the whole file.
The names that it imports, and that have been moved or renamed since, are provided here.
"""

import sys
from types import ModuleType

import host
import projections
import worldprotocol
from worldprotocol.api import bootstrap, realm


class World(realm.Realm):
    """A realm with the former names of its class and of a method."""

    receive = realm.Realm.project


def _provide(name: str, **members: object) -> None:
    module = ModuleType(f"worldprotocol.{name}")
    vars(module).update(members)
    sys.modules[module.__name__] = module
    setattr(worldprotocol, name, module)


vars(host)["Failed"] = host.EffectFailure
vars(projections)["Nothing"] = projections.NoIntent
_provide("facade", World=World)
sys.modules["worldprotocol.assemble"] = bootstrap
vars(worldprotocol)["assemble"] = bootstrap
