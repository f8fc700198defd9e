"""Refusals: typed errors as plain values, and as the same errors again at the other end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from sessiontree.contracts import errors
from sessiontree.contracts.errors import SessionTreeError, words_of
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.tiers import PermissionTier

ERRORS: Mapping[str, type[SessionTreeError]] = {
    value.__name__: value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SessionTreeError)
}
"""Every error that travels as itself; any other travels as its words."""


def error_to_wire(error: BaseException) -> dict[str, Any]:
    """Return ``{type, fields}`` of an error; the fields are those it is made from, in order."""
    cls = type(error)
    fields = list(error.args)
    if ERRORS.get(cls.__name__) is cls and _has_json(fields):
        return {"type": cls.__name__, "fields": fields}
    return {"type": SessionTreeError.__name__, "fields": [words_of(error)]}


def error_from_wire(wire: object) -> SessionTreeError:
    """Return the error of a wire object; whatever fits none of them becomes a plain error with its words."""
    if isinstance(wire, Mapping):
        name, fields = wire.get("type"), wire.get("fields")
        cls = ERRORS.get(name) if isinstance(name, str) else None
        if cls is not None and isinstance(fields, list):
            try:
                error = cls(*_given(cls, fields))
                str(error)  # fields of wrong types may show only here
            except (TypeError, ValueError, AttributeError):
                pass
            else:
                return error
    return SessionTreeError(f"the runtime refused: {wire}")


def _given(cls: type[SessionTreeError], fields: list[Any]) -> list[Any]:
    hints = [hint for name, hint in get_type_hints(cls.__init__).items() if name != "return"]
    made = [
        PermissionTier(field) if hint is PermissionTier else field
        for field, hint in zip(fields, hints, strict=False)
    ]
    return made + fields[len(made) :]


def _has_json(fields: list[Any]) -> bool:
    try:
        dump_json(fields)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
