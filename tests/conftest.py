"""What all tests share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio, the loop that the engine is made for."""
    return "asyncio"
