"""The suites that come with this package, by name. Reading the list loads none of them.

A suite's module imports its harness, so it can be loaded only in the environment of the suite's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sessiontree.contracts.values.quick_dataclass import dataclass

_LOCKS: Final = Path(__file__).parent / "locks"


@dataclass(frozen=True, slots=True)
class ShippedSuite:
    """One suite of this package."""

    name: str
    """As the command line names it."""
    target: str
    """``module:name`` of the suite, or of a function that returns it."""
    lock: Path
    """What its environment holds."""
    about: str
    """One line for listings."""


def _index_by_name(*suites: ShippedSuite) -> Mapping[str, ShippedSuite]:
    return MappingProxyType({each.name: each for each in suites})


_WAYS: Final = {
    "rule": "one session; changes after untrusted text are refused",
    "tiers": "Workers read; changes after untrusted text are refused",
    "typed": "Workers return typed values where they suffice; changes after untrusted text are refused",
    "rule-person": "one session; a person approves what the user's task needs",
    "tiers-person": "Workers read; a person approves what the user's task needs",
    "typed-person": "Workers return typed values where they suffice; a person approves what the task needs",
}
"""How samples with injected orders are run, besides one session without a rule."""


def _make_variants(name: str, target: str) -> list[ShippedSuite]:
    """Return a suite's variants, one a way."""
    return [
        ShippedSuite(
            f"{name}-{way}",
            f"{target}_{way.replace('-', '_')}",
            _LOCKS / "inspect.txt",
            f"the same samples; {about}",
        )
        for way, about in _WAYS.items()
    ]


SHIPPED: Final = _index_by_name(
    ShippedSuite(
        "agent-threat-bench",
        "sessiontree.bench.suites.agent_threat_bench:samples",
        _LOCKS / "inspect.txt",
        "24 samples of AgentThreatBench, with one session that holds all tools",
    ),
    *_make_variants("agent-threat-bench", "sessiontree.bench.suites.agent_threat_bench:samples"),
    ShippedSuite(
        "agentdojo",
        "sessiontree.bench.suites.agentdojo:user_tasks",
        _LOCKS / "inspect.txt",
        "96 tasks of AgentDojo's users, without attacks",
    ),
    ShippedSuite(
        "agentdojo-attacks",
        "sessiontree.bench.suites.agentdojo:attacks",
        _LOCKS / "inspect.txt",
        "944 pairs of a user's task and an injected order; one session holds all tools",
    ),
    *_make_variants("agentdojo-attacks", "sessiontree.bench.suites.agentdojo:attacks"),
    ShippedSuite(
        "bfcl",
        "sessiontree.bench.suites.bfcl:bfcl",
        _LOCKS / "bfcl.txt",
        "800 multi-turn entries of the Berkeley Function Calling Leaderboard",
    ),
    ShippedSuite(
        "tau2-airline",
        "sessiontree.bench.suites.tau2:airline",
        _LOCKS / "inspect.txt",
        "50 tasks of tau2's airline: customer service over one database",
    ),
    ShippedSuite(
        "tau2-retail",
        "sessiontree.bench.suites.tau2:retail",
        _LOCKS / "inspect.txt",
        "114 tasks of tau2's retail: customer service over one database",
    ),
)
"""Every suite of this package by name."""
