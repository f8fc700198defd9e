"""What a canvas shows, and how a change leads to what it shows next.

It is pure. A change that the journal holds is always carried out; whether a new one fits is found first, by
:func:`find_fault`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from sessiontree.contracts.recorded.canvas import (
    MAX_CANVAS_BYTES,
    MAX_COMPONENTS,
    MAX_CONTENT_BYTES,
    MAX_SURFACES,
)
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.pointer import LeadsNowhere, find_value, split_pointer
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_KEYS: Final = 128
"""How many of the newest keys a canvas remembers: a call is repeated soon after a crash, or never."""
_NOTHING: Final = object()
"""In place of a value that is to be removed."""


@dataclass(frozen=True, slots=True)
class CanvasSurface:
    """One A2UI surface, in the form that all versions share."""

    version: str
    """``v0.8``, ``v0.9.1`` or ``v1.0``: that of the message that made it."""
    root: str = ""
    """The component that is shown; empty = none so far."""
    components: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """By id, in the order in which they came."""
    data: JsonValue = field(default_factory=dict)
    color: str = ""
    """Its main colour as ``#rrggbb``; empty = the page's own."""
    sends_data: bool = False
    """Whether each of its actions brings the whole data along."""

    def to_json(self) -> dict[str, Any]:
        """Return the surface for a page."""
        return {
            "version": self.version,
            "root": self.root,
            "components": dict(self.components),
            "data": self.data,
            "color": self.color,
            "sends_data": self.sends_data,
        }


@dataclass(frozen=True, slots=True)
class CanvasState:
    """One session's canvas."""

    revision: int = 0
    """Grows with every change."""
    page_revision: int = 0
    """The revision of the last change of the page."""
    is_shown: bool = False
    page: Mapping[str, str] = field(default_factory=dict)
    """``{html}``, ``{path}``, ``{url, html}``, or empty: then the surfaces are shown."""
    surfaces: Mapping[str, CanvasSurface] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    """Keys of the newest changes and actions, oldest first."""

    @property
    def shows(self) -> str:
        """``html``, ``file``, ``web``, ``a2ui``, or empty for nothing."""
        if "url" in self.page:
            return "web"
        if "html" in self.page:
            return "html"
        if "path" in self.page:
            return "file"
        return "a2ui" if self.surfaces else ""

    @property
    def size(self) -> int:
        """Bytes of all that it holds, as compact JSON; O(size)."""
        surfaces = {name: surface.to_json() for name, surface in self.surfaces.items()}
        return len(dump_json([dict(self.page), surfaces]))

    def add_key(self, key: str) -> CanvasState:
        """Return the canvas, which remembers a key."""
        return replace(self, keys=(*self.keys, key)[-MAX_KEYS:])


def change_state(state: CanvasState, action: str, content: Mapping[str, Any]) -> CanvasState:
    """Return the canvas after a change."""
    revision = state.revision + 1
    state = replace(state, revision=revision)
    if action == "hide":
        return replace(state, is_shown=False)
    if action == "a2ui_reset":
        return replace(state, surfaces={})
    if action == "a2ui_push":
        # Surfaces in place of a page are a new page for the frame; further surfaces are not.
        turned = revision if state.page else state.page_revision
        state = replace(state, is_shown=True, page={}, page_revision=turned)
        for op in content.get("ops", ()):
            state = _carry_out(state, op)
        return state
    page = {name: str(content[name]) for name in ("html", "path", "url") if name in content}
    if not page:
        return replace(state, is_shown=True)
    return replace(state, is_shown=True, page=page, page_revision=revision)


def find_fault(state: CanvasState, action: str, content: Mapping[str, Any]) -> str:
    """Return why a change does not fit a canvas; empty if it does."""
    try:
        length = len(dump_json(content))
    except (TypeError, ValueError, RecursionError) as error:
        return f"the content has no JSON form: {error}"
    if length > MAX_CONTENT_BYTES:
        return f"the content has {length:,} bytes, at most {MAX_CONTENT_BYTES:,} go into one change"
    if action == "present" and not content and not state.shows:
        return "nothing was presented so far: give html or path, or push A2UI"
    if action == "a2ui_push":
        for number, op in enumerate(content.get("ops", ()), 1):
            fault = _find_op_fault(state, op)
            if fault:
                return f"message {number}: {fault}"
            # The next message may need what this one makes.
            state = _carry_out(state, op)
        after = state
    else:
        after = change_state(state, action, content)
    size = after.size
    if size > MAX_CANVAS_BYTES:
        return (
            f"the canvas would have {size:,} bytes, at most {MAX_CANVAS_BYTES:,} are kept; delete surfaces, "
            "or use a2ui_reset"
        )
    return ""


def _find_op_fault(state: CanvasState, op: Mapping[str, Any]) -> str:
    name, kind = str(op["surface"]), op["op"]
    surface = state.surfaces.get(name)
    makes = kind == "create" or op.get("makes") is not None
    if kind == "create" and surface is not None:
        return f"surface {name!r} exists already; delete it first, or update it"
    if surface is None and not makes:
        return f"surface {name!r} does not exist; create it first"
    if surface is None and len(state.surfaces) >= MAX_SURFACES:
        return f"a canvas has at most {MAX_SURFACES} surfaces; delete one first"
    if kind == "components":
        known = {} if surface is None else surface.components
        count = len({*known, *(str(each["id"]) for each in op["components"])})
        if count > MAX_COMPONENTS:
            return f"surface {name!r} would have {count:,} components, at most {MAX_COMPONENTS:,} are shown"
    if kind == "data":
        return _find_path_fault({} if surface is None else surface.data, split_pointer(op["path"]))
    return ""


def _find_path_fault(data: JsonValue, parts: Sequence[str]) -> str:
    for number, part in enumerate(parts):
        if isinstance(data, list):
            if not _is_index(part, len(data), is_last=number == len(parts) - 1):
                return f"path: {part[:40]!r} is not a place in a list of {len(data)}"
            data = data[int(part)] if int(part) < len(data) else None
        elif isinstance(data, dict):
            data = data.get(part)
        elif data is None:
            return ""
        else:
            return f"path: {part[:40]!r} is below a value that has no members"
    return ""


def _is_index(part: str, length: int, *, is_last: bool) -> bool:
    # The length is limited because a person's page chooses it, and `int` of many digits takes long.
    is_number = part.isascii() and part.isdecimal() and len(part) < 7
    return is_number and int(part) < length + is_last


def _carry_out(state: CanvasState, op: Mapping[str, Any]) -> CanvasState:
    name, kind = str(op["surface"]), op["op"]
    surfaces = dict(state.surfaces)
    if kind == "delete":
        surfaces.pop(name, None)
        return replace(state, surfaces=surfaces)
    surface = surfaces.get(name) or CanvasSurface(str(op.get("makes") or ""))
    if kind == "create":
        surface = CanvasSurface(
            str(op["version"]), str(op["root"]), color=str(op["color"]), sends_data=bool(op["sends_data"])
        )
    elif kind == "begin":
        surface = replace(surface, root=str(op["root"]), color=str(op["color"]))
    elif kind == "components":
        components = {**surface.components, **{str(each["id"]): each for each in op["components"]}}
        surface = replace(surface, components=components)
    elif kind == "data":
        surface = replace(
            surface, data=_set_value(surface.data, split_pointer(op["path"]), op.get("value", _NOTHING))
        )
    surfaces[name] = surface
    return replace(state, surfaces=surfaces)


def _set_value(data: JsonValue, parts: Sequence[str], value: Any) -> JsonValue:
    """Return the data with a value at a place, or without the place."""
    if value is not _NOTHING:
        return _put(data, parts, value)
    if not parts:
        return {}
    try:
        above = find_value(data, parts[:-1])
    except LeadsNowhere:
        return data
    last = parts[-1]
    left: JsonValue = above
    if isinstance(above, dict):
        left = {name: each for name, each in above.items() if name != last}
    elif isinstance(above, list):
        left = [each for number, each in enumerate(above) if str(number) != last]
    return _put(data, parts[:-1], left)


def _put(data: JsonValue, parts: Sequence[str], value: JsonValue) -> JsonValue:
    if not parts:
        return value
    part, rest = parts[0], parts[1:]
    if isinstance(data, list) and _is_index(part, len(data), is_last=True):
        items, at = list(data), int(part)
        items[at : at + 1] = [_put(items[at] if at < len(items) else None, rest, value)]
        return items
    members = dict(data) if isinstance(data, dict) else {}
    members[part] = _put(members.get(part), rest, value)
    return members
