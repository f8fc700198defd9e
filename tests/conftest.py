"""Fixtures for every test, the two hypothesis profiles, and the check that a run leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants
from xdist.scheduler import LoadScopeScheduling

from sessiontree import Runtime
from sessiontree.models.local import local_server
from tests.example_fixtures import EXAMPLES

assert hasattr(HypothesisProvider, "_local_constants"), "Hypothesis collects constants in another way now."
# Hypothesis draws constants of whatever modules of the project are loaded. That differs between the processes
# of a run and between commits, so a search with derandomize=True would find a planted bug in one and miss it
# in the other.
setattr(HypothesisProvider, "_local_constants", Constants())  # noqa: B010
settings.register_profile("dev", max_examples=EXAMPLES, deadline=None)
settings.register_profile(
    "ci",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under `nohup make test &`: what the tests start would ignore their interrupts, and they would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)

MARK = "SESSIONTREE_TEST_RUN"
"""Environment variable that every process started by this run inherits."""
GRACE_S = float(os.environ.get("SESSIONTREE_TEST_GRACE_S", "30"))
"""How long a process that is about to end, or to be waited for, may take."""


SECONDS = Path(__file__).with_name("seconds.txt")
"""How long each part of the run takes; a part is a file, or all tests that share the run's Ray."""
ON_RAY = "ray"
"""Name of the part whose tests share the run's Ray: one process runs them, so there is one Ray."""
BEHAVIOURS = "tests/behaviour/"
RAY_CASE = re.compile(r"\[(?:.*-)?ray(?:-.*)?\]$")
"""A behaviour's case on Ray."""
HIDDEN = "no_module_in_a_fast_test"
"""In place of what runs the local model."""
PROCESS_BYTES = 3 << 30
"""Memory for one process of the tests with the Ray that it starts."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return three processes for two processors, as far as memory goes: many tests wait for processes."""
    processors = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(processors * 3 // 2, memory // PROCESS_BYTES))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hide the local model from tests that are neither slow nor long: a fresh clone has none."""
    with pytest.MonkeyPatch.context() as patch:
        if not any(item.get_closest_marker(mark) for mark in ("slow", "long")):
            patch.setattr(local_server, "RUNNER", HIDDEN)
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures the parts of a run."""
    parser.addoption(
        "--record-seconds", action="store_true", help=f"write how long each part took to {SECONDS}"
    )


def find_part(nodeid: str) -> str:
    """Return the part of the run to which a test belongs."""
    path, _, name = nodeid.partition("::")
    if path.startswith(BEHAVIOURS):
        return ON_RAY if RAY_CASE.search(name) else path
    return ON_RAY if path in find_files_on_ray() else path


@cache
def find_files_on_ray() -> frozenset[str]:
    """Return the files whose tests take the run's Ray, behaviours aside."""
    root = SECONDS.parents[1]
    files = (path for path in root.glob("tests/*/**/test_*.py") if "ray_runtime" in path.read_text("utf-8"))
    return frozenset(path.relative_to(root).as_posix() for path in files)


def read_seconds() -> dict[str, float]:
    """Return how long the parts took when they were measured."""
    rows = map(str.split, SECONDS.read_text("utf-8").splitlines())
    return {part: float(seconds) for seconds, part in rows}


def leave_to_the_long_run(items: Iterable[pytest.Item]) -> None:
    """Mark as long the cases that `short` leaves out; on each backend the same ones stay.

    A case of a table with several columns counts by all of them. The first case always stays.
    """
    cases: dict[tuple[str, object], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("short") and not item.get_closest_marker("long"):
            callspec = getattr(item, "callspec", None)
            variant = callspec.params.get("variant") if callspec else None
            cases.setdefault((item.nodeid.partition("[")[0], variant), []).append(item)
    for table in cases.values():
        mark = table[0].get_closest_marker("short")
        assert mark is not None
        stay = mark.args[0]
        for at, item in enumerate(table):
            if at * stay % len(table) >= stay:
                item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the parts that take longest first: one of a minute that came last would leave processors idle."""
    leave_to_the_long_run(items)
    seconds = read_seconds()
    parts = {item: find_part(item.nodeid) for item in items}
    items.sort(key=lambda item: (-seconds.get(parts[item], 0.0), parts[item]))


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist comes without types
    """Deals out whole parts; the groups of xdist itself need a node id that can be changed."""

    def _split_scope(self, nodeid: str) -> str:
        return find_part(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> PartScheduling | None:
    """Deal out parts where several processes share a run by files."""
    return PartScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


class PartClock:
    """Adds up how long the parts of a run take."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a step of a test to its part."""
        part = find_part(report.nodeid)
        self._seconds[part] = self._seconds.get(part, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the parts, the longest first; those below a tenth of a second are left out."""
        longest = sorted(self._seconds.items(), key=lambda row: (-row[1], row[0]))
        SECONDS.write_text("".join(f"{time:.1f} {part}\n" for part, time in longest if time >= 0.1), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Measure the parts of a run, where that was asked for."""
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PartClock())


def pytest_collection_finish() -> None:
    """Leave what stays to the end, the thousands of tests among it, out of every later ``gc.collect()``."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the only loop the runtime supports."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The run ends without a process of its own, and without a file outside ``tmp_path``.

    Temporary files and user state that no test directed elsewhere land in two directories made for this
    run; whatever still is there at its end was forgotten.
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
    found = [path for place in (temporary, state) for path in place.rglob("*")]
    left = [*processes, *(f"file {path}" for path in found[:20])]
    assert not left, "the tests left behind: " + "; ".join(left)


@pytest.fixture(scope="session")
def ray_runtime(nothing_left_behind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """The one Ray of the run, and a runtime on it for every test's trees; started by the first.

    Its state is next to the run's own directory: what appears in a directory on the way to a hidden place
    stays unseen by Workers that run already, and every test makes a workspace.
    """
    place = Path(tempfile.mkdtemp(prefix="state-", dir=tmp_path_factory.getbasetemp().parent))
    runtime = Runtime(place / "state", backend="ray")
    yield runtime
    asyncio.run(runtime.close())
    shutil.rmtree(place)


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
