"""Check many cases: ``python -m tests.fuzz 10000 --jobs 2`` (or ``make fuzz N=10000``)."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from .run import SORTS, TIMEOUT, run_all, summarise, to_markdown, write_summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "n", type=int, help="cases: tables, a tenth as many texts and a tenth as many model files"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 checks in this one")
    parser.add_argument("--only", choices=SORTS, help="one sort of case, all n of them")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds of one case")
    parser.add_argument("--output", type=Path, help="folder for fuzz.json and fuzz.md")
    given = parser.parse_args()
    results, started = [], time.monotonic()
    for sort in [given.only] if given.only else SORTS:
        if sort == "models" and importlib.util.find_spec("tests.fuzz.model_files") is None:
            print("no generator of damaged model files is here: models are left out", file=sys.stderr)
            continue
        n = given.n if given.only or sort == "tables" else max(1, given.n // 10)
        seeds = range(given.seed, given.seed + n)
        for done, result in enumerate(run_all(sort, seeds, given.jobs, given.timeout), start=1):
            results.append(result)
            if result.failure:
                print(f"FAILED {sort} {result.failure}\n", flush=True)
            if done % 100 == 0 or done == n:
                print(
                    f"{sort}: {done:,} of {n:,}, {time.monotonic() - started:,.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    summary = summarise(results, time.monotonic() - started)
    print(to_markdown(summary))
    if given.output is not None:
        write_summary(summary, given.output)
    return 1 if any(result.failure for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
