#!/usr/bin/env python3
"""definitions_judge.py - the oracle's results, read from stdin as tests/definitions.c writes
it, against tests/definitions.py; TAP on stdout.

Of each case: all results, and all gradients if the definition has them, are there, and within the
bound of the definition's; and of PyTorch's, if the definition names that, and PyTorch is there, else
one skip.  Of each operation:
it has a definition, which reads every parameter that is neither the length of an axis nor says
only how a tensor is stored; and the cases try every choice, and two values of every other number.
"""
import json
import sys

import numpy as np

from definitions import DEFINITIONS, distance
from tap import done, ok, skip


class Recorder(dict):
    """Records the keys that are used."""

    def __init__(self, values, used):
        super().__init__(values)
        self.used = used

    def __getitem__(self, key):
        self.used.add(key)
        return super().__getitem__(key)


class Operation:
    """Its cases so far."""

    def __init__(self, name, parameters, aside):
        self.name, self.parameters, self.aside = name, parameters, set(aside)
        self.definition = DEFINITIONS.get(name)
        self.seen = {parameter: set() for parameter in parameters}
        self.used, self.axes = set(), set()
        self.cases, self.worst, self.worst_of, self.margin = 0, 0.0, "-", 0.0

    def compare(self, want, got, bound, whose="definition"):
        """Faults of the tensors got[name], as notes; want[name] is (tensor, size)."""
        faults = [f"ref64 {name}: the {whose} has no such result" for name in got.keys() - want]
        faults += [f"ref64 {name}: the contract has no such result" for name in want.keys() - got]
        for name in got.keys() & want.keys():
            error, where = distance(got[name], *want[name])
            if error > self.worst:
                self.worst, self.worst_of = error, name
            if error:
                self.margin = max(self.margin, error / bound if bound else np.inf)
            if not error <= bound:
                faults.append(f"ref64 {whose}: {name} off by {error:.3g} at {where}, "
                              f"bound {bound:.3g}")
        return sorted(faults)

    def judge(self, case, tensors):
        """Faults of one case, as notes."""
        a = Recorder(case["parameters"], self.used)
        given, got = tensors["input"], tensors["result"]
        with np.errstate(all="ignore"):
            results = self.definition.results(a, given)
            bound = self.definition.bound(dict(a), given, results)
            want = {name: (x, None) for name, x in results.items()}
            if self.definition.gradients:
                of = self.definition.gradients(a, given, tensors["upstream"])
                want |= {"d_" + name: x for name, x in of.items()}
                got = got | {"d_" + name: x for name, x in tensors["gradient"].items()}
        faults = self.compare(want, got, bound)
        if self.definition.torch:
            self.judge_torch(case, tensors, want, got, bound)
        return faults

    def judge_torch(self, case, tensors, want, got, bound):
        """The same results against PyTorch's; the sizes are those of the definition."""
        torch, what = self.definition.torch, f"PyTorch: {self.name} {case['case']}"
        if torch.MISSING:
            return
        why = torch.declines(tensors["input"], tensors["result"])
        if why:
            skip(what, why)
            return
        by = torch.run(case["parameters"], tensors["input"], tensors["upstream"])
        named = {name: (x, want.get(name, (None, None))[1]) for name, x in by.items()}
        mine = got | (torch.also(got, by) if hasattr(torch, "also") else {})
        mine.pop("o32", None)
        faults = self.compare(named, mine, bound, "PyTorch")
        ok(not faults, what, faults)

    def take(self, case, tensors):
        self.cases += 1
        self.axes.update(axis for _, _, axes in case["tensors"] for axis, _ in axes)
        for parameter, value in case["parameters"].items():
            self.seen[parameter].add(value)
        if self.definition:
            faults = self.judge(case, tensors)
            ok(not faults, f"definition: {self.name} {case['case']}", faults)

    def done(self):
        """Faults of all cases together."""
        if not self.definition:
            ok(False, f"{self.name} has a definition", ["tests/definitions.py has none"])
            return
        if self.definition.torch and self.definition.torch.MISSING:
            skip(f"PyTorch: {self.name}, all cases", self.definition.torch.MISSING)
        lengths = self.axes
        faults = [f"the definition does not read {p}" for p in self.parameters
                  if p not in self.used | lengths | self.aside]
        for parameter, choices in self.parameters.items():
            seen = self.seen[parameter]
            faults += [f"no case has {parameter} = {c}" for c in choices or () if c not in seen]
            if choices is None and parameter not in lengths and len(seen) < 2:
                faults.append(f"no case changes {parameter}")
        ok(self.cases and not faults, f"{self.name}: {self.cases} cases have all choices, "
           "and the definition reads them", faults)
        print(f"# {self.name}: {self.cases} cases, worst difference {self.worst:.2g} of "
              f"{self.worst_of}, at most {self.margin:.2g} of its bound")


def read_tensors(stream, case):
    """By what they are, and by name."""
    tensors = {kind: {} for kind in ("input", "result", "upstream", "gradient")}
    for name, kind, axes in case["tensors"]:
        shape = [length for _, length in axes]
        data = stream.read(8 * int(np.prod(shape)))
        tensors[kind][name] = np.frombuffer(data).reshape(shape)
    return tensors


def main(stream):
    operation, ended = None, False
    for line in iter(stream.readline, b""):
        record = json.loads(line)
        ended = not record
        if "operations" in record:
            ok(set(record["operations"]) == set(DEFINITIONS),
               "every operation has a definition, and every definition an operation",
               sorted(set(record["operations"]) ^ set(DEFINITIONS)))
        elif "case" in record:
            operation.take(record, read_tensors(stream, record))
        else:
            if operation:
                operation.done()
            operation = Operation(record["operation"], record["parameters"], record["aside"]) \
                if record else None
    if not ended:
        ok(False, "the cases are all there", ["the program that runs them ended early"])
    done()


if __name__ == "__main__":
    main(sys.stdin.buffer)
