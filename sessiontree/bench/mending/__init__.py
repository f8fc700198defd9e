"""Mending: new scores for what a run has kept, and new attempts at what it has not."""
