"""Checks receipts and consistency proofs of the World Protocol, with nothing but Python 3.11 and `cryptography`.

python verify_receipt.py FILE --vkey NAME+ID+KEY [--vkey ...] [--head SIZE:ROOT ...] [--origin LINE]

--vkey    a verifier key of whoever has to have signed: the log, witnesses; each of them has to have
--head    a tree head that you know from elsewhere; it has to be one of those in the file
--origin  the log you mean; unless given, a key has to have the log's name
Exit code 0: proven, and what; 1: not proven; 2: wrong usage. docs/log-format.md describes the form.
"""

import argparse
import base64
import hashlib
import json
import sys
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SUBJECTS = {
    "proposal": ("proposal.submitted", "proposalId"),
    "intent": ("proposal.submitted", "intent.intentId"),
    "decision": ("decision.made", "decision.decisionId"),
    "world": ("world.sealed", "worldId"),
    "verdict": ("verdict.given", "verdictId"),
    "run": ("run.opened", "runId"),
}


class NotProven(Exception):
    """What is wrong, in words."""


def need(fact: bool, words: str) -> bool:
    if not fact:
        raise NotProven(words)
    return True


def fields(told: Any, names: str) -> list[Any]:
    need(isinstance(told, dict) and sorted(told) == sorted(names.split()), f"there should be the fields {names}")
    return [told[name] for name in names.split()]


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs) if need(len(dict(pairs)) == len(pairs), "a name stands twice in the event") else {}


def number(told: Any) -> int:
    return int(told) if need(type(told) is int and 0 <= told < 2**63, "a number is none") else 0


def unbase64(encoded: str) -> bytes:
    raw = base64.b64decode(encoded, validate=True)
    need(base64.b64encode(raw).decode() == encoded, "base64 is written in another way")
    return raw


def hashes(told: Any) -> list[bytes]:
    raw = [bytes.fromhex(one) for one in told]
    need([one.hex() for one in raw] == told and all(len(one) == 32 for one in raw), "a path is none")
    return raw


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def climb(place: int, last: int, start: bytes, path: list[bytes]) -> tuple[bytes, bytes]:
    """Return the roots of the left part and of the whole tree: the loop of RFC 9162, 2.1.3.2 and 2.1.4.2."""
    old = new = start
    for one in path:
        need(last != 0, "the path is too long")
        if place & 1 or place == last:
            old, new = node(one, old), node(one, new)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = node(new, one)
        place, last = place >> 1, last >> 1
    need(last == 0, "the path is too short")
    return old, new


def signed(body: str, lines: list[str], vkey: str) -> None:
    name, key_id, encoded = vkey.split("+", 2)
    key = unbase64(encoded)
    known = hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]
    need(len(key) == 33 and key[0] in (1, 4) and known.hex() == key_id, f"{vkey} is no verifier key")
    mine = [unbase64(line[len(name) + 3 :]) for line in lines if line.startswith(f"\u2014 {name} ")]
    mine = [one[4:] for one in mine if one[:4] == known]
    need(bool(mine), f"{name} has not signed")
    for value in mine:
        said, seal = body, value
        if key[0] == 4:
            said, seal = f"cosignature/v1\ntime {int.from_bytes(value[:8], 'big')}\n{body}", value[8:]
        try:
            Ed25519PublicKey.from_public_bytes(key[1:]).verify(seal, said.encode())
        except InvalidSignature:
            raise NotProven(f"the signature by {name} is wrong") from None


def checkpoint(note: Any, origin: Any, trust: argparse.Namespace) -> tuple[int, bytes]:
    """Check a checkpoint (tlog-checkpoint of C2SP) and return size and root."""
    at = note.rfind("\n\n") + 1
    body, lines = (note[:at], note[at + 1 :].split("\n")) if at else (note, [""])
    named, size, root, *more = body.split("\n")
    need(body.endswith("\n") and lines.pop() == "" and (not at or bool(lines)), "the checkpoint is cut off")
    need(named == origin != "" and all(more[:-1]), "origin and checkpoint disagree")
    need(not any(ord(one) < 32 and one != "\n" for one in note), "the checkpoint has control characters")
    need(all(line.startswith("\u2014 ") and line.count(" ") == 2 for line in lines), "a signature line is none")
    need(size.isascii() and size == str(int(size)) and len(unbase64(root)) == 32, "the checkpoint has no tree head")
    wanted = [trust.origin] if trust.origin else [vkey.split("+")[0] for vkey in trust.vkey] or [origin]
    need(origin in wanted, f"it is of the log {origin!r}; if that is the one you mean, give --origin")
    for vkey in trust.vkey:
        signed(body, lines, vkey)
    return number(int(size)), unbase64(root)


def receipt(told: Any, trust: argparse.Namespace) -> tuple[list[tuple[int, bytes]], str]:
    names = "about checkpoint event format inclusion origin worldProtocol"
    about, note, event, _, proof, origin, _ = fields(told, names)
    field, name, kind = fields(about, "field id kind")
    content, leaf, position = fields(event, "content leaf position")
    index, path, size = fields(proof, "index path size")
    head = checkpoint(note, origin, trust)
    need(number(size) == head[0] and number(position) == number(index) + 1, "position, size and checkpoint disagree")
    found = hashlib.sha256(b"\x00" + content.encode()).digest()
    need(found.hex() == leaf, "the event was changed: it has another hash")
    need(index < size, "the event is not among those of the checkpoint")
    need(climb(index, size - 1, found, hashes(path))[1] == head[1], "the event is not in the tree")
    said = json.loads(content, object_pairs_hook=once)
    _, state, _, topic, _ = fields(said, "schemaVersion state stream topic version")
    if kind == "event":
        need((field, name) == ("position", str(position)), "the receipt is about another position")
        return [head], f"event {position} of {origin}: {topic}"
    need(kind in SUBJECTS and topic == SUBJECTS[kind][0], f"{topic} is no evidence for a {kind}")
    value = state
    for step in SUBJECTS[kind][1].split("."):
        value = value[step]
    need(value == name and field == f"state.{SUBJECTS[kind][1]}", f"the event is not about this {kind}")
    if kind == "world":
        parts = {"parentWorldId": state.get("parent"), **{key: state[key] for key in ("schemaHash", "snapshotHash")}}
        wire = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        need(hashlib.sha256(wire.encode()).hexdigest() == name, "the worldId does not follow from its hashes")
    return [head], f"{kind} {name}: event {position} of {origin}, {topic}"


def consistency(told: Any, trust: argparse.Namespace) -> tuple[list[tuple[int, bytes]], str]:
    _, new_note, old_note, origin, path, _ = fields(told, "format new old origin path worldProtocol")
    old, new, nodes = checkpoint(old_note, origin, trust), checkpoint(new_note, origin, trust), hashes(path)
    if 0 < old[0] < new[0]:
        nodes = [old[1], *nodes] if old[0].bit_count() == 1 else nodes
        place, last = old[0] - 1, new[0] - 1
        while place & 1:
            place, last = place >> 1, last >> 1
        need(climb(place, last, nodes[0], nodes[1:]) == (old[1], new[1]), "the log was changed on the way")
    else:
        need(not nodes and old in (new, (0, hashlib.sha256(b"").digest())), "the log was changed on the way")
    return [old, new], f"the first {old[0]} events of {origin} are as they were when there were {new[0]}"


def check(data: bytes, trust: argparse.Namespace) -> str:
    try:
        told = json.loads(data.decode())
        wire = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        need(wire.encode() + b"\n" == data, "it is not written as receipts are")
        need(number(told["format"]) == 1, "it has another format")
        heads, words = {"receipt": receipt, "consistency": consistency}[told["worldProtocol"]](told, trust)
        known = [f"{size}:{root.hex()}" for size, root in heads]
        need(all(head in known for head in trust.head), "the tree head is another one")
        return words
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise NotProven(f"it lacks something, or has it in another form ({type(error).__name__}: {error})") from None


def main() -> str | int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--vkey", action="append", default=[], metavar="KEY")
    parser.add_argument("--head", action="append", default=[], metavar="SIZE:ROOT")
    parser.add_argument("--origin", metavar="LINE")
    trust = parser.parse_args()
    if not trust.vkey and not trust.head:
        parser.error("give a --vkey, or a --head that you know from elsewhere: a file cannot vouch for itself")
    try:
        with open(trust.file, "rb") as file:
            words = check(file.read(), trust)
    except OSError as error:
        parser.error(f"{trust.file}: {error.strerror}")
    except NotProven as wrong:
        return "NOT PROVEN: " + str(wrong).encode("unicode_escape").decode()
    by = ", ".join(vkey.split("+")[0] for vkey in trust.vkey) or "nobody: signatures were not looked at"
    sys.stdout.write(f"proven: {words.encode('unicode_escape').decode()}\nsigned by {by}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
