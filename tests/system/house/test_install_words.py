"""Nothing tells a reader to install the package by a name that no registry has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PUBLISHED = re.compile(r"pip3? install\b[^\n`]*?[\s'\"]sessiontree(\[|[\s'\"]|$)")
"""An installation by name, with an extra or without; the path of a wheel does not count."""
ROOT = Path(__file__).parents[3]


def told_in(text: str) -> list[str]:
    """Return the lines that tell it."""
    return [line for line in text.splitlines() if PUBLISHED.search(line)]


def test_no_text_installs_the_package_by_name() -> None:
    """In the package, its tools and all documents."""
    listed = subprocess.run(
        ["git", "ls-files", "sessiontree", "tools", "docs", "notebooks", "benchmarks", "*.md", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    texts = {name: ROOT / name for name in listed if Path(name).suffix in {".py", ".md", ".ipynb", ".sh", ""}}
    assert len(texts) > 200
    assert {name: found for name, path in texts.items() if (found := told_in(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("pip install sessiontree", True),
        ("python -m pip install 'sessiontree[openai]'", True),
        ('pip install -U "sessiontree[all]"', True),
        ("jobs/bin/pip install sessiontree 'ray[default]'", True),
        ("pip install '.[openai]'", False),
        ("pip install './sessiontree-0.1.0-py3-none-any.whl[openai]'", False),
        ("pip install dist/sessiontree-*.whl", False),
    ],
)
def test_installation_by_name_is_found(line: str, is_told: bool) -> None:
    """With an extra and without; the checkout and a wheel are no names."""
    assert bool(told_in(line)) == is_told
