"""The command ``sessiontree tree --html``: a tree as one file that a browser opens without a server."""

from __future__ import annotations

from pathlib import Path

from sessiontree.cli.screen import RichScreen
from sessiontree.cli.tree import complete_tree_id, find_journal, find_newest_tree, find_state_dir
from sessiontree.contracts.errors import ConfigError
from sessiontree.journal.export import open_private_file
from sessiontree.journal.journal import Journal
from sessiontree.view.saved_page import write_page


def save(
    screen: RichScreen, *, path: Path | None, state_dir: Path | None, tree_id: str | None, html: Path
) -> int:
    """Write one tree, the newest where none is named, to an HTML file that its owner alone may read.

    Raises:
        JournalError: the journal or the tree does not exist or can't be read.
        ConfigError: the workspace is not a directory, no tree was made yet, or the file can't be written.
    """
    given = find_state_dir(path, state_dir)
    tree_id = complete_tree_id(given, tree_id)
    place = find_journal(given, tree_id)
    with Journal.open(place, read_only=True) as journal:
        named = find_newest_tree(journal, place) if tree_id is None else tree_id
        page = write_page(journal, named).encode("utf-8")
    try:
        with open_private_file(html) as file:
            file.write(page)
    except OSError as error:
        raise ConfigError(f"{html} can't be written: {error.strerror or error}") from error
    screen.line(f"wrote tree {named} to {html}, {len(page):,} bytes; it holds all that its sessions read")
    return 0
