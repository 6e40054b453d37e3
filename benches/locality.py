#!/usr/bin/env python3
"""What topology-aware placement does to a real workload: how local jobs run, and what that costs.

LLNL Atlas (43,778 jobs, 2006 and 2007) is replayed by `spur sim` on a tree of 1,152 whole nodes: 48 leaves of 24 in four
groups, arrivals scaled by 0.7, which saturates the machine. Four ways of placing: none (the fabric is not known), tree,
jobs that fit a leaf bound to one, and bound to one only for a while. Utilisation, waits and leaves over the minimum are those of the simulator's
summary. With --events, and always where the fabric is not known, leaves are counted here, from the nodes in the events, which also
tells how many of the jobs that fit a leaf are split; that takes minutes, because every event has to say why everybody waits.

The trace is from the Parallel Workloads Archive and not part of this repository: SPUR_DATA names a directory that has
traces/LLNL-Atlas-2006-2.1-cln.swf.gz. Without it this says so and ends.

usage: locality.py [--spur PATH] [--only WAY ...] [--events] [--relax TIME] [--scale-arrivals F]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

LEAVES, PER_LEAF, GROUPS = 48, 24, 4
NODES = LEAVES * PER_LEAF
WAYS = ["tree", "must", "relax", "none"]


def config(way, relax):
    """The cluster as a spur.toml."""
    lines = ['cluster_name = "atlas"', "[scheduler]", 'order = "fcfs"', "depth = 1000",
             "[[nodes]]", f'names = "n[0001-{NODES}]"', "cpus = 8", "memory_mb = 16384",
             "[[partitions]]", 'name = "main"', 'nodes = "ALL"', "default = true"]
    if way == "none":
        return "\n".join(lines) + "\n"
    lines += ["[topology]", 'plugin = "tree"', 'layers = ["leaf", "group"]']
    if way != "tree":
        rule = "must:leaf" if way == "must" else f"must:leaf@{relax}"
        lines += ["[[topology.rule]]", f"max_nodes = {PER_LEAF}", f'gather = "{rule}"']
    for leaf in range(LEAVES):
        first = leaf * PER_LEAF + 1
        lines += ["[[topology.switches]]", f'name = "leaf{leaf:02}"',
                  f'nodes = "n[{first:04}-{first + PER_LEAF - 1:04}]"']
    for group in range(GROUPS):
        first = group * LEAVES // GROUPS
        lines += ["[[topology.switches]]", f'name = "group{group}"',
                  f'switches = "leaf[{first:02}-{first + LEAVES // GROUPS - 1:02}]"']
    lines += ["[[topology.switches]]", 'name = "core"', f'switches = "group[0-{GROUPS - 1}]"']
    return "\n".join(lines) + "\n"


def numbers(hostlist):
    """The node numbers of a hostlist such as n[0001-0012,0040]."""
    inside = re.fullmatch(r"n\[?([\d,-]+)\]?", hostlist).group(1)
    for part in inside.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def local(events):
    """Leaves touched over the fewest possible, weighted by node-seconds, and the share of small jobs that are split."""
    running, over, weight, small, split = {}, 0.0, 0.0, 0, 0
    for line in events:
        event = json.loads(line)
        if event["event"] == "start":
            nodes = list(numbers(event["nodes"]))
            leaves = len({(node - 1) // PER_LEAF for node in nodes})
            running[event["job"]] = (event["t"], len(nodes), leaves)
            if len(nodes) <= PER_LEAF:
                small += 1
                split += leaves > 1
        elif event["event"] == "end" and event["job"] in running:
            began, count, leaves = running.pop(event["job"])
            share = count * (event["t"] - began)
            over += share * leaves / -(-count // PER_LEAF)
            weight += share
    return over / weight, split / small


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/release/spur")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--relax", default="10", help="how long the third way insists on one leaf: minutes, or D-HH:MM:SS")
    parser.add_argument("--scale-arrivals", default="0.7")
    parser.add_argument("--events", action="store_true", help="count from events, split jobs too")
    args = parser.parse_args()
    trace = os.path.join(os.environ.get("SPUR_DATA", ""), "traces", "LLNL-Atlas-2006-2.1-cln.swf.gz")
    if not os.path.isfile(trace):
        print("skipped: SPUR_DATA names no directory with the trace")
        return 0
    print(f"{'way':14} {'jobs':>6} {'utilisation':>11} {'mean wait, h':>12} {'p99 wait, h':>12} {'leaves':>7} {'split':>7}")
    for way in args.only:
        with tempfile.TemporaryDirectory() as folder:
            path, events = os.path.join(folder, "spur.toml"), os.path.join(folder, "events.jsonl")
            with open(path, "w") as out:
                out.write(config(way, args.relax))
            command = [args.spur, "sim", "--config", path, "--swf", trace, "--exclusive", "--json",
                       "--scale-arrivals", args.scale_arrivals]
            counts = args.events or way == "none"
            command += ["--events", events] if counts else []
            summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if counts:
                with open(events) as lines:
                    over, share = local(lines)
                split = f"{share:7.4f}"
            else:
                over, split = summary["spans"]["leaf"]["over_minimum"], "      -"
        title = f"relax@{args.relax}" if way == "relax" else way
        wait = summary["wait"]
        print(f"{title:14} {summary['started']:6} {summary['utilization']:11.4f} {wait['mean'] / 3600:12.3f}"
              f" {wait['p99'] / 3600:12.2f} {over:7.4f} {split}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
