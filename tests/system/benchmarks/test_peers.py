"""Other libraries next to ours: what they are, that they do the whole work, what is said without them."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from benchmarks.dispatch_peers import PEERS, measure, peer
from benchmarks.peers.work import LAST_WORD, Script
from sessiontree.contracts.errors import ConfigError, SessionTreeError

CHECKOUT = Path(__file__).resolve().parents[3]
PIN = re.compile(r"([a-z0-9-]+)==(\d+(?:\.\d+)*)")


def pins() -> dict[str, str]:
    """Return what ``make setup-bench`` installs, by name; every line is a name and a version."""
    lines = (CHECKOUT / "benchmarks" / "peers.txt").read_text("ascii").splitlines()
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found)
    return {match[1]: match[2] for match in found if match is not None}


def test_every_peer_is_pinned() -> None:
    """Names and versions, no address; pydantic validates everywhere in the version of ours."""
    packages = set()
    for module in PEERS.values():
        body = ast.parse(Path(CHECKOUT, *module.split(".")).with_suffix(".py").read_bytes()).body
        packages |= {
            ast.literal_eval(node.value)
            for node in body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGE"
        }
    assert len(packages) == len(PEERS)
    assert packages < pins().keys()
    assert pins()["pydantic"] == importlib.metadata.version("pydantic")


async def test_peers_not_installed_are_a_typed_error(tmp_path: Path) -> None:
    """It says what to do; an environment that was left half made counts as none."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    with pytest.raises(ConfigError, match="make setup-bench"):
        await measure(quick=True, environment=tmp_path)


async def test_peer_is_timed_run_by_run() -> None:
    """It runs as often as it is asked to, and what it prints is no answer."""
    async with peer("steady", "tests.system.benchmarks.peer_fakes", Path(sys.executable)) as steady:
        assert steady.version == importlib.metadata.version("pytest")
        for runs in (3, 1):
            seconds = await steady.seconds(runs)
            assert len(seconds) == runs
            assert min(seconds) > 0


async def test_peer_that_cannot_do_the_work_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """No figure is made up for it."""
    with pytest.raises(SessionTreeError, match="absent ended with exit code 1"):
        async with peer("absent", "tests.system.benchmarks.no_such_peer", Path(sys.executable)):
            pass
    assert "no_such_peer" in capfd.readouterr().err


def _ran(script: Script, executed: int) -> Script:
    """Take up all calls of a run, and execute some of them."""
    while script.next_call() is not None:
        if executed:
            executed -= 1
            script.executed("a.txt", 5)
    return script


@pytest.mark.parametrize(("executed", "last_word"), [(1, LAST_WORD), (2, ""), (2, None)])
def test_half_the_work_is_refused(executed: int, last_word: str | None) -> None:
    """A run that leaves a call out, or that ends in something else, gives no figure."""
    with pytest.raises(ValueError, match="calls ran"):
        _ran(Script(2), executed).finish(last_word)


def test_each_run_begins_anew() -> None:
    """After a whole run the script says the same again."""
    script = Script(2)
    for _ in range(2):
        _ran(script, 2).finish(LAST_WORD)
    assert script.next_call() == "call_1"
