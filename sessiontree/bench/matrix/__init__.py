"""Matrices: each of some models on each of some suites, as runs in one folder, on one page."""
