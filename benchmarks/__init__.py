"""Benchmarks: one question per file, asked as ``python -m benchmarks.<name> [--quick] [--json]``.

Each module with a ``main`` measures one thing against a baseline of the same run.
Not here: pass or fail; that belongs to tests.
"""
