"""Benchmarks: one question per file, asked as ``python -m benchmarks.<name> [--quick] [--json]``.

Room: each module with a ``main`` measures one thing against a baseline of the same run.
Not here: pass or fail; tests do that.
"""
