"""Fits the constants of the cycle model to published measurements, and says how well they fit.

    python -m suites.analysis.fit_cycles measurements.csv [--seconds 300] [--cross-validate]

Rows whose kernel can be built are used. With ``--cross-validate`` a random half is left out of the fit and
judged by itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from pytest_qcom import calibration, timings


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to fit")
    parser.add_argument("--cross-validate", action="store_true", help="leave a random half out of the fit")
    options = parser.parse_args(arguments)
    table = [row for row in timings.rows(timings.read(options.table)) if isinstance(row, timings.Row)]
    print(f"{len(table)} rows")
    if options.cross_validate:
        print(json.dumps(calibration.cross_validate(table, options.seconds), indent=2))
        return
    constants = calibration.fit(table, options.seconds)
    print(constants)
    print(json.dumps(calibration.judge(table, constants), indent=2))


if __name__ == "__main__":
    main()
