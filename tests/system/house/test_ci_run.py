"""``.ci/run`` fails on what must not pass, ends what was left running, and prints pytest's summary last."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUMMARY = "===== 3 passed in 0.01s ====="
SKIP = "SKIPPED [1] tests/unit/sandbox/test_exec.py:9: {reason}"
TARGETS = "setup lint floors types setup-suites setup-page setup-clients setup-formats test"


def run(checkout: Path, folder: Path, **recipes: str) -> tuple[int, str, str]:
    """Run the script in a checkout whose make targets only do what is given; return code and both outputs."""
    (folder / ".ci").mkdir()
    shutil.copy(checkout / ".ci" / "run", folder / ".ci")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    rules = dict.fromkeys(TARGETS.split(), "@true") | {"test": f"@echo '{SUMMARY}'"} | recipes
    text = "".join(f"{target}:\n\t{recipe}\n" for target, recipe in rules.items())
    (folder / "Makefile").write_text(f".PHONY: {TARGETS}\n{text}")
    done = subprocess.run([folder / ".ci" / "run"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_good_run_ends_with_the_summary(checkout: Path, tmp_path: Path) -> None:
    """Versions first; the last line printed is pytest's own."""
    code, out, complaints = run(checkout, tmp_path)
    assert (code, complaints) == (0, "")
    assert out.splitlines()[-1] == SUMMARY
    assert "Python 3." in out.splitlines()[2]


def test_skip_for_a_missing_component_fails(checkout: Path, tmp_path: Path) -> None:
    """Whatever a test lacks here must be installed, not skipped."""
    line = SKIP.format(reason="bubblewrap is not installed")
    code, _, complaints = run(checkout, tmp_path, test=f"@echo '{line}'; echo '{SUMMARY}'")
    assert code == 1
    assert line in complaints


def test_skip_for_another_platform_passes(checkout: Path, tmp_path: Path) -> None:
    """A test that could never run here is no finding."""
    line = SKIP.format(reason="other platform: needs Darwin")
    code, out, _ = run(checkout, tmp_path, test=f"@echo '{line}'; echo '{SUMMARY}'")
    assert (code, out.splitlines()[-1]) == (0, SUMMARY)


@pytest.mark.short(2)
@pytest.mark.parametrize("target", TARGETS.split())
def test_any_failing_step_fails_the_run(checkout: Path, tmp_path: Path, target: str) -> None:
    """No step's failure is lost, and no test runs after a failed one."""
    code, out, _ = run(checkout, tmp_path, **{target: "@exit 3"})
    assert code != 0
    assert SUMMARY not in out


def test_what_is_left_running_fails_the_run_and_is_ended(checkout: Path, tmp_path: Path) -> None:
    """A process that outlives the tests, in a session of its own, with the output still open, is ended."""
    left = tmp_path / "left.pid"
    recipe = (
        f"@setsid sh -c 'echo $$$$ > {left}; exec sleep 600' & \\\n"
        f"\tuntil [ -s {left} ]; do :; done; echo '{SUMMARY}'"
    )
    code, out, complaints = run(checkout, tmp_path, test=recipe)
    assert code == 1
    assert out.splitlines()[-1] == SUMMARY
    assert "sleep 600" in complaints
    command = Path("/proc", left.read_text().strip(), "cmdline")
    assert not command.exists() or command.read_bytes() == b"", "it still runs"
