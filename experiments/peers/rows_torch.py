"""rows_torch.py - the kernel catalogue's rows and elements in PyTorch, as its users write them.

Each operation is a function of its inputs, in the order of INPUTS, that gives the outputs of
OUTPUTS; `case` is a dict of a trial's attributes.  What the operation keeps for its own backward
pass is no output here.  Backward is PyTorch's own autograd.
"""
from numbers import Integral

import torch
import torch.nn.functional as F
from torch.optim.adamw import adamw as step_of_adamw

OPERATIONS = {}
RATES = ("lr", "beta1", "beta2", "eps", "weight_decay")
REAL = ("scale", "theta", "label_smoothing", *RATES)    # attributes that are no text and no size


def operation(inputs, outputs):
    def known(function):
        OPERATIONS[function.__name__] = (inputs.split(), outputs.split(), function)
        return function
    return known


@operation("x", "y")
def softmax(case, x):
    return (torch.softmax(x * float(case["scale"]) if case["scale"] != 1 else x, -1),)


@operation("x w", "y")
def rmsnorm(case, x, w):
    return (F.rms_norm(x, x.shape[-1:], w, float(case["eps"])),)


@operation("x w b", "y")
def layernorm(case, x, w, b):
    return (F.layer_norm(x, x.shape[-1:], w, b, float(case["eps"])),)


@operation("x", "y")
def silu(case, x):
    return (F.silu(x),)


@operation("x", "y")
def relu(case, x):
    return (F.relu(x),)


@operation("a b", "y")
def swiglu(case, a, b):
    return (F.silu(a) * b,)


@operation("a b", "y")
def add(case, a, b):
    return (a + b,)


def rope_tables(case, device):
    """cos and sin of each step and pair, as models make them: once, not in each pass."""
    if "tables" not in case:
        half = int(case["dim"]) // 2
        at, pair = (torch.arange(n, dtype=torch.float64, device=device)
                    for n in (int(case["steps"]), half))
        angle = (int(case["offset"]) + at)[:, None] * float(case["theta"]) ** (-pair / half)
        case["tables"] = [f(angle).to(torch.float32)[None, :, None, :]
                          for f in (torch.cos, torch.sin)]
    return case["tables"]


@operation("x", "y")
def rope(case, x):
    half = x.shape[3] // 2
    cos, sin = rope_tables(case, x.device)
    if case["form"] == "half":
        a, b = x[..., :half], x[..., half:]
        return (torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype),)
    a, b = x[..., 0::2], x[..., 1::2]
    return (torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype),)


@operation("logits target", "loss row_loss lse")
def cross_entropy(case, logits, target):
    ignored = int(case["ignore_index"])
    row_loss = F.cross_entropy(logits.float(), target, ignore_index=ignored, reduction="none",
                               label_smoothing=float(case["label_smoothing"]))
    count = (target != ignored).sum().clamp(min=1)
    return ((row_loss.sum() / count)[None], row_loss, torch.logsumexp(logits.float(), -1))


@operation("token E", "y")
def embedding(case, token, E):
    return (F.embedding(token, E),)


def parts_of(case):
    """Begin and length of each part of adamw's buffer (common/ops/adamw.h)."""
    N, K = int(case["parameters"]), int(case["tensors"])
    packed = [N * (k * (k + 1)) // (K * (K + 1)) for k in range(K + 1)]
    begin = [min(-(-at // 128) * 128, N) for at in packed]
    return [(begin[k], min(packed[k + 1] - packed[k], begin[k + 1] - begin[k])) for k in range(K)
            if begin[k + 1] > begin[k]]


# PyTorch's own step changes what it is given, and says nothing: what it is given are copies of
# a dump's tensors, for one run, and when it is timed, for one step after the other.
@operation("p g m v", "p_next m_next v_next")
def adamw(case, p, g, m, v):
    lr, beta1, beta2, eps, decay = (float(case[key]) for key in RATES)
    step = int(case["step"])
    if not torch.compiler.is_compiling():
        parts = parts_of(case)
        lists = [[x.narrow(0, *at) for at in parts] for x in (p, g, m, v)]
        step_of_adamw(
            *lists, [], [torch.full((), step - 1.0, device=p.device) for _ in parts], fused=True,
            amsgrad=False, maximize=False, lr=lr, beta1=beta1, beta2=beta2, eps=eps,
            weight_decay=decay)
        return p, m, v
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    root = (v / (1 - beta2 ** step)).sqrt() + eps
    return p - lr * (m / (1 - beta1 ** step) / root + decay * p), m, v


def declines(case):
    """Why an operation's function cannot do a case, or None."""
    if case["op"] == "adamw":
        if case["master"] == "yes" or case["dtype"] != "fp32":
            return "it has one type for parameters and moments"
        if int(case["decayed"]) != -1 or float(case["clip_factor"]) != 1 or case["overflow"] != "no":
            return "of a part that decays, clipping and skipping it is not asked here"
    return None


def inputs(case):
    return OPERATIONS[case["op"]][0]


def outputs(case):
    return OPERATIONS[case["op"]][1]


def eager(case, *given):
    return OPERATIONS[case["op"]][2](case, *given)


def compiled(case):
    # The backward pass is timed, so it runs again and again on what one forward pass kept.
    import torch._functorch.config
    torch._functorch.config.donated_buffer = False
    function = torch.compile(eager, dynamic=False)
    plain = {key: int(value) if isinstance(value, Integral) else value
             for key, value in case.items() if isinstance(value, (str, Integral, float))}
    plain.update((key, float(case[key])) for key in REAL if key in case)

    def call(_, *given):
        if case["op"] == "rope":
            plain["tables"] = rope_tables(case, given[0].device)
        return function(plain, *given)
    return call
