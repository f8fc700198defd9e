"""Hosts: one process embodies one session at a time, with the handles that its rights name."""
