"""A run of training beside the same one in PyTorch: its starts and batches from the dump, the model in float64 by
autograd, clip_grad_norm_ and AdamW; losses and weights to 1e-9."""

import math
import os
import pathlib
import subprocess

import pytest

h5py = pytest.importorskip("h5py")
torch = pytest.importorskip("torch")

from torch.nn import functional as F

SRC = pathlib.Path(os.environ.get("srcdir") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("ABLATE_PROGRAM") or "run-ablation"
SMALL = "width=16 batch=6 updates=5 weight_decay=0.3 save=final backends=ref64 eval_rows=6 seed=3 "
CASES = {
    "e74 full tanh": "mixer=e74 state=full proj=full z_mod=row n_state=4 heads=2 task=parity length=7 lr=3e-2",
    "e74 diagonal rmsnorm": "mixer=e74 state=diagonal nonlin=rmsnorm n_state=4 heads=2 blocks=2 task=counter "
                            "length=6 lr=1e-2 schedule=linear warmup=2",
    "e74 lowrank, a shared V": "mixer=e74 state=lowrank V=shared rank=2 n_state=4 task=copy length=7 lr=1e-2",
    "e74 with a gate": "mixer=e74 state=full proj=full z_mod=full z_act=twice_sigmoid nonlin=linear n_state=4 "
                       "task=word length=5 lr=1e-2 schedule=wsd warmup=1 decay=2",
    "a sigmoid": "mixer=e74 state=full proj=full z_act=sigmoid nonlin=frobnorm n_state=4 task=word elements=s5 "
                 "length=5 lr=1e-2 schedule=constant",
    "the dual memory": "mixer=dual_memory dim=6 slots=3 task=parity length=6 lr=1e-2 mlp=10 clip=0.1",
    "attention, an MLP": "mixer=attention heads=2 dim=4 blocks=2 mlp=12 task=mqar vocabulary=16 pairs=2 length=12 "
                         "lr=1e-2 clip=0",
    "no mixer": "mixer=none task=counter moves=yes length=5 supervise=last min=2 lr=1e-2 final=0.5",
    "bytes, a tied head": f"mixer=none head=tied task=bytes length=8 lr=1e-2 file={SRC}/data/sample.txt "
                          "loss_scale=1024",
}


def attribute(g, name, default=None):
    value = g.attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else value


def rmsnorm(x, w, eps=1e-6):
    return w * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def f_of(nonlin, P):
    if nonlin == "tanh":
        return torch.tanh(P)
    if nonlin == "linear":
        return P
    over = tuple(range(2, P.dim()))
    square = P * P
    size = square.mean(over, keepdim=True) if nonlin == "rmsnorm" else square.sum(over, keepdim=True)
    return P / (size.sqrt() + 1e-6)


def e74(a, p, x):
    """[T,B,d] to [T,B,H n]."""
    T, B, _ = x.shape
    H, n = a["heads"], a["n_state"]
    k, v, q = ((x @ p["W_" + name].T).reshape(T, B, H, n) for name in "kvq")
    z = None
    if "W_z" in p:
        z = (x @ p["W_z"].T + p["b_z"]).reshape(T, B, H, n)
        z = {"linear": z, "sigmoid": torch.sigmoid(z), "twice_sigmoid": 2 * torch.sigmoid(z)}[a["z_act"]]
    diagonal, low = a["state"] == "diagonal", a["state"] == "lowrank"
    S = torch.zeros((B, H, n) if diagonal else (B, H, n, a["rank"] if low else n), dtype=torch.float64)
    V = p["V0"] if low else None
    y = []

    def read(u):
        return S * u if diagonal else (S @ (V.mT @ u[..., None] if low else u[..., None]))[..., 0]

    for t in range(T):
        key = k[t] / (torch.linalg.vector_norm(k[t], dim=-1, keepdim=True) + 1e-6)
        rho = read(z[t] * key if z is not None and a["z_mod"] in ("column", "full") else key)
        if z is not None and a["z_mod"] in ("row", "full"):
            rho = z[t] * rho
        to = (p["W_r"] @ key[..., None])[..., 0] if low else key
        delta = v[t] - rho
        S = f_of(a["nonlin"], S + (delta * to if diagonal else delta[..., None] * to[..., None, :]))
        y.append(read(q[t]))
    y = torch.stack(y)
    return (y * F.silu(y)).reshape(T, B, H * n)


def dual_memory(a, p, x):
    """E23."""
    D, M = a["dim"], p["M0"].expand(x.shape[1], -1, -1)
    h, out = torch.zeros(x.shape[1], D, dtype=torch.float64), []
    for step in x @ p["W_x"].T:
        rho = torch.softmax((M @ h[..., None])[..., 0] / math.sqrt(D), -1)
        h = torch.tanh(h @ p["W_h"].T + step + (rho[:, None] @ M)[:, 0] + p["b_h"])
        omega = torch.softmax((M @ h[..., None])[..., 0] / math.sqrt(D), -1)
        M = (1 - omega[..., None]) * M + omega[..., None] * (h @ p["W_write"].T)[:, None]
        out.append(h)
    return torch.stack(out)


def rope(x, base=10000.0):
    """Halves, positions 0, 1, ...; x [B,T,H,D]."""
    D = x.shape[-1]
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * base ** (
        -torch.arange(0, D, 2, dtype=torch.float64) / D)
    c, s = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def attention(a, w, i, n):
    H, D = a["heads"], a["dim"]
    b = n.transpose(0, 1)
    q, k, v = ((b @ w[f"{i}.{name}.W"].T).reshape(*b.shape[:2], H, D) for name in "qkv")
    q, k = rope(rmsnorm(q, w[f"{i}.s.w_q"])), rope(rmsnorm(k, w[f"{i}.s.w_k"]))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.transpose(1, 2).reshape(*b.shape[:2], H * D).transpose(0, 1)


def model(a, w, token, target):
    x = w["x.E"][token]
    for i in range(1, a["blocks"] + 1):
        n = rmsnorm(x, w[f"{i}.n.w"])
        p = {name.split(".")[2]: value for name, value in w.items() if name.startswith(f"{i}.m.")}
        if a["mixer"] == "e74":
            n = e74(a, p, n)
        elif a["mixer"] == "dual_memory":
            n = dual_memory(a, p, n)
        elif a["mixer"] == "attention":
            n = attention(a, w, i, n)
        x = x + n @ w[f"{i}.o.W"].T
        if a["mlp"]:
            h = rmsnorm(x, w[f"{i}.h.w"])
            x = x + (F.silu(h @ w[f"{i}.g.W"].T) * (h @ w[f"{i}.i.W"].T)) @ w[f"{i}.d.W"].T
    head = w["x.E"] if a["head"] == "tied" else w["logits.W"]
    logits = rmsnorm(x, w["f.w"]) @ head.T
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1)


def rate(a, u):
    U, W, f = a["updates"], a["warmup"], a.get("final", 0.1)
    W = U // 10 if W < 0 else W
    if u <= W:
        return a["lr"] * u / W
    if a["schedule"] == "constant":
        return a["lr"]
    D = a.get("decay", 0)
    start = U - (D if D >= 0 else max(U // 5, 1)) if a["schedule"] == "wsd" else W
    part = max(u - start, 0) / (U - start)
    if a["schedule"] == "cosine":
        return a["lr"] * (f + (1 - f) * (1 + math.cos(math.pi * part)) / 2)
    return a["lr"] * (1 - (1 - f) * part)


def decays(name):
    """Matrices, but no embedding, norm, bias or learned state."""
    return name.split(".")[-1].startswith("W")


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_five_updates(words, tmp_path):
    dump = tmp_path / "run.h5"
    done = subprocess.run([PROGRAM, "-t", "train " + SMALL + words, "-o", str(dump)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(dump) as file:
        run = file["trial/0001"]
        a = {name: attribute(run, name) for name in run.attrs}
        w = {name: torch.tensor(x[()], dtype=torch.float64, requires_grad=True) for name, x in run["start"].items()}
        final = {name: torch.tensor(x[()]) for name, x in run["final"].items()}
        tokens, targets = (torch.tensor(run["batch"][name][()]) for name in ("token", "target"))
        losses, norms = run["curve/loss"][()], run["curve/grad_norm"][()]
        rates = run["curve/lr"][()]
    adamw = torch.optim.AdamW(
        [{"params": [x for name, x in w.items() if decays(name)], "weight_decay": a["weight_decay"]},
         {"params": [x for name, x in w.items() if not decays(name)], "weight_decay": 0}],
        lr=a["lr"], betas=(a["beta1"], a["beta2"]), eps=a["adam_eps"])
    for u, (token, target) in enumerate(zip(tokens, targets), 1):
        adamw.zero_grad()
        loss = model(a, w, token, target)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), a["clip"] or math.inf)
        assert abs(loss.item() - losses[u - 1]) <= 1e-9, u
        assert abs(norm.item() - norms[u - 1]) <= 1e-9 * max(1, norms[u - 1]), u
        assert abs(rate(a, u) - rates[u - 1]) <= 1e-15
        for group in adamw.param_groups:
            group["lr"] = rate(a, u)
        adamw.step()
    assert set(w) == set(final)
    for name, x in w.items():
        assert not torch.equal(torch.tensor(x.detach().numpy()), torch.zeros_like(final[name])) or not x.numel()
        assert (x.detach() - final[name]).abs().max() <= 1e-9, name
