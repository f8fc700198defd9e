"""The directory of a run: its settings, its progress, and its limit of errors."""
