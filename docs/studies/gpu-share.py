#!/usr/bin/env python3
"""How much of a GPU cluster a stream of jobs fills before the rest no longer fits.

The fabric is Alibaba's Lingjun (2023): 847 hosts under 119 leaf switches of very unequal size, three aggregation switches
and a core; every host is given 8 GPUs, 96 CPUs and 384 GiB, as most of those of the openb trace have. Jobs are drawn with
replacement from that trace (8,152 pods of 2023, most with one GPU, a few with 2 to 8, one in eight with none), arrive one
after another and never end, until they want 130 % of all GPUs. What does not fit keeps waiting and is never counted. The
numbers are the shares of all GPUs that are held when 100 % and 130 % of them have been asked for, and the GPUs on hosts
that are still untouched when 50 % have been, as a share of the GPUs that are free then.

A GPU is allotted whole: pods that want part of one count as wanting one, for everybody alike. CPUs are counted in tenths.

`spur sim` places the stream as a partition with that tree does. Three rules of placement are computed here, over the same stream and
the same hosts: random (any host that fits), best fit (the host that is left with the least, summed over the shares of its CPUs,
memory and GPUs), packing (the host in use with the fewest free GPUs, then an unused one).

The data are not part of this repository: SPUR_DATA names a directory with topologies/alibaba-lingjun-2023.topology.conf and
traces/ALIBABA-openb-gpu-v2023.pods.csv.gz (CC BY 4.0; Weng et al., ATC'23; Cao et al., SIGCOMM'24). Without them this says so and ends.

usage: gpu-share.py [--spur PATH] [--seeds N] [--gather GATHER]
"""

import argparse
import csv
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HOSTS, GPUS, TENTHS, MEMORY_MB = 847, 8, 960, 393216
MOST = 1.3


def jobs(pods, seed):
    """Jobs as (GPUs, tenths of a CPU, MiB), drawn until they want MOST times all GPUs."""
    draw, wanted, chosen = random.Random(seed), 0, []
    while wanted < MOST * HOSTS * GPUS:
        pod = draw.choice(pods)
        wanted += pod[0]
        chosen.append(pod)
    return chosen


def read_pods(path):
    """The pods that a host could hold."""
    with gzip.open(path, "rt") as lines:
        pods = [(int(pod["num_gpu"]), max(1, -(-int(pod["cpu_milli"]) // 100)), max(1, int(pod["memory_mib"])))
                for pod in csv.DictReader(lines)]
    return [pod for pod in pods if pod[0] <= GPUS and pod[1] <= TENTHS and pod[2] <= MEMORY_MB]


def config(fabric):
    """The cluster as a spur.toml."""
    lines = ['cluster_name = "lingjun"', "[scheduler]", 'order = "fcfs"', "depth = 0",
             "[[nodes]]", f'names = "h[0000-{HOSTS - 1:04}]"', f"cpus = {TENTHS}", f"memory_mb = {MEMORY_MB}",
             f'gres = ["gpu:{GPUS}"]', "[[partitions]]", 'name = "main"', 'nodes = "ALL"', "default = true",
             "[topology]", 'plugin = "tree"']
    for name, kind, members in re.findall(r"^SwitchName=(\S+) (Nodes|Switches)=(\S+)", fabric, re.MULTILINE):
        lines += ["[[topology.switches]]", f'name = "{name}"', f'{kind.lower()} = "{members}"']
    return "\n".join(lines) + "\n"


def workload(stream, gather):
    """The stream as lines for `spur sim`, a job a second."""
    for at, (gpus, tenths, memory) in enumerate(stream):
        argv = ["-n", "1", "-c", str(tenths), f"--mem={memory}M"]
        argv += [f"--gpus-per-node={gpus}"] if gpus else []
        argv += [f"--gather={gather}"] if gather else []
        yield json.dumps({"at": at, "submit": {"id": str(at), "argv": argv, "user": "alice", "runtime": None}})


def spur(program, folder, fabric, stream, gather):
    """By job, when it started and on which host; jobs that never did are left out."""
    paths = [os.path.join(folder, name) for name in ("spur.toml", "jobs.jsonl", "events.jsonl")]
    with open(paths[0], "w") as out:
        out.write(config(fabric))
    with open(paths[1], "w") as out:
        out.writelines(line + "\n" for line in workload(stream, gather))
    subprocess.run([program, "sim", "--config", paths[0], "--workload", paths[1], "--events", paths[2],
                    "--no-pending", "--json"],
                   check=True, stdout=subprocess.DEVNULL)
    started = {}
    with open(paths[2]) as lines:
        for line in lines:
            if '"event":"start"' in line:
                event = json.loads(line)
                started[int(event["job"])] = (event["t"], event["nodes"])
            elif '"event":"reject"' in line:
                sys.exit(f"refused: {line}")
    return started


def placed(stream, order):
    """The same for a rule of placement: the host with the least `order(host's free, job)` among those that fit."""
    hosts = [[GPUS, TENTHS, MEMORY_MB] for _ in range(HOSTS)]
    started = {}
    for at, job in enumerate(stream):
        fits = [host for host in range(HOSTS) if all(has >= wants for has, wants in zip(hosts[host], job))]
        if fits:
            best = min(fits, key=lambda host: order(hosts[host], job))
            hosts[best] = [has - wants for has, wants in zip(hosts[best], job)]
            started[at] = (at, best)
    return started


def rules(seed):
    """The rules of placement to compare with; ties go to the first host."""
    chance = random.Random(seed)
    whole = (GPUS, TENTHS, MEMORY_MB)
    return {
        "random": lambda free, job: chance.random(),
        "best fit": lambda free, job: sum((has - wants) / all_ for has, wants, all_ in zip(free, job, whole)),
        "packing": lambda free, job: (free[0] == GPUS, free[0]),
    }


def shares(stream, started):
    """The share of GPUs held at 100 % and 130 % asked for, and of those free at 50 % the share on untouched hosts."""
    total, wanted, marks, figures = HOSTS * GPUS, 0, [0.5, 1.0, MOST], []
    for at, job in enumerate(stream):
        wanted += job[0]
        if wanted >= marks[0] * total:
            marks.pop(0)
            running = [(number, host) for number, (when, host) in started.items() if when <= at]
            held = sum(stream[number][0] for number, _ in running)
            if marks and len(marks) == 2:
                untouched = HOSTS - len({host for _, host in running})
                figures.append(untouched * GPUS / (total - held))
            else:
                figures.append(held / total)
            if not marks:
                break
    return [figures[1], figures[2], figures[0]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spur", default="target/dist/spur")
    parser.add_argument("--seeds", type=int, default=3, help="streams to average over")
    parser.add_argument("--gather", help="what every job asks for in `spur sim`, e.g. prefer:leaf")
    args = parser.parse_args()
    data = os.environ.get("SPUR_DATA", "")
    pods = os.path.join(data, "traces", "ALIBABA-openb-gpu-v2023.pods.csv.gz")
    topology = os.path.join(data, "topologies", "alibaba-lingjun-2023.topology.conf")
    if not (os.path.isfile(pods) and os.path.isfile(topology)):
        print("skipped: SPUR_DATA names no directory with the trace and the topology")
        return 0
    with open(topology) as lines:
        fabric = lines.read()
    pods, found = read_pods(pods), {}
    for seed in range(args.seeds):
        stream = jobs(pods, seed)
        with tempfile.TemporaryDirectory() as folder:
            found.setdefault("spur, tree", []).append(shares(stream, spur(args.spur, folder, fabric, stream, args.gather)))
        for name, order in rules(seed).items():
            found.setdefault(name, []).append(shares(stream, placed(stream, order)))
    print(f"{'placement':12} {'at 100 %':>9} {'at 130 %':>9} {'untouched at 50 %':>18}")
    for name, figures in found.items():
        mean = [sum(column) / len(column) for column in zip(*figures)]
        print(f"{name:12} {mean[0]:9.4f} {mean[1]:9.4f} {mean[2]:18.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
