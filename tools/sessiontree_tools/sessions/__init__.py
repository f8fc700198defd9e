"""Tools for other sessions, people, timed jobs and programs."""
