"""Benchmark suites: samples, a solver over a tree, scorers, and one score for each sample.

Floor 7. It is a program that uses this package: public names, and ``sessiontree.api`` where one is missing.
Not here: rules of sessions or trees (``session`` and ``tree``).
"""

from __future__ import annotations

from sessiontree.bench.run_results import RunResults
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.hidden_command import command
from sessiontree.bench.suite.model_graded import model_graded
from sessiontree.bench.suite.retry_choice import RetryChoice
from sessiontree.bench.suite.scorers import exact, includes, json_fields, match, number
from sessiontree.bench.suite.suite import Attempt, Sample, Score

__all__ = [
    "Attempt",
    "RetryChoice",
    "RunResults",
    "Sample",
    "Score",
    "Suite",
    "command",
    "exact",
    "includes",
    "json_fields",
    "match",
    "model_graded",
    "number",
]
