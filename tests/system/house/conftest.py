"""What every house test looks at: the checkout itself, and its files as git sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
LEFT_OUT = {
    ".git",
    ".venv",
    ".venv-agents",
    ".venv-bench",
    ".venv-chat",
    ".venv-docs",
    ".venv-lab",
    ".venv-formats",
    ".venv-servers",
    ".venv-mutation",
    ".venv-release",
    "__pycache__",
    "build",
    "dist",
    "mutants",
}


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The directory this suite is in."""
    return CHECKOUT


@pytest.fixture(scope="session")
def house_files() -> list[Path]:
    """Every file that is or would be committed; where git has no say, every file but the generated ones."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-zco", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=True, text=True).stdout
        files = [CHECKOUT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [path for path in CHECKOUT.rglob("*") if not _is_generated(path.relative_to(CHECKOUT))]
    return sorted(path for path in files if path.is_file())


def _is_generated(path: Path) -> bool:
    return any(part in LEFT_OUT or part.endswith("_cache") for part in path.parts)


@pytest.fixture(scope="session")
def shipped_modules(house_files: list[Path]) -> list[Path]:
    """Every Python file of the two packages."""
    return [path for path in house_files if _top(path) in {"sessiontree", "tools"} and path.suffix == ".py"]


@pytest.fixture(scope="session")
def all_modules(house_files: list[Path]) -> list[Path]:
    """Every Python file of the house: packages, tests, benchmarks, scripts."""
    return [path for path in house_files if path.suffix == ".py"]


def _top(path: Path) -> str:
    return path.relative_to(CHECKOUT).parts[0]
