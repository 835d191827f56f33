"""The demo's domain of governed programs as data in Python; the same as examples/repository/shared/checkout.mel."""

from __future__ import annotations

from world.core import load_domain

checkout = load_domain(
    {
        "id": "urn:example:checkout",
        "version": "1.0.0",
        "state": {"fields": {"release": {"type": "string", "default": "next"}}},
        "actions": {
            "release.name": {
                "input": {"type": "object", "fields": {"name": {"type": "string", "required": True}}},
                "flow": {
                    "kind": "patch",
                    "op": "set",
                    "path": "release",
                    "value": {"kind": "get", "path": "input.name"},
                },
            }
        },
    }
)
