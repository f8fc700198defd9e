"""Data frames of pandas, which programs bring themselves."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from sessiontree.contracts.errors import ConfigError


def make_data_frame(rows: Iterable[Mapping[str, Any]], what: str) -> Any:
    """Return rows as a ``pandas.DataFrame``.

    Args:
        rows: The rows; each has the same names.
        what: What they are, for the error.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} can't become a data frame: pandas is not installed; install it with `pip install pandas`"
        ) from error
    return pandas.DataFrame(list(rows))
