"""Benchmark suites: samples, solvers and scorers over trees, each sample scored once; results and reports.

A program that uses public names alone. Not here: the runtime that carries the trees out.
"""
