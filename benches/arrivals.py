#!/usr/bin/env python3
"""What one job costs that arrives on a large cluster, starts at once and ends, seen from outside the process.

Runs `spur sim` on a tree of so many whole nodes, in leaves of 32 under spines of 32 leaves, with few jobs and with many that
arrive one after another and run for some minutes on a sixth of the nodes in all, and divides the difference of the processor
time that the system counted for the process by that of the jobs. Everything is in it: the option parser, the request being
judged, the placement with the domains that lost, the start, the end.

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
    """A cluster as TOML."""
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
    """One job a line, one a second on 100,000 nodes."""
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
