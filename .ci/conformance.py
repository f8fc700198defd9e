"""Ask the MCP server and the MCP client by the conformance suite of MCP; compare with what is known to pass.

``make conformance`` builds the suite at a fixed commit and runs this. It starts the server of
``tests/system/doors/conformance_program.py``, has the suite run what each revision of the protocol requires,
and prints how many checks of each scenario passed and failed. Then the suite starts the client of
``tests/system/mcp/conformance_client_program.py`` for each scenario of clients. The exit code is 1 if a
scenario has other numbers than in ``.ci/conformance.json``; ``--write`` writes them there instead.
``docs/mcp_server.md`` and ``docs/mcp.md`` say why some fail. ``--only server`` or ``--only client`` asks one.
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
RESULT = re.compile(r"^[✓✗] ([a-z0-9/_-]+): (\d+) passed, (\d+) failed(?:, \d+ warnings)?$", re.MULTILINE)
WITHIN_S = 900
CLIENT = f"{sys.executable} -m tests.system.mcp.conformance_client_program"
CLIENT_MS = 600_000
"""How long one scenario of clients may take: all of them run at the same time."""

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


def results_of(revision: str, *words: str) -> Results:
    """Return the results of what a revision requires, and of its extensions."""
    command = ["node", str(SUITE), *words, "--requirements", revision]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    found = {name: [int(passed), int(failed)] for name, passed, failed in RESULT.findall(run.stdout)}
    if not found:
        sys.exit(f"the suite said nothing of {revision}:\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")
    return found


def ask(only: str | None) -> dict[str, Results]:
    """Return the results by revision, those of the client with ``client`` before it."""
    found: dict[str, Results] = {}
    if only != "client":
        with serving() as address:
            found |= {revision: results_of(revision, "server", "--url", address) for revision in REVISIONS}
    if only != "server":
        words = ("client", "--command", CLIENT, "--timeout", str(CLIENT_MS))
        found |= {f"client {revision}": results_of(revision, *words) for revision in REVISIONS}
    return found


def _is_same(asked: str, was: list[int] | None, numbers: list[int]) -> bool:
    """Return whether a scenario did as before."""
    if was is None or not asked.startswith("client"):
        return was == numbers
    # Of a client each request is a check, and a slow machine makes some of them again.
    return was[1] == numbers[1] and (was[0] > 0) == (numbers[0] > 0)


def main() -> int:
    """Run the suite; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what passes to the file of what is known")
    parser.add_argument("--only", choices=("server", "client"), help="ask one of both")
    options = parser.parse_args()
    found, known = ask(options.only), json.loads(KNOWN.read_text())
    if options.write:
        known |= found
        KNOWN.write_text(json.dumps(known, indent=1) + "\n")
    is_same = True
    for asked, results in found.items():
        was = known.get(asked, {})
        for name, numbers in results.items():
            changed = "" if _is_same(asked, was.get(name), numbers) else f"  (known: {was.get(name)})"
            is_same = is_same and not changed
            sys.stdout.write(f"{asked} {name}: {numbers[0]} passed, {numbers[1]} failed{changed}\n")
        is_same = is_same and results.keys() == was.keys()
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
