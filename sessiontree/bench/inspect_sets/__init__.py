"""Eval sets of inspect_ai by its protocol for external runners: one worker a task, here or on a cluster."""
