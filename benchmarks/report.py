"""What every benchmark shares: its options, its statistics, and how it prints.

A benchmark prints a table, or with ``--json`` one JSON object and nothing else on stdout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark was asked to run."""

    quick: bool
    """Fewer repetitions: shows that it works and roughly where it stands."""
    as_json: bool
    backend: str
    """One of the benchmark's backends; empty where it has no choice of them."""


def read_options(
    description: str, arguments: Sequence[str] | None = None, *, backends: Sequence[str] = ()
) -> Options:
    """Return the options of the command line; ends the program on an unknown one.

    Args:
        description: What is timed; the first line of the benchmark's docstring will do.
        arguments: The command line without the program's name; None = the process's.
        backends: What ``--backend`` may choose from, the default first; empty = there is no such option.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    if backends:
        parser.add_argument("--backend", choices=backends, default=backends[0], help="what is measured too")
    found = parser.parse_args(arguments)
    return Options(found.quick, found.as_json, found.backend if backends else "")


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that ``percent`` of the values do not exceed (nearest rank).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values were measured")
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[int(rank) - 1]


def show(figures: Mapping[str, float | int | str], options: Options) -> None:
    """Print figures by name; floats to four significant digits."""
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in figures.items()
    }
    if options.as_json:
        print(json.dumps(rounded))
        return
    width = max(len(name) for name in rounded)
    for name, value in rounded.items():
        print(
            f"{name:<{width}}  {value:>12,}"
            if not isinstance(value, str)
            else f"{name:<{width}}  {value:>12}"
        )
