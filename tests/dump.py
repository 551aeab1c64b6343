#!/usr/bin/env python3
"""dump.py FILE [TRIAL...] - read a dump with other tools than ours, as TAP.

Of each trial (default: all that are complete): that its layout is what common/store.h
promises, that xarray opens each group and names its axes (the first ten), and, for e74,
e74_cell and dual_memory, that the oracle's outputs are what the mathematics says.  The
mathematics is stated here once more, in NumPy, from the definitions of the cells alone.
"""
import sys

import h5py
import numpy as np

try:
    import xarray
    import h5netcdf
    NO_XARRAY = None
except ImportError as error:
    NO_XARRAY = str(error)

TOLERANCE = 1e-12      # of ref64, relative to the largest element
XARRAY_TRIALS = 10     # h5netcdf goes through the whole file each time it opens a group

tests = 0


def ok(passed, what, *notes):
    global tests
    tests += 1
    print(f"{'ok' if passed else 'not ok'} {tests} - {what}")
    if not passed:
        for note in notes:
            print(f"# {note}")


def skip(what, why):
    global tests
    tests += 1
    print(f"ok {tests} - {what} # SKIP {why}")


# ---- E74 ----

EPSILON = 1e-6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def times(matrix, vector):
    """Matrix times vector, over all leading axes."""
    return np.einsum("...ij,...j->...i", matrix, vector)


def outer(a, b):
    return a[..., :, None] * b[..., None, :]


def normalised(k):
    return k / (np.linalg.norm(k, axis=-1, keepdims=True) + EPSILON)


def bend(nonlin, P):
    """f, over all the numbers of one (batch, head) state: the axes after these two."""
    numbers = tuple(range(2, P.ndim))
    if nonlin == "tanh":
        return np.tanh(P)
    if nonlin == "linear":
        return P
    if nonlin == "rmsnorm":
        return P / (np.sqrt(np.mean(P * P, axis=numbers, keepdims=True)) + EPSILON)
    if nonlin == "frobnorm":
        return P / (np.sqrt(np.sum(P * P, axis=numbers, keepdims=True)) + EPSILON)
    raise ValueError(nonlin)


class Full:
    """S [B,H,n,n]; also, block by block, [B,H,n/b,b,b]."""

    def __init__(self, a, given):
        self.S = given["S0"]

    def split(self, vector):
        return vector

    def join(self, vector):
        return vector

    def read(self, u):
        return times(self.S, u)

    def update(self, delta, key, nonlin):
        self.S = bend(nonlin, self.S + outer(delta, key))

    def final(self):
        return {"S_T": self.S}


class Blocks(Full):
    """Each block of b numbers of k, v, q and z meets its own block of S."""

    def split(self, vector):
        blocks, size = self.S.shape[2:4]
        return vector.reshape(vector.shape[:-1] + (blocks, size))

    def join(self, vector):
        return vector.reshape(vector.shape[:-2] + (-1,))


class Diagonal(Full):
    """S [B,H,n]: every product is element by element."""

    def read(self, u):
        return self.S * u

    def update(self, delta, key, nonlin):
        self.S = bend(nonlin, self.S + delta * key)


class LowRank(Full):
    """S = U V^T, U and V [B,H,n,r]; only U changes."""

    def __init__(self, a, given):
        self.U, self.V, self.W_r = given["U0"], given["V0"], given["W_r"]

    def read(self, u):
        return times(self.U, times(np.swapaxes(self.V, -1, -2), u))

    def update(self, delta, key, nonlin):
        self.U = bend(nonlin, self.U + outer(delta, times(self.W_r, key)))

    def final(self):
        return {"U_T": self.U}


STATES = {"full": Full, "diagonal": Diagonal, "lowrank": LowRank, "blockdiag": Blocks}


def cell(a, given, k, v, q, z):
    """out and the final state, from k, v, q, z [T,B,H,n]; z may be None."""
    state = STATES[a["state"]](a, given)
    z_mod = a["z_mod"] if z is not None else None
    T, B, H, n = k.shape
    out = np.empty((T, B, H * n))
    for t in range(T):
        key = normalised(state.split(k[t]))
        gate = None if z is None else state.split(z[t])
        u = gate * key if z_mod in ("column", "full") else key
        rho = state.read(u)
        if z_mod in ("row", "full"):
            rho = gate * rho
        state.update(state.split(v[t]) - rho, key, a["nonlin"])
        y = state.join(state.read(state.split(q[t])))
        out[t] = (y * y * sigmoid(y)).reshape(B, H * n)
    return {"out": out, **state.final()}


def tied(proj, make):
    """k, v, q and z; make() gives those that the projection has of its own."""
    k = make("k")
    v = k if proj == "tied_kvq" else make("v")
    q = k if proj in ("tied_kq", "tied_kvq") else make("q")
    z = make("z") if proj == "full" else None
    return k, v, q, z


def e74_cell(a, given):
    return cell(a, given, *tied(a["proj"], lambda name: given[name]))


def e74(a, given):
    x = given["x"]
    T, B, _ = x.shape

    def project(name):
        p = x @ given["W_" + name].T
        if name == "z":
            p = p + given["b_z"]
        return p.reshape(T, B, int(a["heads"]), int(a["n_state"]))

    return cell(a, given, *tied(a["proj"], project))


# ---- dual memory ----

HALVINGS = 80    # of an interval of length 1: more than a double has bits


def softmax(a):
    e = np.exp(a - np.max(a, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def entmax15(a):
    """[a/2 - tau]+^2 of sum 1: the sum falls as tau rises, from 1 or more to 0."""
    u = a / 2
    high = np.max(u, axis=-1, keepdims=True)
    low = high - 1
    for _ in range(HALVINGS):
        tau = (low + high) / 2
        much = np.sum(np.maximum(u - tau, 0)**2, axis=-1, keepdims=True) >= 1
        low, high = np.where(much, tau, low), np.where(much, high, tau)
    return np.maximum(u - low, 0)**2


# attention, write query, gate
PRESETS = {
    "e23": (softmax, "h", "none"),
    "e25": (entmax15, "h", "none"),
    "e26": (softmax, "v", "none"),
    "e29a": (softmax, "v", "sum"),
    "e29b": (softmax, "v", "matrix"),
    "e29c": (softmax, "v", "scaled"),
}


def gate_argument(a, given, gate, z, read, h):
    if gate == "sum":
        return z + read + h
    if gate == "matrix":
        return np.concatenate((z, read, h), axis=-1) @ given["W_gate"].T
    g = z * given["g_z"] + read * given["g_r"] + h * given["g_h"] + given["b_g"]
    return np.clip(g, -float(a["clamp"]), float(a["clamp"]))


def dual_memory(a, given):
    if a["preset"] == "parts":
        attend = {"softmax": softmax, "entmax15": entmax15}[a["attention"]]
        query, gate = a["write_query"], a["gate"]
    else:
        attend, query, gate = PRESETS[a["preset"]]
    x, h, M = given["x"], given["h0"], given["M0"]
    T, B, _ = x.shape
    N, D = M.shape[-2:]
    M = np.broadcast_to(M, (B, N, D))
    xp, z = np.split(x @ given["W_xz"].T, 2, -1) if gate != "none" else (x @ given["W_x"].T, None)
    out = np.empty((T, B, D))
    for t in range(T):
        rho = attend(times(M, h) / np.sqrt(D))
        read = np.einsum("bn,bnd->bd", rho, M)
        h = np.tanh(h @ given["W_h"].T + xp[t] + read + given["b_h"])
        v = h @ given["W_write"].T
        omega = attend(times(M, v if query == "v" else h) / np.sqrt(D))
        M = (1 - omega[..., None]) * M + outer(omega, v)
        out[t] = h
        if gate != "none":
            g = gate_argument(a, given, gate, z[t], read, h)
            out[t] = h * g * sigmoid(g)
    return {"out": out, "h_T": h, "M_T": M}


FORWARD = {"e74": e74, "e74_cell": e74_cell, "dual_memory": dual_memory}


# ---- layout ----

ROOT = ["schema", "version", "name", "ini", "seed", "host", "device", "compiler", "date",
        "n_trials"]
TRIAL = ["op", "dtype", "seed", "input", "line", "n_checks", "failed", "skipped", "skips"]
CHECK = ["tensor", "check", "backend", "kernel", "error", "norm", "bound", "margin", "worst",
         "first_bad", "verdict"]
TIME = ["backend", "kernel", "pass", "median", "min", "max", "spread", "plain", "flops",
        "bytes", "peak_bytes", "repeats", "caches", "tokens", "specials", "memory", "tensor", "fp32",
        "special", "latency", "bound_by", "saved_bytes", "predicted_bytes", "used_bytes"]
REGIME = ["backend", "kernel", "pass", "batch", "rows", "median", "min", "max", "repeats"]
TURN = ["backend", "kernel", "pass", "rows", "stopped"]


def backends(trial):
    return [name for name in trial if isinstance(trial[name], h5py.Group)
            and name not in ("in", "dout")]


def folders(trial):
    """All groups that hold tensors."""
    found = [name for name in ("in", "dout") if name in trial]
    for name in backends(trial):
        found += [name] + ([f"{name}/d"] if "d" in trial[name] else [])
    return found


def tensors(group):
    return {name: x for name, x in group.items() if isinstance(x, h5py.Dataset)}


def check_tensor(trial, x, wide, faults):
    """Type and axes of one dataset: each has a label, and the scale of that name."""
    if x.dtype != (np.float64 if wide else np.float32):
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


def check_layout(trial):
    faults = [f"no attribute {name}" for name in TRIAL if name not in trial.attrs]
    bf16 = trial.attrs["dtype"] == "bf16"
    for folder in folders(trial):
        for name, x in tensors(trial[folder]).items():
            check_tensor(trial, x, folder.startswith("ref64"), faults)
            stored = x.attrs.get("storage")
            if stored not in (None, "bf16") or (stored and not bf16):
                faults.append(f"{x.name} has storage {stored}")
            if stored and np.any(x[...].view(np.uint32) & 0xffff):
                faults.append(f"{x.name} has more bits than bf16")
    for name in backends(trial):
        faults += [f"{name} has no attribute {a}" for a in ("kernel", "device")
                   if a not in trial[name].attrs]
        if "in" in trial and "d" in trial[name]:
            faults += [f"{name}/d/{x} is no input's" for x in trial[name]["d"]
                       if x not in trial["in"] or trial["in"][x].shape != trial[name]["d"][x].shape]
    for name, columns in (("check", CHECK), ("time", TIME), ("regime", REGIME),
                          ("turn", TURN)):
        if name in trial and list(trial[name].dtype.names) != columns:
            faults.append(f"{name} has columns {trial[name].dtype.names}")
    if "check" in trial:
        rows = trial["check"][:]
        if len(rows) != trial.attrs["n_checks"]:
            faults.append(f"{len(rows)} checks, n_checks = {trial.attrs['n_checks']}")
        if not set(rows["verdict"]) <= {b"pass", b"fail"}:
            faults.append("verdicts are neither pass nor fail")
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


def check_forward(trial, want):
    faults = []
    for name, exact in want.items():
        got = trial["ref64"][name][...]
        size = np.max(np.abs(exact))
        error = np.max(np.abs(got - exact)) / size if size else np.max(np.abs(got))
        print(f"# {trial.name} {name} off by {error:.2g}")
        if got.shape != exact.shape or not error <= TOLERANCE:
            faults.append(f"ref64/{name} is off by {error:.3g}")
        for other in backends(trial):
            if not np.all(np.isfinite(trial[other][name][...])):
                faults.append(f"{other}/{name} is not finite")
    return faults


def check_trial(path, name, trial, with_xarray):
    a = dict(trial.attrs)
    faults = check_layout(trial)
    ok(not faults, f"trial {name}: layout", *faults)
    if NO_XARRAY:
        skip(f"trial {name}: xarray", NO_XARRAY)
    elif with_xarray:
        faults = check_xarray(path, trial)
        ok(not faults, f"trial {name}: xarray", *faults)
    if a["op"] not in FORWARD:
        print(f"# trial {name}: {a['op']} is not stated in NumPy")
    elif "in" not in trial or "ref64" not in trial:
        skip(f"trial {name}: {a['line']}", "its tensors were not saved")
    else:
        given = {x: data[...].astype(np.float64) for x, data in trial["in"].items()}
        faults = check_forward(trial, FORWARD[a["op"]](a, given))
        ok(not faults, f"trial {name}: NumPy agrees: {a['line']}", *faults)


def main(path, *names):
    with h5py.File(path, "r") as f:
        missing = [name for name in ROOT if name not in f.attrs]
        ok(f.attrs.get("schema") == "ablate-1" and not missing, "attributes of the file",
           f"missing: {missing}")
        trials = {name: trial for name, trial in f["trial"].items() if trial.attrs["complete"] == 1}
        ok(len(f["trial"]) == f.attrs["n_trials"], "as many trials as planned")
        for i, name in enumerate(names or trials):
            if name in trials:
                check_trial(path, name, trials[name], i < XARRAY_TRIALS)
            else:
                ok(False, f"trial {name}", "is not there, or not complete")
    print(f"1..{tests}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
