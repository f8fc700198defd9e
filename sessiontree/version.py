"""The release."""

VERSION = "0.1.0"

RULES = 1
"""Number of the rules by which sessions and trees decide. Raise it whenever they decide otherwise than
before, if only by other words: a replay applies them only to trees that were made under this number."""


def explain_installation(extra: str) -> str:
    """Return the commands that install an extra: no registry has this package."""
    return (
        f"in a checkout run: python -m pip install '.[{extra}]', else install the wheel: "
        f"python -m pip install './sessiontree-{VERSION}-py3-none-any.whl[{extra}]'"
    )
