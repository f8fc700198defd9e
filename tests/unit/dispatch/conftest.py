"""The watch over descriptors and child processes that the tools' tests use."""

from tests.unit.tools.conftest import nothing_left

__all__ = ["nothing_left"]
