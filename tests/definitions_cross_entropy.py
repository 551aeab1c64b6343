"""definitions_cross_entropy.py - cross_entropy in NumPy, with its gradient, and in PyTorch, in double:
torch.nn.CrossEntropyLoss in its three reductions and its autograd, and torch.logsumexp.

MISSING is None, or says why there is no PyTorch.
"""
import numpy as np

from definitions_torch import MISSING, torch


def rows_of(a, given):
    """Targets, which rows are counted, and which of these have a target in the vocabulary."""
    target = given["target"].astype(np.int64)
    counted = target != int(a["ignore_index"])
    return target, counted, counted & (target >= 0) & (target < given["logits"].shape[1])


def results(a, given):
    """A row with a NaN or inf, or of -inf all over, has the loss NaN, and the lse that
    torch.logsumexp gives it."""
    logits, s = given["logits"], a["label_smoothing"]
    target, counted, _ = rows_of(a, given)
    top = np.max(logits, axis=-1)
    below = logits - top[:, None]
    total = np.sum(np.exp(below), axis=-1)
    log_sum = np.log(total)
    known = (target >= 0) & (target < logits.shape[1])
    row_loss = np.where(known, log_sum, np.nan)
    for r in np.nonzero(known)[0]:    # from the largest logit on, as log_sum is
        row_loss[r] -= (1 - s) * below[r, target[r]]
        if s > 0:    # 0 times an infinite mean is no share of it
            row_loss[r] -= s * np.mean(below[r])
    row_loss[~counted] = 0
    count = np.sum(counted)
    loss = np.sum(row_loss) / count if count else 0
    lse = np.where(np.isfinite(top), top + log_sum, top)
    return {"loss": np.array([loss]), "row_loss": row_loss, "lse": lse, "count": np.array([count]),
            "top": top, "sum": total}


def gradients(a, given, upstream):
    """Of a row (da + dlse) p - da ((1 - s) [target] + s / V), with da of loss and row_loss; its size is
    that of the parts."""
    logits, s = given["logits"], a["label_smoothing"]
    target, counted, known = rows_of(a, given)
    V, count = logits.shape[1], np.sum(counted)
    da = np.where(counted, upstream["row_loss"] + (upstream["loss"] / count if count else 0), 0)
    share = np.full(logits.shape, s / V)
    share[np.nonzero(known)[0], target[known]] += 1 - s
    e = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    e[~np.isfinite(np.max(logits, axis=-1))] = np.nan
    e[counted & ~known] = np.nan
    total = da + upstream["lse"]
    d = total[:, None] * (e / np.sum(e, axis=-1, keepdims=True)) - da[:, None] * share
    return {"logits": (d, np.max(np.abs(da) + np.abs(upstream["lse"])))}


def declines(given, results):
    """Why PyTorch is not asked about a case, or None."""
    if not np.isfinite(given["logits"]).all():
        return "logits that are not finite"
    if not results["count"][0]:
        return "all rows are ignored: its mean is NaN, ours 0"
    return None


def run(a, given, upstream):
    """All results and gradients by name; the loss in PyTorch's reduction `sum` is loss_sum."""
    x = torch.tensor(given["logits"], requires_grad=True)
    target = torch.tensor(given["target"].astype(np.int64))

    def loss(reduction):
        return torch.nn.CrossEntropyLoss(ignore_index=int(a["ignore_index"]), reduction=reduction,
                                         label_smoothing=a["label_smoothing"])(x, target)
    top = torch.amax(x.detach(), dim=1)
    total = torch.sum(torch.exp(x - top[:, None]), dim=1)
    # logsumexp's gradient, exp(x - lse), has the rounding of lse, which is large where logits are
    got = {"loss": loss("mean").reshape(1), "row_loss": loss("none"), "lse": top + torch.log(total)}
    sum(torch.sum(t * torch.tensor(upstream[name])) for name, t in got.items()).backward()
    got |= {"loss_sum": loss("sum").reshape(1), "top": top, "d_logits": x.grad, "sum": total,
            "lse": torch.logsumexp(x, dim=1),
            "count": torch.sum(target != int(a["ignore_index"])).reshape(1)}
    return {name: t.detach().numpy().astype(np.float64) for name, t in got.items()}


def also(got, by):
    """What PyTorch's further results are compared with."""
    return {"loss_sum": got["loss"] * got["count"]}
