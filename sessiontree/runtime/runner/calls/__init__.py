"""The calls of one session on its host: prepared, run, answered, ended."""
