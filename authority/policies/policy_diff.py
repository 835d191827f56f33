"""What two policies differ in, rule by rule, from their descriptions; and what a described rule says.

A description is what ``Policy.description`` gives and what an adoption records, so policies can be compared that are
only in a log. Rules are told apart by their names. Two descriptions with one hash differ in nothing, and with
different hashes they differ in something. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_EFFECTS: Final = {"permit": "approve", "forbid": "reject"}
_CEDAR_EFFECT: Final = re.compile(r'(?:\s|@\w+(?:\s*\(\s*"(?:\\.|[^"\\])*"\s*\))?|//[^\n]*)*(permit|forbid)\b')
_PLACE: Final = frozenset({"rule", "source", "line", "module", "qualname", "moduleHash", "distribution", "parameters"})


def rule_told(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a described rule says, as far as its description tells.

    Returns:
        ``id``, ``source``, ``language``; ``effect`` where it is known without running code; of a rule in a policy file
        ``when``, ``actions``, ``actors``, ``scope``, ``to`` and the like; of one in Cedar its ``text``; of one in
        Python the hash of its ``code`` and the ``values`` that it was made with; ``description`` where there is one.
    """
    told: dict[str, Any] = {name: described.get(key) for name, key in _HEADS.items()}
    parameters = dict(described.get("parameters", {}))
    if described.get("language") == "cel":
        told["effect"] = parameters.pop("verdict", None)
        parameters.pop("reason", None)  # it is the description
        told |= parameters
    elif described.get("language") == "cedar":
        text = str(parameters.get("policy", ""))
        effect = _CEDAR_EFFECT.match(text)
        told |= {"effect": None if effect is None else _EFFECTS[effect[1]], "text": text}
    else:
        told |= {"code": described.get("sourceHash"), "values": parameters or None}
    told["description"] = described.get("description")
    return {name: value for name, value in told.items() if value is not None}


_HEADS: Final = {"id": "rule", "source": "source", "language": "language"}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what differs between two described policies.

    Returns:
        In this order: ``{"kind": "policy", "fields"}`` for the policy itself; ``removed``, ``added``, ``changed`` and
        ``moved`` rules; ``{"kind": "file"}`` for a Python file or package whose text changed outside of rules. A
        changed rule has its ``fields``, each ``{"field", "from", "to"}``. A moved one has its ``place`` and source of
        before and after; ``order`` says whether it is asked in another order, and not only stands on another line.
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
        fields = list(_fields(_said(old[name]), _said(new[name])))
        if fields:
            found.append({"kind": "changed", "rule": name, "source": new[name]["source"], "fields": fields})
    found += _moved(old, new, common)
    found += _files(old, new, common)
    return found


def _of_policy(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    own = [{name: value for name, value in one.items() if name not in ("hash", "rules")} for one in (before, after)]
    fields = list(_fields(*own))
    if fields:
        yield {"kind": "policy", "fields": fields}


def _whole(described: Mapping[str, Any]) -> dict[str, Any]:
    told = rule_told(described)
    return {"rule": told.pop("id"), **told}


def _said(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a rule says, by field; where it stands is left out."""
    parameters = described.get("parameters", {})
    said = {name: value for name, value in described.items() if name not in _PLACE}
    if described.get("language") in ("cel", "cedar"):
        said.pop("description", None)  # it stands in the parameters, too, and so does what is hashed
        said.pop("sourceHash", None)
        return said | dict(parameters)
    return said | {f"parameters.{name}": value for name, value in parameters.items()}


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
    """Return a longest rising part of a sequence of different numbers: what need not be moved."""
    ends: list[tuple[int, ...]] = []
    for number in numbers:
        at = next((at for at, run in enumerate(ends) if run[-1] > number), len(ends))
        ends[at : at + 1] = [(*(ends[at - 1] if at else ()), number)]
    return set(ends[-1]) if ends else set()


def _files(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]], common: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the files and packages of Python rules whose text changed; their rules may say the same words."""
    changed: dict[tuple[Any, ...], list[str]] = {}
    for name in common:
        for field in ("moduleHash", "distribution"):
            before, after = old[name].get(field), new[name].get(field)
            if before != after:
                changed.setdefault((field, new[name].get("module"), before, after), []).append(name)
    for (field, module, before, after), names in changed.items():
        yield {"kind": "file", "module": module, "field": field, "from": before, "to": after, "rules": names}


def words_of(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people of one difference."""
    kind = told["kind"]
    if kind in ("added", "removed"):
        yield f"{kind:<9}{told['rule']} {told.get('effect', '')}".rstrip() + f" [{told['source']}]"
        if "when" in told:
            yield f"           when   {told['when']}"
        return
    if kind == "file":
        yield f"{kind:<9}the {_FILES[told['field']]} of {', '.join(told['rules'])} changed: {told['module']}"
        return
    if kind == "moved":
        begin, end = (f"{told[side]['place']} [{told[side]['source']}]" for side in ("from", "to"))
        yield f"{kind:<9}{told['rule']} from {begin} to {end}{'' if told['order'] else ', asked in the same order'}"
        return
    yield f"{kind:<9}{told['rule']} [{told['source']}]" if kind == "changed" else f"{kind}"
    for field in told["fields"]:
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
