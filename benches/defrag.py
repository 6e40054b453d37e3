#!/usr/bin/env python3
"""Measures the effect of moves of requeueable jobs on requests for whole pods, on the trace of LLNL Atlas.

The machine has 1,152 nodes of 8 cores: 48 leaves of 24 nodes below 4 pods of 288. Every second job of the trace may be
requeued. From time to time a request comes that one pod has to hold. The trace is simulated twice: with the requests alone,
and with `spur defrag --apply REQUEST` one second after each. The table has the wait of each request, the node-seconds that
moved jobs lost, the moves, and the largest number of free nodes in one pod when the request comes and after the moves.

The trace is no part of this repository: SPUR_DATA names a directory that has traces/LLNL-Atlas-2006-2.1-cln.swf.gz. Without
it this says so and ends.

usage: defrag.py [--spur PATH] [--first JOB] [--jobs COUNT] [--every SECONDS] [--nodes COUNT]
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

LEAVES, SIZE, PODS, CORES = 48, 24, 4, 8
CONFIG = f"""cluster_name = "atlas"
[recovery]
requeue_delay = "0s"
[[nodes]]
names = "a[0001-{LEAVES * SIZE:04}]"
cpus = {CORES}
memory_mb = 16384
[[partitions]]
name = "main"
nodes = "ALL"
default = true
[topology]
plugin = "tree"
layers = ["leaf", "pod", "fabric"]
"""


def config():
    lines = [CONFIG]
    for leaf in range(LEAVES):
        first = leaf * SIZE + 1
        lines.append(f'[[topology.switches]]\nname = "l{leaf:02}"\nnodes = "a[{first:04}-{first + SIZE - 1:04}]"')
    for pod in range(PODS):
        first = pod * LEAVES // PODS
        lines.append(f'[[topology.switches]]\nname = "pod{pod}"\nswitches = "l[{first:02}-{first + LEAVES // PODS - 1:02}]"')
    lines.append(f'[[topology.switches]]\nname = "top"\nswitches = "pod[0-{PODS - 1}]"')
    return "\n".join(lines)


def trace(path, first, count):
    """Submissions of some jobs that ran, as lines of a workload; when each comes is counted from the first of them."""
    lines, start = [], None
    with gzip.open(path, "rt") as swf:
        for row in (line.split() for line in swf if not line.startswith(";")):
            job, submit, run, procs, wanted = int(row[0]), int(row[1]), int(row[3]), int(row[4]), int(row[8])
            if job < first or run <= 0 or procs <= 0:
                continue
            start = submit if start is None else start
            limit = max(wanted, run)
            may = "--requeue" if len(lines) % 2 else "--no-requeue"
            nodes = min(-(-procs // CORES), LEAVES * SIZE)
            argv = [f"-N{nodes}", "--exclusive", may, f"-t{-(-limit // 60)}"]
            lines.append({"at": submit - start, "submit": {"id": str(job), "argv": argv, "runtime": run}})
            if len(lines) == count:
                break
    return lines


def requests(until, arguments):
    """A request every so many seconds, and the moves for it."""
    for number, at in enumerate(range(arguments.every, until, arguments.every)):
        name = f"request{number}"
        argv = [f"-N{arguments.nodes}", "--exclusive", "--gather=must:pod", "-t60"]
        yield {"at": at, "submit": {"id": name, "argv": argv, "runtime": 3600}}, {
            "at": at + 1, "command": ["spur", "defrag", "--json", "--apply", name]}


def pods(nodes):
    """How many nodes of a hostlist are in each pod."""
    counts = [0] * PODS
    for part in re.findall(r"\d+(?:-\d+)?", nodes.removeprefix("a")):
        low, _, high = part.partition("-")
        for node in range(int(low), int(high or low) + 1):
            counts[(node - 1) * PODS // (LEAVES * SIZE)] += 1
    return counts


def simulate(spur, directory, lines):
    """Waits of the requests, what moves said, and the largest free pod after everything that happens at a time."""
    workload = os.path.join(directory, "workload.jsonl")
    with open(workload, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    events = os.path.join(directory, "events.jsonl")
    words = [spur, "sim", "--config", f"{directory}/atlas.toml", "--workload", workload, "--events", events, "--json"]
    subprocess.run(words, check=True, capture_output=True, text=True)
    submitted, waits, moves, held, largest = {}, {}, {}, {}, {}
    used = [0] * PODS
    with open(events, encoding="utf-8") as file:
        for event in map(json.loads, file):
            kind, job = event["event"], event.get("job")
            if kind == "submit":
                submitted[job] = event["t"]
            elif kind == "start":
                waits[job] = event["t"] - submitted[job]
                held[job] = pods(event["nodes"])
                used = [a + b for a, b in zip(used, held[job])]
            elif kind == "end" and job in held:
                used = [a - b for a, b in zip(used, held.pop(job))]
            elif kind == "command" and event["argv"][1] == "defrag" and event["stdout"]:
                moves[event["argv"][-1]] = json.loads(event["stdout"])
            largest[event["t"]] = LEAVES * SIZE // PODS - min(used)
    return waits, moves, largest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/release/spur")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=6 * 3600)
    parser.add_argument("--nodes", type=int, default=128)
    arguments = parser.parse_args()
    data = os.environ.get("SPUR_DATA")
    if not data:
        sys.exit("SPUR_DATA does not name the directory of the traces: nothing to do")
    jobs = trace(f"{data}/traces/LLNL-Atlas-2006-2.1-cln.swf.gz", arguments.first, arguments.jobs)
    pairs = list(requests(jobs[-1]["at"], arguments))
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/atlas.toml", "w", encoding="utf-8") as file:
            file.write(config())
        without = simulate(arguments.spur, directory, jobs + [ask for ask, _ in pairs])
        moved = simulate(arguments.spur, directory, jobs + [line for pair in pairs for line in pair])
    print("request | wait without, s | wait with, s | moves | node-seconds lost | largest free pod before, after")
    total = [0, 0, 0, 0]
    for ask, command in pairs:
        name, at = ask["submit"]["id"], ask["at"]
        found = moved[1].get(name, {})
        count, lost = found.get("made", 0), found.get("lost_node_seconds", 0)
        def free(when):
            return next((moved[2][t] for t in range(when, -1, -1) if t in moved[2]), LEAVES * SIZE // PODS)
        waits = [run[0].get(name) for run in (without, moved)]
        print(f"{name} | {waits[0]} | {waits[1]} | {count} | {lost if count else 0} | {free(at - 1)}, {free(command['at'])}")
        total = [a + (b or 0) for a, b in zip(total, [waits[0], waits[1], count, lost if count else 0])]
    others = [ids for ids in without[0] if not ids.startswith("request") and ids in moved[0]]
    means = [sum(run[0][job] for job in others) / max(len(others), 1) for run in (without, moved)]
    print(f"{len(pairs)} requests: waits {total[0]} s without, {total[1]} s with; {total[2]} moves, {total[3]} node-seconds lost")
    print(f"mean wait of the {len(others)} other jobs: {means[0]:.0f} s without, {means[1]:.0f} s with")


if __name__ == "__main__":
    main()
