"""Measures what reading hostile servers costs a process: ``python -m tests.outbound.hungry_program PORT…``.

Prints one JSON object: port to ``{grown_bytes, body_bytes, error}``; growth is of the resident peak.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from sessiontree.contracts.errors import ToolError
from tests.outbound.sites import Site, local_web


def peak_bytes() -> int:
    """Return the most memory this process was resident with so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def measure(ports: list[int]) -> dict[int, dict[str, object]]:
    """Read each server once, the first only to have everything loaded."""
    sites = [Site(port) for port in ports]
    web = local_web(*sites, read_timeout_s=2, total_timeout_s=4)
    found: dict[int, dict[str, object]] = {}
    for site in sites:
        before, size, error = peak_bytes(), 0, ""
        try:
            size = len((await web.get(site.url)).body)
        except ToolError as failure:
            error = str(failure)
        found[site.port] = {"grown_bytes": peak_bytes() - before, "body_bytes": size, "error": error}
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure([int(port) for port in sys.argv[1:]]))))  # noqa: T201 - its answer
