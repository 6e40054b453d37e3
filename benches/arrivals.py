#!/usr/bin/env python3
"""The cost of one job on a large cluster, from its submission to its end, measured from outside.

Runs `spur sim` on a tree of whole nodes, in leaves of 32 under spines of 32 leaves: once with few jobs and
once with many. The jobs start at once, arrive one after another and run for some minutes on a sixth of the
nodes in all. The cost of a job is the difference of the two processor times that the system counted for the
process, divided by the difference of the numbers of jobs. It includes everything: the option parser, the
check of the request, the placement with the domains that lost, the start, the end.

usage: arrivals.py [--spur PATH] [--nodes N] [--jobs N] [--rounds N]
"""

import argparse
import json
import os
import random
import tempfile

from outside import processor

LEAF = SPINE = 32
KINDS = {"plain": [], "prefer:leaf": ["--gather=prefer:leaf"], "must:spine": ["--gather=must:spine"]}
SIZES = [2, 4, 8, 16, 30, 64, 100, 500]
FEW = 200


def config(nodes):
    """The cluster as TOML."""
    leaves = nodes // LEAF
    spines = -(-leaves // SPINE)
    lines = ['cluster_name = "large"', "[[nodes]]", f'names = "n[000000-{leaves * LEAF - 1:06}]"', "cpus = 8",
             "memory_mb = 16000", "[[partitions]]", 'name = "main"', 'nodes = "ALL"', "default = true",
             'oversubscribe = "EXCLUSIVE"', "[topology]", 'plugin = "tree"', 'layers = ["leaf", "spine", "core"]']

    def switch(name, kind, members):
        lines.extend(["[[topology.switches]]", f'name = "{name}"', f'{kind} = "{members}"'])

    for leaf in range(leaves):
        switch(f"l{leaf}", "nodes", f"n[{leaf * LEAF:06}-{leaf * LEAF + LEAF - 1:06}]")
    for spine in range(spines):
        switch(f"s{spine}", "switches", f"l[{spine * SPINE}-{min(leaves, (spine + 1) * SPINE) - 1}]")
    switch("core", "switches", f"s[0-{spines - 1}]")
    return "\n".join(lines) + "\n"


def workload(jobs, nodes, options):
    """The jobs, one a line; on 100,000 nodes one arrives each second."""
    chance = random.Random(1)
    apart = max(1, 100_000 // nodes)
    for job in range(jobs):
        argv = ["-N", str(chance.choice(SIZES)), "-t", "600", *options]
        submit = {"id": f"j{job}", "argv": argv, "runtime": chance.randrange(50, 300)}
        yield json.dumps({"at": job * apart, "submit": submit})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spur", default="target/dist/spur")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2_000, help="jobs more in the longer run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of which the least counts")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = os.path.join(folder, "cluster.toml")
        with open(cluster, "w") as out:
            out.write(config(asked.nodes))
        for kind, options in KINDS.items():
            least = []
            for jobs in (FEW, FEW + asked.jobs):
                path = os.path.join(folder, f"{jobs}.jsonl")
                with open(path, "w") as out:
                    out.writelines(line + "\n" for line in workload(jobs, asked.nodes, options))
                command = [asked.spur, "sim", "--config", cluster, "--workload", path, "--json"]
                least.append(min(processor(command) for _ in range(asked.rounds)))
            print(f"{kind:<14}{(least[1] - least[0]) / asked.jobs * 1e6:>8.0f} us a job", flush=True)


if __name__ == "__main__":
    main()
