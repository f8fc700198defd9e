"""The basic components of A2UI, and their values, in one form for all versions.

A component is ``{id, component, …}`` with the names of v1.0 and no ``@``. A value is a literal, ``{path}``
(with ``default``, which v0.8 allows) or ``{call, args}``. Nothing else gets through: an unknown member,
component, function or kind of value is refused, with the place where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.canvas import MAX_DEPTH
from sessiontree.contracts.values.jsonable import JsonValue

Json = dict[str, Any]
MAX_ID_CHARS: Final = 200
MAX_PATH_CHARS: Final = 500
MAX_CALLS: Final = 8
"""How deeply calls of functions may be nested."""

_JUSTIFY: Final = "center end spaceAround spaceBetween spaceEvenly start stretch"
_ALIGN: Final = "start center end stretch"
COMPONENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Text": {"text!": "value", "variant": "h1 h2 h3 h4 h5 caption body"},
    "Image": {
        "url!": "value",
        "description": "value",
        "fit": "contain cover fill none scaleDown",
        "variant": "icon avatar smallFeature mediumFeature largeFeature header",
    },
    "Icon": {"name!": "icon"},
    "Video": {"url!": "value", "posterUrl": "value"},
    "AudioPlayer": {"url!": "value", "description": "value"},
    "Row": {"children!": "children", "justify": _JUSTIFY, "align": _ALIGN},
    "Column": {"children!": "children", "justify": _JUSTIFY, "align": _ALIGN},
    "List": {"children!": "children", "direction": "vertical horizontal", "align": _ALIGN},
    "Card": {"child!": "id"},
    "Tabs": {"tabs!": "tabs"},
    "Modal": {"trigger!": "id", "content!": "id"},
    "Divider": {"axis": "horizontal vertical"},
    "Button": {
        "child!": "id",
        "variant": "default primary borderless",
        "action!": "action",
        "checks": "checks",
    },
    "TextField": {
        "label!": "value",
        "value": "value",
        "placeholder": "value",
        "variant": "longText number shortText obscured date",
        "checks": "checks",
    },
    "CheckBox": {"label!": "value", "value!": "value", "checks": "checks"},
    "ChoicePicker": {
        "label": "value",
        "variant": "multipleSelection mutuallyExclusive",
        "options!": "options",
        "value!": "value",
        "displayStyle": "checkbox chips",
        "filterable": "flag",
        "checks": "checks",
    },
    "Slider": {
        "label": "value",
        "min": "number",
        "max!": "number",
        "value!": "value",
        "steps": "number",
        "checks": "checks",
    },
    "DateTimeInput": {
        "value!": "value",
        "enableDate": "flag",
        "enableTime": "flag",
        "min": "value",
        "max": "value",
        "label": "value",
        "checks": "checks",
    },
}
"""By component its members: a kind of value, or the words that it may be; ``!`` = it must be there."""
_COMMON: Final = {"weight": "number", "accessibility": "accessibility"}
_LEFT_OUT: Final = frozenset({"catalogId", "metadata", "instanceId"})
"""Members that change nothing that is shown."""
FUNCTIONS: Final = frozenset(
    {
        *("required", "regex", "length", "numeric", "email", "and", "or", "not"),
        *("formatString", "formatNumber", "formatCurrency", "formatDate", "pluralize", "@index"),
    }
)
"""The functions that a frame carries out. ``openUrl`` is not one of them: a frame opens nothing."""
_LITERALS: Final = ("literalString", "literalNumber", "literalBoolean", "literalArray")


def refuse(place: str, reason: str) -> NoReturn:
    """Refuse a payload.

    Raises:
        ValidationError: always.
    """
    raise ValidationError(f"{place}: {reason}", "/jsonl")


def read_component(given: object, place: str, version: str) -> Json:
    """Return a component in the form of all versions.

    Raises:
        ValidationError: it is not one, or not of the basic catalogue; says where and why.
    """
    if not isinstance(given, dict):
        refuse(place, "a component is an object")
    name = read_id(given.get("id"), f"{place}.id")
    place = f"component {name!r}"
    if version == "v0.8":
        given = _upgrade_component(given, place)
    members = {key.removeprefix("@"): value for key, value in given.items()}
    kind = members.pop("component", None)
    declared = COMPONENTS.get(kind) if isinstance(kind, str) else None
    if declared is None:
        refuse(place, f"{str(kind)[:40]!r} is not a basic component; use one of {', '.join(COMPONENTS)}")
    known = {each.rstrip("!"): what for each, what in {**declared, **_COMMON}.items()}
    missing = [
        each.rstrip("!") for each in declared if each.endswith("!") and each.rstrip("!") not in members
    ]
    if missing:
        refuse(place, f"{kind} needs {', '.join(missing)}")
    found: Json = {"id": name, "component": kind}
    for key, value in members.items():
        if key in known:
            found[key] = _read_member(known[key], value, f"{place}.{key}")
        elif key != "id" and key not in _LEFT_OUT:
            refuse(place, f"{kind} has no {key[:40]!r}; it has {', '.join(known)}")
    return found


def _read_member(what: str, value: object, place: str) -> JsonValue:
    read = _READERS.get(what)
    if read is not None:
        return read(value, place)
    words = what.split()
    if not isinstance(value, str) or value not in words:
        refuse(place, f"{str(value)[:40]!r} is not one of {', '.join(words)}")
    return value


def read_id(value: object, place: str) -> str:
    """Return an id.

    Raises:
        ValidationError: it is no short text.
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        refuse(place, f"an id is a text of 1 to {MAX_ID_CHARS} characters")
    return value


def read_path(value: object, place: str) -> str:
    """Return a path into the data of a surface: absolute, or relative to the item of a list.

    Raises:
        ValidationError: it is not one.
    """
    if not isinstance(value, str) or len(value) > MAX_PATH_CHARS:
        refuse(place, f"a path is a text of at most {MAX_PATH_CHARS} characters, such as /user/name")
    if "~" in value.replace("~0", "").replace("~1", ""):
        refuse(place, "write ~0 for a tilde and ~1 for a slash in a name")
    return value


def check_depth(value: Any, place: str) -> JsonValue:
    """Return a value that is not nested too deeply.

    Raises:
        ValidationError: it is.
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            each
            for above in level
            if isinstance(above, dict | list)
            for each in (above.values() if isinstance(above, dict) else above)
        ]
        if not level:
            whole: JsonValue = value
            return whole
    refuse(place, f"it is nested more than {MAX_DEPTH} deep")


def _number(value: object, place: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e15:
        refuse(place, "give a number")
    return value


def _read_flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        refuse(place, "give true or false")
    return value


def read_value(value: object, place: str, calls: int = 0) -> JsonValue:
    """Return a value: a literal, a path, or a call of a function.

    Raises:
        ValidationError: it is not one of them.
    """
    if not isinstance(value, dict):
        return check_depth(value, place)
    if "path" in value or "@path" in value:
        return _bound(value, place)
    logic = [word for word in ("and", "or", "not") if word in value]
    if logic:
        return _read_logic(logic[0], value, place, calls)
    name = value.get("call", value.get("@call"))
    if name is None:
        return check_depth(value, place)
    if calls >= MAX_CALLS:
        refuse(place, f"calls are nested more than {MAX_CALLS} deep")
    if not isinstance(name, str) or name not in FUNCTIONS:
        refuse(place, f"{str(name)[:40]!r} is not a function; use one of {', '.join(sorted(FUNCTIONS))}")
    args = value.get("args", value.get("@args", {}))
    if not isinstance(args, dict):
        refuse(f"{place}.args", "give an object with the names of the arguments")
    read: Json = {key: _read_argument(each, f"{place}.{key}", calls + 1) for key, each in args.items()}
    return {"call": name, "args": read}


def _read_argument(value: object, place: str, calls: int) -> JsonValue:
    if isinstance(value, list):
        return [read_value(each, place, calls) for each in value]
    return read_value(value, place, calls)


def _bound(value: Json, place: str) -> JsonValue:
    path = read_path(value.get("path", value.get("@path")), f"{place}.path")
    bound: Json = {"path": path}
    literal = [each for each in _LITERALS if each in value]
    if literal:
        bound["default"] = check_depth(value[literal[0]], place)
    return bound


def _read_logic(word: str, value: Json, place: str, calls: int) -> JsonValue:
    if calls >= MAX_CALLS:
        refuse(place, f"conditions are nested more than {MAX_CALLS} deep")
    if word == "not":
        return {"call": "not", "args": {"value": read_value(value["not"], place, calls + 1)}}
    parts = value[word]
    if not isinstance(parts, list) or not parts:
        refuse(f"{place}.{word}", "give a list of conditions")
    values = [read_value(each, place, calls + 1) for each in parts]
    return {"call": word, "args": {"values": values}}


def _read_children(value: object, place: str) -> JsonValue:
    if isinstance(value, list):
        return [read_id(each, place) for each in value]
    if not isinstance(value, dict):
        refuse(place, "give a list of ids, or {componentId, path}")
    template = value.get("componentId", value.get("@componentId"))
    path = read_path(value.get("path", value.get("@path")), f"{place}.path")
    return {"componentId": read_id(template, f"{place}.componentId"), "path": path}


def _read_tabs(value: object, place: str) -> JsonValue:
    if not isinstance(value, list) or not value:
        refuse(place, "give a list of {title, child}")
    return [
        {"title": read_value(each.get("title"), place), "child": read_id(each.get("child"), place)}
        for each in value
        if isinstance(each, dict) or refuse(place, "a tab is {title, child}")
    ]


def _read_options(value: object, place: str) -> JsonValue:
    if not isinstance(value, list):
        refuse(place, "give a list of {label, value}")
    found: list[JsonValue] = []
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("value"), str) or "label" not in each:
            refuse(place, "an option is {label, value}, and its value a text")
        found.append({"label": read_value(each["label"], place), "value": each["value"]})
    return found


def _read_checks(value: object, place: str) -> JsonValue:
    if not isinstance(value, list):
        refuse(place, "give a list of {condition, message}")
    found: list[JsonValue] = []
    for each in value:
        if not isinstance(each, dict) or not isinstance(each.get("message"), str):
            refuse(place, "a check is {condition, message}")
        rule = each.get("condition", {key: part for key, part in each.items() if key != "message"})
        found.append({"condition": read_value(rule, place), "message": each["message"]})
    return found


def _read_action(value: object, place: str) -> JsonValue:
    event = value.get("event") if isinstance(value, dict) else None
    if not isinstance(event, dict) or not isinstance(event.get("name"), str):
        refuse(place, "give {event: {name, context}}: a frame carries out no function of its own")
    context = event.get("context", {})
    if not isinstance(context, dict):
        refuse(f"{place}.context", "give an object")
    read: Json = {key: read_value(each, f"{place}.{key}") for key, each in context.items()}
    return {"event": {"name": event["name"][:MAX_ID_CHARS], "context": read}}


def _read_accessibility(value: object, place: str) -> JsonValue:
    if not isinstance(value, dict):
        refuse(place, "give an object with label and description")
    return {
        key: read_value(value[key], place)
        for key in ("label", "description", "live", "hidden")
        if key in value
    }


def _read_icon(value: object, place: str) -> JsonValue:
    if isinstance(value, dict) and "svgPath" in value:
        refuse(place, "paths of SVG are not drawn; give the name of an icon")
    return read_value(value, place)


_READERS: Final[Mapping[str, Callable[[object, str], JsonValue]]] = {
    "value": read_value,
    "id": read_id,
    "icon": _read_icon,
    "number": _number,
    "flag": _read_flag,
    "children": _read_children,
    "tabs": _read_tabs,
    "options": _read_options,
    "checks": _read_checks,
    "action": _read_action,
    "accessibility": _read_accessibility,
}

# The names of v0.8, by component.
_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "Text": {"usageHint": "variant"},
    "Image": {"usageHint": "variant", "altText": "description"},
    "Row": {"distribution": "justify", "alignment": "align"},
    "Column": {"distribution": "justify", "alignment": "align"},
    "List": {"alignment": "align"},
    "Tabs": {"tabItems": "tabs"},
    "Modal": {"entryPointChild": "trigger", "contentChild": "content"},
    "TextField": {"text": "value", "textFieldType": "variant"},
    "MultipleChoice": {"selections": "value", "type": "displayStyle"},
    "Slider": {"minValue": "min", "maxValue": "max"},
}


def _upgrade_component(given: Json, place: str) -> Json:
    """Return a component of v0.8 with the names and values of later versions."""
    wrapper = given.get("component")
    if not isinstance(wrapper, dict) or len(wrapper) != 1:
        refuse(place, "its component is an object with one member, the name of the component")
    ((kind, props),) = wrapper.items()
    if not isinstance(props, dict):
        refuse(place, f"{str(kind)[:40]!r} is an object of its members")
    renamed = _RENAMED.get(kind, {})
    found: Json = {renamed.get(key, key): _unwrap(value) for key, value in props.items()}
    children = found.get("children")
    if isinstance(children, dict):
        template = children.get("template")
        found["children"] = children.get("explicitList", children)
        if isinstance(template, dict):
            path = template.get("dataBinding", "")
            found["children"] = {"componentId": template.get("componentId"), "path": path}
    special = _SPECIAL.get(kind)
    if special is not None:
        special(found, place)
    common: Json = {key: given[key] for key in ("id", "weight", "accessibility") if key in given}
    return {**found, **common, "component": "ChoicePicker" if kind == "MultipleChoice" else kind}


def _unwrap(value: object) -> object:
    """Return the literal of a value of v0.8; one that is bound to data stays as it is."""
    if isinstance(value, list):
        return [_unwrap(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "path" not in value:
        for name in _LITERALS:
            if name in value:
                return value[name]
        if set(value) & {"title", "label"}:  # an option or a tab
            return {key: _unwrap(each) for key, each in value.items()}
    return value


def _upgrade_button(found: Json, place: str) -> None:
    if found.pop("primary", False) is True:
        found["variant"] = "primary"
    action = found.get("action")
    if not isinstance(action, dict) or not isinstance(action.get("name"), str):
        refuse(f"{place}.action", "give {name, context}")
    entries = action.get("context", [])
    if not isinstance(entries, list):
        refuse(f"{place}.action.context", "give a list of {key, value}")
    context: Json = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
            refuse(f"{place}.action.context", "an entry is {key, value}")
        context[entry["key"]] = _unwrap(entry.get("value"))
    found["action"] = {"event": {"name": action["name"], "context": context}}


def _upgrade_field(found: Json, _place: str) -> None:
    pattern = found.pop("validationRegexp", None)
    if isinstance(pattern, str):
        condition = {"call": "regex", "args": {"value": found.get("value", ""), "pattern": pattern}}
        found["checks"] = [
            {"condition": condition, "message": "This does not have the form that is asked for."}
        ]


def _upgrade_choice(found: Json, _place: str) -> None:
    most = found.pop("maxAllowedSelections", None)
    found["variant"] = "mutuallyExclusive" if most == 1 else "multipleSelection"


def _upgrade_slider(found: Json, _place: str) -> None:
    found.setdefault("max", 100)


def _upgrade_image(found: Json, _place: str) -> None:
    if found.get("fit") == "scale-down":
        found["fit"] = "scaleDown"


def _upgrade_date(found: Json, _place: str) -> None:
    found.pop("outputFormat", None)


_SPECIAL: Final[Mapping[str, Callable[[Json, str], None]]] = {
    "Button": _upgrade_button,
    "TextField": _upgrade_field,
    "MultipleChoice": _upgrade_choice,
    "Slider": _upgrade_slider,
    "Image": _upgrade_image,
    "DateTimeInput": _upgrade_date,
}
