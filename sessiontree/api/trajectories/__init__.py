"""Trajectories: stored trees as trainers and harnesses read them, and the edges between model requests."""
