"""BFCL and tau2 through trees, judged by their own code; and what becomes of damaged arguments.

Every sample is a tree on the local backend, in the environment of its suite (``make setup-suites``). A
scripted model makes the calls of the ground truth. The suites' own code judges: BFCL's ``multi_turn_checker``
and ``db_match`` of inspect-evals.

- ``tau2_retail``, ``tau2_airline``: ``samples``; how many ``passed``; ``failed`` names the others, and why;
  ``cpu_ms_per_sample``, most of it for loading and comparing databases. The baseline is part of the verdict:
  ``db_match`` makes the same calls without a tree.
- ``bfcl``: the same, and a baseline in which the same calls are made on the same tools without trees: how
  many pass (``direct_passed``), ``same_verdicts`` of the two, and the ``ratio`` of CPU times.
- ``same_state``: passed samples whose live instances are in the state that the checker reached by
  carrying out the same calls again.
- ``damaged``: BFCL again, half of the calls with damaged arguments. ``calls`` is how many were damaged,
  ``passed`` how many samples still pass. ``explained`` counts failed samples in which a damaged call was
  given up, refused or carried out with other arguments, or which fail undamaged; ``unexplained`` all others.
- ``kinds``: for each kind of damage how many ``calls`` got it, and the share of them that ended so:
  ``corrected`` (carried out as intended without an error), ``attempt_2``, ``attempt_3`` (carried out as
  intended after one or two errors), ``given_up``, ``refused`` (its tool had been given up before),
  ``other_arguments`` (carried out, but not as intended). ``within_3`` is the sum of the first three;
  ``named`` the share of the calls whose errors all named what was wrong.

The scripted model knows the undamaged call and sends it only if the error names what was wrong; one time in
four it stays damaged nevertheless. So attempts 2 and 3 measure the errors and the counting of attempts, not
the wit of a model.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, read_options, show
from sessiontree.bench.suite.environment import locate_environment
from sessiontree.bench.suites.catalog import SHIPPED

CHECKOUT = Path(__file__).parent.parent
QUICK_EVERY = 67
"""The quick form takes each 67th sample: 12 of BFCL, three of each category."""
BAD = frozenset({"given_up", "refused", "other_arguments"})
OUTCOMES = ("corrected", "attempt_2", "attempt_3", "given_up", "refused", "other_arguments")


def run_suite(name: str, model: str, every: int) -> dict[str, Any]:
    """Run a suite in its environment, and return what the program printed."""
    environment = locate_environment(SHIPPED[name].lock)
    with tempfile.TemporaryDirectory(prefix="sessiontree-suites-") as place:
        words = ["-m", "benchmarks.tool_suites_program", name, model, place, str(every)]
        done = subprocess.run(
            environment.command(words), cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def verdicts(found: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of a run."""
    scores = found["scores"]
    return {
        "samples": len(scores),
        "passed": sum(each["value"] >= 1 for each in scores),
        "failed": {each["id"]: _reason(each) for each in scores if each["value"] < 1},
        "cpu_ms_per_sample": round(1000 * found["cpu_s"] / len(scores), 2),
    }


def compared(found: Mapping[str, Any], direct: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of a run and of its baseline."""
    own = {each["id"]: each["value"] for each in found["scores"]}
    base = {each["id"]: each["value"] for each in direct["scores"]}
    return verdicts(found) | {
        "direct_passed": sum(value >= 1 for value in base.values()),
        "same_verdicts": sum(own.get(name) == value for name, value in base.items()),
        "same_state": sum(each["metadata"].get("same_state") is True for each in found["scores"]),
        "direct_cpu_ms_per_sample": round(1000 * direct["cpu_s"] / len(base), 2),
        "ratio": round(found["cpu_s"] / direct["cpu_s"], 2),
    }


def _reason(score: Mapping[str, Any]) -> str:
    return str(score["error"] or score["explanation"] or score["status"])


def repaired(found: Mapping[str, Any], undamaged: Mapping[str, Any]) -> dict[str, Figure]:
    """Return what became of damaged calls, by kind, and of their samples."""
    fails_anyway = {each["id"] for each in undamaged["scores"] if each["value"] < 1}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    unexplained = {}
    failed = 0
    for score in found["scores"]:
        damage: Sequence[tuple[str, str, bool]] = score["metadata"].get("damage", ())
        for kind, outcome, was_named in damage:
            counts[kind][outcome] += 1
            counts[kind]["named"] += was_named
        if score["value"] < 1:
            failed += 1
            if score["id"] not in fails_anyway and not BAD & {outcome for _, outcome, _ in damage}:
                unexplained[score["id"]] = _reason(score)
    samples = len(found["scores"])
    return {
        "samples": samples,
        "calls": sum(counts[kind][outcome] for kind in counts for outcome in OUTCOMES),
        "passed": samples - failed,
        "explained": failed - len(unexplained),
        "unexplained": unexplained,
        "kinds": {kind: _shares(counts[kind]) for kind in sorted(counts)},
    }


def _shares(counts: Counter[str]) -> dict[str, Figure]:
    calls = sum(counts[outcome] for outcome in OUTCOMES)
    shares = {outcome: round(counts[outcome] / calls, 3) for outcome in OUTCOMES}
    within = counts["corrected"] + counts["attempt_2"] + counts["attempt_3"]
    return {
        "calls": calls,
        **shares,
        "within_3": round(within / calls, 3),
        "named": round(counts["named"] / calls, 3),
    }


def measure(*, quick: bool) -> dict[str, Figure]:
    """Run both suites and the damage, and return the figures."""
    every = QUICK_EVERY if quick else 1
    truth = run_suite("bfcl", "ground-truth", every)
    figures: dict[str, Figure] = {
        "bfcl": compared(truth, run_suite("bfcl", "direct", every)),
        "damaged": repaired(run_suite("bfcl", "damaged", every), truth),
    }
    for domain in ("retail", "airline"):
        found = run_suite(f"tau2-{domain}", "ground-truth", 40 if quick else 1)
        figures[f"tau2_{domain}"] = verdicts(found)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, and print it."""
    options = read_options(str(__doc__).partition("\n")[0], arguments)
    show(measure(quick=options.quick), options)


if __name__ == "__main__":
    main()
