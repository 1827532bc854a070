"""Fits the constants of the cycle model to published measurements, and says how well they fit.

    python -m suites.analysis.fit_cycles measurements.csv [--cross-validate]

Rows whose kernel can be built are used. The shipped constants are the last ones that it prints: those that
fit best, made into numbers of few digits. With ``--cross-validate`` the fit is judged on rows that it did not
know: random halves, and whole families.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from pytest_qcom import calibration, timings
from pytest_qcom.analysis.cycles import DEFAULT


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--cross-validate", action="store_true", help="judge it on rows left out")
    parser.add_argument("--refine", action="store_true", help="begin at the shipped constants")
    options = parser.parse_args(arguments)
    table = [row for row in timings.rows(timings.read(options.table)) if isinstance(row, timings.Row)]
    print(f"{len(table)} rows")
    if options.cross_validate:
        print(json.dumps({"halves": calibration.cross_validate(table)}, indent=2))
        print(json.dumps({"families": calibration.by_family(table)}, indent=2))
        return
    constants = calibration.fit(table, DEFAULT if options.refine else calibration.PRIOR)
    for made in (constants, calibration.rounded(table, constants)):
        print(made)
        print(json.dumps(calibration.judge(table, made), indent=2))


if __name__ == "__main__":
    main()
