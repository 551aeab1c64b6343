#!/usr/bin/env python3
"""compare_sass.py BEFORE AFTER - is the machine code of all kernels the same?

BEFORE and AFTER are programs, archives or objects with kernels for a GPU (run-ablation of two
builds).  A kernel is the same if its instructions and their encodings are, whatever its name: one
that has another name only is counted as renamed.  Names in the code (of functions called, of
constants) are compared as the how-many-th different name they are.  Prints what differs and a line
of counts; exits with 1 if a kernel differs, 2 if there is nothing to compare.

CUOBJDUMP names the tool that disassembles; default: cuobjdump.
"""
import collections
import hashlib
import os
import re
import subprocess
import sys

KERNEL = re.compile(r"^\s*Function : (\S+)")
NAME = re.compile(r"\b_Z\w+|\$\w[\w$.]*")


def kernels(path):
    """Name of each kernel and a hash of its instructions, in the order of the file."""
    tool = os.environ.get("CUOBJDUMP", "cuobjdump")
    try:
        dump = subprocess.Popen([tool, "-sass", path], stdout=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"compare_sass: {tool}: {error.strerror}")
    name, code, seen = None, hashlib.sha256(), {}
    for line in dump.stdout:
        kernel = KERNEL.match(line)
        if kernel:
            if name:
                yield name, code.hexdigest()
            name, code, seen = kernel[1], hashlib.sha256(), {}
        elif name and "/*" in line:
            text = NAME.sub(lambda m: f"name{seen.setdefault(m[0], len(seen))}", line)
            code.update(" ".join(text.split()).encode() + b"\n")
    if name:
        yield name, code.hexdigest()
    if dump.wait():
        sys.exit(f"compare_sass: {tool} -sass {path} failed")


def readable(names):
    """C++'s names as they are written, if there is a c++filt."""
    try:
        filt = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True)
        return filt.stdout.splitlines()
    except OSError:
        return list(names)


def alone(here, there):
    """Those of `here` whose code is nowhere in `there`, of each code as many as there are more."""
    more = collections.Counter(code for _, code in here) - collections.Counter(c for _, c in there)
    found = []
    for name, code in here:
        if more[code]:
            more[code] -= 1
            found.append(name)
    return found


def main(before, after):
    old, new = list(kernels(before)), list(kernels(after))
    if not old or not new:
        print(f"compare_sass: {before if not old else after} has no kernel")
        return 2
    same = sum((collections.Counter(old) & collections.Counter(new)).values())
    gone, added = alone(old, new), alone(new, old)
    for side, names in (("before", gone), ("after", added)):
        for name in readable(names):
            print(f"only {side}: {name}")
    print(f"{len(old)} kernels before, {len(new)} after: {same} are the same, "
          f"{len(old) - len(gone) - same} renamed, {len(gone)} only before, {len(added)} only after")
    return 1 if gone or added else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
