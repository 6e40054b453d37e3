#!/usr/bin/env python3
"""Compares `spur sim` with published simulations of EASY backfilling, job for job.

The traces and waiting times are those of Gaussier, Glesser, Reis, Trystram, "Improving Backfilling by using
Machine Learning to Predict Running Times" (SC'15). They are not part of this repository: SPUR_DATA names a
directory that has traces/NAME-sc15.swf.gz and expected/NAME-sc15.waits.tsv.gz. Without it the script reports
that and ends.

usage: published-waits.py [--spur PATH] [--only NAME] [--published-only]
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

MACHINES = {"KTH-SP2": 100, "SDSC-SP2": 128}

# Options, the column of published waits, and the average bounded slowdown published or reproduced independently.
CASES = [
    ("EASY requested", [], "easy_req", {"KTH-SP2": "92.577", "SDSC-SP2": "87.870"}),
    ("EASY true", ["--predict", "actual"], "easy_clair", {"KTH-SP2": "71.722", "SDSC-SP2": "70.478"}),
    ("SJBF requested", ["--order", "sjf"], None, {"KTH-SP2": "69.405", "SDSC-SP2": "84.889"}),
    ("SJBF true", ["--order", "sjf", "--predict", "actual"], "sjbf_clair",
     {"KTH-SP2": "49.848", "SDSC-SP2": "56.836"}),
    ("SJBF recent-2, request", ["--order", "sjf", "--predict", "recent2", "--correct", "request"], None,
     {"KTH-SP2": "62.857", "SDSC-SP2": "65.064"}),
    ("EASY++", ["--order", "sjf", "--predict", "recent2", "--correct", "incremental"], "sjbf_tsafrir",
     {"KTH-SP2": "63.501", "SDSC-SP2": "79.396"}),
]


def published(path):
    """The waits by scheduler, each by job number."""
    with gzip.open(path, "rt") as lines:
        names = next(lines).lstrip("#").split()
        waits = {name: {} for name in names[1:]}
        for line in lines:
            job, *values = line.split()
            for name, value in zip(names[1:], values):
                waits[name][job] = int(value)
    return waits


def simulate(spur, trace, procs, options):
    """The summary and the wait of each job."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as events:
        command = [spur, "sim", "--procs", str(procs), "--swf", trace, "--pass", "event", "--json",
                   "--events", events.name, *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        submitted, waits = {}, {}
        for line in events:
            event = json.loads(line)
            if event["event"] == "submit":
                submitted[event["job"]] = event["t"]
            elif event["event"] == "start":
                waits[event["job"]] = event["t"] - submitted[event["job"]]
    return json.loads(done.stdout), waits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/dist/spur")
    parser.add_argument("--only", choices=sorted(MACHINES))
    parser.add_argument("--published-only", action="store_true", help="only schedulers with waits for each job")
    args = parser.parse_args()
    data = os.environ.get("SPUR_DATA")
    if not data or not os.path.isdir(data):
        print("skipped: SPUR_DATA names no directory with the traces")
        return 0
    wrong = 0
    for name, procs in MACHINES.items():
        if args.only not in (None, name):
            continue
        trace = os.path.join(data, "traces", f"{name}-sc15.swf.gz")
        expected = published(os.path.join(data, "expected", f"{name}-sc15.waits.tsv.gz"))
        for title, options, column, slowdowns in CASES:
            if column is None and args.published_only:
                continue
            summary, waits = simulate(args.spur, trace, procs, options)
            found = f"{summary['bsld']['mean']:.3f}"
            bad = [] if column is None else [j for j, w in expected[column].items() if waits.get(j) != w]
            good = not bad and found == slowdowns[name]
            wrong += not good
            agree = "no published waits" if column is None else \
                f"{len(expected[column]) - len(bad)} of {len(expected[column])} waits agree"
            print(f"{'ok  ' if good else 'FAIL'} {name:9} {title:24} slowdown {found} of {slowdowns[name]}, {agree}",
                  flush=True)
            for job in bad[:3]:
                print(f"     job {job}: waited {waits.get(job)}, published {expected[column][job]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
