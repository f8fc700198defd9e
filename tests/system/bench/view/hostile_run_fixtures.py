"""A run in which every text that somebody else wrote is an attack, with a tree that is one, too."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from sessiontree.bench.ledger.ledger_schema import SCORE_COLUMNS
from tests.system.bench.recorded_run_fixtures import GivenSample, make_run
from tests.system.pages.hostile_fixtures import ATTACKS, HOSTILE_TREE, record_hostile_tree

PAST = ", ".join(SCORE_COLUMNS)


async def record_hostile_run(run_dir: Path) -> Path:
    """Write the run: a sample for each attack, which is also the name of a score and of a setting."""
    everything = "\n".join(ATTACKS)
    texts = (*ATTACKS, everything)
    samples = [
        GivenSample(
            text,
            {text: float(place % 2), everything: 1.0},
            status=text if place % 5 == 0 else "completed",
            state="failed" if place % 3 == 2 else "scored",
            error_kind=text,
            error=text,
            answer=text,
            models=(text,),
        )
        for place, text in enumerate(texts)
    ]
    make_run(run_dir, samples, suite=everything, model=everything)
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as ledger, ledger:
        for place, text in enumerate(texts):
            metadata = {text[:60]: text[:60], text: {text: [text]}, "tags": [text[:60], "safe"]}
            ledger.execute(
                "INSERT OR REPLACE INTO sample_data VALUES (?, 'd', ?, ?, ?, 'null')",
                (text, json.dumps(text), json.dumps({text: text}), json.dumps(metadata)),
            )
            ledger.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (text, text))
            ledger.execute(
                "UPDATE scores SET output = ? WHERE sample_id = ?", (json.dumps({text: text}), text)
            )
            facts = {"sessiontree": text, text: text}
            ledger.execute("INSERT INTO provenance VALUES (?, ?, ?, 1)", (place, text, json.dumps(facts)))
            given = {"command_line": [text], "tags": [text], "host": text, text: {text: text}}
            ledger.execute(
                "INSERT INTO commands(owner, kind, provenance, circumstances, started_at_ms) "
                "VALUES (?, ?, ?, ?, 1)",
                (text, text, place, json.dumps(given)),
            )
        ledger.execute("UPDATE scores SET tree_id = NULL")
        ledger.execute("UPDATE attempts SET tree_id = NULL, raised = error_kind, failure = error_kind")
        ledger.execute("UPDATE scores SET tree_id = ? WHERE sample_id = ?", (HOSTILE_TREE, texts[0]))
        ledger.execute(
            f"INSERT INTO past_scores({PAST}, superseded_at_ms, reason) "  # noqa: S608 - names of this file
            f"SELECT {PAST}, 7, sample_id FROM scores"
        )
    await record_hostile_tree(run_dir / "state")
    return run_dir
