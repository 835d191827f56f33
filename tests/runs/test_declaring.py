"""What people say about URLs, made a manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.realm import a_workspace, opened
from world.errors import RefusedError
from world.model.record import to_wire
from worldprotocol.runs.declaring import url_resource


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("https://example.org", "URL:https://example.org/"),
        ("URL:https://example.org", "URL:https://example.org/"),
        ("HTTP://Example.org:80/a", "URL:http://example.org/a"),
        ("http://127.0.0.1:8080/x/*", "URL:http://127.0.0.1:8080/x/*"),
    ],
)
def test_a_url_may_be_written_as_people_write_it(said: str, meant: str) -> None:
    assert url_resource(said) == meant
    assert url_resource(meant) == meant


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        url_resource("example")
    assert refused.value.code == "AMBIGUOUS_RESOURCE"


def test_a_session_that_connects_declares_the_url_in_canonical_form(tmp_path: Path) -> None:
    a_workspace(tmp_path)
    with opened(tmp_path) as world, world.host.session(agent="ann", connects=["http://127.0.0.1:9"]) as session:
        declared = world.host.verification(session.run.run_id).declared
    assert to_wire(declared) == [{"predicate": "CONSUMES", "resource": "URL:http://127.0.0.1:9/"}]
