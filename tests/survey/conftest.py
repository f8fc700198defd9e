"""What the survey's tests share: a finding of text, a tree on disk, and real Python files."""

from __future__ import annotations

import email
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.survey.finding import FileFinding
from sessiontree.survey.source import analyse


@pytest.fixture
def survey_text() -> Callable[[str, str], FileFinding]:
    """Return what turns a path and a text into its finding."""

    def found(path: str, text: str) -> FileFinding:
        data = text.encode("utf-8")
        return analyse(path, data, len(data))

    return found


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Path]:
    """Return what writes files below an empty directory and returns that directory."""

    def made(files: Mapping[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return tmp_path

    return made


@pytest.fixture
def python_files() -> list[Path]:
    """Return real Python files: this checkout's own and some of the standard library's."""
    checkout = Path(__file__).parents[2]
    library = Path(email.__file__).parents[1]
    own = sorted((checkout / "sessiontree").rglob("*.py"))
    parts = (library / name for name in ("email", "asyncio", "json", "logging", "http"))
    return own + [path for part in parts for path in sorted(part.glob("*.py"))]
