#!/usr/bin/env python3
"""What topology-aware placement does to a real workload: how local jobs run, and what that costs.

LLNL Atlas (43,778 jobs, 2006 and 2007) is replayed by `spur sim` on a tree of 1,152 whole nodes: 48 leaves of 24 in four groups,
arrivals scaled by 0.7, which saturates the machine. The ways of placing:

none     the fabric is ignored (--topology=none)
tree     as a tree of leaves, groups and core
must     the same, and jobs that fit a leaf are bound to one
relax    the same, but only for --relax
leaves   as a tree of leaves under one core: the groups are left out of the topology
leafmust the same, and jobs that fit a leaf are bound to one
rules    the same, with the rules of etc/examples/local.toml: jobs of up to 132 nodes are bound to as few leaves as
         they would take at 22 nodes a leaf, for the time said there or for --bound
loose    the same, with 21 nodes a leaf, for jobs of up to 147 nodes, for ever

Figures are those of the simulator's summary: the share of the machine in use from the first submission to the last end, waits, leaves
over the minimum (the mean over jobs, and all leaves over those that all jobs need, both weighted by node-seconds), and the share of
the jobs that a leaf could hold that are split. --copies N
repeats everything with arrivals moved by up to two hours at random, N times, and adds means: one replay of a saturated
machine is worth little, because utilisation depends on what happens to be left at the end.

--excess says where the leaves over the minimum come from, by size, by kind of start and by the nodes that stay free, each with its
share of the excess and of what was *forced*: what the job would have had over its minimum in the fewest leaves that the nodes
nobody held at its start allow. It reads the events of a replay, with the reasons of all jobs that wait, which takes minutes.

The trace is from the Parallel Workloads Archive and not part of this repository: SPUR_DATA names a directory that has
traces/LLNL-Atlas-2006-2.1-cln.swf.gz. Without it this says so and ends.

usage: locality.py [--spur PATH] [--only WAY ...] [--copies N] [--relax TIME] [--bound TIME] [--scale-arrivals F]
                   [--excess]
"""

import argparse
import collections
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib

LEAVES, PER_LEAF, GROUPS, CORES = 48, 24, 4, 8
NODES = LEAVES * PER_LEAF
WAYS = ["none", "tree", "must", "relax", "leaves", "leafmust", "rules", "loose"]
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "etc", "examples", "local.toml")
# Arrivals are moved by less than this, seconds.
JITTER = 7200
# Upper ends of the classes that --excess tells apart: nodes of a job, and nodes that are free once it has started.
SIZES = [8, 24, 32, 64, 128, 256, NODES]
ROOMS = [0, 8, 24, 48, 96, 192, NODES]
SUBMIT, RUN, ALLOCATED, REQUESTED, LIMIT, USER = 1, 3, 4, 7, 8, 11


def rule(most, **keys):
    """A rule for jobs of up to so many nodes."""
    size = [f"max_nodes = {most}"] if most else []
    return ["[[topology.rule]]"] + size + [f'{key} = "{value}"' for key, value in keys.items()]


def rules(way, relax, bound):
    """The rules by size of a way of placing."""
    if way in ("must", "leafmust"):
        return rule(PER_LEAF, gather="must:leaf")
    if way == "relax":
        return rule(PER_LEAF, gather=f"must:leaf@{relax}")
    if way == "loose":
        return [line for leaves in range(1, 8) for line in rule(21 * leaves, switches=str(leaves))]
    if way != "rules":
        return []
    with open(EXAMPLE, "rb") as example:
        shipped = tomllib.load(example)["topology"]["rule"]
    lines = []
    for entry in shipped:
        leaves, _, until = entry["switches"].partition("@")
        until = until if bound is None else bound
        lines += rule(entry["max_nodes"], switches=f"{leaves}@{until}" if until else leaves)
    return lines


def config(way, relax, bound):
    """The cluster as a spur.toml."""
    grouped = way in ("none", "tree", "must", "relax")
    lines = ['cluster_name = "atlas"', "[scheduler]", 'order = "fcfs"', "depth = 1000",
             "[[nodes]]", f'names = "n[0001-{NODES}]"', f"cpus = {CORES}", "memory_mb = 16384",
             "[[partitions]]", 'name = "main"', 'nodes = "ALL"', "default = true",
             "[topology]", 'plugin = "tree"', f'layers = {json.dumps(["leaf", "group"] if grouped else ["leaf"])}']
    lines += rules(way, relax, bound)
    for leaf in range(LEAVES):
        first = leaf * PER_LEAF + 1
        lines += ["[[topology.switches]]", f'name = "leaf{leaf:02}"',
                  f'nodes = "n[{first:04}-{first + PER_LEAF - 1:04}]"']
    for group in range(GROUPS if grouped else 0):
        first = group * LEAVES // GROUPS
        lines += ["[[topology.switches]]", f'name = "group{group}"',
                  f'switches = "leaf[{first:02}-{first + LEAVES // GROUPS - 1:02}]"']
    under = f"group[0-{GROUPS - 1}]" if grouped else f"leaf[00-{LEAVES - 1:02}]"
    lines += ["[[topology.switches]]", 'name = "core"', f'switches = "{under}"']
    return "\n".join(lines) + "\n"


def read_jobs(path):
    """Jobs as (submit, nodes, run, limit or None, user), by time of submission."""
    jobs = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if line.startswith(";"):
                continue
            fields = [int(float(field)) for field in line.split()]
            processors = fields[REQUESTED] if fields[REQUESTED] > 0 else fields[ALLOCATED]
            if processors > 0 and fields[RUN] > 0:
                limit = fields[LIMIT] if fields[LIMIT] > 0 else None
                jobs.append((fields[SUBMIT], -(-processors // CORES), fields[RUN], limit, fields[USER]))
    return sorted(jobs, key=lambda job: job[0])


def workload(jobs, way, copy):
    """Jobs as lines for `spur sim`; copy 0 has the arrivals of the trace."""
    chance = random.Random(copy)
    for number, (submit, nodes, run, limit, user) in enumerate(jobs):
        at = submit + (chance.randrange(JITTER) if copy else 0)
        argv = ["-N", str(nodes), "--exclusive"]
        argv += ["-t", f"0-{limit // 3600}:{limit % 3600 // 60}:{limit % 60}"] if limit else []
        argv += ["--topology=none"] if way == "none" else []
        run = min(run, limit) if limit else run
        submission = {"id": str(number), "argv": argv, "user": f"u{user}", "runtime": run}
        yield json.dumps({"at": at, "submit": submission}) + "\n"


def replay(args, way, jobs, copy):
    """Utilisation, mean and 99 % wait in hours, leaves over the minimum in two ways, share of split jobs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("spur.toml", "jobs.jsonl")]
        with open(paths[0], "w") as out:
            out.write(config(way, args.relax, args.bound))
        with open(paths[1], "w") as out:
            out.writelines(workload(jobs, way, copy))
        command = [args.spur, "sim", "--config", paths[0], "--workload", paths[1], "--json",
                   "--scale-arrivals", args.scale_arrivals]
        command += ["--events", os.path.join(folder, "events.jsonl")] if args.excess else []
        summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if args.excess:
            show_excess(excess(command[-1]))
    wait, leaf = summary["wait"], summary["spans"]["leaf"]
    return (summary["utilization"], wait["mean"] / 3600, wait["p99"] / 3600, leaf["over_minimum"],
            leaf["total_over_minimum"], leaf["split"])


def positions(hostlist):
    """The positions of the nodes of a list like n[0001-0024,0049], from 0."""
    for part in hostlist[1:].strip("[]").split(","):
        first, _, last = part.partition("-")
        yield from range(int(first) - 1, int(last or first))


def fewest(rooms, nodes):
    """How few leaves of such rooms hold so many nodes."""
    for count, room in enumerate(sorted(rooms, reverse=True), 1):
        nodes -= room
        if nodes <= 0:
            return count
    raise ValueError("the nodes are not free")


def classes(nodes, left, backfilled):
    """The classes that a start counts in."""
    yield "nodes <=", next(most for most in SIZES if nodes <= most)
    yield "start", "backfilled" if backfilled else "in turn"
    yield "left free <=", next(most for most in ROOMS if left <= most)
    yield "all", ""


def excess(path):
    """By class: node-seconds, and those times leaves over the minimum, had and forced."""
    free, running, sums = [PER_LEAF] * LEAVES, {}, {}
    with open(path) as lines:
        for line in lines:
            # Most lines say why jobs wait.
            if '"event":"start"' not in line and '"event":"end"' not in line:
                continue
            event = json.loads(line)
            if event["event"] == "end":
                start, parts, had, forced, counted = running.pop(event["job"])
                for leaf, part in parts.items():
                    free[leaf] += part
                weight = sum(parts.values()) * (event["t"] - start)
                for key in counted:
                    of = sums.setdefault(key, [0.0, 0.0, 0.0])
                    for index, by in enumerate((1.0, had, forced)):
                        of[index] += weight * by
                continue
            parts = collections.Counter(position // PER_LEAF for position in positions(event["nodes"]))
            nodes = sum(parts.values())
            least = -(-nodes // PER_LEAF)
            forced = fewest(free, nodes)
            for leaf, part in parts.items():
                free[leaf] -= part
            counted = list(classes(nodes, sum(free), event["backfilled"]))
            running[event["job"]] = (event["t"], parts, len(parts) / least - 1, forced / least - 1, counted)
    return sums


def show_excess(sums):
    """A line for each class: its share of the node-seconds, its own mean excess, and what it adds to that of all."""
    total = sums["all", ""][0]
    print(f"{'class':14} {'':>10} {'share':>7} {'excess':>7} {'adds':>7} {'forced':>7}")
    for name, value in sorted(sums, key=lambda key: (key[0], str(key[1]).zfill(9))):
        weight, had, forced = sums[name, value]
        print(f"{name:14} {value:>10} {weight / total:7.3f} {had / weight:7.3f}"
              f" {had / total:7.4f} {forced / total:7.4f}", flush=True)


def show(way, copy, figures):
    print(f"{way:10} {copy:>5} {figures[0]:11.4f} {figures[1]:12.1f} {figures[2]:12.1f}"
          f" {figures[3]:7.4f} {figures[4]:12.4f} {figures[5]:7.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/dist/spur")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--copies", type=int, default=0, help="how often to repeat it with moved arrivals")
    parser.add_argument("--relax", default="10", help="how long `relax` insists: minutes, or D-HH:MM:SS")
    parser.add_argument("--bound", help="how long `rules` insists, instead of what the example says; empty for ever")
    parser.add_argument("--scale-arrivals", default="0.7")
    parser.add_argument("--excess", action="store_true", help="say where the leaves over the minimum come from")
    args = parser.parse_args()
    trace = os.path.join(os.environ.get("SPUR_DATA", ""), "traces", "LLNL-Atlas-2006-2.1-cln.swf.gz")
    if not os.path.isfile(trace):
        print("skipped: SPUR_DATA names no directory with the trace")
        return 0
    jobs = read_jobs(trace)
    print(f"{'way':10} {'copy':>5} {'utilisation':>11} {'mean wait, h':>12} {'p99 wait, h':>12} {'leaves':>7}"
          f" {'all together':>12} {'split':>7}")
    for way in args.only:
        rows = []
        for copy in range(args.copies + 1):
            rows.append(replay(args, way, jobs, copy))
            show(way, copy, rows[-1])
        if args.copies:
            show(way, "mean", [sum(column) / len(column) for column in zip(*rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
