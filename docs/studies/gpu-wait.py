#!/usr/bin/env python3
"""How long jobs of a few GPUs wait under three rules for the choice of their node.

96 nodes of 8 GPUs and 96 CPUs run jobs of 1 to 8 GPUs, each with 12 CPUs for a GPU, on one node. Sizes are drawn with weights
32, 24, 8, 16, 4, 4, 4, 8 and run times log-uniformly from 60 s to 7,200 s; arrivals are Poisson, at a rate that asks for the
given share of all GPUs (the load). Every job runs as long as it asks for. The queue is first come, first served with EASY
backfilling.

`spur sim` runs the stream with its own choice of nodes. The same queue is simulated here with two other rules:

- best fit: the node that is left with the fewest free GPUs;
- FGD, fragmentation gradient descent (Weng et al., ATC'23): the node on which the expected number of GPUs that the next job
  cannot use grows least.

Ties go to the first node. Printed are mean waits in seconds over all jobs of all seeds.

usage: gpu-wait.py [--spur PATH] [--seeds N] [--jobs N] [--loads L,...]
"""

import argparse
import heapq
import json
import math
import os
import random
import subprocess
import tempfile

NODES, GPUS, CPUS = 96, 8, 12
WEIGHTS = [32, 24, 8, 16, 4, 4, 4, 8]
SHORTEST, LONGEST = 60, 7200


def stream(seed, load, count):
    """Jobs as (submission, GPUs, seconds), in order of submission."""
    chance = random.Random(seed)
    mean_gpus = sum(size * weight for size, weight in enumerate(WEIGHTS, 1)) / sum(WEIGHTS)
    mean_time = (LONGEST - SHORTEST) / math.log(LONGEST / SHORTEST)
    rate = load * NODES * GPUS / (mean_gpus * mean_time)
    at, jobs = 0.0, []
    for _ in range(count):
        at += chance.expovariate(rate)
        size = chance.choices(range(1, GPUS + 1), WEIGHTS)[0]
        seconds = SHORTEST * (LONGEST / SHORTEST) ** chance.random()
        jobs.append((int(at), size, int(seconds)))
    return jobs


def spur(program, jobs):
    """The wait of each job in `spur sim`."""
    config = ['cluster_name = "gpus"', "[scheduler]", 'order = "fcfs"', 'backfill = "easy"', "depth = 0", "[[nodes]]",
              f'names = "n[01-{NODES}]"', f"cpus = {GPUS * CPUS}", f'gres = ["gpu:{GPUS}"]', "[[partitions]]",
              'name = "main"', 'nodes = "ALL"', "default = true", 'max_time = "UNLIMITED"', "[topology]", 'plugin = "tree"',
              "[[topology.switches]]", 'name = "s"', f'nodes = "n[01-{NODES}]"']
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("spur.toml", "jobs.jsonl", "events.jsonl")]
        with open(paths[0], "w") as out:
            out.write("\n".join(config) + "\n")
        with open(paths[1], "w") as out:
            for number, (at, size, seconds) in enumerate(jobs):
                argv = ["-N1", "-n1", f"-c{size * CPUS}", f"--gpus-per-node={size}", f"-t{seconds // 60}:{seconds % 60:02}"]
                job = {"id": str(number), "argv": argv, "user": "u", "runtime": seconds}
                out.write(json.dumps({"at": at, "submit": job}) + "\n")
        subprocess.run([program, "sim", "--config", paths[0], "--workload", paths[1], "--events", paths[2],
                        "--no-pending", "--json"], check=True, stdout=subprocess.DEVNULL)
        waits = {}
        with open(paths[2]) as lines:
            for event in map(json.loads, lines):
                if event["event"] == "start":
                    number = int(event["job"])
                    waits[number] = event["t"] - jobs[number][0]
    assert len(waits) == len(jobs), "every job starts"
    return list(waits.values())


def best_fit(free, size):
    return free - size


def fgd(free, size):
    total = sum(WEIGHTS)

    def lost(left):
        return sum(weight for need, weight in enumerate(WEIGHTS, 1) if need > left) / total * left

    return lost(free - size) - lost(free)


def simulate(jobs, rule):
    """The wait of each job under a rule of placement."""
    free, running, queue, waits = [GPUS] * NODES, [], [], []
    coming = list(reversed(list(enumerate(jobs))))

    def start(now, number, node):
        submitted, size, seconds = jobs[number]
        free[node] -= size
        heapq.heappush(running, (now + seconds, number, node))
        waits.append(now - submitted)

    def choose(size, may):
        fits = [node for node in range(NODES) if free[node] >= size and may(node)]
        return min(fits, key=lambda node: rule(free[node], size), default=None)

    def consider(now):
        while queue:
            node = choose(jobs[queue[0]][1], lambda node: True)
            if node is None:
                break
            start(now, queue.pop(0), node)
        if not queue:
            return
        # The head has the first node on which enough GPUs are free at one time.
        size, then = jobs[queue[0]][1], list(free)
        for end, number, node in sorted(running):
            then[node] += jobs[number][1]
            if then[node] >= size:
                break
        kept, spare, shadow = node, then[node] - size, end
        for number in queue[1:]:
            _, wanted, seconds = jobs[number]
            late = now + seconds > shadow

            def may(node):
                return node != kept or not late or wanted <= spare

            node = choose(wanted, may)
            if node is not None:
                spare -= wanted if node == kept and late else 0
                start(now, number, node)
                queue.remove(number)

    while coming or running:
        times = ([coming[-1][1][0]] if coming else []) + ([running[0][0]] if running else [])
        now = min(times)
        while running and running[0][0] <= now:
            _, number, node = heapq.heappop(running)
            free[node] += jobs[number][1]
        while coming and coming[-1][1][0] <= now:
            queue.append(coming.pop()[0])
        consider(now)
    return waits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/release/spur")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--loads", default="0.95,1.0,1.05")
    args = parser.parse_args()
    print("load   spur sim   best fit   FGD")
    for load in map(float, args.loads.split(",")):
        waits = {"spur": [], "best fit": [], "FGD": []}
        for seed in range(args.seeds):
            jobs = stream(seed, load, args.jobs)
            waits["spur"] += spur(args.spur, jobs)
            waits["best fit"] += simulate(jobs, best_fit)
            waits["FGD"] += simulate(jobs, fgd)
        means = [sum(all_) / len(all_) for all_ in waits.values()]
        print(f"{load:.2f}  " + "  ".join(f"{mean:9.1f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
