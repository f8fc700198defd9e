"""Measures what reading hostile servers costs a process: ``python -m tests.unit.web.hungry_program PORT…``.

Prints one JSON object: port to ``{grown_bytes, body_bytes, error}``; growth is of the resident peak.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from sessiontree.contracts.errors import ToolError
from tests.unit.web.site_fakes import Site, local_web


def resident_bytes(field: str) -> int:
    """Return what the kernel counts as ``VmRSS``, resident now, or ``VmHWM``, its peak since it was reset.

    Not ``ru_maxrss``: that is the peak of whoever started this process, too.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kilobytes) * 1024


def forget_peak() -> None:
    """Begin the peak again, with what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


async def measure(ports: list[int]) -> dict[int, dict[str, object]]:
    """Read each server once, the first only to have everything loaded."""
    sites = [Site(port) for port in ports]
    web = local_web(*sites, read_timeout_s=2, total_timeout_s=4)
    found: dict[int, dict[str, object]] = {}
    for site in sites:
        forget_peak()
        before, size, error = resident_bytes("VmRSS"), 0, ""
        try:
            size = len((await web.get(site.url)).body)
        except ToolError as failure:
            error = str(failure)
        found[site.port] = {
            "grown_bytes": resident_bytes("VmHWM") - before,
            "body_bytes": size,
            "error": error,
        }
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure([int(port) for port in sys.argv[1:]]))))  # noqa: T201 - its answer
