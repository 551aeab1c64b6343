"""peers.py - the peers of run_peers.py: what each can do, and how it is called.

PyTorch is imported where it is used, so that they can be listed without it.
"""
import importlib.util
import os


class BadInput(Exception):
    pass


# ---- what they share ----

def installed(package):
    return importlib.util.find_spec(package) is not None


def on_gpu():
    import torch
    return torch.cuda.is_available()


def device_type():
    return "cuda" if on_gpu() else "cpu"


def distance(a, b):
    """max|a-b| / max|b|; NaN is infinite."""
    off, size = (a.double() - b).abs().max().item(), b.abs().max().item()
    if off != off:
        return float("inf")
    return off if off == 0 else off / size if size else float("inf")


# ---- peers ----

class Peer:
    """An operation, timed as a whole; see Fla for one of which only a part is."""

    name = note = None
    operations = ("e74_cell",)

    def missing(self):
        """Why it is not there, or None."""
        return None

    def declines(self, case):
        """Why it cannot do a case, or None."""
        raise NotImplementedError

    def begin(self, trial):
        """Make what is made once for a trial."""

    def refused(self, error):
        """Does it say by this error that it cannot do a case?"""
        return False

    def inputs(self, case):
        """The names of what prepared() takes."""
        return torch_cell().inputs(case)

    def outputs(self, case):
        """The names of what finished() gives."""
        return torch_cell().outputs(case)

    def prepared(self, case, *inputs):
        """What core() takes."""
        return inputs

    def core(self, case, *prepared):
        """What is timed."""
        raise NotImplementedError

    def finished(self, case, results):
        """The outputs from what core() gave."""
        return results

    def no_backward(self, case):
        """Why it has no backward pass, or None."""
        return None

    def correct(self, trial, path):
        """What a result of it is compared with; None where the dump cannot judge that result."""
        return trial.correct(path)

    def remark(self, case):
        """What there is to say on the case that was run last, or None."""
        return None


class Eager(Peer):
    name = "eager"
    note = "PyTorch; E74's cell one step after the other"

    @property
    def operations(self):
        return ("e74_cell", *torch_rows().OPERATIONS)

    def module(self, case):
        return torch_cell() if case["op"] == "e74_cell" else torch_rows()

    def inputs(self, case):
        return self.module(case).inputs(case)

    def outputs(self, case):
        return self.module(case).outputs(case)

    def declines(self, case):
        return self.module(case).declines(case)

    def core(self, case, *prepared):
        return self.module(case).eager(case, *prepared)


class Compiled(Eager):
    name = "compile"
    note = "torch.compile; of E74's cell 8 steps at a time"

    def missing(self):
        return None if on_gpu() else "torch.compile is a peer on a GPU only"

    def begin(self, trial):
        import torch
        torch.compiler.reset()
        self.function = self.module(trial.case).compiled(trial.case)

    def core(self, case, *prepared):
        return self.function(case, *prepared)


class Triton(Peer):
    name = "triton"
    note = "our own kernels in Triton, tuned for each shape"

    def missing(self):
        if not installed("triton"):
            return "Triton is not installed"
        if not on_gpu() and os.environ.get("TRITON_INTERPRET") != "1":
            return "Triton needs a GPU, or TRITON_INTERPRET=1"
        return None

    def declines(self, case):
        return triton_cell().declines(case)

    def core(self, case, *prepared):
        return triton_cell().cell(case, *prepared)

    def remark(self, case):
        return triton_cell().chosen(case)


class Fla(Peer):
    """flash-linear-attention's delta rule: only that is timed.  Normalising k, rounding it
    to the storage type and y silu(y) are left out of its time, and so is the change of
    layout from [T,B,H,n] to its [B,T,H,n] and of S [n_v,n_k] to its [n_k,n_v]."""

    def missing(self):
        if not installed("fla"):
            return "flash-linear-attention is not installed"
        return None if on_gpu() else "flash-linear-attention needs a GPU"

    def declines(self, case):
        if (case["state"], case["nonlin"], case["proj"]) != ("full", "linear", "no_z"):
            return "the delta rule is state = full, nonlin = linear, proj = no_z"
        return None

    def begin(self, trial):
        import torch
        B, T, H = (int(trial.case[x]) for x in ("batch", "steps", "heads"))
        self.beta = torch.ones(B, T, H, dtype=trial.storage, device=device_type())

    def prepared(self, case, k, v, q, S0):
        import torch
        khat = k.float() / (torch.linalg.vector_norm(k.float(), dim=-1, keepdim=True) + 1e-6)
        return (*(x.transpose(0, 1).contiguous() for x in (khat.to(k.dtype), v, q)),
                S0.transpose(-1, -2).contiguous())

    def core(self, case, khat, v, q, S0):
        import fla.ops.delta_rule
        return getattr(fla.ops.delta_rule, self.function)(
            q, khat, v, self.beta, scale=1.0, initial_state=S0, output_final_state=True,
            use_qk_l2norm_in_kernel=False)

    def finished(self, case, results):
        import torch
        o, S_T = results
        y = o.float().transpose(0, 1)
        return (y * y * torch.sigmoid(y)).to(o.dtype).flatten(2), S_T.transpose(-1, -2)


class FlaChunk(Fla):
    name = "fla-chunk"
    note = "flash-linear-attention's chunk_delta_rule alone"
    function = "chunk_delta_rule"

    def declines(self, case):
        if case["dtype"] == "fp32":
            return "it has no float32"
        return super().declines(case)


class FlaRecurrent(Fla):
    name = "fla-recurrent"
    note = "flash-linear-attention's fused_recurrent_delta_rule alone"
    function = "fused_recurrent_delta_rule"


class Sdpa(Peer):
    """PyTorch's attention by one of its backends.  A mask that is no flag is made before."""

    operations = ("attention",)

    def __init__(self, backend, note):
        self.name, self.note = backend, f"PyTorch's scaled_dot_product_attention, {note}"

    def missing(self):
        return None if installed("torch.nn.attention") else "this PyTorch has no torch.nn.attention"

    def declines(self, case):
        return torch_attention().declines(case)

    def begin(self, trial):
        torch_attention().ask(trial.case, self.name, *trial.inputs(self.inputs(trial.case)))

    def refused(self, error):
        return isinstance(error, torch_attention().Refused)

    def inputs(self, case):
        return torch_attention().inputs(case)

    def outputs(self, case):
        return torch_attention().outputs(case)

    def prepared(self, case, *inputs):
        return torch_attention().prepared(case, *inputs)

    def core(self, case, *prepared):
        return torch_attention().attention(case, self.name, *prepared)


class Quantised(Peer):
    """W in its own form is made before the time is taken."""

    operations = ("gemm_quantised",)

    def __init__(self, name, note):
        self.name, self.note = name, note

    def way(self):
        return torch_quantised().WAYS[self.name]

    def missing(self):
        package = self.way().package
        return None if package is None or installed(package) else f"{package} is not installed"

    def declines(self, case):
        return self.way().declines(case)

    def no_backward(self, case):
        return self.way().no_backward

    def begin(self, trial):
        self.weights = self.way().weights(trial.case, trial.arrays(), trial.storage, device_type())

    def inputs(self, case):
        return ["x"]

    def outputs(self, case):
        return ["y"]

    def prepared(self, case, x):
        return self.way().prepared(case, x)

    def core(self, case, *xs):
        return self.way().products(self.weights, *xs)

    def finished(self, case, ys):
        return self.way().finished(case, ys)


class Int4(Quantised):
    """Its weights are not exactly the dump's: its y is compared with the product by its own."""

    def begin(self, trial):
        super().begin(trial)
        self.y, reach = (trial.judged("y", whole) for whole in
                         self.way().correct(trial.case, trial.arrays(), *trial.inputs(["x"])))
        oracle = trial.correct("y")
        if not ((self.y - oracle).abs() <= reach).all():
            raise ValueError("its weights are off from q4_k's by more than bf16 rounds")
        self.off = distance(self.y, oracle)

    def correct(self, trial, path):
        return self.y

    def remark(self, case):
        return f"y by its weights, in float64, is off from the oracle's by {self.off:.1e}"


PEERS = (Triton(), FlaChunk(), FlaRecurrent(), Compiled(), Eager(),
         Sdpa("sdpa-math", "operations one by one"), Sdpa("sdpa-flash", "FlashAttention"),
         Sdpa("sdpa-efficient", "xFormers' memory-efficient kernels"), Sdpa("sdpa-cudnn", "cuDNN"),
         Quantised("cublas", "cuBLAS, W decoded before and rounded to the storage type"),
         Quantised("bnb-4bit", "bitsandbytes' matmul_4bit"),
         Int4("torchao-int4", "PyTorch's int4 kernel, which torchao calls"))


def torch_cell():
    import e74_torch
    return e74_torch


def torch_rows():
    import rows_torch
    return rows_torch


def torch_attention():
    import attention_torch
    return attention_torch


def torch_quantised():
    import quantised_torch
    return quantised_torch


def triton_cell():
    import e74_triton
    return e74_triton


def chosen_peers(names):
    known = {peer.name: peer for peer in PEERS}
    for name in names or []:
        if name not in known:
            raise BadInput(f"there is no peer {name}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(PEERS)
