"""The end of the interpreter that is forked for the programs of the system tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.forked_fixtures import close_interpreter


@pytest.fixture(scope="session", autouse=True)
def forked_interpreter(nothing_left_behind: None) -> Iterator[None]:
    """Ends it before the run looks for what is left."""
    yield
    close_interpreter()
