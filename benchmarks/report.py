"""What every benchmark shares: its options, its statistics, and how it prints.

A benchmark prints a table, or with ``--json`` one JSON object and nothing else on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Figure: TypeAlias = "float | int | str | Mapping[str, Figure]"
"""One figure, or several by name."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark was asked to run."""

    quick: bool
    """Fewer repetitions: shows that it works and roughly where it is."""
    as_json: bool
    backend: str
    """One of the benchmark's backends; empty where it has no choice of them."""
    peers: bool = False
    """Whether other libraries are measured too."""
    sessions: int = 0
    """How many sessions it was asked to run; 0 where it has no choice."""


def read_options(
    description: str,
    arguments: Sequence[str] | None = None,
    *,
    backends: Sequence[str] = (),
    peers: bool = False,
    sessions: tuple[int, int] = (0, 0),
) -> Options:
    """Return the options of the command line; ends the program on an unknown one.

    Args:
        description: What is timed; the first line of the benchmark's docstring will do.
        arguments: The command line without the program's name; None = the process's.
        backends: What ``--backend`` may choose from, the default first; empty = no such option.
        peers: Whether there is an option ``--peers``.
        sessions: What ``--sessions`` is if it is not given, and with ``--quick``; 0 = no such option.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object on stdout")
    if backends:
        parser.add_argument("--backend", choices=backends, default=backends[0], help="what is measured too")
    if peers:
        parser.add_argument("--peers", action="store_true", help="measure other libraries too")
    usual, quick = sessions
    if usual:
        parser.add_argument("--sessions", type=_count, help=f"how many sessions; {usual:,} by default")
    found = parser.parse_args(arguments)
    backend = found.backend if backends else ""
    wanted = (found.sessions or (quick if found.quick else usual)) if usual else 0
    return Options(found.quick, found.as_json, backend, peers and found.peers, wanted)


def show_sessions(
    measure: Callable[[Options], Coroutine[Any, Any, Mapping[str, Figure]]],
    description: str | None,
    arguments: Sequence[str] | None,
    sessions: tuple[int, int],
) -> None:
    """Measure many sessions on the backend that was asked for, by default Ray, and print the figures.

    Args:
        measure: Returns the figures.
        description: The benchmark's docstring.
        arguments: As for :func:`read_options`.
        sessions: As for :func:`read_options`.
    """
    about = (description or "").partition("\n")[0]
    options = read_options(about, arguments, backends=("ray", "local"), sessions=sessions)
    show(asyncio.run(measure(options)), options)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that ``percent`` of the values do not exceed (nearest rank).

    Raises:
        ValueError: ``values`` is empty.
    """
    if not values:
        raise ValueError("no values were measured")
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[int(rank) - 1]


def show(figures: Mapping[str, Figure], options: Options) -> None:
    """Print figures by name; floats to four significant digits."""
    if options.as_json:
        print(json.dumps({name: _rounded(figure) for name, figure in figures.items()}))
        return
    lines = dict(_lines(figures, ""))
    width = max(len(name) for name in lines)
    for name, value in lines.items():
        print(
            f"{name:<{width}}  {value:>12,}"
            if not isinstance(value, str)
            else f"{name:<{width}}  {value:>12}"
        )


def _rounded(figure: Figure) -> Figure:
    if isinstance(figure, Mapping):
        return {name: _rounded(each) for name, each in figure.items()}
    return float(f"{figure:.4g}") if isinstance(figure, float) else figure


def _lines(figures: Mapping[str, Figure], prefix: str) -> Iterator[tuple[str, float | int | str]]:
    """Yield each single figure with the names that lead to it."""
    for name, figure in figures.items():
        shown = _rounded(figure)
        if isinstance(shown, Mapping):
            yield from _lines(shown, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", shown
