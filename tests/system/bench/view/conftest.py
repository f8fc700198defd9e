"""The browser of the tests of pages."""

from __future__ import annotations

from tests.system.pages.conftest import anyio_backend, browser

__all__ = ["anyio_backend", "browser"]
