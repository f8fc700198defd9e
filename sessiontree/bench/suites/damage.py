"""Damage to the arguments of calls, by kind and seed: a number as text, a misspelt name, cut JSON, and so on.

The arguments of a correct call are damaged in ways in which models get calls wrong. Damage changes the
argument text and nothing else. Not here: the model that sends damaged calls (``damaged_ground_truth``), and
checks and corrections, which are the runtime's.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

Given: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = Mapping[str, Any]

UNREADABLE: Final = "not a whole JSON object"
"""What the error says about argument text that can't be read."""
_WORDS: Final = ("note", "reason", "comment", "context")
"""Names of arguments that no function has asked for; one more than a call has attempts."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One way in which a call's arguments are wrong."""

    kind: str
    text: str
    """The argument text that is sent."""
    names: tuple[str, ...]
    """What an error must name, so that a model can repair the arguments: one of these."""


ATTEMPTS: Final = 3
"""How often a tool may be called with arguments that do not fit, until it is refused."""


@dataclass(frozen=True, slots=True)
class DamagePlan:
    """What is sent for one planned call."""

    ways: tuple[Damage, ...]
    """A different damage for each attempt."""
    persists: int
    """How many further attempts are damaged although the error named the damage."""

    @property
    def kind(self) -> str:
        """The kind of the first damage."""
        return self.ways[0].kind

    def choose_text(self, attempt: int, error: Mapping[str, Any] | None) -> str | None:
        """Return the argument text of an attempt; None = the undamaged arguments.

        Args:
            attempt: Counted from 0.
            error: The error about the attempt before.
        """
        if attempt >= len(self.ways):
            return None
        if attempt > self.persists and error is not None and is_named(self.ways[attempt - 1], error):
            return None
        return self.ways[attempt].text


def is_named(damage: Damage, error: Mapping[str, Any]) -> bool:
    """Whether an error names what is wrong, as far as a model can see without knowing the damage."""
    said = f"{error.get('field') or ''} {error.get('error') or ''}"
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said) is not None for name in damage.names)


_Change: TypeAlias = Callable[[Given, Schema, random.Random], "tuple[Given | str, tuple[str, ...]] | None"]
"""Returns damaged arguments, or their text, and what an error must name; None = nothing to damage so."""


def _get_properties(schema: Schema) -> Mapping[str, Schema]:
    found: Mapping[str, Schema] = schema.get("properties", {})
    return found


def _get_types(schema: Schema) -> frozenset[str]:
    named = schema.get("type", ())
    return frozenset([named] if isinstance(named, str) else named)


def _pick_argument(
    given: Given, schema: Schema, pick: random.Random, fits: Callable[[Any, Schema], bool]
) -> str | None:
    """Return the name of one argument that fits a condition."""
    known = _get_properties(schema)
    names = [name for name, value in given.items() if name in known and fits(value, known[name])]
    return pick.choice(names) if names else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_as_text(given: Given, schema: Schema, pick: random.Random) -> Any:
    name = _pick_argument(
        given, schema, pick, lambda value, each: _is_number(value) and "string" not in _get_types(each)
    )
    return None if name is None else ({**given, name: json.dumps(given[name])}, (name,))


def _text_as_number(given: Given, schema: Schema, pick: random.Random) -> Any:
    def can_change(value: Any, each: Schema) -> bool:
        return isinstance(value, str) and re.fullmatch(r"0|[1-9]\d{0,14}", value) is not None

    name = _pick_argument(given, schema, pick, can_change)
    return None if name is None else ({**given, name: int(given[name])}, (name,))


def _boolean_as_text(given: Given, schema: Schema, pick: random.Random) -> Any:
    name = _pick_argument(given, schema, pick, lambda value, _: isinstance(value, bool))
    if name is None:
        return None
    words = ("true", "True", "yes") if given[name] else ("false", "False", "no")
    return {**given, name: pick.choice(words)}, (name,)


def _list_as_text(given: Given, schema: Schema, pick: random.Random) -> Any:
    name = _pick_argument(given, schema, pick, lambda value, _: isinstance(value, list | dict))
    return None if name is None else ({**given, name: json.dumps(given[name])}, (name,))


def _list_for_scalar(given: Given, schema: Schema, pick: random.Random) -> Any:
    name = _pick_argument(given, schema, pick, lambda value, _: not isinstance(value, list | dict | None))
    return None if name is None else ({**given, name: [given[name]]}, (name,))


def _scalar_for_list(given: Given, schema: Schema, pick: random.Random) -> Any:
    name = _pick_argument(given, schema, pick, lambda value, _: isinstance(value, list) and len(value) > 0)
    return None if name is None else ({**given, name: given[name][0]}, (name,))


def _null_for_required(given: Given, schema: Schema, pick: random.Random) -> Any:
    needed = [name for name in schema.get("required", ()) if given.get(name) is not None]
    if not needed:
        return None
    name = pick.choice(needed)
    return {**given, name: None}, (name,)


def _null_for_missing(given: Given, schema: Schema, pick: random.Random) -> Any:
    free = [
        name
        for name in _get_properties(schema)
        if name not in given and name not in schema.get("required", ())
    ]
    if not free:
        return None
    name = pick.choice(free)
    return {**given, name: None}, (name,)


def _missing_required(given: Given, schema: Schema, pick: random.Random) -> Any:
    needed = [name for name in schema.get("required", ()) if name in given]
    if not needed:
        return None
    name = pick.choice(needed)
    return {key: value for key, value in given.items() if key != name}, (name,)


def _extra_argument(given: Given, schema: Schema, pick: random.Random) -> Any:
    free = [word for word in _WORDS if word not in _get_properties(schema)]
    name = pick.choice(free)
    return {**given, name: "as the user asked"}, (name,)


def _rename(given: Given, name: str, other: str) -> dict[str, Any]:
    return {other if key == name else key: value for key, value in given.items()}


def _camel_case_name(given: Given, schema: Schema, pick: random.Random) -> Any:
    names = [name for name in given if re.search(r"[a-z0-9]_[a-z]", name)]
    if not names:
        return None
    name = pick.choice(names)
    other = re.sub(r"(?<=[A-Za-z0-9])_([a-z])", lambda found: found[1].upper(), name)
    return None if other in given else (_rename(given, name, other), (name, other))


def _misspelt_name(given: Given, schema: Schema, pick: random.Random) -> Any:
    names = [name for name in given if len(name) > 3]
    if not names:
        return None
    name = pick.choice(names)
    place = pick.randrange(1, len(name) - 1)
    other = name[:place] + name[place + 1 :]
    known = _get_properties(schema)
    taken = other in known or other.replace("_", "") in {each.replace("_", "") for each in known}
    return None if taken else (_rename(given, name, other), (name, other))


def _wrong_enum_case(given: Given, schema: Schema, pick: random.Random) -> Any:
    def fits(value: Any, each: Schema) -> bool:
        listed = each.get("enum", ())
        return isinstance(value, str) and value in listed and value.swapcase() not in listed

    name = _pick_argument(given, schema, pick, fits)
    return None if name is None else ({**given, name: given[name].swapcase()}, (name,))


def _wrapped(given: Given, schema: Schema, pick: random.Random) -> Any:
    outer = pick.choice(("arguments", "parameters", "input"))
    if not given or outer in _get_properties(schema):
        return None
    return {outer: dict(given)}, (outer, *given)


def _trailing_comma(given: Given, schema: Schema, pick: random.Random) -> Any:
    return (json.dumps(given)[:-1] + ",}", (UNREADABLE,)) if given else None


def _single_quotes(given: Given, schema: Schema, pick: random.Random) -> Any:
    if not given or any("'" in word or '"' in word or "\\" in word for word in _list_texts(given)):
        return None
    return json.dumps(given).replace('"', "'"), (UNREADABLE,)


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)


def _code_fence(given: Given, schema: Schema, pick: random.Random) -> Any:
    return f"```json\n{json.dumps(given)}\n```", (UNREADABLE,)


def _cut_json(given: Given, schema: Schema, pick: random.Random) -> Any:
    text = json.dumps(given)
    return (text[: pick.randrange(1, len(text))], (UNREADABLE, *given)) if given else None


def _missing_comma(given: Given, schema: Schema, pick: random.Random) -> Any:
    pairs = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in given.items()]
    return ("{" + " ".join(pairs) + "}", (UNREADABLE,)) if len(pairs) > 1 else None


def _prose_around(given: Given, schema: Schema, pick: random.Random) -> Any:
    return f"Here are the arguments: {json.dumps(given)}", (UNREADABLE,)


KINDS: Final[Mapping[str, _Change]] = {
    change.__name__.removeprefix("_"): change
    for change in (
        _number_as_text,
        _text_as_number,
        _boolean_as_text,
        _list_as_text,
        _list_for_scalar,
        _scalar_for_list,
        _null_for_required,
        _null_for_missing,
        _missing_required,
        _extra_argument,
        _camel_case_name,
        _misspelt_name,
        _wrong_enum_case,
        _wrapped,
        _trailing_comma,
        _single_quotes,
        _code_fence,
        _cut_json,
        _missing_comma,
        _prose_around,
    )
}
"""Every kind of damage by name."""


def _make_further_damages(given: Given, schema: Schema, pick: random.Random) -> Iterator[Damage]:
    """Yield damages for the second and third attempt: of kinds that are refused for certain."""
    for kind in ("missing_required", "misspelt_name"):
        found = make_damage(kind, given, schema, pick)
        if found is not None:
            yield found
    for word in _WORDS:
        if word not in _get_properties(schema):
            yield Damage("extra_argument", json.dumps({**given, word: "as the user asked"}), (word,))


def make_damage(kind: str, given: Given, schema: Schema, pick: random.Random) -> Damage | None:
    """Return one damage of a kind, or None if the arguments have nothing to damage so.

    Contract: the text differs from that of the arguments; the call's tool is not touched.
    """
    found = KINDS[kind](given, schema, pick)
    if found is None:
        return None
    changed, names = found
    text = changed if isinstance(changed, str) else json.dumps(changed)
    return None if text == json.dumps(given) else Damage(kind, text, names)


def plan_damage(
    given: Given,
    schema: Schema,
    pick: random.Random,
    *,
    persistence: float,
    kinds: Sequence[str] = tuple(KINDS),
) -> DamagePlan | None:
    """Return how one call is damaged; None = no kind fits.

    Args:
        given: The undamaged arguments.
        schema: The tool's JSON Schema.
        pick: Decides.
        persistence: Probability that an attempt stays damaged although the error named the damage.
        kinds: Kinds of the first damage; each that fits is equally likely.
    """
    fitting = [found for kind in kinds if (found := make_damage(kind, given, schema, pick)) is not None]
    if not fitting:
        return None
    ways = [pick.choice(fitting)]
    for further in _make_further_damages(given, schema, pick):
        if len(ways) < ATTEMPTS and further.text not in {each.text for each in ways}:
            ways.append(further)
    persists = 0
    while persists < len(ways) - 1 and pick.random() < persistence:
        persists += 1
    return DamagePlan(tuple(ways), persists)
