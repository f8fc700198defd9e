"""Scheduling: live sessions, the hosts that they wait for, and the grants that hosts get."""
