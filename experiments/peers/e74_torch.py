"""e74_torch.py - E74's cell in PyTorch: the eager loop, and torch.compile of several steps.

    k^ = k / (|k| + eps);  delta = v - S k^;  S <- f(S + delta k^T);  y = S q;  out = y silu(y)

for full and diagonal states, tanh and linear, proj = no_z; k, v, q [T,B,H,n] in storage
type, S0 in float32.  All arithmetic is float32.  Backward is PyTorch's own autograd.
"""
import torch
import torch._functorch.config

EPSILON = 1e-6
CHUNK = 8      # steps that are compiled as one: a whole loop takes minutes to compile


def inputs(case):
    return "k", "v", "q", "S0"


def outputs(case):
    return "out", "S_T"


def declines(case):
    """Why this cell cannot do a case (a dict of a trial's attributes), or None."""
    if case["state"] not in ("full", "diagonal") or case["nonlin"] not in ("tanh", "linear"):
        return "only full and diagonal states with tanh and linear are written in PyTorch"
    if case["proj"] != "no_z":
        return "only proj = no_z is written in PyTorch"
    return None


def product(S, u):
    """S u by a batched matrix product."""
    return (S @ u[..., None])[..., 0]


def summed_product(S, u):
    """The same by elementwise operations, which the compiler fuses with their neighbours."""
    return (S * u[..., None, :]).sum(-1)


def step(case, S, k, v, q, times):
    """One step of all sequences and heads: out [B,H,n] and the new state."""
    khat = k / (torch.linalg.vector_norm(k, dim=-1, keepdim=True) + EPSILON)
    if case["state"] == "full":
        S = S + (v - times(S, khat))[..., None] * khat[..., None, :]
    else:
        S = S + (v - S * khat) * khat
    if case["nonlin"] == "tanh":
        S = torch.tanh(S)
    y = times(S, q) if case["state"] == "full" else S * q
    return y * y * torch.sigmoid(y), S


def steps(case, S, k, v, q, times):
    outs = []
    for k_t, v_t, q_t in zip(k.float().unbind(0), v.float().unbind(0), q.float().unbind(0)):
        out, S = step(case, S, k_t, v_t, q_t, times)
        outs.append(out)
    return torch.stack(outs).to(k.dtype), S


def eager(case, k, v, q, S0):
    out, S_T = steps(case, S0, k, v, q, product)
    return out.flatten(2), S_T


def compiled(case):
    """The cell, CHUNK steps of which are compiled; the loop over them is Python's."""
    choices = {name: str(case[name]) for name in ("state", "nonlin")}
    # The backward pass is timed, so it runs again and again on what one forward pass kept.
    torch._functorch.config.donated_buffer = False
    chunk = torch.compile(lambda S, k, v, q: steps(choices, S, k, v, q, summed_product),
                          dynamic=False)

    def cell(case, k, v, q, S0):
        outs, S = [], S0
        for part in zip(k.split(CHUNK), v.split(CHUNK), q.split(CHUNK)):
            out, S = chunk(S, *part)
            outs.append(out)
        return torch.cat(outs).flatten(2), S

    return cell
