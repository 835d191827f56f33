"""Differences of two policies, rule by rule, from their descriptions.

A description is the value of ``Policy.description``, which an adoption records, so policies that exist only in a log
can be compared. Rules are identified by their names. Descriptions with equal hashes have no difference, and with
different hashes at least one. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_EFFECTS: Final = {"permit": "approve", "forbid": "reject"}
_CEDAR_EFFECT: Final = re.compile(r'(?:\s|@\w+(?:\s*\(\s*"(?:\\.|[^"\\])*"\s*\))?|//[^\n]*)*(permit|forbid)\b')
_PLACE: Final = frozenset({"rule", "source", "line", "module", "qualname", "moduleHash", "distribution", "parameters"})


def rule_summary(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a described rule.

    Returns:
        ``id``, ``source``, ``language``; ``effect`` where it is known without running code; of a rule in a policy file
        ``when``, ``actions``, ``actors``, ``scope``, ``to`` and others; of one in Cedar its ``text``; of one in
        Python the hash of its ``code`` and the captured ``values``; ``description`` where it has one.
    """
    summary: dict[str, Any] = {name: described.get(key) for name, key in _HEADS.items()}
    parameters = dict(described.get("parameters", {}))
    if described.get("language") == "cel":
        summary["effect"] = parameters.pop("verdict", None)
        parameters.pop("reason", None)  # it is the description
        summary |= parameters
    elif described.get("language") == "cedar":
        text = str(parameters.get("policy", ""))
        effect = _CEDAR_EFFECT.match(text)
        summary |= {"effect": None if effect is None else _EFFECTS[effect[1]], "text": text}
    else:
        summary |= {"code": described.get("identity", described.get("sourceHash")), "values": parameters or None}
    summary["description"] = described.get("description")
    return {name: value for name, value in summary.items() if value is not None}


_HEADS: Final = {"id": "rule", "source": "source", "language": "language"}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the differences of two described policies.

    Returns:
        In this order: ``{"kind": "policy", "fields"}`` for the policy itself; ``removed``, ``added``, ``changed`` and
        ``moved`` rules; ``{"kind": "file"}`` for a Python file or package whose text changed outside of rules. A
        changed rule has its ``fields``, each ``{"field", "from", "to"}``. A moved one has its ``place`` and source
        before and after; ``order`` says whether its order of evaluation changed, and not only its line.
    """
    if before.get("hash") == after.get("hash"):
        return []
    old = {one["rule"]: one for one in before["rules"]}
    new = {one["rule"]: one for one in after["rules"]}
    common = [name for name in old if name in new]
    found = [*_of_policy(before, after)]
    found += [{"kind": "removed", **_whole(one)} for name, one in old.items() if name not in new]
    found += [{"kind": "added", **_whole(one)} for name, one in new.items() if name not in old]
    for name in common:
        is_same = "identity" in old[name] and old[name]["identity"] == new[name].get("identity")
        fields = [] if is_same else list(_fields(_content(old[name]), _content(new[name])))
        if fields:
            found.append({"kind": "changed", "rule": name, "source": new[name]["source"], "fields": fields})
    found += _moved(old, new, common)
    found += _files(old, new, common)
    return found


def _of_policy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    left_out = ("hash", "rules", "distributions")
    own = [{name: value for name, value in one.items() if name not in left_out} for one in (before, after)]
    fields = list(_fields(*own))
    if fields:
        yield {"kind": "policy", "fields": fields}


def _whole(described: Mapping[str, Any]) -> dict[str, Any]:
    summary = rule_summary(described)
    return {"rule": summary.pop("id"), **summary}


def _content(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a rule by field, without its place."""
    parameters = described.get("parameters", {})
    content = {name: value for name, value in described.items() if name not in _PLACE}
    if "identity" in described:
        content.pop("sourceHash", None)  # of the text with its comments
        if described.get("language") == "python":
            content.pop("description", None)  # the docstring
    if described.get("language") in ("cel", "cedar"):
        content.pop("description", None)  # the parameters contain it and the hashed values
        content.pop("sourceHash", None)
        content.pop("identity", None)  # a hash of the parameters
        return content | dict(parameters)
    return content | {f"parameters.{name}": value for name, value in parameters.items()}


def _fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield {"field": name, "from": before.get(name), "to": after.get(name)}


def _moved(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]], common: Sequence[str]
) -> Iterator[dict[str, Any]]:
    places = {name: place for place, name in enumerate(new)}
    steady = _longest_rising([places[name] for name in common])
    for place, name in enumerate(old):
        if name not in new:
            continue
        in_order = places[name] in steady
        sources = [(one[name]["source"], one[name].get("qualname")) for one in (old, new)]
        if in_order and sources[0] == sources[1]:
            continue
        yield {
            "kind": "moved",
            "rule": name,
            "order": not in_order,
            "from": {"place": place + 1, "source": old[name]["source"]},
            "to": {"place": places[name] + 1, "source": new[name]["source"]},
        }


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """Return a longest increasing subsequence of distinct numbers."""
    ends: list[tuple[int, ...]] = []
    for number in numbers:
        at = next((at for at, run in enumerate(ends) if run[-1] > number), len(ends))
        ends[at : at + 1] = [(*(ends[at - 1] if at else ()), number)]
    return set(ends[-1]) if ends else set()


def _files(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]], common: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the changed files and packages of Python rules; the rules may be equal."""
    changed: dict[tuple[Any, ...], list[str]] = {}
    for name in common:
        if "identity" in old[name] and "identity" in new[name]:
            continue  # it covers what the rule reaches in the file, and the rest does not count
        for field in ("moduleHash", "distribution"):
            before, after = old[name].get(field), new[name].get(field)
            if before != after:
                changed.setdefault((field, new[name].get("module"), before, after), []).append(name)
    for (field, module, before, after), names in changed.items():
        yield {"kind": "file", "module": module, "field": field, "from": before, "to": after, "rules": names}


def words_of(difference: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text for one difference."""
    kind = difference["kind"]
    if kind in ("added", "removed"):
        yield f"{kind:<9}{difference['rule']} {difference.get('effect', '')}".rstrip() + f" [{difference['source']}]"
        if "when" in difference:
            yield f"           when   {difference['when']}"
        return
    if kind == "file":
        rules = ", ".join(difference["rules"])
        yield f"{kind:<9}the {_FILES[difference['field']]} of {rules} changed: {difference['module']}"
        return
    if kind == "moved":
        begin, end = (f"{difference[side]['place']} [{difference[side]['source']}]" for side in ("from", "to"))
        order = "" if difference["order"] else ", asked in the same order"
        yield f"{kind:<9}{difference['rule']} from {begin} to {end}{order}"
        return
    yield f"{kind:<9}{difference['rule']} [{difference['source']}]" if kind == "changed" else f"{kind}"
    for field in difference["fields"]:
        yield f"           {field['field']}"
        yield f"             - {_shown(field['from'])}"
        yield f"             + {_shown(field['to'])}"


_FILES: Final = {"moduleHash": "file", "distribution": "package"}


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, str):
        return " ".join(value.split("\n")) if "\n" in value else value
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
