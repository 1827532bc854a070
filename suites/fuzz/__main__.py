"""The long run: ``python -m suites.fuzz COUNT SEED``, inputs shared out among the targets.

``--target NAME`` gives all of them to one, ``--only NUMBER`` uses one input in this process.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from suites.fuzz.campaign import campaign, work
from suites.fuzz.targets import TARGETS

SHARES = {"words": 0.2, "shaders": 0.01, "streams": 0.15, "ioctls": 0.24, "containers": 0.4}
"""How many of the inputs are whose; a shader has to be compiled, which takes a hundred times as long."""


def main() -> int:
    """Runs; 1 when something was found."""
    if sys.argv[1:2] == ["--worker"]:
        target, seed, start, stop, folder = sys.argv[2:]
        work(target, int(seed), int(start), int(stop), Path(folder))
        return 0
    parser = argparse.ArgumentParser(prog="python -m suites.fuzz", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", type=int, metavar="NUMBER")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "qcom-fuzz")
    options = parser.parse_args()
    if options.only is not None:
        return once(options.target, options.seed, options.only)
    found = 0
    for target in [options.target] if options.target else TARGETS:
        count = options.count if options.target else round(options.count * SHARES[target])
        batch = 1000 if target == "shaders" else 20000
        result = campaign(
            target, options.seed, count, options.findings, options.workers, options.first, batch
        )
        print(f"{target}: {count} inputs of seed {options.seed}: {dict(result.outcomes)}", flush=True)
        for path in result.found:
            print(f"  {path}", flush=True)
        found += len(result.found)
    return int(bool(found))


def once(target: str, seed: int, number: int) -> int:
    """One input, here."""
    with tempfile.TemporaryDirectory() as folder:
        made = TARGETS[target](Path(folder))
        print(made.run(random.Random(f"{target} {seed} {number}"), lambda data: None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
