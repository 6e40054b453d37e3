#!/usr/bin/env python3
"""Draws the growth of a deep pass's time with jobs, nodes and layers of the fabric.

Reads the output of `cargo bench -p spur-core --bench growth` from standard input and writes an SVG picture.
It has one panel for each of the three and a line for each kind of job; both scales are logarithmic. A dashed
line shows growth in proportion.

usage: cargo bench -p spur-core --bench growth | growth.py > docs/growth.svg
"""

import math
import re
import sys

# A line of the output: `jobs: whole   10000   1000   3   55.1 ms …`
ROW = re.compile(r"(jobs|nodes|layers): (\w+) +(\d+) +(\d+) +(\d+) +([\d.]+) ms")
# The panel, the column that varies, and the title with the fixed values.
PANELS = [("jobs", 1, "waiting jobs, on 10,000 nodes"), ("nodes", 0, "nodes, with 5,000 jobs"),
          ("layers", 2, "layers, 5,000 jobs on 10,000 nodes")]
COLOURS = {"whole": "#1b6ca8", "shared": "#c8553d", "tasks": "#588157"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 300, 260, 60, 34, 46, 46


def read(lines):
    """The points (x, ms) by panel and kind."""
    points = {name: {} for name, _, _ in PANELS}
    for line in lines:
        found = ROW.match(line)
        if found:
            panel, kind, *numbers, millis = found.groups()
            column = next(column for name, column, _ in PANELS if name == panel)
            points[panel].setdefault(kind, []).append((int(numbers[column]), float(millis)))
    return points


def ticks(low, high):
    """The numbers between `low` and `high` that are 1, 2 or 5 times a power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10**p for p in powers for m in (1, 2, 5) if low <= m * 10**p <= high]


def label(number):
    return f"{number:,.0f}" if number >= 1 else f"{number:g}"


def panel(at, name, title, lines, low, high):
    """One panel as SVG elements."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    first, last = xs[0], xs[-1]
    left = LEFT + at * (WIDTH + GAP)
    across = lambda x: left + (math.log(x / first) / math.log(last / first)) * WIDTH
    up = lambda y: TOP + HEIGHT - math.log(y / low) / math.log(high / low) * HEIGHT
    out = [f'<text x="{left}" y="{TOP - 12}" class="title">{name}</text>',
           f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" class="frame"/>']
    for y in ticks(low, high):
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{up(y):.1f}" y2="{up(y):.1f}" class="grid"/>')
        if at == 0:
            out.append(f'<text x="{left - 6}" y="{up(y) + 4:.1f}" class="left">{label(y)}</text>')
    for x in xs:
        out.append(f'<text x="{across(x):.1f}" y="{TOP + HEIGHT + 16}" class="below">{label(x)}</text>')
    middle = left + WIDTH / 2
    out.append(f'<text x="{middle}" y="{TOP + HEIGHT + 34}" class="below">{title}</text>')
    for kind, points in lines.items():
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" stroke="{COLOURS[kind]}" class="line"/>')
        for x, y in points:
            out.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{COLOURS[kind]}">'
                       f'<title>{kind}, {x:,}: {y:g} ms</title></circle>')
    # Names are above the lines' first points, the highest first; none covers another.
    above = 0
    for kind, points in sorted(lines.items(), key=lambda line: -line[1][0][1]):
        x, y = points[0]
        above = max(above + 15, up(y) - 14) if above else up(y) - 28
        out.append(f'<text x="{across(x) + 8:.1f}" y="{above:.1f}" class="name" style="fill:{COLOURS[kind]}">{kind}</text>')
    if name != "layers":
        # The dashed line begins in the lower left corner and ends at the border of the panel.
        end = min(last, first * high / low)
        out.append(f'<line x1="{across(first):.1f}" y1="{up(low):.1f}" x2="{across(end):.1f}" '
                   f'y2="{up(low * end / first):.1f}" class="even"/>')
    return out


def main():
    points = read(sys.stdin)
    missing = [name for name, lines in points.items() if not lines]
    if missing:
        sys.exit(f"growth.py: no rows of {', '.join(missing)} on standard input")
    times = [y for lines in points.values() for line in lines.values() for _, y in line]
    low, high = min(times) * 0.8, max(times) * 2
    width = LEFT + 3 * WIDTH + 2 * GAP + 12
    style = ("text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.left{text-anchor:end}"
             ".below{text-anchor:middle}.name{font-weight:bold;stroke:#fff;stroke-width:4px;paint-order:stroke}.frame{fill:none;stroke:#999}"
             ".grid{stroke:#e4e4e4}.line{fill:none;stroke-width:2}.even{stroke:#999;stroke-dasharray:4 4}")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + BOTTOM}" '
           'role="img" aria-label="Milliseconds of a deep pass by jobs, nodes and layers">',
           f"<style>{style}</style>", '<rect width="100%" height="100%" fill="#fff"/>']
    for at, (name, _, title) in enumerate(PANELS):
        out += panel(at, name, title, points[name], low, high)
    out.append(f'<text x="8" y="{TOP - 12}">ms</text></svg>')
    print("\n".join(out))


main()
