#!/usr/bin/env python3
"""Compares the recommended order and predictor with plain EASY backfilling, on traces of real machines.

Both sides are `spur sim` on a flat machine of the trace's size: EASY is `--order fcfs --predict requested`; the other is
`--order wfp3 --predict similar --max-wait T`. What counts is the ratio of the average bounded slowdowns, and that
nobody waits longer than T and the longest wait under EASY together. The constants of `similar` were chosen on KTH-SP2 and
SDSC-SP2 only. With --copies each trace is also run with every arrival put off by up to an hour at random.

The traces are those of Gaussier, Glesser, Reis, Trystram (SC'15) and not part of this repository: SPUR_DATA names a
directory that has traces/NAME-sc15.swf.gz. Without it this says so and ends.

usage: orders.py [--spur PATH] [--max-wait T] [--only NAME ...] [--copies N]
"""

import argparse
import gzip
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

MACHINES = {"KTH-SP2": 100, "SDSC-SP2": 128, "CTC-SP2": 338, "CEA-curie": 80640}
DAY = 86_400
UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY}


def simulate(spur, trace, procs, options):
    command = [spur, "sim", "--procs", str(procs), "--swf", trace, "--json", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def jittered(trace, seed, path):
    """Writes a copy of a trace in which every job is submitted up to an hour later."""
    chance = random.Random(seed)
    header, jobs = [], []
    with gzip.open(trace, "rt") as lines:
        for line in lines:
            if line.startswith(";"):
                header.append(line)
            elif fields := line.split():
                fields[1] = str(int(fields[1]) + chance.randrange(3600))
                jobs.append(fields)
    jobs.sort(key=lambda fields: int(fields[1]))
    with gzip.open(path, "wt", compresslevel=1) as out:
        out.writelines(header)
        out.writelines(" ".join(fields) + "\n" for fields in jobs)


def compare(spur, name, trace, limit):
    """Runs both sides, prints a row, and returns the ratio of slowdowns and whether the bound held."""
    procs = MACHINES[name.split("/")[0]]
    easy = simulate(spur, trace, procs, ["--order", "fcfs", "--predict", "requested"])
    ours = simulate(spur, trace, procs, ["--order", "wfp3", "--predict", "similar", "--max-wait", limit])
    bound = seconds(limit) + easy["wait"]["max"]
    held = ours["wait"]["max"] <= bound
    ratio = ours["bsld"]["mean"] / easy["bsld"]["mean"]
    row = [f"{name:14}", f"{easy['bsld']['mean']:9.3f}", f"{ours['bsld']['mean']:9.3f}", f"{ratio:7.4f}"]
    for key, unit in (("mean", 3600), ("p99", DAY), ("max", DAY)):
        row.append(f"{easy['wait'][key] / unit:8.2f}{ours['wait'][key] / unit:8.2f}")
    print(" ".join(row), "" if held else f" FAIL: longest wait above {bound / DAY:.2f} d", flush=True)
    return ratio, held


def seconds(limit):
    number, unit = re.fullmatch(r"(\d+)([smhd])", limit).groups()
    return int(number) * UNITS[unit]


def means(title, ratios):
    geometric = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    print(f"{title}: arithmetic mean of the ratios {sum(ratios) / len(ratios):.4f}, geometric {geometric:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/dist/spur")
    parser.add_argument("--max-wait", default="5d")
    parser.add_argument("--only", nargs="+", choices=sorted(MACHINES), default=list(MACHINES))
    parser.add_argument("--copies", type=int, default=0, help="jittered copies of each trace")
    args = parser.parse_args()
    data = os.environ.get("SPUR_DATA")
    if not data or not os.path.isdir(data):
        print("skipped: SPUR_DATA names no directory with the traces")
        return 0
    print(f"{'':14} {'slowdown':>19} {'':7} {'mean wait, h':>16} {'p99 wait, d':>16} {'longest, d':>16}")
    print(f"{'trace':14} {'EASY':>9} {'ours':>9} {'ratio':>7}" + f" {'EASY':>8}{'ours':>8}" * 3)
    traces = {name: os.path.join(data, "traces", f"{name}-sc15.swf.gz") for name in args.only}
    results = [compare(args.spur, name, trace, args.max_wait) for name, trace in traces.items()]
    means("traces", [ratio for ratio, _ in results])
    copies = []
    with tempfile.TemporaryDirectory() as folder:
        for name, trace in traces.items():
            for seed in range(1, args.copies + 1):
                copy = os.path.join(folder, f"{name}-{seed}.swf.gz")
                jittered(trace, seed, copy)
                copies.append(compare(args.spur, f"{name}/{seed}", copy, args.max_wait))
                os.remove(copy)
            if args.copies:
                means(f"copies of {name}", [ratio for ratio, _ in copies[-args.copies:]])
    if copies:
        means("copies", [ratio for ratio, _ in copies])
    return 0 if all(held for _, held in results + copies) else 1


if __name__ == "__main__":
    sys.exit(main())
