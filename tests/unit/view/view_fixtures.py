"""A configuration for views that need one."""

from __future__ import annotations

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.settings.settings import Limits


def config_of(purpose: str = "a purpose") -> TreeConfig:
    """Return the configuration of a tree without tools."""
    return TreeConfig(
        tree_id="t0123456789abcdef",
        workspace="/w",
        package_version="0",
        rules_number=1,
        nonce="0" * 32,
        created_at_ms=1,
        model="scripted",
        limits=Limits(),
        mode="always",
        rules=(),
        smart_rules=(),
        owns_channel=True,
        budget=None,
        tools=(),
        agents=(),
        purpose=purpose,
    )
