"""Counts which waits the checker notices to be missing, for the page on fidelity.

python -m suites.analysis.shares mutations.json
python -m pytest_qcom.fidelity --mutations mutations.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from suites.analysis.test_compiled import shares
from suites.isa.corpus import corpus

EACH = 30
"""Waits that are taken out of each program of the corpus, one at a time."""


def facts() -> dict[str, dict[str, int]]:
    """By kind of wait: how many were taken out, were noticed, and are needed in Mesa's view alone."""
    share = shares(corpus(), EACH)
    return {
        wait: {
            "removed": share.made[wait],
            "noticed": share.caught[wait],
            "mesa": share.explained[wait],
        }
        for wait in sorted(share.made, reverse=True)
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(facts(), indent=2) + "\n", encoding="utf-8")
