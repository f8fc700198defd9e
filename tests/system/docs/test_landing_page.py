"""``docs/examples/landing_page.py``: the loop of a landing page, with a script as its model."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.system.docs.test_documents_run import CHECKOUT, run_program

SCORES = re.compile(r"^ *(\w[\w ]*?) +(\d+) -> +(\d+)$", re.MULTILINE)


@pytest.mark.covers("U21")
@pytest.mark.slow
def test_page_with_faults_is_corrected_shown_and_published(tmp_path: Path) -> None:
    """It is measured, corrected by what was measured, measured again, looked at thrice, and served."""
    example = CHECKOUT / "docs/examples/landing_page.py"
    program = [
        "import runpy, sys",
        "sys.argv[1:] = []",
        f"runpy.run_path({str(example)!r}, run_name='__main__')",
    ]
    printed = run_program("\n".join(program), tmp_path)
    scores = {name: (int(before), int(after)) for name, before, after in SCORES.findall(printed)}
    assert scores.keys() == {"accessibility", "performance", "responsive", "seo", "links", "the page"}
    assert all(before < after for before, after in scores.values())
    assert scores["the page"][0] < 80
    assert all(after >= 90 for _, after in scores.values())
    assert re.search(r"^Your landing page is ready at http://127\.0\.0\.1:\d+/\S+/$", printed, re.MULTILINE)
    workspace = tmp_path / "workspace/build/demo-landing/workspace"
    sizes = {}
    for name in ("desktop", "tablet", "mobile"):
        data = (workspace / f"screenshots/{name}.png").read_bytes()
        sizes[name] = struct.unpack(">II", data[16:24])
    assert sizes == {"desktop": (1440, 900), "tablet": (768, 1024), "mobile": (375, 812)}
    assert 'lang="en"' in (workspace / "site/index.html").read_text()
