"""The suites that come with this package, by name. Reading the list loads none of them.

A suite's module imports its harness, so it can be loaded only in the environment of the suite's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

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


def _by_name(*suites: ShippedSuite) -> Mapping[str, ShippedSuite]:
    return MappingProxyType({each.name: each for each in suites})


SHIPPED: Final = _by_name(
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
