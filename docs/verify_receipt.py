"""Checks receipts and consistency proofs of the World Protocol, with nothing but Python 3.11 and `cryptography`.

Exit code 0: proven, and what; 1: not proven; 2: wrong usage. docs/reference/log-format.md describes the form.
"""

import argparse
import base64
import hashlib
import json
import sys
from decimal import Decimal
from functools import reduce
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TOPICS = {"proposal": "proposal.submitted", "intent": "proposal.submitted", "decision": "decision.made"}
TOPICS |= {"world": "world.sealed", "verdict": "verdict.given", "run": "run.opened"}
FIELDS = {"intent": "intent.intentId", "decision": "decision.decisionId"}  # of others, such as worldId


class NotProven(Exception):
    """What is wrong, in words."""


def need(fact: bool, words: str) -> None:
    if not fact:
        raise NotProven(words)


def canonical(told: Any, levels: int = 200) -> str:
    """Write what was read as RFC 8785 has it; all numbers are doubles."""
    if isinstance(told, float):
        is_plain = told == 0 or 1e-6 <= abs(told) < 1e21
        return f"{Decimal(repr(told + 0.0)):f}".removesuffix(".0") if is_plain else repr(told).replace("e-0", "e-")
    need(levels > 0 or not isinstance(told, dict | list), "it is nested too deep")
    if isinstance(told, list):
        return f"[{','.join(canonical(one, levels - 1) for one in told)}]"
    if isinstance(told, dict):
        names = sorted(told, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return f"{{{','.join(f'{canonical(name)}:{canonical(told[name], levels - 1)}' for name in names)}}}"
    return json.dumps(told, ensure_ascii=False)


def read(text: str) -> Any:
    told = json.loads(text, parse_int=float)
    need(canonical(told) == text, "it is not written in the one way there is (RFC 8785)")
    return told


def fields(told: Any, names: str) -> list[Any]:
    need(isinstance(told, dict) and sorted(told) == sorted(names.split()), f"there should be the fields {names}")
    return [told[name] for name in names.split()]


def number(told: Any) -> int:
    need(isinstance(told, float) and told.is_integer() and 0 <= told <= 2**53, "a number is none")
    return int(told)


def unbase64(encoded: str) -> bytes:
    raw = base64.b64decode(encoded, validate=True)
    need(base64.b64encode(raw).decode() == encoded and len(raw) > 4, "base64 is too short, or written in another way")
    return raw


def hashes(told: Any) -> list[bytes]:
    raw = [bytes.fromhex(one) for one in told]
    need([one.hex() for one in raw] == told and all(len(one) == 32 for one in raw), "a hash is none")
    return raw


def climb(place: int, last: int, start: bytes, path: list[bytes]) -> tuple[bytes, bytes]:
    """Return the roots of the left part and of the whole tree: the loop of RFC 9162, 2.1.3.2 and 2.1.4.2."""
    old = new = start
    for one in path:
        need(last != 0, "the path is too long")
        if place & 1 or place == last:
            old, new = (hashlib.sha256(b"\x01" + one + right).digest() for right in (old, new))
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = hashlib.sha256(b"\x01" + new + one).digest()
        place, last = place >> 1, last >> 1
    need(last == 0, "the path is too short")
    return old, new


def signed(body: str, signatures: list[tuple[str, bytes]], vkey: str) -> None:
    name, key_id, encoded = vkey.split("+", 2)
    key = unbase64(encoded)
    known = hashlib.sha256(name.encode() + b"\n" + key).digest()[:4]
    need(len(key) == 33 and key[0] in (1, 4) and known.hex() == key_id, f"{vkey} is no verifier key")
    mine = [value[4:] for by, value in signatures if (by, value[:4]) == (name, known)]
    need(bool(mine), f"{name} has not signed")
    for value in mine:
        said, seal, at = body, value, int.from_bytes(value[:8], "big")
        if key[0] == 4:
            said, seal = f"cosignature/v1\ntime {at}\n{body}", value[8:] if at < 2**63 else b""
        Ed25519PublicKey.from_public_bytes(key[1:]).verify(seal, said.encode())


def checkpoint(note: Any, origin: Any, vkeys: list[str], wanted: str | None) -> tuple[int, bytes]:
    """Check a checkpoint (tlog-checkpoint of C2SP) and return size and root."""
    at = note.rfind("\n\n") + 1
    body, lines = (note[:at], note[at + 1 :].split("\n")) if at else (note, [""])
    named, size, root, *more = body.split("\n")
    need(body.endswith("\n") and lines.pop() == "" and bool(at) <= len(lines) <= 100, "the checkpoint is cut off")
    need(min(map(ord, note.replace("\n", " "))) >= 32 and len(note.encode()) <= 2**20, "the checkpoint is too odd")
    need(named == origin != "" and all(more[:-1]), "origin and checkpoint disagree")
    head, signatures = (int(size), unbase64(root)), []
    need(size == str(head[0]) and 0 <= head[0] < 2**63 and len(head[1]) == 32, "the checkpoint has no tree head")
    need(head[0] > 0 or head[1] == hashlib.sha256(b"").digest(), "the tree head is not that of no events")
    for dash, name, encoded in (line.split(" ") for line in lines):
        need(dash == "\u2014" and name != "" and not any(one.isspace() or one == "+" for one in name), "a line is odd")
        signatures.append((name, unbase64(encoded)))
    names = [wanted] if wanted is not None else [vkey.split("+")[0] for vkey in vkeys] or [origin]
    need(origin in names, f"it is of the log {origin!r}; if that is the one you mean, give --origin")
    for vkey in vkeys:
        signed(body, signatures, vkey)
    return head


def receipt(told: Any, trust: argparse.Namespace) -> tuple[list[tuple[int, bytes]], str]:
    about, note, event, _, way, origin, _ = fields(told, "about checkpoint event format inclusion origin worldProtocol")
    field, name, kind = fields(about, "field id kind")
    content, leaf, position = fields(event, "content leaf position")
    index, path, size = fields(way, "index path size")
    head, place = checkpoint(note, origin, trust.vkey, trust.origin), number(index)
    found = hashlib.sha256(b"\x00" + content.encode()).digest()
    said = number(size), number(position), leaf
    need(place < head[0] and said == (head[0], place + 1, found.hex()), "size, position or leaf hash is another one")
    need(climb(place, head[0] - 1, found, hashes(path))[1] == head[1], "the event is not in the tree")
    form, state, stream, topic, version = fields(read(content), "schemaVersion state stream topic version")
    is_name = [0 < len(one) <= 512 and min(map(ord, one.replace("\x7f", "\n"))) >= 32 for one in (stream, topic)]
    need(number(form) * number(version) > 0 and all(is_name), "the event has no stream, topic or version")
    where = f"event {place + 1} of {origin if trust.vkey else 'the log with this tree head'}"
    if kind == "event":
        need((field, name) == ("position", str(place + 1)), "the receipt is about another position")
        return [head], f"{where}: {topic}"
    need(topic == TOPICS[kind] and field == f"state.{FIELDS.get(kind, f'{kind}Id')}", "the event proves no such thing")
    need(reduce(lambda part, step: part[step], field.split(".")[1:], state) == name, f"it is about another {kind}")
    if kind == "world":
        parts, parent = {key: state[key] for key in ("schemaHash", "snapshotHash")}, state.get("parent")
        hashes([*parts.values(), name if parent is None else parent])
        for made, of in ((state["contentId"], parts), (name, {**parts, "parentWorldId": parent})):
            need(hashlib.sha256(canonical(of).encode()).hexdigest() == made, "an id does not follow from its hashes")
    return [head], f"{kind} {name}: {where}, {topic}"


def consistency(told: Any, trust: argparse.Namespace) -> tuple[list[tuple[int, bytes]], str]:
    _, new_note, old_note, origin, path, _ = fields(told, "format new old origin path worldProtocol")
    old = checkpoint(old_note, origin, trust.old_vkey or trust.vkey, trust.origin)
    new, nodes = checkpoint(new_note, origin, trust.vkey, trust.origin), hashes(path)
    if 0 < old[0] < new[0]:
        nodes = [old[1], *nodes] if old[0].bit_count() == 1 else nodes
        whole = (old[0] & -old[0]).bit_length() - 1  # levels that the older tree has filled
        need(climb(old[0] - 1 >> whole, new[0] - 1 >> whole, nodes[0], nodes[1:]) == (old[1], new[1]), "it was changed")
    else:
        need(not nodes and (old == new or old[0] == 0), "it was changed")
    log = origin if trust.vkey else "the log with this tree head"
    return [old, new], f"the first {old[0]} events of {log} are as they were when there were {new[0]}"


def check(data: bytes, trust: argparse.Namespace) -> str:
    try:
        told = read(data.decode().removesuffix("\n"))
        need(data.endswith(b"\n") and number(told["format"]) == 1, "it is cut off, or has another format")
        heads, words = {"receipt": receipt, "consistency": consistency}[told["worldProtocol"]](told, trust)
        known = [f"{size}:{root.hex()}" for size, root in heads]
        need(set(trust.head) <= {*known} and bool(trust.vkey or known[-1] in trust.head), "another tree head is known")
        return words
    except (InvalidSignature, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise NotProven(f"a signature or another part is wrong or missing ({type(error).__name__}: {error})") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--vkey", action="append", default=[], help="key (NAME+ID+KEY) of who has to have signed")
    parser.add_argument("--old-vkey", action="append", default=[], help="the same for the older checkpoint of two")
    parser.add_argument("--head", action="append", default=[], help="SIZE:ROOT in the file, known from elsewhere")
    parser.add_argument("--origin", help="the log you mean; unless given, a key has to have its name")
    trust = parser.parse_args()
    if not trust.vkey and not trust.head:
        parser.error("give a --vkey, or a --head that you know from elsewhere: a file cannot vouch for itself")
    try:
        with open(trust.file, "rb") as file:
            words = check(file.read(), trust)
    except OSError as error:
        parser.error(f"{trust.file}: {error.strerror}")
    except NotProven as wrong:
        sys.exit("NOT PROVEN: " + str(wrong).encode("unicode_escape").decode())
    by = ", ".join(vkey.split("+")[0] for vkey in trust.vkey) or "nobody: signatures were not looked at"
    sys.stdout.write(f"proven: {words.encode('unicode_escape').decode()}\nsigned by {by}\n")


if __name__ == "__main__":
    main()
