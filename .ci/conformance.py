"""Ask the MCP server by the conformance suite of MCP, and compare with what is known to pass.

``make conformance`` builds the suite at a fixed commit and runs this. It starts the server of
``tests/system/doors/conformance_program.py``, has the suite run what each revision of the protocol requires,
and prints how many checks of each scenario passed and failed. The exit code is 1 if a scenario has other
numbers than in ``.ci/conformance.json``; ``--write`` writes them there instead. ``docs/mcp_server.md`` says
why some fail.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parent.parent
SUITE = CHECKOUT / ".ci" / "conformance" / "dist" / "index.js"
KNOWN = CHECKOUT / ".ci" / "conformance.json"
REVISIONS = ("2026-07-28", "2025-11-25")
RESULT = re.compile(r"^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed$", re.MULTILINE)
WITHIN_S = 900

Results = dict[str, list[int]]
"""How many checks of each scenario passed, and how many failed."""


@contextmanager
def serving() -> Iterator[str]:
    """Start the server, and yield where it listens."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "tests.system.doors.conformance_program", place]
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as server:
            try:
                yield f"{server.stdout.readline().strip() if server.stdout else ''}/mcp"
            finally:
                server.kill()


def results_of(address: str, revision: str) -> Results:
    """Return the results of what a revision requires, and of its extensions."""
    command = ["node", str(SUITE), "server", "--url", address, "--requirements", revision]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    found = {name: [int(passed), int(failed)] for name, passed, failed in RESULT.findall(run.stdout)}
    if not found:
        sys.exit(f"the suite said nothing of {revision}:\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")
    return found


def main() -> int:
    """Run the suite; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what passes to the file of what is known")
    is_writing = parser.parse_args().write
    with serving() as address:
        found = {revision: results_of(address, revision) for revision in REVISIONS}
    if is_writing:
        KNOWN.write_text(json.dumps(found, indent=1) + "\n")
    known = json.loads(KNOWN.read_text())
    is_same = True
    for revision, results in found.items():
        for name, (passed, failed) in results.items():
            was = known.get(revision, {}).get(name)
            changed = "" if was == [passed, failed] else f"  (known: {was})"
            is_same = is_same and not changed
            sys.stdout.write(f"{revision} {name}: {passed} passed, {failed} failed{changed}\n")
        is_same = is_same and results.keys() == known.get(revision, {}).keys()
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
