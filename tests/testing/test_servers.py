"""Servers from wheels come up beside each other, come back on their data, and leave nothing behind."""

import fcntl
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis, RedisCluster
from redis.crc import key_slot

from journal.testing import servers
from journal.testing.cluster import start_cluster
from journal.testing.servers import Server, postgres_url, start_postgres, start_valkey

OWNER = """
import os, sys, time
from journal.testing.servers import postgres_programs, start_postgres, start_valkey
if len(sys.argv) > 2:
    postgres_programs()  # while the wheel can be found
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[2]))
server = start_postgres() if sys.argv[1] == "postgres" else start_valkey()
print(server.pid, server.directory, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} outlives its starter"
        time.sleep(0.02)


def start_owner(kind: str, *ids: int, place: Path | None = None) -> tuple["subprocess.Popen[str]", int, Path]:
    environment = dict(os.environ) if place is None else {**os.environ, "TMPDIR": str(place)}
    command = [sys.executable, "-c", OWNER, kind, *map(str, ids)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split(maxsplit=1)
    return owner, int(pid), Path(directory.strip())


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_a_killed_owner_leaves_nothing_behind(kind: str) -> None:
    owner, pid, directory = start_owner(kind)
    try:
        assert is_alive(pid)
        assert directory.exists()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    wait_until_dead(pid)
    with start_valkey():
        assert not directory.exists(), "the next start removes what the dead left"


def test_the_directory_of_a_living_owner_stays() -> None:
    with start_valkey() as first, start_valkey() as second:
        assert first.directory.exists()
        assert first.port != second.port
    assert not first.directory.exists()


def test_a_sweep_between_a_directory_and_its_lock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = iter([True])
    flock = fcntl.flock

    def another_sweeps_first(handle: int, how: int) -> None:
        if how == fcntl.LOCK_EX and next(sweeps, False):
            servers._sweep()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", another_sweeps_first)
    with start_valkey() as server:
        assert server.directory.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_plain_user_can_start_them() -> None:
    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="plain-user-") as place:
        os.chown(place, user.pw_uid, user.pw_gid)
        owner, pid, directory = start_owner("postgres", user.pw_uid, user.pw_gid, place=Path(place))
        try:
            assert is_alive(pid)
            assert Path(f"/proc/{pid}").stat().st_uid == user.pw_uid
            assert directory.parent == Path(place)
        finally:
            owner.kill()
            owner.communicate()
        wait_until_dead(pid)


def test_root_may_keep_the_wheel_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment in a private directory, say root's home: then `nobody` runs a copy."""
    monkeypatch.setattr(servers, "_is_open_to_all", lambda path: path == Path(tempfile.gettempdir()))
    servers.postgres_programs.cache_clear()
    try:
        programs = servers.postgres_programs()
        if os.geteuid() == 0:
            assert programs.is_relative_to(tempfile.gettempdir())
        with start_postgres() as server, psycopg.connect(postgres_url(server)) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        servers.postgres_programs.cache_clear()


def test_postgres_listens_on_tcp_and_on_a_socket_and_keeps_its_data() -> None:
    with start_postgres(settings=["max_connections=20"]) as server:
        with psycopg.connect(postgres_url(server), autocommit=True) as connection:
            connection.execute("create table kept (n int)")
            connection.execute("insert into kept values (1)")
            assert connection.execute("show max_connections").fetchone() == ("20",)
        server.kill()
        server.restart()
        socket = f"postgresql://postgres@/postgres?host={server.directory}&port={server.port}"
        with psycopg.connect(socket) as connection:
            assert connection.execute("select n from kept").fetchall() == [(1,)]


def test_valkey_keeps_every_acknowledged_write() -> None:
    with start_valkey(settings=["maxmemory", "64mb"]) as server:
        client = Redis(port=server.port)
        for number in range(100):
            client.rpush("kept", number)
        server.kill()
        server.restart()
        again = Redis(port=server.port, decode_responses=True)
        assert again.llen("kept") == 100
        assert again.config_get("maxmemory") == {"maxmemory": str(64 * 1024 * 1024)}


def test_a_paused_server_answers_again_when_it_is_resumed() -> None:
    with start_valkey() as server:
        server.pause()
        with pytest.raises(Exception, match=r"[Tt]imeout"):
            Redis(port=server.port, socket_timeout=0.2).ping()
        server.resume()
        assert Redis(port=server.port).ping()


def test_the_connections_of_a_paused_postgres_hang() -> None:
    with start_postgres() as server, psycopg.connect(postgres_url(server), autocommit=True) as connection:
        answered = threading.Event()

        def ask() -> None:
            connection.execute("select 1")
            answered.set()

        server.pause()
        asking = threading.Thread(target=ask)
        asking.start()
        assert not answered.wait(0.5), "the backend runs on"
        server.resume()
        asking.join(20)
        assert answered.is_set()


def test_a_paused_server_can_be_killed_and_started_again() -> None:
    with start_postgres() as server:
        with psycopg.connect(postgres_url(server), autocommit=True) as connection:
            row = connection.execute("select pg_backend_pid()").fetchone()
            assert row is not None
            server.pause()
            server.kill()
            wait_until_dead(row[0])
        server.restart()
        with psycopg.connect(postgres_url(server)) as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_a_cluster_moves_a_slot_and_survives_a_node() -> None:
    with start_cluster() as cluster:
        client = RedisCluster(host="127.0.0.1", port=cluster.primaries[0].port)
        for number in range(50):
            client.set(f"{{tag}}{number}", number)
        slot = key_slot(b"tag")
        source = next(node for node in cluster.primaries if owns(node, slot))
        target = next(node for node in cluster.primaries if node is not source)
        cluster.move_slot(slot, source, target)
        assert owns(target, slot)
        assert client.get("{tag}7") == b"7"
        target.kill()
        target.restart()
        cluster.wait_until_ready()
        assert Redis(port=target.port).get("{tag}7") == b"7"


def owns(node: Server, slot: int) -> bool:
    """Whether that primary serves the slot, as it says itself."""
    nodes: Any = Redis(port=node.port, decode_responses=True).cluster("NODES")
    own = next(found for found in nodes.values() if "myself" in found["flags"])
    return any(int(span[0]) <= slot <= int(span[-1]) for span in own["slots"])
