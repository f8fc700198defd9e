"""One browser for the tests of a file."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from benchmarks.view import browsing


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The tests of a file share their browser, and therefore its loop."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    """Debian's Chromium, without a screen."""
    if shutil.which("chromium") is None:
        pytest.fail("no Chromium: install the package `chromium`, as `make setup` does when it runs as root")
    async with browsing() as opened:
        yield opened
