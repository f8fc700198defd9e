"""Messages of A2UI v0.8, v0.9.1 and v1.0 as operations on surfaces, in one form for all versions.

The version is found for each message: ``version`` names it, and v0.8 is known by its message names. A payload
is valid as a whole, or refused with the message and the place where it is not.

- ``{op: create, surface, version, root, color, sends_data}`` makes a surface;
- ``{op: begin, surface, makes, root, color}`` shows a surface of v0.8;
- ``{op: components, surface, components}`` adds components, or puts them in the place of others;
- ``{op: data, surface, path, value}`` puts a value into the data; without a value it removes what is there;
- ``{op: delete, surface}``.

``makes`` is the version of a surface that the operation makes if it does not exist.
Source: https://a2ui.org/specification/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.canvas import MAX_COMPONENTS, MAX_CONTENT_BYTES
from sessiontree_tools.pages.a2ui_components import (
    Json,
    check_depth,
    read_component,
    read_id,
    read_path,
    refuse,
)

MAX_MESSAGES: Final = 1_000
_VERSIONS: Final = {
    "v0.8": "v0.8", "0.8": "v0.8",
    "v0.9": "v0.9.1", "0.9": "v0.9.1", "v0.9.1": "v0.9.1", "0.9.1": "v0.9.1",
    "v1.0": "v1.0", "1.0": "v1.0",
}  # fmt: skip
"""What messages call a version, and what it is called here."""
_FIRST: Final = frozenset({"beginRendering", "surfaceUpdate", "dataModelUpdate"})
_LATER: Final = frozenset({"createSurface", "updateComponents", "updateDataModel"})
_NOT_CARRIED_OUT: Final = frozenset(
    {"callFunction", "callRendererFunction", "actionResponse", "agentFunctionResponse"}
)
_COLOR: Final = re.compile(r"#[0-9A-Fa-f]{6}", re.ASCII)
_CATALOGUE: Final = re.compile(r"basic|standard|minimal", re.IGNORECASE)
ROOT: Final = "root"
"""Id of the component that a surface of v0.9 or later shows."""


def parse_messages(text: str) -> list[Json]:
    """Return the operations of a payload, in order.

    Args:
        text: One message a line, or a JSON list of messages.

    Raises:
        ValidationError: it is too long, no JSON, or holds a message that is not valid.
    """
    ops: list[Json] = []
    for number, message in enumerate(_read_messages(text), 1):
        if number > MAX_MESSAGES:
            refuse("the payload", f"at most {MAX_MESSAGES:,} messages go into one call")
        ops += _read_ops(message, f"message {number}")
    if not ops:
        refuse("the payload", "it holds no message")
    _check_cycles(ops)
    return ops


def _read_messages(text: str) -> Iterator[object]:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_CONTENT_BYTES:
        refuse("the payload", f"{size:,} bytes are too many; at most {MAX_CONTENT_BYTES:,} go into one call")
    whole = text.strip().removeprefix("\ufeff")
    if whole.startswith("["):
        messages = _parse_json(whole, "the payload")
        assert isinstance(messages, list)  # noqa: S101 - JSON that begins with a bracket
        yield from messages
        return
    for number, line in enumerate(whole.split("\n"), 1):
        if line.strip():
            yield _parse_json(line, f"line {number}")


def _parse_json(text: str, place: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        refuse(place, "it is nested too deeply")
    except ValueError as error:
        refuse(place, f"it is not JSON: {error}; give one whole message a line")


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _read_ops(message: object, place: str) -> list[Json]:
    if not isinstance(message, dict):
        refuse(place, "a message is an object")
    version = _read_version(message, place)
    names = [name for name in message if name in _FIRST | _LATER | _NOT_CARRIED_OUT | {"deleteSurface"}]
    if len(names) != 1:
        refuse(place, f"a message has one of {', '.join(sorted(_FIRST | _LATER))} and deleteSurface")
    (name,) = names
    if name in _NOT_CARRIED_OUT:
        refuse(place, f"{name} is not carried out here: a canvas shows surfaces, and sends actions")
    if (name in _FIRST) != (version == "v0.8") and name != "deleteSurface":
        refuse(place, f"{name} is no message of {version}")
    body = message[name]
    if not isinstance(body, dict):
        refuse(f"{place}.{name}", "give an object")
    surface = read_id(body.get("surfaceId"), f"{place}.{name}.surfaceId")
    return _READ[name](surface, body, f"{place}.{name}", version)


def _read_version(message: Json, place: str) -> str:
    named = message.get("version")
    if named is None:
        return "v0.9.1" if _LATER & set(message) else "v0.8"
    version = _VERSIONS.get(named) if isinstance(named, str) else None
    if version is None:
        refuse(place, f"version {str(named)[:20]!r} is not known; use v0.8, v0.9.1 or v1.0")
    return version


def _check_members(body: Json, place: str, *known: str) -> None:
    unknown = [key for key in body if key not in {"surfaceId", *known}]
    if unknown:
        refuse(place, f"it has no {unknown[0][:40]!r}; it has surfaceId, {', '.join(known)}")


def _read_color(styles: object, place: str) -> str:
    if styles is None:
        return ""
    if not isinstance(styles, dict):
        refuse(place, "give an object")
    color = styles.get("primaryColor", "")
    if color and (not isinstance(color, str) or not _COLOR.fullmatch(color)):
        refuse(f"{place}.primaryColor", "give a colour such as #0a5fd1")
    return str(color)


def _check_catalogue(body: Json, place: str) -> None:
    catalogue = body.get("catalogId")
    if catalogue is not None and (not isinstance(catalogue, str) or not _CATALOGUE.search(catalogue)):
        refuse(f"{place}.catalogId", "only the basic catalogue is shown here")


def _create(surface: str, body: Json, place: str, version: str) -> list[Json]:
    known = ["catalogId", "theme", "sendDataModel", "attachDataModelToRequests"]
    if version == "v1.0":
        known += ["components", "dataModel", "metadata", "surfaceProperties"]
    _check_members(body, place, *known)
    _check_catalogue(body, place)
    styles = body.get("theme", body.get("surfaceProperties"))
    sends = body.get("sendDataModel", body.get("attachDataModelToRequests", False))
    color = _read_color(styles, f"{place}.theme")
    op = {"op": "create", "surface": surface, "version": version, "root": ROOT, "color": color}
    ops: list[Json] = [{**op, "sends_data": sends is True}]
    if "components" in body:
        ops.append(_make_components_op(surface, body["components"], f"{place}.components", version))
    if "dataModel" in body:
        value = check_depth(body["dataModel"], f"{place}.dataModel")
        ops.append({"op": "data", "surface": surface, "path": "", "value": value})
    return ops


def _begin(surface: str, body: Json, place: str, version: str) -> list[Json]:
    _check_members(body, place, "root", "styles", "catalogId")
    _check_catalogue(body, place)
    root, color = (
        read_id(body.get("root"), f"{place}.root"),
        _read_color(body.get("styles"), f"{place}.styles"),
    )
    return [{"op": "begin", "surface": surface, "makes": version, "root": root, "color": color}]


def _update_components(surface: str, body: Json, place: str, version: str) -> list[Json]:
    _check_members(body, place, "components")
    op = _make_components_op(surface, body.get("components"), f"{place}.components", version)
    return [{**op, "makes": version} if version == "v0.8" else op]


def _make_components_op(surface: str, given: object, place: str, version: str) -> Json:
    if not isinstance(given, list) or not given:
        refuse(place, "give a list of components")
    if len(given) > MAX_COMPONENTS:
        refuse(place, f"{len(given):,} components are too many; a surface shows at most {MAX_COMPONENTS:,}")
    components = [read_component(each, f"{place}[{number}]", version) for number, each in enumerate(given)]
    return {"op": "components", "surface": surface, "components": components}


def _update_data(surface: str, body: Json, place: str, version: str) -> list[Json]:
    _check_members(body, place, "path", "value")
    op: Json = {"op": "data", "surface": surface, "path": _read_root_path(body.get("path"), f"{place}.path")}
    # v1.0 removes by null, v0.9 by leaving the value out
    if "value" in body and not (version == "v1.0" and body["value"] is None):
        op["value"] = check_depth(body["value"], f"{place}.value")
    elif version == "v1.0" and "value" not in body:
        refuse(place, "v1.0 needs a value; null removes what is there")
    return [op]


def _read_root_path(path: object, place: str) -> str:
    if path is None or path == "/":
        return ""
    read = read_path(path, place)
    return read if not read or read.startswith("/") else f"/{read}"


def _upgrade_data(surface: str, body: Json, place: str, version: str) -> list[Json]:
    _check_members(body, place, "path", "contents")
    path, contents = _read_root_path(body.get("path"), f"{place}.path"), body.get("contents")
    check_depth(contents, f"{place}.contents")
    values = _read_entries(contents, f"{place}.contents")
    op = {"op": "data", "surface": surface, "makes": version}
    if "path" not in body or not path:
        return [{**op, "path": "", "value": values}]
    # entries below a path join those that are there
    return [
        {**op, "path": f"{path}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}
        for key, value in values.items()
    ]


def _read_entries(contents: object, place: str) -> Json:
    if not isinstance(contents, list):
        refuse(place, "give a list of {key, value…}")
    found: Json = {}
    for entry in contents:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            refuse(place, "an entry is {key, valueString}, or another value")
        values = [name for name in entry if name.startswith("value")]
        if len(values) != 1:
            refuse(place, f"entry {entry['key'][:40]!r} has {len(values)} values; give one")
        found[entry["key"]] = _read_entry_value(values[0], entry[values[0]], place)
    return found


def _read_entry_value(name: str, value: object, place: str) -> Any:
    if name == "valueMap":
        return _read_entries(value, place)
    if name == "valueList" and isinstance(value, list):
        return [check_depth(each, place) for each in value]
    kinds: Mapping[str, type[Any] | tuple[type[Any], ...]] = {
        "valueString": str, "valueNumber": (int, float), "valueBoolean": bool,
    }  # fmt: skip
    kind = kinds.get(name)
    if kind is None or not isinstance(value, kind) or (name == "valueNumber" and isinstance(value, bool)):
        refuse(place, f"{name[:40]!r} does not hold such a value")
    return value


def _delete(surface: str, body: Json, place: str, _version: str) -> list[Json]:
    _check_members(body, place)
    return [{"op": "delete", "surface": surface}]


_READ: Final[Mapping[str, Callable[[str, Json, str, str], list[Json]]]] = {
    "createSurface": _create,
    "updateComponents": _update_components,
    "updateDataModel": _update_data,
    "beginRendering": _begin,
    "surfaceUpdate": _update_components,
    "dataModelUpdate": _upgrade_data,
    "deleteSurface": _delete,
}


def _check_cycles(ops: Sequence[Json]) -> None:
    """Refuse components of a payload that contain themselves.

    Those that only contain themselves together with earlier ones are cut where they are drawn.
    """
    below: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for op in ops:
        for each in op.get("components", ()):
            below[op["surface"], each["id"]] = [(op["surface"], name) for name in list_child_ids(each)]
    done: set[tuple[str, str]] = set()
    for first in below:
        way: list[tuple[str, str]] = []
        todo = [(first, False)]
        while todo:
            name, is_left = todo.pop()
            if is_left:
                done.add(way.pop())
            elif name in way:
                circle = [each for _, each in [*way[way.index(name) :], name]]
                raise ValidationError(f"components contain themselves: {' > '.join(circle)[:300]}", "/jsonl")
            elif name in below and name not in done:
                way.append(name)
                todo.append((name, True))
                todo += [(each, False) for each in below[name]]


def list_child_ids(component: Json) -> list[str]:
    """Return the ids of the components that a component contains."""
    found = [component[key] for key in ("child", "trigger", "content") if key in component]
    children = component.get("children", [])
    found += [children["componentId"]] if isinstance(children, dict) else children
    return [*found, *(tab["child"] for tab in component.get("tabs", ()))]
