"""What PyTorch defines over several calls, in double, against ref64: AdamW over updates, gradients clipped
by their norm, and a small language model that is trained by both.  tests/definitions has single operations."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.6")

from torch.nn import functional as F

import ablate

CLOSE = 1e-12  # of the largest element
UPDATES = 10


def off(got, want):
    """The largest difference, relative to the largest element."""
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    assert got.dtype == want.dtype == np.float64 and got.shape == want.shape
    return np.max(np.abs(got - want)) / np.max(np.abs(want))


def adamw(p, g, m, v, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    """The update that has this number, from 1, of flat arrays, in place."""
    ablate.op("adamw", step=step, lr=lr, beta1=betas[0], beta2=betas[1], eps=eps, weight_decay=weight_decay)(
        p=p, g=g, m=m, v=v, out={"p_next": p, "m_next": m, "v_next": v})


class Parameters:
    """Of ref64, with what AdamW keeps of them; and the same of PyTorch."""

    def __init__(self, **arrays):
        self.p = {n: a.copy() for n, a in arrays.items()}
        self.m, self.v = ({n: np.zeros_like(a) for n, a in arrays.items()} for _ in range(2))
        self.torch = {n: torch.nn.Parameter(torch.tensor(a)) for n, a in arrays.items()}

    def update(self, g, step, **settings):
        for n, p in self.p.items():
            adamw(*(a.reshape(-1) for a in (p, g[n], self.m[n], self.v[n])), step, **settings)

    def check(self, optimizer):
        for n, t in self.torch.items():
            state = optimizer.state[t]
            for got, want in ((self.p, t), (self.m, state["exp_avg"]), (self.v, state["exp_avg_sq"])):
                assert off(got[n], want) <= CLOSE, n


@pytest.mark.parametrize("settings", [
    {}, {"weight_decay": 0.0}, {"lr": 0.3, "betas": (0.8, 0.7), "eps": 0.2, "weight_decay": 0.5},
    {"lr": 1e-2, "betas": (0.0, 0.5), "eps": 1e-3}])
@pytest.mark.parametrize("foreach", [False, True])
def test_updates_by_adamw(settings, foreach):
    r = np.random.default_rng(1)
    both = Parameters(w=r.normal(size=(7, 9)), b=r.normal(size=9))
    optimizer = torch.optim.AdamW(both.torch.values(), foreach=foreach,
                                  **{"lr": 1e-3, "weight_decay": 0.01, **settings})
    for step in range(1, UPDATES + 1):
        g = {n: r.normal(size=p.shape) * 10.0**r.integers(-3, 2) for n, p in both.p.items()}
        for n, t in both.torch.items():
            t.grad = torch.tensor(g[n])
        optimizer.step()
        both.update(g, step, **settings)
        both.check(optimizer)


def norm(gradients):
    """That of all of them together."""
    return np.sqrt(sum(ablate.op("sum_squares")(x=g.reshape(-1)).y[0] for g in gradients))


def clipped(gradients, most):
    return {n: g * min(1, most / (norm(gradients.values()) + 1e-6)) for n, g in gradients.items()}


@pytest.mark.parametrize("times", [1e-9, 1e-3, 0.5, 0.999, 1, 2, 1e6])
def test_gradients_that_are_clipped_by_their_norm(times):
    """To `times` their norm; and where 1e-6 is no small part of it."""
    r = np.random.default_rng(2)
    for size in 1.0, 1e-6, 1e3:
        g = {n: size * r.normal(size=shape) for n, shape in (("w", (33, 5)), ("b", (5,)), ("s", (1,)))}
        leaves = {n: torch.zeros(a.shape, dtype=torch.float64, requires_grad=True) for n, a in g.items()}
        for n, t in leaves.items():
            t.grad = torch.tensor(g[n])
        most = times * float(norm(g.values()))
        total = torch.nn.utils.clip_grad_norm_(leaves.values(), most)
        assert abs(norm(g.values()) - total.item()) <= CLOSE * total.item()
        for n, a in clipped(g, most).items():
            assert off(a, leaves[n].grad) <= CLOSE, (n, size)


def test_the_gradient_of_a_repeated_token():
    r = np.random.default_rng(3)
    E, token, d_y = r.normal(size=(5, 3)), np.array([1, 4, 1, 1, 0, 4]), r.normal(size=(6, 3))
    found = ablate.op("embedding")(E=E, token=token, d_y=d_y)
    leaf = torch.tensor(E, requires_grad=True)
    y = F.embedding(torch.tensor(token), leaf)
    y.backward(torch.tensor(d_y))
    assert off(found.y, y) == 0 and off(found.d_E, leaf.grad) <= CLOSE
    assert not found.d_E[2:4].any()


@pytest.mark.parametrize("ignored", [0, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_reductions_of_cross_entropy(reduction, smoothing, ignored):
    """mean is the output loss, none row_loss; the upstream gradient of sum is that of each row_loss."""
    r = np.random.default_rng(4)
    logits, target, d_row = 3 * r.normal(size=(7, 11)), r.integers(0, 11, 7), r.normal(size=7)
    target[:ignored] = 5
    leaf = torch.tensor(logits, requires_grad=True)
    want = F.cross_entropy(leaf, torch.tensor(target), reduction=reduction, label_smoothing=smoothing,
                           ignore_index=5)
    want.backward(torch.tensor(d_row) if reduction == "none" else None)
    upstream = {"mean": {"d_loss": np.ones(1)}, "sum": {"d_row_loss": np.ones(7)},
                "none": {"d_row_loss": d_row}}[reduction]
    found = ablate.op("cross_entropy", label_smoothing=smoothing, ignore_index=5)(
        logits=logits, target=target, **upstream)
    got = {"mean": found.loss[0], "sum": np.sum(found.row_loss), "none": found.row_loss}[reduction]
    assert off(np.asarray(got), want) <= CLOSE and off(found.d_logits, leaf.grad) <= CLOSE
    assert not found.d_logits[target == 5].any()


def test_a_language_model_that_is_trained():
    """Tokens to the next one, by an embedding and a projection: clipped gradients, AdamW, ten updates."""
    r = np.random.default_rng(5)
    V, D, R = 13, 6, 40
    both = Parameters(E=r.normal(size=(V, D)), W=r.normal(size=(V, D)), b=np.ones(V))
    loss_of = {"label_smoothing": 0.1, "ignore_index": 0}
    settings, most, binding = {"lr": 0.05, "weight_decay": 0.1}, 0.4, 0
    optimizer = torch.optim.AdamW(both.torch.values(), **settings)
    for step in range(1, UPDATES + 1):
        token, target = r.integers(0, V, (2, R))
        p, t = both.p, both.torch
        y = ablate.op("embedding")(E=p["E"], token=token).y
        project = ablate.op("linear", bias="yes")
        found = ablate.op("cross_entropy", **loss_of)(
            logits=project(x=y, W=p["W"], b=p["b"]).y, target=target, d_loss=np.ones(1))
        back = project(x=y, W=p["W"], b=p["b"], d_y=found.d_logits)
        d_E = ablate.op("embedding")(E=p["E"], token=token, d_y=back.d_x).d_E
        g = {"E": d_E, "W": back.d_W, "b": back.d_b}
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(F.embedding(torch.tensor(token), t["E"]), t["W"], t["b"]),
                               torch.tensor(target), **loss_of)
        loss.backward()
        assert off(found.loss, loss.reshape(1)) <= CLOSE
        assert all(off(g[n], t[n].grad) <= CLOSE for n in g)
        binding += norm(g.values()) > most
        torch.nn.utils.clip_grad_norm_(t.values(), most)
        optimizer.step()
        both.update(clipped(g, most), step, **settings)
        both.check(optimizer)
    assert 0 < binding


def one(x, dtype=np.float64):
    return np.array([x], dtype)


def test_updates_by_a_schedule():
    """Rates, corrections, clipping, a scaled loss and a skipped update from tensors, which schedule makes
    and nothing else changes: what a graph that is launched again computes."""
    r = np.random.default_rng(6)
    lr, beta1, beta2 = 10.0**r.uniform(-3, -1, UPDATES), 0.8, 0.95
    t = np.arange(1, UPDATES + 1)
    tables = {"rates": lr, "unbias1s": 1 / (1 - beta1**t), "unbias2s": 1 / (1 - beta2**t)}
    kept = {"u": one(0, np.int64), "t": one(0, np.int64), "good": one(0, np.int64), "scale": one(1024.0)}
    p = r.normal(size=21)
    leaf, m, v = torch.nn.Parameter(torch.tensor(p)), np.zeros(21), np.zeros(21)
    optimizer = torch.optim.AdamW([leaf], betas=(beta1, beta2), weight_decay=0.1)
    schedule = ablate.op("schedule", clip=2.0, loss_scale="dynamic", growth=3)
    adamw = ablate.op("adamw", beta1=beta1, beta2=beta2, weight_decay=0.1)
    skipped = 0
    for u in range(UPDATES):
        g = r.normal(size=21) * 10.0**r.integers(-2, 2)
        if u == 4:
            g[3] = np.inf
        scaled = g * kept["scale"][0]
        made = schedule(**tables, **kept, g2=ablate.op("sum_squares")(x=scaled).y)
        adamw(p=p, g=scaled, m=m, v=v, out={"p_next": p, "m_next": m, "v_next": v},
              **{n: made[n] for n in ("rate", "unbias1", "unbias2", "factor", "skip")})
        kept = {n: made[f"{n}_next"] for n in kept}
        skipped += int(made.skip[0])
        if np.isfinite(g).all():
            leaf.grad = torch.tensor(g)
            torch.nn.utils.clip_grad_norm_([leaf], 2.0)
            optimizer.param_groups[0]["lr"] = lr[u]
            optimizer.step()
        assert off(p, leaf) <= CLOSE
    assert skipped == 1 and kept["u"][0] == UPDATES and kept["t"][0] == UPDATES - 1
    assert kept["scale"][0] == 1024.0 * 2 / 2 * 2 and kept["good"][0] == 2
