"""What a server has to be, and what a world says of itself."""

import time

import pytest
import redis
from anyio import to_thread

from journal.core.clock import SystemClock
from journal.core.errors import WorldError, WorldReadOnly, WorldTooNew, WorldUnavailable, WorldUnknown
from journal.core.ports import Unknown
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, committed, hold, refusal, signal
from journal.worlds.redis import open_redis
from journal.worlds.redis.address import parse_address
from journal.worlds.redis.library import NAME, TEXT

pytestmark = pytest.mark.anyio


async def opened(url: str) -> None:
    async with open_world(url):
        pass


async def test_the_number_of_partitions_is_for_ever(url: str) -> None:
    await opened(f"{url}&partitions=8")
    error = await refusal(WorldUnknown, opened(url))
    assert "8 partitions" in str(error)
    assert "partitions=8" in str(error)
    await opened(f"{url}&partitions=8")


async def test_a_store_of_a_newer_format_says_whether_we_may_go_on(url: str, redis_server: str) -> None:
    await opened(url)
    meta = f"{parse_address(url).prefix}:meta"
    with redis.Redis.from_url(redis_server) as client:
        client.hset(meta, "format", "3")
        assert "schema 3" in str(await refusal(WorldTooNew, opened(url)))
        client.hset(meta, "compatible_from", "2")
        assert "upgrade" in str(await refusal(WorldTooNew, opened(url)))
        client.hset(meta, "compatible_from", "1")
        await opened(url)
        assert client.hget(meta, "format") == b"3"


@pytest.mark.parametrize(
    "parameters", ["prefix=a:b", "prefix=", "prefix={x}", "partitions=0", "partitions=x", "wait=-1"]
)
async def test_parameters_that_make_no_sense(redis_server: str, parameters: str) -> None:
    await refusal(WorldUnknown, opened(f"{redis_server}?{parameters}"))


def test_what_is_the_drivers_and_what_is_ours() -> None:
    address = parse_address("rediss://me:p%40ss@host:7000/3?wait=1&prefix=app&ssl_cert_reqs=none")
    assert address.driver_url == "rediss://me:p%40ss@host:7000/3?ssl_cert_reqs=none"
    assert (address.host, address.port, address.database) == ("host", 7000, 3)
    assert (address.username, address.password) == ("me", "p@ss")
    assert (address.prefix, address.wait, address.is_tls) == ("app", 1, True)
    assert "p%40ss" not in address.shown
    assert parse_address("valkey://host").driver_url == "redis://host"


async def test_nobody_there() -> None:
    error = await refusal(WorldUnavailable, opened("redis://user:secret@127.0.0.1:1/0"))
    assert "secret" not in str(error)
    assert "check that it runs, and the URL" in str(error)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_a_name_that_is_nowhere_is_told_and_not_waited_for(scheme: str) -> None:
    error = await refusal(
        WorldUnavailable, patiently_opened(f"{scheme}://user:secret@no-such-host.invalid:7000")
    )
    assert "secret" not in str(error)
    assert "the URL" in str(error)


async def patiently_opened(url: str) -> None:
    async with open_redis(url, patience_seconds=3600):
        pass


async def test_what_the_url_has_too_much(redis_server: str) -> None:
    place = redis_server.removesuffix("/0").removeprefix("redis://")
    said = str(await refusal(WorldUnavailable, opened(f"redis://{place}/99999")))
    assert "no database of that number" in said
    said = str(await refusal(WorldUnavailable, opened(f"redis://:wrong@{place}/0")))
    assert "has no password and was given one: leave it out" in said
    said = str(await refusal(WorldUnknown, opened(f"redis://{place}/postgres")))
    assert "write redis://host:port/number" in said


async def test_a_server_that_evicts_is_refused(server: Server) -> None:
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        await opened(servers.redis_url(server))  # without a limit it never evicts
        client.config_set("maxmemory", "100mb")
        error = await refusal(WorldError, opened(servers.redis_url(server)))
        assert "noeviction" in str(error)
        client.config_set("maxmemory-policy", "noeviction")
        await opened(servers.redis_url(server))


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"appendfsync": "everysec"}, "everysec"), ({"appendonly": "no"}, "appendonly is off")],
)
async def test_what_may_lose_data_is_not_called_persistent(
    server: Server, settings: dict[str, str], why: str
) -> None:
    with redis.Redis(port=server.port) as client:
        for name, value in settings.items():
            client.config_set(name, value)
    async with open_redis(servers.redis_url(server)) as world:
        assert not {"log.persistent", "log.survives_failover"} & world.capabilities
        assert {"multi_process", "multi_host", "retention", "stream.deltas"} <= world.capabilities
        assert why in world.notes[0]


async def test_what_is_synced_is_persistent(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        assert {"log.persistent", "log.survives_failover"} <= world.capabilities
        assert world.notes == ()


async def test_a_user_who_may_not_ask_for_the_configuration(server: Server) -> None:
    with redis.Redis(port=server.port) as client:
        rules = "+@all -@dangerous +info +config|get"
        client.execute_command(
            f"ACL SETUSER app on >pw ~journal:* ~{{journal:* &journal:* &{{journal:* {rules}"
        )
        async with open_redis(f"redis://app:pw@127.0.0.1:{server.port}/0") as world:
            assert "log.persistent" in world.capabilities
        client.execute_command(
            "ACL SETUSER app on >pw ~journal:* ~{journal:* &journal:* &{journal:* +@all -config"
        )
        url = f"redis://app:pw@127.0.0.1:{server.port}/0"
        async with open_redis(url) as world:
            assert "log.persistent" not in world.capabilities
            assert "CONFIG" in world.notes[0]
            await begin(world, "r")
        client.execute_command("ACL SETUSER app -fcall")
        async with open_redis(url) as world:
            error = await refusal(WorldUnavailable, world.append(signal("r")))
            assert "NOPERM" in str(error)
    await refusal(WorldUnavailable, opened(f"redis://app:wrong@127.0.0.1:{server.port}/0"))


async def test_functions_of_an_older_version_stay(server: Server) -> None:
    old_name = NAME[:-3] + "old"
    with redis.Redis(port=server.port) as client:
        client.function_load(TEXT.decode().replace(NAME[-12:], f"{NAME[-12:-3]}old"))
        async with open_redis(servers.redis_url(server)) as world:
            await begin(world, "r")
        names = {library[1].decode() for library in client.execute_command("FUNCTION LIST")}
        assert {NAME, old_name} <= names


async def test_replicas_are_waited_for(server: Server) -> None:
    with servers.start_valkey() as replica:
        with redis.Redis(port=replica.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
            await to_thread.run_sync(_until_linked, client)
            await refusal(WorldReadOnly, opened(servers.redis_url(replica)))
        async with open_redis(servers.redis_url(server)) as world:
            assert "log.survives_failover" not in world.capabilities
            assert "wait=1" in world.notes[0]
        async with open_redis(f"{servers.redis_url(server)}?wait=1", patience_seconds=2) as world:
            assert "log.survives_failover" in world.capabilities
            await begin(world, "r")
            replica.pause()
            batch = signal("r")
            answer = await world.append(batch)
            assert isinstance(answer, Unknown)
            assert "0 of 1 replicas" in answer.reason
            again = await world.append(batch)
            assert isinstance(again, Unknown), "it is there, but not where it has to be"
            replica.resume()
            assert committed(await world.append(signal("r", "other"))).first == 4


def _until_linked(client: redis.Redis) -> None:
    while client.info("replication")["master_link_status"] != "up":
        pass


async def test_the_clock_of_the_host_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 16: a journal hands its own clock on, which must not decide about what many hosts share."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    async with open_world(url) as fair, open_world(url, clock=SystemClock()) as ahead:
        await begin(fair, "r")
        holder = await hold(fair, "r")
        assert await claim_all(ahead, run="r") == [], "its lease has half a minute to go"
        committed(await ahead.append(signal("r")))
        await holder.record()
        assert abs((await fair.read("r"))[2].time - right()) < 600


async def test_a_server_that_asks_for_a_password_is_called_that() -> None:
    with servers.start_valkey(settings=("requirepass", "open sesame")) as server:
        bare = servers.redis_url(server)
        with pytest.raises(WorldUnavailable, match="asks for a password: write redis://:PASSWORD@"):
            async with open_redis(bare, patience_seconds=2):
                pass
        with pytest.raises(WorldUnavailable, match="does not accept this user and password"):
            async with open_redis(bare.replace("//", "//:wrong@"), patience_seconds=2):
                pass
        async with open_redis(bare.replace("//", "//:open%20sesame@"), patience_seconds=2) as world:
            assert await world.stats() == []
