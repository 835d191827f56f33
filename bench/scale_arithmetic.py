"""Arithmetic of scale: what 10, 1,000 and 100,000 proposals a second need, from measured bytes and CPU time.

Usage: ``python -m bench.scale_arithmetic [--measured FILE] [--assumed FILE] [--write]``. Prints the tables of
docs/scale.md, computed from ``scale_measured.json`` and ``scale_inputs.toml``; ``--write`` puts them into the page.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.scale_inputs import ASSUMED, FOLDER, MEASURED, assumed, http_costs, measured

PAGE: Final = FOLDER.parent / "docs" / "scale.md"
DAY_S: Final = 86_400
DAYS_PER_YEAR: Final = 365
STORES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Need:
    """What a rate of proposals needs.

    Args:
        rate: proposals a second.
        realms: the fewest, with the load spread evenly.
        hottest: proposals a second in the realm with the most, by the assumed share.
        processes: engine processes, of one core each.
        servers: of engine processes.
        database_cores: of all primaries together.
        primaries: PostgreSQL servers that write.
        wal: bytes of WAL a second.
        stored: bytes of tables and indexes a second.
        archived: bytes of the archive a second.
        engine_traffic: bytes a second between engines and databases.
        client_traffic: bytes a second between clients and servers.
        kept_year: bytes in one copy of the databases after a year in which nothing was removed.
        kept_retention: bytes in one copy of the databases with retention.
        archive_year: bytes of the archive after a year.
    """

    rate: float
    realms: int
    hottest: float
    processes: int
    servers: int
    database_cores: int
    primaries: int
    wal: float
    stored: float
    archived: float
    engine_traffic: float
    client_traffic: float
    kept_year: float
    kept_retention: float
    archive_year: float


def capacity(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[float, float]:
    """Return how many proposals a second one realm can do: one in each commit, and at the assumed batch.

    Nothing overlaps: CPU time of the engine and of the database, round trips and the flush follow each other.
    """
    engine, database = http_costs(found["postgresql"]["cpu"])
    run = wanted["simulation"]
    waits = run["round_trips"] * run["round_trip_s"] + run["flush_s"]
    one, many = (
        1 / (engine.each(batch) + database.each(batch) + waits / batch) for batch in (1, wanted["arithmetic"]["batch"])
    )
    return one, many


def need(rate: float, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Need:
    """Compute what a rate needs.

    Args:
        rate: proposals a second.
        found: what is measured.
        wanted: what is assumed.
    """
    given, sizes = wanted["arithmetic"], found["postgresql"]["bytes"]["pure"]
    engine, database = (cost.each(given["batch"]) for cost in http_costs(found["postgresql"]["cpu"]))
    stored = rate * (sizes["events"] + sizes["tree"] + sizes["index"])
    archived = rate * sizes["text"] * given["archive_ratio"]
    processes = math.ceil(rate * engine / given["utilisation"])
    cores = math.ceil(rate * database / given["utilisation"])
    (http,) = (one for name, one in found["postgresql"]["cpu"].items() if name.startswith("http"))
    older_days = DAYS_PER_YEAR - given["retention_days"]
    return Need(
        rate=rate,
        realms=math.ceil(rate / (capacity(found, wanted)[1] * given["utilisation"])),
        hottest=rate * given["hottest_share"],
        processes=processes,
        servers=max(given["least_servers"], math.ceil(processes / given["server_cores"])),
        database_cores=cores,
        primaries=math.ceil(cores / given["database_cores"]),
        wal=rate * sizes["written"],
        stored=stored,
        archived=archived,
        engine_traffic=rate * sizes["database_connection"],
        client_traffic=rate * http["bytes"],
        kept_year=stored * DAY_S * DAYS_PER_YEAR,
        kept_retention=stored * DAY_S * (given["retention_days"] + given["cut_ratio"] * older_days),
        archive_year=archived * DAY_S * DAYS_PER_YEAR,
    )


def money(one: Need, wanted: Mapping[str, Any], *, retention: bool) -> dict[str, float]:
    """Return the cost of a month at the end of the first year, by item.

    Cores are counted as they are used at the assumed utilisation, those of standbys as those of primaries.

    Args:
        one: what a rate needs.
        wanted: what is assumed.
        retention: whether old events leave the databases for the archive.
    """
    given, prices = wanted["arithmetic"], wanted["prices"]
    copies = 1 + given["standbys"]
    kept = one.kept_retention if retention else one.kept_year
    moved = one.wal * given["standbys"] * DAY_S * given["days_per_month"]
    return {
        "engine cores": max(one.processes, given["least_servers"]) * prices["core_month"],
        "database cores": one.database_cores * copies * prices["core_month"],
        "disks": kept * copies / 1e9 * prices["disk_gb_month"],
        "archive": one.archive_year / 1e9 * prices["archive_gb_month"] if retention else 0.0,
        "traffic": moved / 1e9 * prices["traffic_gb"],
    }


def size(value: float) -> str:
    """Return bytes with a unit, in powers of 1,000 and three digits."""
    unit = 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1_000, unit + 1
    digits = 0 if value >= 99.5 or not unit else 1 if value >= 9.95 else 2
    return f"{value:,.{digits}f} {UNITS[unit]}"


def table(head: Row, rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bytes_table(found: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    """Return the measured bytes of a proposal."""
    parts = ("text", "events", "tree", "index", "written")
    head = ("bytes of a proposal", "text of its events", "events with indexes", "tree", "index", "written")
    rows = [
        (f"{STORES[store]}, {kind}, {sizes['events_count']} events", *(f"{sizes[part]:,}" for part in parts))
        for store in STORES
        for kind, sizes in found[store]["bytes"].items()
    ]
    return table(head, rows)


def cpu_table(found: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    """Return the measured CPU time of a proposal."""

    def us(spread: Mapping[str, float]) -> str:
        return f"{spread['median']:,.0f} ({spread['least']:,.0f} to {spread['most']:,.0f})"

    head = ("proposals, callers", "engine, us", "PostgreSQL, us", "proposals in a commit")
    rows = [
        (
            f"{STORES[store]}, {kind}",
            us(cost["engine_us"]),
            us(cost["database_us"]) if store == "postgresql" else "-",
            f"{cost['batch']['median']:.1f}",
        )
        for store in STORES
        for kind, cost in found[store]["cpu"].items()
    ]
    return table(head, rows)


def reading_table(found: Mapping[str, Any], _: Mapping[str, Any]) -> str:
    """Return the measured CPU time of reading a log again."""
    head = ("log", "open the realm, ms", "read an event, us", "verify an event, us")
    rows = [
        (
            f"{STORES[store]}, {one['events']:,} events",
            f"{one['open_us']['median'] / 1e3:,.0f}",
            f"{one['read_event_us']['median']:.1f}",
            f"{one['verify_event_us']['median']:.1f}",
        )
        for store in STORES
        for one in found[store]["reading"]
    ]
    return table(head, rows)


def costs_table(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the costs that the arithmetic uses, and the capacity of one realm."""
    engine, database = http_costs(found["postgresql"]["cpu"])
    batch = wanted["arithmetic"]["batch"]
    one, many = capacity(found, wanted)
    head = ("over HTTP, on PostgreSQL", "one proposal in a commit", f"{batch} proposals in a commit")
    rows = [
        ("CPU of the engine, us", *(f"{engine.each(n) * 1e6:,.0f}" for n in (1, batch))),
        ("CPU of PostgreSQL, us", *(f"{database.each(n) * 1e6:,.0f}" for n in (1, batch))),
        ("one realm, proposals a second", f"{one:,.0f}", f"{many:,.0f}"),
    ]
    return table(head, rows)


def inputs_table(_: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return what the arithmetic assumes."""

    def text(value: object) -> str:
        if isinstance(value, list):
            return ", ".join(f"{one:,}" for one in value)
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"

    rows = [(f"`{name}`", text(value)) for part in ("arithmetic", "prices") for name, value in wanted[part].items()]
    return table(("assumed", "value"), rows)


def columns(
    found: Mapping[str, Any], wanted: Mapping[str, Any], lines: Sequence[tuple[str, Callable[[Need], str]]]
) -> str:
    """Return a table with a column for each rate and a row for each line."""
    needs = [need(rate, found, wanted) for rate in wanted["arithmetic"]["rates"]]
    head = ("proposals a second", *(f"{one.rate:,}" for one in needs))
    return table(head, [(name, *(shown(one) for one in needs)) for name, shown in lines])


def needs_table(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return what each rate needs in machines, disks and network."""
    given = wanted["arithmetic"]
    copies = 1 + given["standbys"]
    month = DAY_S * given["days_per_month"]
    return columns(
        found,
        wanted,
        (
            ("realms, at least", lambda one: f"{one.realms:,}"),
            ("proposals a second in the hottest realm", lambda one: f"{one.hottest:,.2f}"),
            ("engine processes, one core each", lambda one: f"{one.processes:,}"),
            (f"servers of {given['server_cores']} cores", lambda one: f"{one.servers:,}"),
            ("cores of the primaries", lambda one: f"{one.database_cores:,}"),
            (f"primaries of up to {given['database_cores']} cores", lambda one: f"{one.primaries:,}"),
            ("PostgreSQL servers with standbys", lambda one: f"{one.primaries * copies:,}"),
            ("WAL, a second", lambda one: size(one.wal)),
            ("WAL, a day", lambda one: size(one.wal * DAY_S)),
            ("tables and indexes, a day", lambda one: size(one.stored * DAY_S)),
            ("tables and indexes, a month", lambda one: size(one.stored * month)),
            ("tables and indexes, a year", lambda one: size(one.kept_year)),
            (f"the same with {given['retention_days']} days of retention", lambda one: size(one.kept_retention)),
            ("archive after a year of retention", lambda one: size(one.archive_year)),
            ("clients to servers, a second", lambda one: size(one.client_traffic)),
            ("engines to databases, a second", lambda one: size(one.engine_traffic)),
            ("WAL to standbys, a second", lambda one: size(one.wal * given["standbys"])),
        ),
    )


def money_table(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return what a month costs."""

    def item(name: str, *, retention: bool) -> Callable[[Need], str]:
        return lambda one: f"{money(one, wanted, retention=retention)[name]:,.0f}"

    def total(*, retention: bool) -> Callable[[Need], str]:
        return lambda one: f"{sum(money(one, wanted, retention=retention).values()):,.0f}"

    def million(one: Need) -> str:
        made = one.rate * DAY_S * wanted["arithmetic"]["days_per_month"] / 1e6
        return f"{sum(money(one, wanted, retention=True).values()) / made:,.2f}"

    return columns(
        found,
        wanted,
        (
            ("engine cores", item("engine cores", retention=True)),
            ("database cores, standbys included", item("database cores", retention=True)),
            ("disks, with retention", item("disks", retention=True)),
            ("archive", item("archive", retention=True)),
            ("traffic of the WAL", item("traffic", retention=True)),
            ("sum, with retention", total(retention=True)),
            ("disks, everything of a year", item("disks", retention=False)),
            ("sum, everything of a year", total(retention=False)),
            ("a million proposals, with retention", million),
        ),
    )


TABLES: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]]] = {
    "bytes": bytes_table,
    "cpu": cpu_table,
    "reading": reading_table,
    "costs": costs_table,
    "needs": needs_table,
    "money": money_table,
    "inputs": inputs_table,
}


def tables(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name."""
    return {name: made(found, wanted) for name, made in TABLES.items()}


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return a page with the tables between their marks.

    Raises:
        ValueError: a table has no place in the page.
    """
    for name, text in made.items():
        marked = re.compile(rf"(<!-- {name}: begin -->\n).*?(\n<!-- {name}: end -->)", re.DOTALL)
        page, count = marked.subn(lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"The page has {count} places for the table {name!r}; mark one.")
    return page


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--assumed", type=Path, default=ASSUMED)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(FOLDER.parent)}")
    given = parser.parse_args()
    made = tables(measured(given.measured), assumed(given.assumed))
    if given.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        print("\n\n".join(made.values()))


if __name__ == "__main__":
    main()
