"""Supervisors and tasks on the nodes of a cluster."""
