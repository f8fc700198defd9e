"""Benchmark suites: samples, solvers and scorers run over trees, each score committed once."""
