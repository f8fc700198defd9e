"""The self-test of a confined process: it holds inside, and finds every way that is open outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox import SelfTest, jail, prepare_canaries, run_self_test
from sessiontree.sandbox.self_test import WriteAttempt, collect_traces, find_differences
from sessiontree.sandbox.write_probes import ATTEMPTS, SUCCEEDED, try_all
from tests.unit.sandbox.conftest import CHECKOUT
from tests.unit.sandbox.test_escapes import WITHOUT_SECCOMP

ROUTES = ("this thread", "fresh thread", "ready thread", "subprocess")
METADATA = {"chmod", "utime"}

TEST_ITSELF = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
ready = ThreadPoolExecutor(1)
ready.submit(os.getpid).result()
from sessiontree.sandbox import run_self_test
found = run_self_test(Path(sys.argv[1]), ready)
print(json.dumps([found.holds, found.faults()]))
"""


@pytest.fixture
def ready() -> Iterator[Executor]:
    """An executor whose thread is there already."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(os.getpid).result()
        yield executor


def run_test(folder: Path, *before: str) -> tuple[bool, list[str]]:
    """Return what a process behind some words finds of itself: whether it holds, and the faults."""
    done = subprocess.run(
        [*before, sys.executable, "-c", TEST_ITSELF, str(folder)],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    holds, faults = json.loads(done.stdout)
    return holds, faults


@pytest.mark.slow
def test_confined_process_passes_and_the_victims_are_untouched(tmp_path: Path) -> None:
    """Whoever prepared the victims sees the same afterwards, to the byte and the nanosecond."""
    prepared = prepare_canaries(tmp_path / "victims")
    found = run_test(tmp_path / "victims", sys.executable, "-I", "-S", jail.__file__, "--")
    assert found == (True, [])
    assert collect_traces(tmp_path / "victims") == prepared


@pytest.mark.slow
def test_process_without_seccomp_fails_on_metadata_alone(tmp_path: Path) -> None:
    """Planted bug: Landlock by itself lets times and modes through."""
    prepare_canaries(tmp_path / "victims")
    holds, faults = run_test(tmp_path / "victims", sys.executable, "-c", WITHOUT_SECCOMP, "--")
    assert not holds
    open_ways = {line.partition(" from ")[0] for line in faults if line.endswith(SUCCEEDED)}
    assert open_ways == METADATA
    assert "'chmod' changed: mode, changed_ns" in faults
    assert "'utime' changed: modified_ns, changed_ns" in faults


def test_free_process_fails_on_every_attempt(tmp_path: Path, ready: Executor) -> None:
    """Planted bug: without a jail each attempt succeeds once, and every change is seen."""
    prepare_canaries(tmp_path / "victims")
    found = run_self_test(tmp_path / "victims", ready)
    assert not found.holds
    assert {attempt.outcome for attempt in found.attempts[: len(ATTEMPTS)]} == {SUCCEEDED}
    changed = " ".join(found.changes)
    for name in [*(ATTEMPTS.keys() - {"rename", "link"}), "renamed", "linked"]:
        assert f"'{name}'" in changed
    with pytest.raises(ConfigError, match="not confined: create from this thread: succeeded"):
        found.require()


def test_every_route_makes_every_attempt(tmp_path: Path, ready: Executor) -> None:
    """Nothing is left out: four routes, nine attempts, in order."""
    prepare_canaries(tmp_path / "victims")
    made = run_self_test(tmp_path / "victims", ready).attempts
    assert [(attempt.route, attempt.name) for attempt in made] == [
        (route, name) for route in ROUTES for name in ATTEMPTS
    ]


LATE_JAIL = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sessiontree.sandbox import jail, run_self_test
ready = ThreadPoolExecutor(1)
ready.submit(os.getpid).result()
jail.renounce_privileges()
jail.restrict_files(jail.query_landlock_abi(), [])
jail.filter_calls(jail.detect_machine(), jail.filter_program(jail.detect_machine()))
for line in run_self_test(Path(sys.argv[1]), ready).faults():
    print(line)
"""


@pytest.mark.slow
def test_jail_put_on_too_late_is_found_by_the_ready_thread(tmp_path: Path) -> None:
    """Planted bug: a process that confines itself confines one thread; those made before go on writing."""
    prepare_canaries(tmp_path / "victims")
    command = [sys.executable, "-c", LATE_JAIL, str(tmp_path / "victims")]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=120)
    open_ways = [line for line in done.stdout.splitlines() if line.endswith(SUCCEEDED)]
    assert open_ways == [f"{name} from ready thread: succeeded" for name in ATTEMPTS]


@pytest.mark.parametrize("outcome", [SUCCEEDED, "ENOENT", "EROFS", "untried"])
def test_only_a_refusal_counts(outcome: str) -> None:
    """An attempt that failed for another reason proves nothing."""
    found = SelfTest((WriteAttempt("this thread", "chmod", outcome),), ())
    assert not found.holds
    assert found.faults() == [f"chmod from this thread: {outcome}"]


@pytest.mark.parametrize("outcome", ["EACCES", "EPERM"])
def test_refusal_without_a_change_holds(outcome: str) -> None:
    """The kernel's two ways of refusing are accepted."""
    found = SelfTest((WriteAttempt("this thread", "delete", outcome),), ())
    assert found.holds
    found.require()


def test_change_is_a_fault_whatever_the_calls_said() -> None:
    """What is seen counts more than what was answered."""
    found = SelfTest((WriteAttempt("this thread", "delete", "EACCES"),), ("'delete' is gone",))
    assert found.faults() == ["'delete' is gone"]


def _nothing(folder: Path) -> None:
    folder.mkdir()


def _stranger(folder: Path) -> None:
    prepare_canaries(folder)
    (folder / "stranger").write_text("")


def _one_gone(folder: Path) -> None:
    prepare_canaries(folder)
    (folder / "utime").unlink()


def _absent(folder: Path) -> None:
    assert not folder.exists()


@pytest.mark.parametrize("prepare", [_nothing, _stranger, _one_gone, _absent])
def test_victims_must_be_as_prepared(
    tmp_path: Path, ready: Executor, prepare: Callable[[Path], None]
) -> None:
    """A test on the wrong directory is refused: it would prove nothing, or harm what is there."""
    prepare(tmp_path / "victims")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="victims"):
        run_self_test(tmp_path / "victims", ready)
    assert sorted(tmp_path.rglob("*")) == before


def test_victims_are_prepared_in_an_empty_directory_only(tmp_path: Path) -> None:
    """Nobody's files are taken for victims."""
    (tmp_path / "precious").write_text("text")
    with pytest.raises(ConfigError, match="not empty"):
        prepare_canaries(tmp_path)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_each_attempt_succeeds_where_nothing_refuses_it(tmp_path: Path, name: str) -> None:
    """An attempt that always fails would pass every jail; each leaves its own trace."""
    before = prepare_canaries(tmp_path / "victims")
    ATTEMPTS[name](tmp_path / "victims")
    assert find_differences(before, collect_traces(tmp_path / "victims"))


@pytest.mark.slow
def test_outcome_of_an_attempt_is_its_errno(tmp_path: Path) -> None:
    """In a directory without victims the attempts on them fail, and say how."""
    outcomes = try_all(tmp_path)
    assert outcomes["delete"] == "ENOENT"
    assert outcomes["create"] == SUCCEEDED
