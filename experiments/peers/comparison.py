"""comparison.py - peers on the trials of a dump: whether they are right, their times, the report."""
import statistics
import sys
import time

import torch

from peers import PEERS, BadInput, device_type, distance, on_gpu

PASSES = ("forward", "backward")
UNITS = {"bf16": 2.0**-8, "fp32": 2.0**-24}
SLACK, LEAST = 8, 4    # times the yardstick's own error; units of the storage type
WARM_UP = 3
STREAM_RUNS = 10
PROFILED_RUNS = 5
DEVICE = device_type()
TSV = False            # set by run()


# ---- a trial of a dump ----

class Trial:
    def __init__(self, name, group):
        self.name, self.group = name, group
        self.case = {key: value for key, value in group.attrs.items()}
        self.storage = torch.bfloat16 if self.case["dtype"] == "bf16" else torch.float32

    def unfit(self):
        """Why it cannot be had from peers, or None."""
        if not any(self.case["op"] in peer.operations for peer in PEERS):
            return f"no peer has its operation, {self.case['op']}"
        if self.case["complete"] != 1:
            return "it is not complete"
        if any(x not in self.group for x in ("in", self.oracle(), self.yardstick())):
            return "its tensors were not saved (save = all)"
        return None

    def sampled(self):
        """Have the references results for a sample of rows only?"""
        return "ref64" not in self.group and "sample/ref64" in self.group

    def oracle(self):
        return "sample/ref64" if self.sampled() else "ref64"

    def yardstick(self):
        if self.sampled():
            return "sample/ref_bf16" if self.case["dtype"] == "bf16" else "sample/ref32"
        names = ("ref_bf16", "ref16") if self.case["dtype"] == "bf16" else ("ref32",)
        return next((x for x in names if x in self.group), names[0])    # the second is an older name

    def correct(self, path):
        """The oracle's result; None where no sample covers it."""
        path = f"{self.oracle()}/{path}"
        return self.tensor(path, torch.float64) if path in self.group else None

    def not_covered(self):
        """The results of our kernels that no sample covers."""
        return sorted({row["tensor"].decode() for row in self.table("check")
                       if row["verdict"] == b"not judged"})

    def judged(self, path, whole):
        """The elements of a whole result that correct() has."""
        if not self.sampled():
            return whole
        data, rows = self.group[f"{self.oracle()}/{path}"], self.table("sample_rows")
        cut = data.attrs["axes"].split(", ")
        for i, axis in enumerate(data.dims):
            name = axis.label.removesuffix("_sampled")
            if name in cut:
                which = rows["row"][rows["axis"] == name.encode()]
                whole = whole.index_select(i, torch.from_numpy(which).to(whole.device))
        return whole

    def tensor(self, path, dtype):
        return torch.from_numpy(self.group[path][...]).to(DEVICE, dtype)

    def stored(self, path):
        """In the type that our kernels had it in."""
        data = self.group[path]
        if data.dtype.kind == "i":
            return self.tensor(path, torch.int64)
        return self.tensor(path, torch.bfloat16 if data.attrs.get("storage") == "bf16"
                           else torch.float32)

    def arrays(self):
        """All inputs by name, in NumPy."""
        return {name: data[...] for name, data in self.group["in"].items()}

    def inputs(self, names):
        """Those that have a gradient are to be differentiated."""
        return [self.stored(f"in/{x}").requires_grad_(self.has_gradient(x)) for x in names]

    def has_gradient(self, name):
        return (name in self.group.get(f"{self.oracle()}/d", ())
                or (self.sampled() and f"d_{name}" in self.not_covered()))

    def upstream(self, names):
        """The gradients of those outputs that have one, and their places."""
        places = [i for i, x in enumerate(names) if x in self.group.get("dout", ())]
        return places, [self.stored(f"dout/{names[i]}") for i in places]

    def bound(self, path):
        """What our kernels were judged by, where the dump says it; else by the same rule
        without the oracle's own sensitivity."""
        name = path.replace("d/", "d_")
        ours = [row["bound"] for row in self.table("check")
                if row["check"] == b"parity" and row["tensor"] == name.encode()]
        if ours:
            return max(ours)
        off = distance(self.tensor(f"{self.yardstick()}/{path}", torch.float64),
                       self.correct(path))
        return max(SLACK * off, LEAST * UNITS[self.case["dtype"]])

    def table(self, name):
        return self.group[name][:] if name in self.group else []

    def is_gpu(self, backend):
        """Its name says so, and what it ran on: not the emulated kernels."""
        name = backend.decode()
        return (name.startswith("gpu") and name in self.group
                and "emulated" not in self.group[name].attrs["device"])

    def ours(self):
        """For each pass the kernel of ours that is fastest, none of whose checks failed, and
        its seconds."""
        wrong = {(row["backend"], row["kernel"]) for row in self.table("check")
                 if row["verdict"] not in (b"pass", b"not judged")}
        best = {}
        times = self.table("time")
        method = "method" if len(times) and "method" in times.dtype.names else "caches"  # ablate-1
        for row in times:
            which, p = (row["backend"], row["kernel"]), row["pass"].decode()
            if not self.is_gpu(row["backend"]) or which in wrong or row["median"] <= 0:
                continue
            if p not in best or row["median"] < best[p][1]:
                best[p] = row["kernel"].decode(), float(row["median"]), row[method].decode()
        return best

    def how_judged(self):
        """What its title says of it, where that is not in full."""
        if not self.sampled():
            return ""
        without = ", ".join(self.not_covered())
        return " (judged by a sample" + (f", which does not cover {without})" if without else ")")

    def title(self):
        if self.case["op"] != "e74_cell":
            return f"trial {self.name}: {self.case['line']}{self.how_judged()}"
        keys = ("state", "nonlin", "steps", "batch", "heads", "n_state", "checkpoint_interval",
                "dtype")
        return (f"trial {self.name}: " + " ".join(f"{key}={self.case[key]}" for key in keys)
                + self.how_judged())


def trials_of(file, only):
    if file.attrs.get("schema") not in ("ablate-1", "ablate-2") or "trial" not in file:
        raise BadInput("is no dump of run-ablation")
    names = [f"{n:04d}" for n in only] if only else list(file["trial"])
    for name in names:
        if name not in file["trial"]:
            raise BadInput(f"has no trial {int(name)}")
    found = [Trial(name, file["trial"][name]) for name in names]
    for trial in found:
        why = trial.unfit()
        if why and only:
            raise BadInput(f"trial {trial.name} cannot be compared: {why}")
        if why:
            say(f"# trial {trial.name} left out: {why}")
    fit = [trial for trial in found if not trial.unfit()]
    if not fit:
        raise BadInput("has no trial that a peer could run, with its tensors")
    return fit


# ---- right or wrong ----

class Worst:
    """The tensor of a pass that is worst, relative to its bound."""

    def __init__(self, peer, trial, results):
        self.error, self.bound, self.tensor = 0.0, 1.0, "-"
        margin = -1
        for path, got in results.items():
            correct = peer.correct(trial, path)
            if correct is None:
                continue
            bound = trial.bound(path)
            error = distance(trial.judged(path, got.detach()), correct)
            if error / bound > margin:
                margin = error / bound
                self.error, self.bound, self.tensor = error, bound, path.replace("d/", "d_")
        if margin < 0 and trial.sampled():
            raise ValueError("no sample covers a result of this pass")
        self.wrong = not margin <= 1


def upstream_of(peer, trial):
    """Its outputs that have a gradient, and these gradients; none where it has no backward pass."""
    if peer.no_backward(trial.case):
        return [], []
    return trial.upstream(peer.outputs(trial.case))


def results_of(peer, trial):
    """All that it computes, by its path in the dump, for each pass."""
    names, outputs = peer.inputs(trial.case), peer.outputs(trial.case)
    inputs = trial.inputs(names)
    results = peer.finished(trial.case, peer.core(trial.case, *peer.prepared(trial.case, *inputs)))
    found = {"forward": dict(zip(outputs, results))}
    places, upstream = upstream_of(peer, trial)
    if places:
        wanted = [i for i, x in enumerate(inputs) if x.requires_grad]
        grads = torch.autograd.grad([results[i] for i in places], [inputs[i] for i in wanted],
                                    upstream)
        found["backward"] = {f"d/{names[i]}": grad for i, grad in zip(wanted, grads)}
    return found


# ---- time ----

def flush():
    """Flush L2: read a buffer of twice its size, so that no dirty line is left."""
    global flushed
    if flushed is None:
        size = 2 * torch.cuda.get_device_properties(DEVICE).L2_cache_size
        flushed = torch.zeros(size // 4, dtype=torch.float32, device=DEVICE)
    flushed.amax()


flushed = None


def runs_of(peer, trial):
    """Per pass, a function that runs it once, to be called on one and the same stream."""
    case = trial.case
    given = trial.inputs(peer.inputs(case))
    leaves = [x.detach().requires_grad_(x.requires_grad) for x in peer.prepared(case, *given)]
    places, upstream = upstream_of(peer, trial)

    def forward():
        return peer.core(case, *leaves)

    if not places:
        return {"forward": forward}
    results = forward()
    ends = [x.detach().requires_grad_() for x in results]
    finished = peer.finished(case, ends)
    upstream = torch.autograd.grad([finished[i] for i in places], ends, upstream,
                                   allow_unused=True)
    used = [(result, x.contiguous()) for result, x in zip(results, upstream) if x is not None]
    wanted = [x for x in leaves if x.requires_grad]

    def backward():
        return torch.autograd.grad([r for r, _ in used], wanted, [x for _, x in used],
                                   retain_graph=True)

    return {"forward": forward, "backward": backward}


def captured(run):
    """As a graph.  Backward runs on the stream of its forward, so that one captures."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        run()
    return graph


def graph_seconds(run, repeats):
    graph = captured(run)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for _ in range(WARM_UP):
        graph.replay()
    for begin, end in marks:
        flush()
        begin.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in marks) / 1000


def profiled_seconds(run):
    """The sum of its kernels' times; each run is profiled apart, so that flushes are not."""
    sums = []
    for _ in range(PROFILED_RUNS):
        flush()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run()
            torch.cuda.synchronize()
        sums.append(sum(e.self_device_time_total for e in profile.key_averages()) / 1e6)
    return statistics.median(sums)


def stream_seconds(run):
    """Until the host has seen the end of it."""
    times = []
    for _ in range(STREAM_RUNS):
        flush()
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def timed(run, repeats):
    """GPU seconds, what launching adds, and how they were found."""
    for _ in range(WARM_UP):
        run()
    try:
        seconds, how = graph_seconds(run, repeats), "graph"
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        torch.cuda.synchronize()
        seconds, how = profiled_seconds(run), "sum of kernels"
    return seconds, max(0.0, stream_seconds(run) - seconds), how


# ---- report ----

COLUMNS = ("trial", "peer", "pass", "us", "ratio", "launch_us", "error", "bound", "tensor", "how")
WIDTHS = (0, 16, 9, 10, 8, 10, 8, 8, 6, 0)
UNKNOWN = "-"


def say(line):
    """What is no row: beside the records, where a program reads these."""
    print(line, file=sys.stderr if TSV else sys.stdout, flush=True)


def put(fields):
    if TSV:
        print("\t".join(fields), flush=True)
    else:
        print("  " + " ".join(f"{x:{w}}" for x, w in zip(fields[1:], WIDTHS[1:])).rstrip(),
              flush=True)


def put_row(trial, peer, p, how, seconds=None, launch=None, worst=None):
    ours = trial.ours().get(p)
    put((trial.name, peer, p,
         f"{seconds * 1e6:.1f}" if seconds else UNKNOWN,
         f"{seconds / ours[1]:.2f}" if seconds and ours else UNKNOWN,
         f"{launch * 1e6:.1f}" if launch is not None else UNKNOWN,
         f"{worst.error:.1e}" if worst else UNKNOWN,
         f"{worst.bound:.1e}" if worst else UNKNOWN,
         worst.tensor if worst else UNKNOWN, how))


def put_ours(trial):
    for p in PASSES if "d" in trial.group[trial.oracle()] else PASSES[:1]:
        if p in trial.ours():
            kernel, seconds, method = trial.ours()[p]
            put_row(trial, f"ours: {kernel}", p, f"in the dump, {method}", seconds)
        else:
            put_row(trial, "ours", p, "no time of a GPU kernel in the dump")


def put_judged(trial, peer, worst, repeats):
    """A row for each pass, timed where repeats is not 0 and it is right."""
    runs = runs_of(peer, trial) if repeats and not worst["forward"].wrong else {}
    for p in worst:
        if worst[p].wrong:
            put_row(trial, peer.name, p, f"WRONG by {worst[p].error:.1e}", worst=worst[p])
        elif p not in runs:
            why = "not timed, forward is wrong" if worst["forward"].wrong else "not timed"
            put_row(trial, peer.name, p, why, worst=worst[p])
        else:
            seconds, launch, how = timed(runs[p], repeats)
            put_row(trial, peer.name, p, how, seconds, launch, worst[p])


def compare(peer, trial, repeats):
    """The rows of one peer; whether it was right."""
    peer.begin(trial)
    if on_gpu():
        torch.cuda.synchronize()    # begin() worked on another stream
    with torch.cuda.stream(torch.cuda.Stream() if on_gpu() else None):
        worst = {p: Worst(peer, trial, results) for p, results in results_of(peer, trial).items()}
        put_judged(trial, peer, worst, repeats)
    if peer.no_backward(trial.case):
        put_row(trial, peer.name, "backward", f"declines: {peer.no_backward(trial.case)}")
    remark = peer.remark(trial.case)
    if remark:
        say(f"  # {remark}")
    return not any(w.wrong for w in worst.values())


def compare_safely(peer, trial, repeats):
    """A peer that runs out of memory or refuses the case has no time; one that breaks is a failure;
    all go on."""
    try:
        return compare(peer, trial, repeats)
    except torch.OutOfMemoryError:
        put_row(trial, peer.name, UNKNOWN, "out of memory")
        return True
    except Exception as error:
        if peer.refused(error):
            put_row(trial, peer.name, UNKNOWN, f"declines: {error}")
            return True
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        put_row(trial, peer.name, UNKNOWN, f"FAILED: {type(error).__name__}: {reason}")
        return False
    finally:
        if on_gpu():
            torch.cuda.empty_cache()


def run(file, peers, only, repeats, tsv):
    """All of it; whether every peer was right."""
    global TSV
    TSV = tsv
    good = True
    trials = trials_of(file, only)
    device = torch.cuda.get_device_name() if on_gpu() else "CPU"
    say(f"device: {device}; PyTorch {torch.__version__}")
    if repeats and not on_gpu():
        say("no GPU: peers are compared, and not timed")
        repeats = 0
    there = [peer for peer in peers if not peer.missing()]
    for peer in peers:
        say(f"{peer.name}: {peer.note if peer in there else f'not there: {peer.missing()}'}")
    if TSV:
        put(COLUMNS)
    for trial in trials:
        say(f"\n{trial.title()}")
        if not TSV:
            put(COLUMNS)
        put_ours(trial)
        for peer in there:
            why = (None if trial.case["op"] in peer.operations
                   else f"it has no {trial.case['op']}") or peer.declines(trial.case)
            if why:
                put_row(trial, peer.name, UNKNOWN, f"declines: {why}")
            else:
                good &= compare_safely(peer, trial, repeats)
    return good
