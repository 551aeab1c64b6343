#!/usr/bin/env python3
"""definitions_judge.py - the oracle's results, read from stdin as tests/definitions.c writes
it, against tests/definitions.py; TAP on stdout.

Of each case: all results are there, and within the bound of the definition's.  Of each operation:
it has a definition, which reads every parameter that is neither the length of an axis nor says
only how a tensor is stored; and the cases try every choice, and two values of every other number.
"""
import json
import sys

import numpy as np

from definitions import DEFINITIONS, UNSEEN, distance
from tap import done, ok


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

    def __init__(self, name, parameters):
        self.name, self.parameters = name, parameters
        self.definition = DEFINITIONS.get(name)
        self.seen = {parameter: set() for parameter in parameters}
        self.used, self.axes = set(), set()
        self.cases, self.worst, self.worst_of, self.margin = 0, 0.0, "-", 0.0

    def judge(self, case, given, got):
        """Faults of one case, as notes."""
        a = Recorder(case["parameters"], self.used)
        with np.errstate(all="ignore"):
            want = self.definition.results(a, given)
            bound = self.definition.bound(dict(a), given, want)
        faults = [f"ref64 {name}: the definition has no such result" for name in got.keys() - want]
        faults += [f"ref64 {name}: the contract has no such result" for name in want.keys() - got]
        for name in got.keys() & want.keys():
            error, where = distance(got[name], want[name])
            if error > self.worst:
                self.worst, self.worst_of = error, name
            if error:
                self.margin = max(self.margin, error / bound if bound else np.inf)
            if not error <= bound:
                faults.append(f"ref64 definition: {name} off by {error:.3g} at {where}, "
                              f"bound {bound:.3g}")
        return sorted(faults)

    def take(self, case, given, got):
        self.cases += 1
        self.axes.update(axis for _, _, axes in case["tensors"] for axis, _ in axes)
        for parameter, value in case["parameters"].items():
            self.seen[parameter].add(value)
        if self.definition:
            faults = self.judge(case, given, got)
            ok(not faults, f"definition: {self.name} {case['case']}", faults)

    def done(self):
        """Faults of all cases together."""
        if not self.definition:
            ok(False, f"{self.name} has a definition", ["tests/definitions.py has none"])
            return
        lengths = self.axes
        faults = [f"the definition does not read {p}" for p in self.parameters
                  if p not in self.used | lengths | UNSEEN]
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
    given, got = {}, {}
    for name, is_input, axes in case["tensors"]:
        shape = [length for _, length in axes]
        data = stream.read(8 * int(np.prod(shape)))
        (given if is_input else got)[name] = np.frombuffer(data).reshape(shape)
    return given, got


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
            operation.take(record, *read_tensors(stream, record))
        else:
            if operation:
                operation.done()
            operation = Operation(record["operation"], record["parameters"]) if record else None
    if not ended:
        ok(False, "the cases are all there", ["the program that runs them ended early"])
    done()


if __name__ == "__main__":
    main(sys.stdin.buffer)
