"""The transcript of docs/mending.md: its commands really print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.bench.mending.mended_run_program import transcript, without_what_changes

PAGE = Path(__file__).parents[4] / "docs" / "mending.md"
FENCE = "```text\n"


def sorted_samples(text: str) -> list[str]:
    """Return the lines without what changes; lines about samples that end together have no order."""
    lines = without_what_changes(text).splitlines()
    return sorted(line for line in lines if line.startswith("sample '")) + [
        line for line in lines if not line.startswith("sample '")
    ]


@pytest.mark.long
@pytest.mark.covers("SUI12", "SUI13", "SUI14")
def test_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    """A run is mended from 91 % coverage to 100 %; its history says how."""
    shown = PAGE.read_text().partition(FENCE)[2].partition("```")[0]
    assert sorted_samples(transcript(tmp_path)) == sorted_samples(shown)
