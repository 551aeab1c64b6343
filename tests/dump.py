#!/usr/bin/env python3
"""dump.py FILE [TRIAL...] - read a dump with other tools than ours, as TAP.

Of each trial (default: all that are complete): that its layout is what common/store/store.h
promises, that xarray opens each group and names its axes (the first ten), and that the oracle's
outputs are those of tests/definitions.py for its inputs.
"""
import sys

import h5py
import numpy as np

from definitions import DEFINITIONS, distance
from tap import done, ok, skip

try:
    import xarray
    import h5netcdf
    NO_XARRAY = None
except ImportError as error:
    NO_XARRAY = str(error)

XARRAY_TRIALS = 10     # h5netcdf goes through the whole file each time it opens a group


# ---- layout ----

ROOT = ["schema", "version", "name", "ini", "seed", "host", "device", "compiler", "date",
        "n_trials"]
TRIAL = ["op", "dtype", "seed", "input", "line", "n_checks", "failed", "unjudged", "skipped",
         "skips"]
CHECK = ["tensor", "check", "backend", "kernel", "error", "norm", "bound", "margin", "worst",
         "first_bad", "verdict", "judged", "elements", "distance", "slices", "coarse",
         "sees", "sees_row", "sees_element", "samples"]
# Columns that earlier dumps have not.
LATER = {"judged", "elements", "distance", "slices", "coarse", "sees", "sees_row",
         "sees_element", "samples", "intensity", "ridge", "attainable", "efficiency", "launches", "registers",
         "spills", "smem", "blocks_per_sm", "occupancy", "waves"}
TIME = ["backend", "kernel", "pass", "median", "min", "max", "spread", "median_no_graph", "runs",
        "method", "tokens", "flops", "bytes", "specials", "memory", "tensor", "fp32", "special",
        "latency", "bound_by", "intensity", "ridge", "attainable", "efficiency", "launches",
        "registers", "spills", "smem", "blocks_per_sm", "occupancy", "waves", "peak_bytes", "saved_bytes", "predicted_bytes", "used_bytes"]
CROSSOVER_TIME = ["backend", "kernel", "pass", "batch", "rows", "median", "min", "max", "runs"]
CROSSOVER = ["backend", "kernel", "pass", "rows", "stopped"]
TABLES = {"check": CHECK, "time": TIME, "crossover_time": CROSSOVER_TIME, "crossover": CROSSOVER,
          "sample_rows": ["axis", "row"],
          "round_trip": ["backend", "kernel", "bits", "bytes", "rmse", "worst"]}
SCHEMAS = ["ablate-1", "ablate-2"]
# Their names in ablate-1.
OLD = {"median_no_graph": "plain", "runs": "repeats", "method": "caches",
       "crossover_time": "regime", "crossover": "turn"}
# Tensors that have another name in older dumps, by operation.
RENAMED = {"histogram": {"apart": "outside"}}


def backends(trial):
    return [name for name in trial if isinstance(trial[name], h5py.Group)
            and name not in ("in", "dout", "dinit", "sample")]


def references(trial):
    """Of a trial that was judged by a sample: those that have results for it."""
    return [f"sample/{name}" for name in trial.get("sample", ())]


def folders(trial):
    """All groups that hold tensors."""
    found = [name for name in ("in", "dout", "dinit") if name in trial]
    for name in backends(trial) + references(trial):
        found += [name] + ([f"{name}/d"] if "d" in trial[name] else [])
    return found


def tensors(group):
    return {name: x for name, x in group.items() if isinstance(x, h5py.Dataset)}


def check_tensor(trial, x, wide, faults):
    """Type and axes of one dataset: each has a label, and the scale of that name."""
    # integers are int64
    if x.dtype not in (np.float64 if wide else np.float32, np.int64, np.uint8):
        faults.append(f"{x.name} is {x.dtype}")
    names = []
    for axis, length in zip(x.dims, x.shape):
        if len(axis) != 1:
            faults.append(f"{x.name} has an axis with {len(axis)} scales")
            continue
        names.append(axis.label)
        scale = trial.get(axis.label)
        if scale is None or scale != axis[0] or scale.shape != (length,):
            faults.append(f"{x.name}: axis {axis.label} has another scale, or of another length")
    if len(set(names)) != len(names):
        faults.append(f"{x.name}: axes {names}")


def sampled_rows(trial, x):
    """Of each axis of a reference's dataset in the group sample: its rows in the whole tensor."""
    rows = trial["sample_rows"][:] if x.attrs["axes"] else None
    cut = x.attrs["axes"].split(", ")
    for axis, length in zip(x.dims, x.shape):
        name = axis.label.removesuffix("_sampled")
        yield rows["row"][rows["axis"] == name.encode()] if name in cut else np.arange(length)


def check_sample(trial, folder, faults):
    """The rows of the cut axes are in the table, ascending."""
    for name, x in tensors(trial[folder]).items():
        cut = [name for name in x.attrs["axes"].split(", ") if name]
        if cut != [a.label[:-len("_sampled")] for a in x.dims if a.label.endswith("_sampled")]:
            faults.append(f"{x.name} has axes {cut}")
        for rows, length in zip(sampled_rows(trial, x), x.shape):
            if len(rows) != length or np.any(np.diff(rows) <= 0):
                faults.append(f"{x.name}: an axis of {length} has rows {rows}")


def check_layout(trial):
    faults = [f"no attribute {name}" for name in TRIAL if name not in trial.attrs]
    bf16 = trial.attrs["dtype"] == "bf16"
    for folder in folders(trial):
        for name, x in tensors(trial[folder]).items():
            check_tensor(trial, x, "ref64" in folder, faults)
            stored = x.attrs.get("storage")
            if stored not in (None, "bf16") or (stored and not bf16):
                faults.append(f"{x.name} has storage {stored}")
            if stored and np.any(x[...].view(np.uint32) & 0xffff):
                faults.append(f"{x.name} has more bits than bf16")
    for folder in folders(trial):
        if folder.startswith("sample/"):
            check_sample(trial, folder, faults)
    for name in backends(trial) + references(trial):
        faults += [f"{name} has no attribute {a}" for a in ("kernel", "device")
                   if a not in trial[name].attrs]
        if "in" in trial and "d" in trial[name] and name not in references(trial):
            faults += [f"{name}/d/{x} is no input's" for x in trial[name]["d"]
                       if x not in trial["in"] or trial["in"][x].shape != trial[name]["d"][x].shape]
    old = OLD if trial.file.attrs["schema"] == SCHEMAS[0] else {}
    for name, columns in TABLES.items():
        table = trial.get(old.get(name, name))
        if table is None:
            continue
        other = set(table.dtype.names) ^ {old.get(c, c) for c in columns}
        if other - LATER:
            faults.append(f"{table.name} has columns {table.dtype.names}")
    if "check" in trial:
        rows = trial["check"][:]
        if len(rows) != trial.attrs["n_checks"]:
            faults.append(f"{len(rows)} checks, n_checks = {trial.attrs['n_checks']}")
        strange = set(rows["verdict"]) - {b"pass", b"fail", b"cannot be judged", b"not judged",
                                         b"missed"}
        if strange:
            faults.append(f"there are verdicts {strange}")
    return faults


def check_xarray(path, trial):
    faults = []
    for folder in [""] + folders(trial):
        where = f"{trial.name}/{folder}".rstrip("/")
        with xarray.open_dataset(path, group=where, engine="h5netcdf") as data:
            data.load()
            if not folder:
                continue
            for name, x in tensors(trial[folder]).items():
                want = tuple(axis.label for axis in x.dims)
                if name not in data or data[name].dims != want:
                    faults.append(f"{where}/{name}: {data[name].dims if name in data else 'gone'}")
                elif not np.array_equal(data[name].values, x[...], equal_nan=True):
                    faults.append(f"{where}/{name} has other values")
    return faults


def check_forward(trial, definition):
    a = dict(trial.attrs)
    given = {name: x[...].astype(np.float64) for name, x in tensors(trial["in"]).items()}
    with np.errstate(all="ignore"):
        want = definition.results(a, given)
        bound = definition.bound(a, given, want)
    faults = []
    sampled = "ref64" not in trial
    folder = "sample/ref64" if sampled else "ref64"
    for name, got in tensors(trial[folder]).items():
        now = RENAMED.get(a["op"], {}).get(name, name)
        if now not in want:
            faults.append(f"{folder}/{name} has no definition")
            continue
        correct = want[now][np.ix_(*sampled_rows(trial, got))] if sampled else want[now]
        error, where = distance(got[...], correct)
        print(f"# {trial.name} {name} off by {error:.2g}")
        if not error <= bound:
            faults.append(f"{folder}/{name} is off by {error:.3g} at {where}, bound {bound:.3g}")
        for other in backends(trial):
            if np.any(np.isfinite(want[now]) & ~np.isfinite(trial[other][name][...])):
                faults.append(f"{other}/{name} is not finite")
    return faults


def check_round_trip(trial):
    """Bytes, bits, RMSE and the worst error of each backend's, by the definition of dequantise."""
    faults, w = [], trial["in/w"][...].astype(np.float64)
    for row in trial["round_trip"][:]:
        packed = {name: x[...] for name, x in tensors(trial[row["backend"].decode()]).items()}
        size = sum(x.size * (1 if x.dtype == np.uint8 else 4) for x in packed.values())
        off = DEFINITIONS["dequantise"].results(dict(trial.attrs), packed)["w"] - w
        with np.errstate(all="ignore"):
            want = [size, 8 * size / w.size, np.linalg.norm(off) / np.linalg.norm(w),
                    np.max(np.abs(off)) / np.max(np.abs(w))]
        got = [row[name] for name in ("bytes", "bits", "rmse", "worst")]
        if not np.allclose(got, want, rtol=1e-10, atol=0, equal_nan=True):
            faults.append(f"{row['backend']}: {got}, by NumPy {want}")
    return faults


def check_trial(path, name, trial, with_xarray):
    a = dict(trial.attrs)
    faults = check_layout(trial)
    ok(not faults, f"trial {name}: layout", faults)
    if NO_XARRAY:
        skip(f"trial {name}: xarray", NO_XARRAY)
    elif with_xarray:
        faults = check_xarray(path, trial)
        ok(not faults, f"trial {name}: xarray", faults)
    if "in" not in trial or ("ref64" not in trial and not references(trial)):
        skip(f"trial {name}: {a['line']}", "its tensors were not saved")
    else:
        faults = check_forward(trial, DEFINITIONS[a["op"]])
        ok(not faults, f"trial {name}: NumPy agrees: {a['line']}", faults)
        if "round_trip" in trial:
            faults = check_round_trip(trial)
            ok(not faults, f"trial {name}: the round trip", faults)


def main(path, *names):
    with h5py.File(path, "r") as f:
        missing = [name for name in ROOT if name not in f.attrs]
        ok(f.attrs.get("schema") in SCHEMAS and not missing, "attributes of the file",
           [f"missing: {missing}"])
        trials = {name: trial for name, trial in f["trial"].items() if trial.attrs["complete"] == 1}
        ok(len(f["trial"]) == f.attrs["n_trials"], "as many trials as planned")
        for i, name in enumerate(names or trials):
            if name in trials:
                check_trial(path, name, trials[name], i < XARRAY_TRIALS)
            else:
                ok(False, f"trial {name}", "is not there, or not complete")
    done()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
