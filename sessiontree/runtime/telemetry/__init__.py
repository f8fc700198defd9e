"""Telemetry: spans and log lines made from the facts of a tree."""
