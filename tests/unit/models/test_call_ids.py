"""REL-P32: ids in the provider's form are single, the same every time, and lead back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.models.sendable.provider_view import GRAMMARS, CallIds
from sessiontree.schema.dialect import DIALECTS, choose_dialect
from tests.unit.models.conversation_strategies import ids

FORMS = {
    "mistral": r"[a-zA-Z0-9]{9}",
    "anthropic": r"[a-zA-Z0-9_-]{1,64}",
    "openai": r"[\s\S]{1,40}",
    "openai-strict": r"[\s\S]{1,40}",
}
forms = pytest.mark.parametrize("provider", FORMS)
in_form = st.text(st.sampled_from("ab0"), min_size=9, max_size=9)


@pytest.mark.covers("I17", "REL-P32")
@forms
@given(own=st.lists(ids | in_form, max_size=20))
def test_every_id_is_single_in_form_and_leads_back(provider: str, own: list[str]) -> None:
    """Also where an id comes twice, or is what another one was turned into."""
    kept = CallIds(GRAMMARS[provider])
    shown: list[str] = []
    for call_id in own:
        shown.append(kept.shown(call_id))
        if len(shown) == 2:
            own.append(shown[0])  # a provider may take up an id it was shown
    assert len(set(shown)) == len(own)
    assert all(re.fullmatch(FORMS[provider], each) for each in shown)
    assert [kept.own(each) for each in shown] == own
    assert kept.own("never shown") == "never shown"


@pytest.mark.covers("REL-P32")
@forms
@given(own=st.lists(ids | in_form, max_size=20), more=st.lists(ids | in_form, max_size=5))
def test_ids_stand_from_turn_to_turn_and_shown_again_stay(
    provider: str, own: list[str], more: list[str]
) -> None:
    """What comes later changes nothing, nor does beginning again."""
    first, again, twice = (CallIds(GRAMMARS[provider]) for _ in range(3))
    shown = [first.shown(each) for each in own]
    assert [again.shown(each) for each in [*own, *more]][: len(own)] == shown
    assert [twice.shown(each) for each in shown] == shown


@forms
@given(own=st.lists(in_form, unique=True, max_size=8))
def test_id_that_fits_passes_unchanged(provider: str, own: list[str]) -> None:
    """Seed 000, section 4."""
    kept = CallIds(GRAMMARS[provider])
    assert [kept.shown(each) for each in own] == own


def test_grammars_are_found_by_the_dialect_of_a_models_name() -> None:
    """Each grammar is a dialect's; providers without a rule have none."""
    assert GRAMMARS.keys() == FORMS.keys()
    assert GRAMMARS.keys() <= DIALECTS.keys()
    named = {
        "mistral:mistral-large": "mistral",
        "openrouter/mistralai/devstral-small": "mistral",
        "anthropic:claude-opus": "anthropic",
        "openai:gpt-5": "openai",
        "google:gemini-3": None,
        "function": None,
    }
    for name, grammar in named.items():
        assert GRAMMARS.get(choose_dialect(name).name) is (GRAMMARS[grammar] if grammar else None), name
