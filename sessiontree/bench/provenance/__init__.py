"""Provenance: which code, settings and machine made a row of a run."""
