#!/usr/bin/env python3
"""Workloads of unusual requests on 10,000 nodes: their cost, and the number of answers not known to be best.

The cluster is a tree of leaves of 20 nodes under spines of 20 leaves. For each workload the script prints the
processor seconds of `spur sim`, the starts, those of them whose search was cut at its budget, and a digest of
all starts and ends. With several --spur the programs run one after another on each workload, so that their
decisions and costs can be compared.

lublin       whole nodes by the model of Lublin and Feitelson, EASY
weights      -N 2 to 64 on whole nodes of several weights
named        -N 2 to 64 on whole nodes of one weight, half of the jobs with -w
distributed  -N 2 to 64 on whole nodes of one weight, a third of the jobs with --placement=distributed
tasks        -n, and -N with -n, on nodes of several weights that jobs share
counts       whole nodes, half of the jobs with counted features

usage: odd-workloads.py [--spur PATH ...] [--only NAME ...]
"""

import argparse
import hashlib
import json
import os
import random
import tempfile

from outside import processor

NODES, LEAF, SPINE = 10_000, 20, 20
LEAVES = NODES // LEAF
CUT = "the search was cut at its budget"
KINDS = random.Random(2).choices(range(3), weights=[4, 4, 2], k=NODES)
# Number of jobs of each workload, chosen so that none takes minutes.
JOBS = {"lublin": 2_000, "weights": 6_000, "named": 1_500, "distributed": 6_000, "tasks": 3_000, "counts": 1_500}


def config(weighted, shared):
    """The cluster as TOML: every leaf has nodes of three weights, and of three kinds."""
    lines = ['cluster_name = "odd"']
    for kind in range(3):
        names = ",".join(f"n{node:05}" for node in range(NODES) if kind_of(node) == kind)
        lines += ["[[nodes]]", f'names = "{names}"', "cpus = 8", "memory_mb = 16000",
                  f'features = ["{"abc"[kind]}"]', f"weight = {(kind + 1) * 10 if weighted else 1}"]
    lines += ["[[partitions]]", 'name = "main"', 'nodes = "ALL"', "default = true"]
    lines += [] if shared else ['oversubscribe = "EXCLUSIVE"']
    lines += ["[scheduler]", 'backfill = "easy"', "depth = 200"]
    lines += ["[topology]", 'plugin = "tree"', 'layers = ["leaf", "spine", "core"]']

    def switch(name, members, list_of):
        lines.extend(["[[topology.switches]]", f'name = "{name}"', f'{members} = "{list_of}"'])

    for leaf in range(LEAVES):
        switch(f"l{leaf}", "nodes", f"n[{leaf * LEAF:05}-{leaf * LEAF + LEAF - 1:05}]")
    for spine in range(LEAVES // SPINE):
        switch(f"s{spine}", "switches", f"l[{spine * SPINE}-{spine * SPINE + SPINE - 1}]")
    switch("core", "switches", f"s[0-{LEAVES // SPINE - 1}]")
    return "\n".join(lines) + "\n"


def kind_of(node):
    """The kind of a node, which decides its weight and feature, as in a mix of three purchases."""
    return KINDS[node]


def argv(name, chance):
    """The options of a job of a workload."""
    size = chance.choice([2, 3, 5, 8, 13, 16, 24, 30, 48, 64])
    if name == "tasks":
        tasks = chance.choice([20, 50, 77, 100, 200, 333])
        return ["-n", str(tasks)] + (["-N", str(max(3, tasks // 5))] if chance.random() < 0.5 else [])
    words = ["-N", str(size)]
    if name == "named" and chance.random() < 0.5:
        leaf = chance.randrange(LEAVES)
        words += ["-w", f"n{leaf * LEAF + chance.randrange(LEAF):05}"]
    if name == "distributed" and chance.random() < 1 / 3:
        words += ["--placement=distributed"]
    if name == "counts" and chance.random() < 0.5:
        first = chance.randrange(1, size)
        words += [f"--constraint=a*{first}&b*{size - first}"]
    return words


def workload(name):
    """The jobs, one a line; they arrive fast enough for a queue."""
    chance = random.Random(1)
    at = 0
    for job in range(JOBS[name]):
        at += chance.randrange(0, 2)
        yield json.dumps({"at": at, "submit": {"id": f"j{job}", "argv": ["-t", "60", *argv(name, chance)],
                                               "runtime": chance.randrange(200, 3600)}})


def decided(path):
    """The number of starts, of those whose search was cut, and a digest of starts and ends."""
    starts, cut, digest = 0, 0, hashlib.sha256()
    with open(path) as events:
        for line in events:
            event = json.loads(line)
            if event["event"] == "start":
                starts += 1
                cut += CUT in event["why"]
            if event["event"] in ("start", "end"):
                digest.update(json.dumps([event["t"], event["event"], event["job"], event.get("ranks")]).encode())
    return starts, cut, digest.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spur", nargs="+", default=["target/dist/spur"])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    asked = parser.parse_args()
    print(f"{'workload':<14}{'seconds':>9}{'starts':>8}{'cut':>6}  digest")
    with tempfile.TemporaryDirectory() as folder:
        cluster, jobs, events = (os.path.join(folder, name) for name in ("spur.toml", "jobs", "events"))
        for name in asked.only:
            with open(cluster, "w") as out:
                out.write(config(name in ("weights", "tasks"), name == "tasks"))
            options = ["--generate", "lublin", "--jobs", str(JOBS[name]), "--load", "0.9"]
            if name != "lublin":
                with open(jobs, "w") as out:
                    out.writelines(line + "\n" for line in workload(name))
                options = ["--workload", jobs]
            for spur in asked.spur:
                command = [spur, "sim", "--config", cluster, *options, "--no-pending", "--events", events, "--json"]
                seconds = processor(command)
                starts, cut, digest = decided(events)
                print(f"{name:<14}{seconds:>9.1f}{starts:>8}{cut:>6}  {digest}", flush=True)


if __name__ == "__main__":
    main()
