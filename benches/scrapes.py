#!/usr/bin/env python3
"""Size and cost of each page of metrics: scrapes.py PID ADDRESS [SCRAPES].

Prints the bytes of each page, and the median and the largest processor time that all threads of the
controller used during a scrape. The controller's work for other clients during a scrape counts as well.
"""
import http.client
import os
import statistics
import sys

PAGES = ["", "/domains", "/jobs", "/nodes", "/partitions", "/scheduler", "/jobs-users-accts"]
LIMITS = {"/metrics": (100_000, 20), "/metrics/domains": (1_000_000, 50)}


def used(pid):
    """The processor time of all threads, in nanoseconds."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except FileNotFoundError:
            continue
    return total


def main():
    pid, address = sys.argv[1], sys.argv[2]
    scrapes = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    connection = http.client.HTTPConnection(address, timeout=60)
    failed = False
    for page in ("/metrics" + page for page in PAGES):
        times, size = [], 0
        for _ in range(scrapes):
            before = used(pid)
            connection.request("GET", page)
            answer = connection.getresponse()
            size = len(answer.read())
            if answer.status != 200:
                sys.exit(f"{page}: status {answer.status}")
            times.append((used(pid) - before) / 1e6)
        middle = statistics.median(times)
        most_bytes, most_ms = LIMITS.get(page, (None, None))
        over = most_bytes is not None and (size > most_bytes or middle > most_ms)
        failed |= over
        print(f"{page}: {size} bytes, {middle:.1f} ms (most {max(times):.1f}){'  OVER ITS LIMIT' if over else ''}")
    sys.exit(failed)


main()
