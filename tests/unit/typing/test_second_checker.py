"""A second type checker sees in a program what mypy sees; mypy itself checks these files with all others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("reveal_program.py")
ROOT = PROGRAM.parents[3]
CHECKER = Path(sys.executable).with_name("ty")
MIN_REVEALS = 30
LIMIT_S = 120


def check_types(program: Path) -> subprocess.CompletedProcess[str]:
    """Check a program with the types of this checkout, by the checker of this environment."""
    command = [str(CHECKER), "check", "--python", sys.prefix, "--project", str(ROOT), str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, check=False)


def test_second_checker_agrees() -> None:
    """Each of at least thirty types is what the program says; a wrong kind and a wrong cause are refused."""
    assert PROGRAM.read_text().count("    assert_type(") >= MIN_REVEALS
    done = check_types(PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("assert_type(result.value, Report)", "assert_type(result.value, Report | None)"),
        ("assert_type(progress.event, Event)", "assert_type(progress.event, str)"),
        ('spawn("branch", "compare", result_type=Report)', 'spawn("brnch", "compare", result_type=Report)'),
        ("  # ty: ignore[invalid-argument-type]", ""),
    ],
)
def test_planted_wrong_type_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    """The checker reads the types of the package, and does not pass over what it can't resolve."""
    text = PROGRAM.read_text()
    assert right in text
    altered = tmp_path / "altered_program.py"
    altered.write_text(text.replace(right, wrong))
    assert check_types(altered).returncode == 1
