"""`--containers` says at once what is missing, and what to do."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.containers import check_engine, postgres_images, redis_images

ROOT = Path(__file__).parents[2]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers", None)
    with pytest.raises(pytest.UsageError, match=r"pip install 'durable-journal\[containers\]'"):
        check_engine()


@pytest.mark.skipif(find_spec("testcontainers") is None, reason="needs the extra `containers`")
def test_without_an_engine() -> None:
    command = [sys.executable, "-m", "pytest", "--containers", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "no container engine answers" in done.stderr
    assert "start Docker" in done.stderr


def test_an_image_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_TEST_POSTGRES_IMAGE", raising=False)
    monkeypatch.delenv("JOURNAL_TEST_REDIS_IMAGE", raising=False)
    assert postgres_images() == ["postgres:14", "postgres:18"]
    assert redis_images() == ["redis:7", "valkey/valkey:9"]
    monkeypatch.setenv("JOURNAL_TEST_POSTGRES_IMAGE", "mine:16")
    monkeypatch.setenv("JOURNAL_TEST_REDIS_IMAGE", "mine:8")
    assert (postgres_images(), redis_images()) == (["mine:16"], ["mine:8"])
