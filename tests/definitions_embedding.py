"""definitions_embedding.py - embedding in NumPy, with its gradient, and in PyTorch, in double: torch.nn.Embedding and
its autograd.

MISSING is None, or says why there is no PyTorch.
"""
import numpy as np

from definitions_torch import MISSING, torch


def results(a, given):
    """Row by row, of a table with a row of NaN behind its last."""
    token, V = given["token"].astype(np.int64), int(a["vocabulary"])
    table = np.vstack([given["E"], np.full((1, int(a["width"])), np.nan)])
    return {"y": table[np.where((token >= 0) & (token < V), token, V)]}


def gradients(a, given, upstream):
    """The product of the matrix [V,R] that says whose row r is and dy; its size is that of the sums."""
    token, V = given["token"].astype(np.int64), int(a["vocabulary"])
    sums = {}
    for name, dy in (("signed", upstream["y"]), ("size", np.abs(upstream["y"]))):
        sums[name] = np.zeros((V, dy.shape[1]))
        inside = (token >= 0) & (token < V)
        np.add.at(sums[name], token[inside], dy[inside])
    return {"E": (sums["signed"], np.max(sums["size"]))}


def roundings(a, given, results):
    """The forward pass copies; a sum has at most as many terms as a token has rows."""
    return np.max(np.unique(given["token"], return_counts=True)[1])


def declines(given, results):
    """Why PyTorch is not asked about a case, or None."""
    token = given["token"]
    return "tokens outside" if np.any((token < 0) | (token >= given["E"].shape[0])) else None


def run(a, given, upstream):
    """All results and gradients by name."""
    layer = torch.nn.Embedding.from_pretrained(torch.tensor(given["E"]), freeze=False)
    y = layer(torch.tensor(given["token"].astype(np.int64)))
    torch.sum(y * torch.tensor(upstream["y"])).backward()
    return {"y": y.detach().numpy(), "d_E": layer.weight.grad.numpy()}
