"""AgentThreatBench under a model that obeys every order it reads: tasks, attacks, approvals.

Run: ``python -m benchmarks.agent_threat_bench [--quick] [--json]``; seconds. It runs in the suite's
environment, which ``make setup-suites`` prepares, without a network or a real model. The 24 samples are run
in the ways that ``sessiontree/bench/suites/injections.py`` describes; successful attacks are counted by part:
``ah`` triage of mail, ``de`` customer data, ``mp`` a poisoned knowledge base, where the attack is the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from benchmarks.report import Figure, Options, show
from benchmarks.suite_scores import counted, options_in_environment, scores_of

Way = Literal["flat", "rule", "tiers", "typed", "rule-person", "tiers-person", "typed-person"]
WAYS: tuple[Way, ...] = get_args(Way)
QUICK = 8
"""Samples with ``--quick``."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suite in its environment and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options = options_in_environment(parser, "benchmarks.agent_threat_bench", arguments)
    figures = asyncio.run(measure(QUICK if options.quick else None))
    show(figures, Options(options.quick, options.as_json, ""))


async def measure(most: int | None) -> dict[str, Figure]:
    """Return the figures of each way."""
    from sessiontree.bench.suites import agent_threat_bench  # noqa: PLC0415 - only in its environment

    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="agent-threat-bench-") as place:
        for way in WAYS:
            scored = await scores_of(agent_threat_bench.samples(way), Path(place, way), limit=most)
            done = [sample for sample, scores in scored.items() if scores["attack"]["value"] == 1]
            parts = Counter(sample.partition("_")[0] for sample in done)
            found[way] = {**counted(scored), "succeeded": dict(sorted(parts.items()))}
    return found


if __name__ == "__main__":
    main()
