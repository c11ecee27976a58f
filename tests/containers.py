"""`pytest --containers`: the servers that tests share come from container images instead of from wheels.

Tests that need Postgres run on each of its images, and those that need Redis on each of its. One image can be named
instead: `$JOURNAL_TEST_POSTGRES_IMAGE`, `$JOURNAL_TEST_REDIS_IMAGE`. Servers that a test kills or configures, and the
cluster, are from wheels all the same. Needs the extra `containers`, and Docker, or Podman with its Docker socket.
"""

import os
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

POSTGRES_IMAGES = ("postgres:14", "postgres:18")
REDIS_IMAGES = ("redis:7", "valkey/valkey:9")
START_SECONDS = 60.0
"""How long a server may take until it answers, once its image is here."""


def postgres_images() -> list[str]:
    """The images that tests of Postgres run on."""
    given = os.environ.get("JOURNAL_TEST_POSTGRES_IMAGE")
    return [given] if given else list(POSTGRES_IMAGES)


def redis_images() -> list[str]:
    """The images that tests of Redis run on."""
    given = os.environ.get("JOURNAL_TEST_REDIS_IMAGE")
    return [given] if given else list(REDIS_IMAGES)


def check_engine() -> None:
    """Raise `pytest.UsageError` if no container can be started, saying what to do."""
    try:
        import testcontainers.core.container  # noqa: F401 - it is imported once it is needed
        from docker import from_env
        from docker.errors import DockerException
    except ImportError as error:
        raise pytest.UsageError(
            f"--containers: {error.name} is not installed: pip install 'durable-journal[containers]'"
        ) from error
    try:
        client = from_env(timeout=10)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        raise pytest.UsageError(
            f"--containers: no container engine answers ({error}): start Docker, or Podman's socket with $DOCKER_HOST "
            "set to it; without --containers the servers come from wheels"
        ) from error


class Containers:
    """Those that this process has started, each once."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._stack = ExitStack()

    def postgres(self, image: str) -> str:
        """URL of a Postgres of that image."""
        return self._url(image, self._start_postgres)

    def redis(self, image: str) -> str:
        """URL of a Redis or Valkey of that image, which syncs every write."""
        return self._url(image, self._start_redis)

    def close(self) -> None:
        """End them all."""
        self._stack.close()

    def _url(self, image: str, start: Callable[[str], str]) -> str:
        if image not in self._urls:
            self._urls[image] = start(image)
        return self._urls[image]

    def _start_postgres(self, image: str) -> str:
        container = _container(image, 5432, ["postgres", "-c", "max_connections=200"])
        place = self._place(container.with_env("POSTGRES_HOST_AUTH_METHOD", "trust"), 5432)
        url = f"postgresql://postgres@{place}/postgres"
        _wait(partial(_ask_postgres, url), image)
        return url

    def _start_redis(self, image: str) -> str:
        program = "valkey-server" if "valkey" in image else "redis-server"
        command = [
            program,
            "--protected-mode",
            "no",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]
        url = f"redis://{self._place(_container(image, 6379, command), 6379)}/0"
        _wait(partial(_ask_redis, url), image)
        return url

    def _place(self, container: "DockerContainer", port: int) -> str:
        container.start()
        self._stack.callback(container.stop)
        return f"{container.get_container_host_ip()}:{container.get_exposed_port(port)}"


def _container(image: str, port: int, command: list[str]) -> "DockerContainer":
    from testcontainers.core.container import DockerContainer

    return DockerContainer(image).with_exposed_ports(port).with_command(shlex.join(command))


def _ask_postgres(url: str) -> None:
    with psycopg.connect(url, connect_timeout=2) as connection:
        connection.execute("select 1")


def _ask_redis(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=2) as client:
        client.ping()


def _wait(ask: Callable[[], None], image: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return ask()
        except (psycopg.OperationalError, redis.RedisError) as error:
            if time.monotonic() > until:
                raise RuntimeError(f"the server of {image} does not answer: {error}") from error
        time.sleep(0.1)
