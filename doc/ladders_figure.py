#!/usr/bin/env python3
"""doc/ladders.svg from doc/ladders.md, both read and written beside this file: of each operation's
first case in bf16, how much of its bound each rung of the ladder reaches forward."""
import html
import pathlib
import re

HERE = pathlib.Path(__file__).parent
LEFT, WIDTH, ROW, TOP, BOTTOM = 120, 560, 22, 64, 34
MAX = 110  # percent


def first_cases(text):
    """operation -> (kernel, percent) of the rungs of its first case in bf16."""
    cases = {}
    for block in text.split("\n### ")[1:]:
        title, _, rest = block.partition("\n")
        op = title.split()[0]
        rungs = re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| (\d+) %", rest.split("\n## ")[0], re.M)
        if "dtype=bf16" in title and rungs:
            cases.setdefault(op, [(kernel, int(percent)) for kernel, percent in rungs])
    return cases


def x_of(percent):
    return LEFT + WIDTH * min(percent, MAX) / MAX


def text(x, y, content, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(content)}</text>")


def row(op, rungs, y):
    ours = [rung for rung in rungs if rung[0] != "cublas"]
    low, high = min(p for _, p in ours), max(p for _, p in ours)
    best = max(ours, key=lambda rung: rung[1])[0]
    parts = [text(LEFT - 10, y + 4, op, "end"),
             f'<line x1="{x_of(low):.1f}" x2="{x_of(high):.1f}" y1="{y}" y2="{y}" stroke="#bbb"/>']
    for kernel, percent in sorted(ours, key=lambda rung: rung[0] == best):
        fill = "#0b6e4f" if kernel == best else "#8fb8a8"
        parts.append(f'<circle cx="{x_of(percent):.1f}" cy="{y}" r="4.5" fill="{fill}">'
                     f"<title>{op} {kernel}: {percent} %</title></circle>")
    parts.append(text(LEFT + WIDTH + 12, y + 4, best))
    return parts


def figure(cases):
    height = TOP + ROW * len(cases) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 110} {height}" '
           'font-family="sans-serif" font-size="12" fill="#222">',
           '<rect width="100%" height="100%" fill="#fff"/>',
           text(LEFT, 20, "Each rung of each ladder, forward, bf16, on one H200", weight="bold"),
           text(LEFT, 38, "percent of the measured ceiling that binds it (memory, tensor cores, latency); "
                          "at the right: the fastest")]
    for percent in range(0, MAX + 1, 20):
        x, end = x_of(percent), height - BOTTOM
        stroke = "#888" if percent == 100 else "#e4e4e4"
        out += [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 14}" y2="{end}" stroke="{stroke}"/>',
                text(x, end + 18, f"{percent} %", "middle")]
    for i, (op, rungs) in enumerate(cases.items()):
        out += row(op, rungs, TOP + ROW * i)
    return "\n".join(out + ["</svg>", ""])


(HERE / "ladders.svg").write_text(figure(first_cases((HERE / "ladders.md").read_text())))
