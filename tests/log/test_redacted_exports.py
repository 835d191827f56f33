"""Redacted exports: every head holds, every change is found, and what was not looked into is told."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from tests.support.tables import for_each
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.codec import TOPICS
from world.log import LoggedEvent, NewEvent, TreeHead, event_leaf, open_log
from world.log.merkle import Frontier
from world.model.canonical_json import canonical_bytes
from worldprotocol.export.jsonl import export_log, import_log, read_heads
from worldprotocol.export.proofs.exports import ExportReport, check_export, is_export
from worldprotocol.export.redaction import Redaction

GOLDEN = FOLDER / "garden-leased.jsonl"
ALL = ("resources", "inputs", "actors")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = str(tmp_path_factory.mktemp("redacted") / "world.db")
    import_log(io.BytesIO(GOLDEN.read_bytes()), address)
    return address


def exported(address: str, rules: Iterable[str]) -> bytes:
    out = io.BytesIO()
    with open_log(address, read_only=True) as log:
        export_log(log, out, redaction=Redaction(rules))
    return out.getvalue()


def checked(data: bytes, *heads: TreeHead) -> ExportReport:
    return check_export(io.BytesIO(data), against=heads)


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@settings(max_examples=25)
@given(st.sets(st.sampled_from([*ALL, *(f"topic={topic}" for topic in TOPICS), "stream=klis", "actor=bo"]), max_size=4))
@pytest.mark.slow
def test_whatever_is_hidden_all_heads_hold(address: str, rules: set[str]) -> None:
    data = exported(address, sorted(rules))
    with open_log(address, read_only=True) as log:
        head, heads = log.head(), list(log.heads())
        report = checked(data, *heads)
        assert report.ok, report.findings
        assert report.head == head
        assert (report.whole is None) is (report.hidden > 0)  # what only says that it hides something is looked into
        shown = {line["position"]: line for line in lines(data) if "topic" in line}
        hidden = [line for line in lines(data) if line.get("redacted") is True]
        assert len(shown) + len(hidden) == head.size == report.events
        assert report.hidden == len(hidden)
        assert all(line.keys() == {"leaf", "position", "redacted"} for line in hidden)
        for event in log.read():
            if event.position in shown:
                assert shown[event.position]["state"] == json.loads(event.state)
    assert read_heads(io.BytesIO(data))[-1] == head


@pytest.mark.requirement("KM-7.3", "CARD-audit")
def test_a_redacted_export_is_checked_against_kept_heads(address: str) -> None:
    data = exported(address, ALL)
    with open_log(address, read_only=True) as log:
        size = log.head().size
        assert checked(data, log.root_at(0), log.root_at(5), log.root_at(size)).ok
    wrong, later = TreeHead(5, bytes(32)), TreeHead(size + 1, bytes(32))
    assert [finding.code for finding in checked(data, wrong, later).findings] == [
        "SAVED_HEAD_MISMATCH",
        "LOG_TRUNCATED",
    ]


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@pytest.mark.parametrize("rules", [("inputs",), ALL])
def test_no_changed_byte_of_a_redacted_export_is_sound(address: str, rules: tuple[str, ...]) -> None:
    data = exported(address, rules)
    body = data.index(b"\n") + 1  # what the header says is nobody's word

    @settings(max_examples=150)
    @given(st.integers(body, len(data) - 1), st.integers(1, 255))
    def change(at: int, flip: int) -> None:
        changed = bytearray(data)
        changed[at] ^= flip
        assert not is_sound(bytes(changed))

    change()


def is_sound(data: bytes) -> bool:
    try:
        return checked(data).ok
    except RefusedError as refused:
        return refused.code != "BAD_EXPORT"


def in_other_words(line: bytes) -> Iterator[bytes]:
    """Yield other ways to write a line, most of which mean something else to some reader."""
    told = json.loads(line)
    yield json.dumps(told, sort_keys=True).encode() + b"\n"
    yield json.dumps(dict(reversed(told.items())), separators=(",", ":")).encode() + b"\n"
    yield line[:-1] + b"\r\n"
    yield b" " + line
    for name, value in told.items():
        member = b'"%b":%b' % (name.encode(), canonical_bytes(value))
        for other in (b'{"forged":1}', b'"decision.made"', b"1", b"true", canonical_bytes(value)):
            yield line.replace(b"{", b'{"%b":%b,' % (name.encode(), other), 1)  # the first of two of a name
            if member in line:
                yield line.replace(member, b'"%b":%b,%b' % (name.encode(), other, member), 1)
    if "size" in str(told.get("head")):
        yield line.replace(b'"size":', b'"size":1,"size":', 1)
    if "topic" in told:
        yield line.replace(b'"schemaVersion"', b'"redacted":false,"schemaVersion"', 1)
        yield line.replace(b'"version":%d' % told["version"], b'"version":%d.0' % told["version"])


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@pytest.mark.parametrize("rules", [(), ALL])
def test_a_line_that_says_two_things_is_found(address: str, tmp_path: Path, rules: tuple[str, ...]) -> None:
    told = exported(address, rules).splitlines(keepends=True)
    shown = next(at for at, line in enumerate(told) if b'"state":' in line)
    hidden = [at for at, line in enumerate(told) if b'"redacted":true' in line][:1]
    for at in (0, shown, *hidden, len(told) - 1):
        for changed in set(in_other_words(told[at])) - {told[at]}:
            data = b"".join([*told[:at], changed, *told[at + 1 :]])
            with pytest.raises(RefusedError) as refused:
                checked(data)
            assert refused.value.code == "BAD_EXPORT", changed
            with pytest.raises(RefusedError):
                import_log(io.BytesIO(data), str(tmp_path / "copy.db"))
    twice = told[-1].replace(b'"size":', b'"size":1,"size":')
    with pytest.raises(RefusedError) as refused:
        read_heads(io.BytesIO(b"".join([*told[:-1], twice])))
    assert refused.value.code == "INVALID_TREE_HEAD"
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.requirement("KM-7.3")
@pytest.mark.parametrize(
    "more", [{"topic": "x.y"}, {"stream": "s"}, {"state": {}}, {"version": 1}, {"schemaVersion": 1}]
)
def test_a_hidden_event_that_tells_of_itself_is_found(address: str, more: dict[str, Any]) -> None:
    told = lines(exported(address, ALL))
    hidden = next(line for line in told if line.get("redacted") is True)
    hidden |= more
    with pytest.raises(RefusedError, match="has members of the event") as refused:
        checked(b"".join(canonical_bytes(line) + b"\n" for line in told))
    assert refused.value.code == "BAD_EXPORT"


@pytest.mark.requirement("KM-7.3")
def test_a_missing_moved_or_repeated_line_is_found(address: str) -> None:
    told = exported(address, ALL).splitlines(keepends=True)
    for changed in (
        told[:5] + told[6:],
        [*told[:5], told[6], told[5], *told[7:]],
        [*told[:6], told[5], *told[6:]],
        told[:-1],
        told[:1],
    ):
        with pytest.raises(RefusedError) as refused:
            checked(b"".join(changed))
        assert refused.value.code == "BAD_EXPORT"
        assert "imported" not in refused.value.message


def test_what_an_event_says_is_checked_even_where_its_leaf_agrees(tmp_path: Path) -> None:
    """The owner of a log could write anything, with leaves and heads to fit."""
    states = {
        "WRONG_HASH": ("lineage", "world.sealed"),
        "NOT_CANONICAL": ("lineage", "branch.switched"),
        "WRONG_STREAM": ("elsewhere", "branch.switched"),
        "BAD_EVENT": ("lineage", "branch.switched"),
    }
    sealed: dict[str, Any] = {"worldId": "0", "contentId": "0", "schemaHash": "0", "snapshotHash": "0", "parent": None}
    sealed |= {"createdBy": None, "branch": "main", "outcome": "completed", "height": 0, "at": 1}
    switched = {"at": 1, "branch": "main", "by": "ann", "epoch": 1}
    with open_log(str(tmp_path / "odd.db"), create=True) as log:
        for code, (stream, topic) in states.items():
            content: dict[str, Any] = sealed if code == "WRONG_HASH" else switched if code != "BAD_EVENT" else {"at": 1}
            gaps = None if code == "NOT_CANONICAL" else (",", ":")
            with log.write() as transaction:
                state = json.dumps(content, sort_keys=True, separators=gaps).encode()
                transaction.append([NewEvent(stream, topic, 1, state)])
        out = io.BytesIO()
        export_log(log, out, redaction=Redaction(["topic=nothing"]))
    found = [finding.code for finding in checked(out.getvalue()).findings]
    assert found == ["WRONG_HASH", "WRONG_HASH", "NOT_CANONICAL", "WRONG_STREAM", "BAD_EVENT"]


def faults(address: str, change: Callable[[dict[str, Any]], None]) -> list[tuple[int, str]]:
    """Return what is found where every event was changed like this, with leaves and heads to fit, and one is hidden."""
    told = lines(exported(address, []))
    for line in told:
        if "topic" in line:
            change(line)
    told = [json.loads(line) for line in rehashed(told)]
    told[0]["redacted"] = ["topic"]
    at = next(at for at, line in enumerate(told) if line.get("topic") == "branch.switched")
    told[at] = {"leaf": told[at]["leaf"], "position": told[at]["position"], "redacted": True}
    report = checked(b"".join(canonical_bytes(line) + b"\n" for line in told))
    assert report.hidden == 1
    return [(finding.position, finding.code) for finding in report.findings]


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@pytest.mark.parametrize(
    ("topic", "place", "name"),
    [
        ("domain.adopted", "", "schemaHash"),
        ("policy.adopted", "", "policyHash"),
        ("policy.adopted", "policy", "name"),
        ("proposal.submitted", "intent", "intentKey"),
        ("world.sealed", "", "contentId"),
        ("world.sealed", "", "worldId"),
    ],
)
def test_a_hash_that_does_not_follow_from_its_own_event_is_found(
    address: str, topic: str, place: str, name: str
) -> None:
    changed: list[int] = []

    def change(line: dict[str, Any]) -> None:
        if line["topic"] == topic and not changed:
            (line["state"][place] if place else line["state"])[name] = "0" * 64
            changed.append(line["position"])

    found = faults(address, change)
    assert (changed[0], "WRONG_HASH") in found
    assert faults(address, lambda _: None) == []


@pytest.mark.requirement("CARD-audit")
def test_a_whole_export_is_verified_like_a_log(address: str) -> None:
    data = GOLDEN.read_bytes()
    assert is_export(data)
    report = checked(data)
    with open_log(address, read_only=True) as log:
        expected = verify(log)
    assert report.ok
    assert report.whole is not None
    assert (report.whole.events, report.whole.worlds, report.head) == (expected.events, expected.worlds, expected.head)


WITHOUT_INPUTS = {
    *(
        "log.founded",
        "log.branched",
        "log.archived",
        "enforcement.chosen",
        "domain.adopted",
        "actor.registered",
        "actor.bound",
    ),
    *("policy.adopted", "policy.retired", "shadow.configured", "klis.configured", "agent.registered", "key.registered"),
    *("key.revoked", "branch.created", "branch.switched", "proposal.shadowed", "proposal.judged", "human.answered"),
    *("decision.made", "human.timed_out", "proposal.superseded", "execution.started", "execution.cancelled"),
    *("proposal.completed", "verdict.given", "request.withdrawn", "lease.renewed", "lease.released", "lease.expired"),
    *("lease.revoked", "run.opened", "run.observed", "run.violated", "run.amended", "run.rolled_back", "run.compared"),
    *("run.closed", "clock.confirmed", "proposal.rescheduled", "proposal.held", "workspace.registered"),
    *("effect.claimed", "effect.extended", "effect.lapsed", "right.granted", "right.revoked"),
    *("token.created", "token.revoked", "writer.opened", "writer.closed"),
    *("caller.left", "caller.returned", "session.begun", "session.moved"),
}
"""Topics whose fields are no inputs and not made of any, but for texts and names of resources that may quote one."""


@pytest.mark.requirement("KM-7.3")
def test_every_topic_was_thought_of_where_inputs_are_hidden() -> None:
    rule = Redaction(["inputs"])
    shown = {topic for topic in TOPICS if not rule.hides(LoggedEvent(1, "s", 1, topic, 1, b"{}", bytes(32)))}
    assert shown - WITHOUT_INPUTS == set()


@pytest.mark.requirement("KM-7.3")
def test_no_text_of_an_input_and_no_name_of_an_actor_is_left(address: str) -> None:
    inputs, actors = set(), set()
    with open_log(address, read_only=True) as log:
        for event in log.read(topics=["proposal.submitted", "actor.registered"]):
            state = json.loads(event.state)
            if event.topic == "actor.registered":
                actors |= {state["actor"]["actorId"], state["actor"].get("name") or state["actor"]["actorId"]}
            else:
                told = (state["intent"]["body"].get("input") or {}).values()
                inputs |= {value for value in told if isinstance(value, str)}
    assert len(inputs) > 2
    assert len(actors) > 2
    quoting = ["inputs", "resources", "topic=proposal.*", "topic=decision.made", "topic=human.*", "topic=domain.*"]
    shown = exported(address, [*quoting, "topic=policy.*"]).decode()
    assert [text for text in inputs if f'"{text}"' in shown] == []
    named = exported(address, ["actors"]).decode()
    assert [text for text in actors if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", named.partition("\n")[2])] == []


@pytest.mark.requirement("KM-7.3")
def test_rules_are_read_strictly() -> None:
    for rule in ("", "inputs=", "actor", "actor=", "topic=", "paths", "role=x"):
        with pytest.raises(RefusedError) as refused:
            Redaction([rule])
        assert refused.value.code == "INVALID_REDACTION"
    with pytest.raises(RefusedError):
        Redaction(["role=a"], {"a": ["role=a"]})
    assert Redaction(["role=a"], {"a": ["inputs", "actor=bo"]}).kinds == ("actor", "inputs")
    assert not Redaction([])


@pytest.mark.requirement("KM-7.3")
@for_each(
    ("rule", "state", "hidden"),
    [
        ("resources", '{"resource":"FILE:/a"}', True),
        ("resources", '{"reason":"FILE:/plan is taken"}', True),
        ("resources", '{"reason":"read MY_TYPE:x"}', True),
        ("resources", '{"scope":{"allowedPaths":["a.b"]}}', True),
        ("resources", '{"rules":[{"scope":["secret.path.*"]}]}', True),
        ("resources", '{"rules":[{"scope":[]}]}', False),
        ("resources", '{"reason":"read X:/plan"}', True),
        ("resources", '{"scope":{"allowedPaths":null},"text":"OUT_OF_STOCK: none"}', False),
        ("actor=bo", '{"reason":"asked by bo."}', True),
        ("actor=bo", '{"reason":"a book"}', False),
        ('actor=Zoë "Z"', '{"reason":"by Zoë \\"Z\\"."}', True),
        ("resources", r'{"reason":"taken:\nFILE:/plan"}', True),
        ("resources", r'{"reason":"file:/plan is taken"}', True),
        ("resources", r'{"reason":"Api_Endpoint:/plan"}', True),
        ("resources", r'{"seen":{"a\tFILE:/plan":1}}', True),
        ("resources", r'{"payload":"{\"text\":\"\\nFILE:/plan\"}"}', True),
        ("resources", r'{"reason":"my file: /plan, profile:/x"}', False),
        ("actor=bo", r'{"reason":"asked by\nbo"}', True),
        ("actor=bo", r'{"payload":"{\"text\":\"by\\nbo\"}"}', True),
        ("actor=Zoë", r'{"payload":"{\"text\":\"Zo\\u00eb\"}"}', True),
        ("actors", '{"by":"x"}', True),
        ("actors", '{"at":1}', False),
    ],
)
def test_a_rule_hides_what_it_names(rule: str, state: str, hidden: bool) -> None:
    event = LoggedEvent(1, "s", 1, "t", 1, state.encode(), bytes(32))
    assert Redaction([rule]).hides(event) is hidden


@pytest.mark.requirement("KM-7.3")
def test_types_that_the_log_defines_are_known_in_any_case_of_letters(tmp_path: Path) -> None:
    def event(at: int, topic: str, state: str) -> LoggedEvent:
        return LoggedEvent(at, "klis", at, topic, 1, state.encode(), bytes(32))

    text = '{"reason":"the printer:/3 is taken"}'
    configured = '{"at":1,"by":"ann","settings":{},"types":{"PRINTER":{}}}'
    rule = Redaction(["resources"])
    assert not rule.hides(event(1, "t", text))
    rule.hides(event(2, "klis.configured", configured))
    assert rule.hides(event(3, "t", text))
    with open_log(str(tmp_path / "odd.db"), create=True) as log:
        with log.write() as transaction:
            transaction.append([NewEvent("klis", "klis.configured", 1, configured.encode())])
        learned = Redaction(["resources"])
        learned.learn(log)
    assert learned.hides(event(1, "t", text))  # from before the type was defined


@pytest.mark.requirement("KM-7.3")
@pytest.mark.parametrize("name", ["bot", "a.bot", "@bot", "the bot", 'Zoë "Z"', "bot-1", "bot."])
def test_whatever_hides_one_actor_is_hidden_where_all_are(name: str) -> None:
    actor = {"actorId": name, "kind": "agent"}
    known = canonical_bytes({"actor": actor, "at": 1, "by": "x"})
    every, one = Redaction(["actors"]), Redaction([f"actor={name}"])
    every.hides(LoggedEvent(1, "realm", 1, "actor.registered", 1, known, bytes(32)))
    for words in ("sold to {}", "{}.", "x.{}", "{}-2", "'{}'", "{},", "({})", "{}ling", "a{}", "é{}é"):
        event = LoggedEvent(2, "s", 1, "t", 1, canonical_bytes({"text": words.format(name)}), bytes(32))
        assert every.hides(event) or not one.hides(event)
        assert every.hides(event) or words in ("{}ling", "a{}", "é{}é")


@pytest.mark.requirement("KM-7.3", "CARD-audit")
def test_an_export_that_only_says_that_it_hides_something_is_checked_whole(address: str) -> None:
    told = lines(exported(address, ["topic=nothing.like.it"]))
    assert told[0]["redacted"]
    assert checked(b"".join(canonical_bytes(line) + b"\n" for line in told)).whole is not None
    frontier = Frontier()
    for line in told:
        if line.get("topic") == "actor.bound":
            line["state"]["binding"]["policy"] = "nobody"
        if "leaf" in line:
            parts = line["stream"], line["version"], line["topic"], line["schemaVersion"]
            leaf = event_leaf(*parts, canonical_bytes(line["state"]))
            line["leaf"] = leaf.hex()
            frontier = frontier.extended([leaf])
        elif "head" in line:
            line["head"]["root"] = frontier.root().hex()
    report = checked(b"".join(canonical_bytes(line) + b"\n" for line in told))
    assert not report.ok
    assert report.rules == ("topic",)
