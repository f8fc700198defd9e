"""The release."""

VERSION = "0.1.0"

RULES = 3
"""Number of the rules by which sessions and trees decide. Raise it whenever they decide otherwise than
before, if only by other words: a replay applies them only to trees that were made under this number."""
