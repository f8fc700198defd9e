"""Suites that come with this package. Each needs an environment of its own, whose lock is in ``locks/``."""
