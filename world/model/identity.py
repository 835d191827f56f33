"""Content hashes that identify intents, catalogs, snapshots, worlds, schemas and requirements.

Every id is a pure function of content: SHA-256 over RFC 8785 text, in lower-case hex.
Sources: intent specification 6.2.1 and 7.4.4; World Protocol (WP-world, WP-hash); design section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from world.model.canonical_json import canonical_bytes, canonical_text, digest, sha256_hex, utf16_key


def intent_key(schema_hash: str, action_type: str, action_input: Any = None, scope: Any = None) -> str:
    """Return the semantic identity of an intent (INT-6.2.1, INV-I2).

    Args:
        schema_hash: hash of the schema that the intent was issued for.
        action_type: the action's identifier.
        action_input: the input, None when absent.
        scope: the scope proposal in wire form, None when absent.

    Raises:
        RefusedError: ``NOT_CANONICAL`` when input or scope has no canonical text.
    """
    scope_text = b"null" if scope is None else canonical_bytes(scope)
    return sha256_hex(f"{schema_hash}:{action_type}:".encode() + canonical_bytes(action_input) + b":" + scope_text)


def catalog_hash(
    schema_hash: str, actions: Iterable[Mapping[str, Any]], pruning: Mapping[str, Any] | None = None
) -> str:
    """Return the hash of an action catalog (intent specification 7.4.4).

    Args:
        schema_hash: hash of the schema that the actions belong to.
        actions: the final list, each with ``type``, ``status`` and ``reason``; the reason is hashed only for the
            status ``unknown``.
        pruning: the pruning options; absent options have their defaults.
    """
    given = dict(pruning or {})
    applied = {
        "policy": _or(given.get("policy"), "drop_unavailable"),
        "includeUnknown": _or(given.get("includeUnknown"), True),
        "sort": _or(given.get("sort"), "type_lex"),
        "maxActions": given.get("maxActions"),
    }
    entries = ",".join(_catalog_entry(action["type"], action["status"], action.get("reason")) for action in actions)
    return sha256_hex(f"{schema_hash}:[{entries}]:{canonical_text(applied)}".encode())


def _catalog_entry(action: Any, status: Any, reason: Any) -> str:
    """Return the canonical text of an action's members that are part of a catalog's hash."""
    hashed_reason = reason if status == "unknown" else None
    if type(action) is str and type(status) is str and (hashed_reason is None or type(hashed_reason) is str):
        return _catalog_text(action, status, hashed_reason)
    return canonical_text({"type": action, "status": status, "reason": hashed_reason})


@lru_cache(maxsize=16_384)
def _catalog_text(action: str, status: str, reason: str | None) -> str:
    return canonical_text({"type": action, "status": status, "reason": reason})


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def snapshot_hash(snapshot: Mapping[str, Any]) -> str:
    """Return the hash of a terminal snapshot in wire form (WP-hash).

    Hashed are ``data`` without its ``$`` members and the terminal facts of ``system``. Messages, timestamps,
    computed values, input, meta and the raw status are not hashed.
    """
    system = snapshot["system"]
    return state_hash(
        snapshot["data"],
        errors=system.get("errors") or (),
        last_error=system.get("lastError"),
        pending_ids=[requirement["id"] for requirement in system.get("pendingRequirements") or ()],
    )


def state_hash(
    data: Mapping[str, Any],
    *,
    errors: Sequence[Mapping[str, Any]] = (),
    last_error: Mapping[str, Any] | None = None,
    pending_ids: Sequence[str] = (),
) -> str:
    """Return the snapshotHash of the hashed parts of a snapshot; see ``snapshot_hash``."""
    if last_error is None and not errors and not pending_ids:
        return sha256_hex(b'{"data":' + canonical_bytes(semantic_data(data)) + _COMPLETED)
    failed = last_error is not None or bool(pending_ids)
    signatures = [signature(error) for error in errors]
    if len(signatures) > 1:
        signatures.sort(key=digest)
    pending = digest({"pendingIds": sorted(pending_ids, key=utf16_key)}) if pending_ids else "empty"
    system = {
        "terminalStatus": "failed" if failed else "completed",
        "errors": signatures,
        "pendingDigest": pending,
    }
    return sha256_hex(
        b'{"data":' + canonical_bytes(semantic_data(data)) + b',"system":' + canonical_bytes(system) + b"}"
    )


_COMPLETED = b',"system":{"errors":[],"pendingDigest":"empty","terminalStatus":"completed"}}'
"""End of the canonical text of a state without errors and pending requirements."""


def semantic_data(data: Any) -> Any:
    """Return the data without its top-level ``$`` members, which belong to hosts and tools."""
    if not isinstance(data, Mapping) or not any(key.startswith("$") for key in data):
        return data
    return {key: value for key, value in data.items() if not key.startswith("$")}


def signature(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deterministic parts of an error value: code, source and context."""
    source = error.get("source") or {}
    kept = {
        "code": error["code"],
        "source": {"actionId": source.get("actionId"), "nodePath": source.get("nodePath")},
    }
    if error.get("context") is not None:
        kept["context"] = error["context"]
    return kept


RULES_IDENTITY: Final = "rules-2"
"""Member ``identity`` of a policy's description: its hash covers the identities of its rules and no places.

The number is the evaluation of its rules: under 1, conditions have the answers of the CEL library, and rules in Python
are not guarded.
"""

RULES_IDENTITIES: Final = frozenset({"rules-1", RULES_IDENTITY})
"""All values of that member."""


def policy_hash(description: Mapping[str, Any]) -> str:
    """Return the hash of a policy's description; rulings and decisions refer to it.

    A description with ``identity`` is identified by that, its name, version and combination, and by the ordered list of
    its rules with their identities. An earlier one is hashed as a whole, without its ``hash``.
    """
    rules = description.get("rules")
    if description.get("identity") not in RULES_IDENTITIES or not isinstance(rules, Sequence):
        return digest({name: part for name, part in description.items() if name != "hash"})
    head = {name: description[name] for name in ("identity", "name", "combination", "version") if name in description}
    named = [[one.get("rule"), one.get("identity")] for one in rules if isinstance(one, Mapping)]
    return digest({**head, "rules": named})


def content_id(schema_hash: str, snapshot_hash_hex: str) -> str:
    """Return the id shared by equal contents: SHA-256(JCS({schemaHash, snapshotHash}))."""
    if _is_word(schema_hash + snapshot_hash_hex):
        return sha256_hex(f'{{"schemaHash":"{schema_hash}","snapshotHash":"{snapshot_hash_hex}"}}'.encode())
    return digest({"schemaHash": schema_hash, "snapshotHash": snapshot_hash_hex})


def world_id(schema_hash: str, snapshot_hash_hex: str, parent: str | None) -> str:
    """Return a world's id, the hash of its content and parent (WP-world); so lineage is acyclic by construction.

    Args:
        schema_hash: hash of the schema that the snapshot conforms to.
        snapshot_hash_hex: the snapshotHash.
        parent: the parent's worldId; None for genesis.
    """
    if _is_word(schema_hash + snapshot_hash_hex + (parent or "")):
        above = "null" if parent is None else f'"{parent}"'
        text = f'{{"parentWorldId":{above},"schemaHash":"{schema_hash}","snapshotHash":"{snapshot_hash_hex}"}}'
        return sha256_hex(text.encode())
    return digest({"parentWorldId": parent, "schemaHash": schema_hash, "snapshotHash": snapshot_hash_hex})


def _is_word(text: str) -> bool:
    """Return whether a text, such as a hash, needs no escapes in JSON."""
    return text.isascii() and text.isalnum()


def requirement_id(
    schema_hash: str, intent_id: str, action_id: str, node_path: str, effect_name: str, args: Any
) -> str:
    """Return the id of one effect at one flow position of one attempt (IC-reqid, design section 3)."""
    return digest(
        {
            "schemaHash": schema_hash,
            "intentId": intent_id,
            "actionId": action_id,
            "nodePath": node_path,
            "effect": {"name": effect_name, "args": args},
        }
    )


def schema_hash(schema: Mapping[str, Any]) -> str:
    """Return the hash of a portable schema without its ``hash`` and its ``$`` state fields (design section 3)."""
    kept = {key: value for key, value in schema.items() if key != "hash"}
    state = kept.get("state")
    if isinstance(state, Mapping) and isinstance(state.get("fields"), Mapping):
        kept["state"] = {**state, "fields": semantic_data(state["fields"])}
    return digest(kept)
