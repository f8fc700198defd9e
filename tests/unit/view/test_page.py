"""The page's JavaScript: its own tests, and the type checker over its modules."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / ".ci/page"


@pytest.fixture
def node() -> str:
    """The interpreter of JavaScript."""
    found = shutil.which("node")
    if found is None:
        pytest.fail("node is not installed: run make setup-page")
    return found


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-8_000:]}{done.stderr[-2_000:]}"


def test_modules_keep_what_they_promise(node: str) -> None:
    """Model, rows, words, sources, and the rules that keep what others wrote from becoming markup."""
    tests = sorted((ROOT / "tests/unit/view/page").glob("*.test.mjs"))
    assert tests
    _run(node, "--test", *tests)


def test_modules_agree_in_their_types(node: str) -> None:
    """Every module passes the strict checker."""
    checker = TOOLS / "node_modules/typescript/bin/tsc"
    if not checker.is_file():
        pytest.fail("the type checker of the page is not installed: run make setup-page")
    _run(node, checker, "--project", TOOLS)


def test_lock_names_no_registry() -> None:
    """The lock has digests, and no address from which the packages came."""
    lock = (TOOLS / "package-lock.json").read_text()
    assert '"integrity"' in lock
    assert "resolved" not in lock
    assert "://" not in lock
