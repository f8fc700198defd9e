"""One instance of every error, for the tests of what errors keep when they cross processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.kinds import PermissionTier

SAMPLES: dict[object, object] = {
    str: "what was tried – що сталося \ud800",
    str | None: "/path/0",
    float: 2.5,
    float | None: 7.5,
    int: 3,
    bool: True,
    Sequence[str]: ("t1", "t2"),
    PermissionTier: PermissionTier.ELEVATED,
    Any: ["results"],
}


def sample_of(cls: type[SessionTreeError]) -> SessionTreeError:
    """Return an instance with a value for every field, all given by position."""
    if cls.__init__ is Exception.__init__:
        return cls("text")
    hints = get_type_hints(cls.__init__)
    parameters = list(inspect.signature(cls).parameters.values())
    named = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert not named, f"{cls.__name__}: {named} are keyword-only and would be lost between processes"
    given = tuple(_value_of(hints[parameter.name]) for parameter in parameters)
    error = cls(*given)
    assert error.args == given, f"{cls.__name__}: not all fields reach args"
    return error


def _value_of(hint: Any) -> object:
    return get_args(hint)[-1] if get_origin(hint) is Literal else SAMPLES[hint]


def has_cause(cause: str) -> Callable[[Any], bool]:
    """Return a check of an error's cause, for ``pytest.raises``."""
    return lambda error: error.cause == cause
