"""Benchmark suites: samples, a solver over a tree, scorers, and one score for each sample.

Floor 7. It is a program that uses this package: public names, and ``sessiontree.api`` where one is missing.
Not here: rules of sessions or trees (``session`` and ``tree``).
"""

from __future__ import annotations

from sessiontree.bench.results import RunResults
from sessiontree.bench.suite import Attempt, Sample, Score, Suite

__all__ = ["Attempt", "RunResults", "Sample", "Score", "Suite"]
