#!/usr/bin/env python3
"""The cost of one deep pass, measured from outside the process.

Runs the bench `growth` with N passes and with none. The cost is the difference of the processor times that
the system counted for the process, divided by N: both runs build the cluster.

usage: passes.py [--passes N] [--rounds N] [ROW…]    rows of `growth` by a part of their name; without any, those with an aim
"""

import argparse
import json
import subprocess
import sys

from outside import processor

ROWS = ["aim: whole", "aim: shared", "aim: easy-1000 whole", "aim: easy-1000 shared", "aim: small whole",
        "aim: small shared", "aim: long whole"]


def build():
    """The path of the bench's executable."""
    command = ["cargo", "bench", "-q", "-p", "spur-core", "--no-run", "--message-format=json", "--bench", "growth"]
    for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "growth":
            return message["executable"]
    sys.exit("cargo built no bench `growth`")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=20, metavar="N", help="passes of one run")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of which the least counts")
    parser.add_argument("rows", nargs="*", default=ROWS, metavar="ROW")
    asked = parser.parse_args()
    bench = build()
    for row in asked.rows:
        least = [min(processor([bench, "--passes", str(passes), row]) for _ in range(asked.rounds))
                 for passes in (0, asked.passes)]
        print(f"{row:<24}{(least[1] - least[0]) / asked.passes * 1e3:>11.2f} ms", flush=True)


if __name__ == "__main__":
    main()
