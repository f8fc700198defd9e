"""Fixtures for every test, the two hypothesis profiles, and the check that a run leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=300,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

MARK = "SESSIONTREE_TEST_RUN"
"""Environment variable that every process started by this run inherits."""
GRACE_S = 3.0
"""How long a process that is about to end, or to be waited for, may take."""


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the only loop the runtime supports."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The run ends without a process of its own, and without a file outside ``tmp_path``.

    Temporary files and user state that no test directed elsewhere land in two directories made for this
    run; whatever still lies there at its end was forgotten.
    """
    strays = tmp_path_factory.mktemp("strays")
    temporary, state = strays / "tmp", strays / "state"
    temporary.mkdir()
    state.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, str(os.getpid()))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("XDG_STATE_HOME", str(state))
        patch.setenv("XDG_DATA_HOME", str(state))
        yield
    deadline = time.monotonic() + GRACE_S
    while (processes := _own_processes()) and time.monotonic() < deadline:
        select.select([], [], [], 0.02)
    left = [*processes, *(f"file {path}" for path in [*temporary.iterdir(), *state.iterdir()])]
    assert not left, "the tests left behind: " + "; ".join(left)


def _own_processes() -> list[str]:
    """Return this process's children, waited for or not, and whatever else carries its mark."""
    own = os.getpid()
    mark = f"{MARK}={own}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended just now, or belongs to somebody else
            name, fields = (folder / "stat").read_text("utf-8", "replace").rsplit(") ", 1)
            is_child = int(fields.split()[1]) == own
            if folder.name != str(own) and (
                is_child or mark in (folder / "environ").read_bytes().split(b"\0")
            ):
                found.append(f"process {name}) in state {fields[0]}")
    return found
