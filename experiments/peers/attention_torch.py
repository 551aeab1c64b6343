"""attention_torch.py - PyTorch's scaled_dot_product_attention, each of its backends by itself.

Inputs are those of `attention` in a dump: q [B,T,H,D], k [B,S,G,D], v [B,S,G,E], given as views
[B,H,T,D]; the output is o [B,T,H,E].  Its causal mask is aligned at the first query and key, ours
at the last: it is used where T = S, and else the mask is given, as are windows and biases.  It has
no gradient of lse.  `case` is a dict of a trial's attributes.
"""
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"sdpa-math": SDPBackend.MATH, "sdpa-flash": SDPBackend.FLASH_ATTENTION,
            "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
            "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION}
REFUSALS = ("No available kernel", "No viable backend")    # of a backend that does not take a case


class Refused(Exception):
    """A backend does not take a case; PyTorch's reason."""


def inputs(case):
    return ["q", "k", "v"] + {"none": [], "alibi": ["slopes"], "full": ["bias"]}[case["bias"]]


def outputs(case):
    return ["o"]


def declines(case):
    """Why PyTorch's function cannot do a case, or None."""
    if case.get("d_lse") != "zero":
        return "it has no gradient of lse (d_lse = zero)"
    if float(case["softcap"]) > 0:
        return "it has no softcap"
    if case["sink"] == "yes":
        return "it has no sinks"
    if float(case["dropout"]) > 0:
        return "its dropout draws other words"
    if case["keep_o"] != "as_stored":
        return "it keeps o as stored"
    if case["bias"] == "alibi" and case["dtype"] == "bf16":
        return "alibi is a mask to it, which it wants rounded to bf16"
    if case["fill"] in ("masked", "outliers"):
        return "results that are not finite are not compared"
    return None


def distances(T, S, device):
    """i + o - j: how far key j is before query i."""
    i, j = (torch.arange(n, device=device) for n in (T, S))
    return (i + S - T)[:, None] - j


def unseen(case, back):
    """Of the distances of keys: is a key not visible?"""
    if case["mask"] == "full":
        return torch.zeros_like(back, dtype=torch.bool)
    if case["mask"] == "causal":
        return back < 0
    left, right = (int(case[x]) if int(case[x]) >= 0 else back.numel() for x in ("left", "right"))
    return (back > left) | (-back > right)


def is_causal(case, q, k):
    """Is the mask PyTorch's own?"""
    return case["mask"] == "causal" and case["bias"] == "none" and q.shape[1] == k.shape[1]


def prepared(case, q, k, v, added=None):
    """q, k, v and, where there must be one, what is added to the scores: [T,S] or [H,T,S]."""
    if case["bias"] == "none" and (case["mask"] == "full" or is_causal(case, q, k)):
        return q, k, v
    back = distances(q.shape[1], k.shape[1], q.device)
    if case["bias"] == "none":
        added = torch.zeros(back.shape, dtype=q.dtype, device=q.device)
    elif case["bias"] == "alibi":
        added = -added[:, None, None] * back.abs()
    return q, k, v, added.masked_fill(unseen(case, back), -torch.inf)


def attention(case, backend, q, k, v, mask=None):
    """o by one backend."""
    scale = float(case["scale"]) or None
    if mask is not None and mask.dim() == 3:
        mask = mask[None]
    with sdpa_kernel(BACKENDS[backend]):
        o = F.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask,
            is_causal=mask is None and is_causal(case, q, k), scale=scale,
            enable_gqa=q.shape[2] != k.shape[2])
    return (o.transpose(1, 2),)


def ask(case, backend, *given):
    """Raise Refused where the backend does not take the case: its warnings say why."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            attention(case, backend, *prepared(case, *given))
        except RuntimeError as error:
            if not str(error).startswith(REFUSALS):
                raise
            said = [str(w.message).split(" (Triggered")[0].splitlines()[0] for w in caught]
            said = [line for line in said if "not used because" not in line]
            raise Refused((said or [str(error)])[0].split(". ")[0]) from None
