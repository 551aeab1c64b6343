"""definitions_torch.py - attention in PyTorch, in double: o, lse and the gradients by its autograd, and o
by its scaled_dot_product_attention where that has the options of a case.

MISSING is None, or says why there is none.  The words of dropout are those of NumPy's definition.
"""
import numpy as np

from definitions_attention import factor, kept, visible_pairs

try:
    import torch
    import torch.nn.functional as F
    MISSING = None
except ImportError as missing:
    torch, MISSING = None, f"no PyTorch: {missing}"


def declines(given, results):
    """Why autograd is not asked about a case, or None."""
    if not all(np.isfinite(x).all() for x in given.values()):
        return "inputs that are not finite"
    if not np.isfinite(results["lse"]).all():
        return "a row that sees nothing"
    return None


def leaves(given):
    """The inputs as double tensors that ask for gradients."""
    return {name: torch.tensor(x, dtype=torch.float64, requires_grad=name not in ("slopes", "counter"))
            for name, x in given.items()}


def masks(a, x):
    """What is added to the scores [H,T,S], -inf where a key is not visible."""
    T, S = a["steps"], a["keys"] or a["steps"]
    seen, distance_of = (torch.tensor(m) for m in visible_pairs(a, T, S))
    shift = torch.zeros(a["heads"], T, S, dtype=torch.float64)
    if a["bias"] == "full":
        shift = shift + x["bias"]
    if a["bias"] == "alibi":
        shift = shift - x["slopes"][:, None, None] * distance_of
    return shift.masked_fill(~seen, -torch.inf)


def heads_of(a, x, name):
    """k or v [B,H,S,.], that of the query head's group."""
    return torch.repeat_interleave(x[name].transpose(1, 2), a["heads"] // x[name].shape[2], dim=1)


def attend(a, x):
    """o [B,T,H,E] and lse [B,H,T]."""
    q, k, v = x["q"].transpose(1, 2), heads_of(a, x, "k"), heads_of(a, x, "v")
    s = factor(a) * (q @ k.transpose(2, 3))
    if a["softcap"]:
        s = a["softcap"] * torch.tanh(s / a["softcap"])
    s = s + masks(a, x)
    B, H, T, S = s.shape
    if a["sink"] == "yes":
        s = torch.cat([s, x["sinks"][None, :, None, None].expand(B, H, T, 1)], dim=3)
    lse = torch.logsumexp(s, dim=3)
    z = np.stack([kept(a, x, row, T, S) for row in range(B * H)]).reshape(B, H, T, S)
    o = (torch.softmax(s, dim=3)[..., :S] * torch.tensor(z)) @ v
    return o.transpose(1, 2), lse


def own_attention(a, x):
    """o by PyTorch's own function, or None where it lacks an option."""
    if a["softcap"] or a["sink"] == "yes" or a["dropout"]:
        return None
    o = F.scaled_dot_product_attention(x["q"].transpose(1, 2), heads_of(a, x, "k"),
                                       heads_of(a, x, "v"), attn_mask=masks(a, x)[None],
                                       scale=factor(a))
    return o.transpose(1, 2)


def run(a, given, upstream):
    """All results and gradients by name; o of PyTorch's own function is `sdpa`."""
    x = leaves(given)
    o, lse = attend(a, x)
    (torch.sum(o * torch.tensor(upstream["o"])) +
     torch.sum(lse * torch.tensor(upstream["lse"]))).backward()
    got = {"o": o, "lse": lse}
    got |= {"d_" + name: t.grad for name, t in x.items() if t.grad is not None}
    with torch.no_grad():
        own = own_attention(a, x)
    if own is not None:
        got["sdpa"] = own
    return {name: t.detach().numpy() for name, t in got.items()}


def also(got, by):
    """What PyTorch's further results are compared with."""
    return {"sdpa": got["o"]} if "sdpa" in by else {}
