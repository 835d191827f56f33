"""Addresses with several hosts, and which of them is used."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import pytest

from world.errors import RefusedError, WorldProtocolError
from world.log import open_log, parse_address
from world.log.backends.hosts import (
    DatabaseHost,
    Standby,
    check_not_older,
    check_replication,
    choose_primary,
    choose_reader,
)
from world.log.backends.postgres_hosts import PostgresHosts

A = DatabaseHost("a", is_primary=True, system="1", timeline=2, position=900, sees_all=True)
B = DatabaseHost("b", system="1", timeline=2, position=800, sees_all=True)
C = DatabaseHost("c", system="1", timeline=2, position=850, sees_all=True)
GONE = DatabaseHost("d", error="connection refused")


def hosts_of(address: str) -> list[tuple[Any, Any]]:
    """Return host and port of each connection that an address allows."""
    url = parse_address(address).url
    assert url is not None
    from world.log.sql.statement import dialect

    _, arguments = dialect("postgresql").create_connect_args(url)
    hosts = PostgresHosts(arguments, address, read_only=True, accepts_asynchronous=False)
    return [(one.get("host"), one.get("port")) for one in hosts._each]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://u@a/db", [("a", None)]),
        ("postgresql://u@a:1,b:2/db", [("a", "1"), ("b", "2")]),
        ("postgresql://u:p%40@a,b:2,c/db#audit", [("a", None), ("b", "2"), ("c", None)]),
        ("postgresql://a,b", [("a", None), ("b", None)]),
        ("postgresql://u@[::1]:5,b/db?sslmode=require", [("::1", "5"), ("b", None)]),
        ("postgresql://u@/db?host=a:1&host=b:2", [("a", "1"), ("b", "2")]),
        ("postgresql://u@/db?host=a,b&port=7,8", [("a", "7"), ("b", "8")]),
        ("postgresql://u@/db?host=/run/a,/run/b", [("/run/a", None), ("/run/b", None)]),
    ],
)
def test_an_address_names_several_hosts_as_libpq_or_sqlalchemy_writes_them(
    address: str, expected: list[tuple[str, str]]
) -> None:
    assert hosts_of(address) == expected


@pytest.mark.parametrize(
    "address", ["postgresql://a:x,b/db", "postgresql://a,,b/db", "postgresql://a/db?standbys=sync"]
)
def test_a_malformed_list_of_hosts_is_no_address(address: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_address(address)
    assert caught.value.code == "INVALID_ADDRESS"


def test_the_primary_with_the_newest_timeline_is_used() -> None:
    old = replace(A, name="old", timeline=1, position=5000)
    assert choose_primary([GONE, old, B, A], "x") is A
    assert choose_primary([A], "x") is A


@pytest.mark.parametrize(
    ("hosts", "code", "named"),
    [
        ([replace(A, timeline=1), B], "WRITER_FENCED", "a is primary on timeline 1, and b (standby) has timeline 2"),
        ([A, replace(A, name="e")], "WRITER_FENCED", "a and e are both primary on timeline 2"),
        ([A, replace(B, system="7")], "WRITER_FENCED", "different database clusters: a to 1, b to 7"),
        ([B, C, GONE], "LOG_UNAVAILABLE", "b: standby on timeline 2; c: standby on timeline 2; d: connection refused"),
        ([GONE], "LOG_UNAVAILABLE", "no host answers"),
    ],
)
def test_no_other_host_is_written_to(hosts: list[DatabaseHost], code: str, named: str) -> None:
    with pytest.raises(WorldProtocolError, match=re.escape(named)) as caught:
        choose_primary(hosts, "x")
    assert caught.value.code == code


def test_without_a_primary_the_standby_that_has_most_is_read() -> None:
    assert choose_reader([GONE, B, C], "x") is C
    assert choose_reader([B, A, C], "x") is A
    assert choose_reader([replace(A, timeline=1), B], "x") is B


def test_an_older_timeline_of_the_same_cluster_is_not_used_again() -> None:
    check_not_older(A, None, "x")
    check_not_older(A, replace(B, timeline=1), "x")
    check_not_older(replace(A, system="7", timeline=1), A, "x")  # another cluster: the log decides
    with pytest.raises(RefusedError) as caught:
        check_not_older(replace(A, timeline=1), A, "x")
    assert caught.value.code == "WRITER_FENCED"


def test_a_primary_with_standbys_must_wait_for_them_unless_that_is_accepted() -> None:
    followed = replace(A, standbys=(Standby("b", "async", 0),))
    check_replication(A, hosts=1, is_accepted=False, where="x")
    waiting = replace(followed, synchronous_names="ANY 1 (b)")
    check_replication(waiting, hosts=3, is_accepted=False, where="x")
    for host, count in ((followed, 1), (A, 2), (replace(waiting, synchronous_commit="local"), 1)):
        check_replication(host, hosts=count, is_accepted=True, where="x")
        with pytest.raises(RefusedError) as caught:
            check_replication(host, hosts=count, is_accepted=False, where="x")
        assert caught.value.code == "REPLICATION_ASYNCHRONOUS"


@pytest.mark.slow
def test_a_host_that_accepts_connections_and_never_answers_is_passed_over(postgres_database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = parse_address(postgres_database).url
        assert url is not None
        folder = url.query["host"]
        port = silent.getsockname()[1]
        address = f"postgresql://postgres@/{url.database}?host=127.0.0.1,{folder}&port={port},5432&connect_timeout=2"
        with pytest.raises(RefusedError) as caught:
            open_log(address, create=True)
        assert caught.value.code == "REPLICATION_ASYNCHRONOUS"  # a second host is named, and commits wait for none
        with open_log(f"{address}&standbys=asynchronous", create=True) as log:
            assert [one.error is None for one in log.hosts()] == [False, True]
            assert log.head().size == 0
