"""The dashboard and the alerts: what they read is in a scrape, and what they refer to exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.server.served import founded, serving
from tests.telemetry.metric_names import Scrape, grouped_by, names_in

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
OF_PROMETHEUS = {"up"}
OF_THE_SCRAPE = {"instance", "job"}
TARGET = {
    "type": "object",
    "required": ["expr", "refId", "legendFormat", "datasource"],
    "properties": {"expr": {"type": "string", "minLength": 1}, "refId": {"type": "string", "pattern": "^[A-Z]$"}},
}
PANEL = {
    "type": "object",
    "required": ["id", "title", "type", "gridPos"],
    "properties": {
        "type": {"enum": ["row", "stat", "timeseries"]},
        "gridPos": {
            "required": ["x", "y", "w", "h"],
            "properties": {"x": {"minimum": 0, "maximum": 23}, "w": {"minimum": 1, "maximum": 24}},
        },
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
    },
    "if": {"properties": {"type": {"const": "row"}}},
    "else": {"required": ["targets", "fieldConfig", "datasource", "description"]},
}
DASHBOARD = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
    },
}
"""What Grafana needs of a dashboard."""

RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["alert", "expr", "labels", "annotations"],
    "properties": {
        "alert": {"type": "string", "pattern": "^WorldProtocol[A-Za-z]+$"},
        "expr": {"type": "string"},
        "for": {"type": "string", "pattern": "^[0-9]+[smh]$"},
        "labels": {"type": "object", "required": ["severity"]},
        "annotations": {"type": "object", "required": ["summary", "runbook"]},
    },
}
ALERTS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["groups"],
    "properties": {
        "groups": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "rules"],
                "properties": {"name": {"type": "string"}, "rules": {"type": "array", "minItems": 1, "items": RULE}},
            },
        }
    },
}
"""The format of rule files of Prometheus, as far as alerts need it."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """Return a scrape of a server that was used."""
    with serving(founded(tmp_path_factory.mktemp("dashboard"))) as served:
        for actor in ("kid", "bot"):
            served.submit(actor)
        with served.client("nil") as client:
            client.get("/v1/realms/main/rights")
        with served.client("ops") as client:
            yield Scrape(client.get("/metrics").text)


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return loaded


def alerts() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((DOCS / "prometheus-alerts.yml").read_text(encoding="utf-8"))
    jsonschema.validate(loaded, ALERTS)
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def shown() -> list[tuple[str, str]]:
    """Return every expression of the dashboard, with the legend of its curves."""
    return [
        (target["expr"], target["legendFormat"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]


def check_reads(expression: str, found: Scrape) -> None:
    """Check that a scrape has the metrics of an expression, and their labels."""
    names = list(names_in(expression))
    assert names, expression
    for name, labels in names:
        if name in OF_PROMETHEUS:
            continue
        assert name in found.sample_names(), f"{name} is in no scrape: {expression}"
        known = found.labels(name)
        if known:
            assert labels - OF_THE_SCRAPE <= known, expression
            assert grouped_by(expression) - OF_THE_SCRAPE <= known, expression


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    board = dashboard()
    jsonschema.validate(board, DASHBOARD)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    variables = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(board["panels"])))
    assert used == variables == {"datasource", "realm"}
    (realms,) = (one for one in board["templating"]["list"] if one["name"] == "realm")
    assert realms["query"]["query"] == "label_values(worldprotocol_log_position, realm)"


@pytest.mark.parametrize(("expression", "legend"), shown())
def test_every_query_of_the_dashboard_reads_what_a_scrape_has(expression: str, legend: str, found: Scrape) -> None:
    check_reads(expression, found)
    labels = set().union(*(found.labels(name) for name, _ in names_in(expression)))
    if labels:  # of a counter that was never raised they are not known
        assert set(re.findall(r"{{(\w+)}}", legend)) - OF_THE_SCRAPE <= labels


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_reads_what_a_scrape_has_and_leads_to_the_playbook(rule: dict[str, Any], found: Scrape) -> None:
    check_reads(rule["expr"], found)
    page = (DOCS / "production.md").read_text(encoding="utf-8")
    headings = {one.lower().replace(" ", "-") for one in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
    assert rule["annotations"]["runbook"] in headings
    severities = {"page", "ticket"}
    assert rule["labels"]["severity"] in severities


def test_every_metric_of_ours_is_on_the_dashboard(found: Scrape) -> None:
    used = {name for expression, _ in shown() for name, _ in names_in(expression)}
    ours = {family.name for family in found.families if family.name.startswith("worldprotocol_")}
    assert {name for name in ours if not any(one.startswith(name) for one in used)} == set()


def test_a_wrong_name_is_found(found: Scrape) -> None:
    for wrong in ("rate(worldprotocol_proposal_total[5m])", 'worldprotocol_workers{actor="x"}', "sum(up{job='x'}"):
        with pytest.raises(AssertionError):
            check_reads(wrong, found)
