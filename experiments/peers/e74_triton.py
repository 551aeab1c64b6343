"""e74_triton.py - E74's cell in Triton: full and diagonal state, tanh and linear, both passes.

    k^ = k / (|k| + eps);  delta = v - S k^;  S <- f(S + delta k^T);  y = S q;  out = y silu(y)

k, v, q [T,B,H,n] (float32 or bfloat16), S0 [B,H,n,n] or [B,H,n] (float32) give out
[T,B,H*n] and S_T.  States are float32.  Forward keeps y and, every K steps, the state;
backward replays one segment after the other, each once.

full      A program carries ROWS rows of one (sequence, head) state through all steps in
          registers: one launch.  k, v and q of AHEAD steps are brought while the AHEAD
          before them run.  k is normalised by one scalar a step, and y_t is reduced
          together with the next step's S k, off the chain of dependent steps.
          Backward leaves a segment's states in global memory, of the size of the
          L2; its sums over rows are partial, and a second kernel adds
          those of several programs in their order.
diagonal  tanh: a program carries GROUP states; each number of a state is alone but for |k|.
          linear: S_t = (1 - k^2) S_{t-1} + v k^ is a scan over a tile of K steps.

Launch parameters are tuned for each shape over the lists below.  A peer is to be as fast as
its language easily allows: bfloat16 storage takes the hardware's approximate tanh, as our
kernels do.  With TRITON_INTERPRET=1 the kernels run on the CPU, in NumPy.
"""
import os

import torch
import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
EPSILON = tl.constexpr(1e-6)

# ROWS, AHEAD, num_warps
FULL = [(16, 4, 4), (4, 4, 1), (8, 4, 1), (4, 4, 4), (8, 4, 4), (8, 4, 8), (16, 4, 8),
        (32, 4, 4), (32, 4, 8), (64, 4, 8)]
# GROUP, AHEAD, num_warps
DIAGONAL = [(1, 8, 1), (1, 4, 1), (2, 4, 1), (4, 8, 4), (4, 4, 4)]
# num_warps
SCAN = [4, 8, 16]
LONGEST_SCAN = 128     # steps of a tile


def interpreted(configs):
    """Nothing can be tuned by the interpreter."""
    return configs[:1] if INTERPRETED else configs


def no_idle_rows(configs, _, WIDTH, **__):
    return [config for config in configs if config.kwargs["ROWS"] <= WIDTH]


def fewest_rows():
    return min(r for r, _, _ in (FULL[:1] if INTERPRETED else FULL))


tuned_full = triton.autotune(
    interpreted([triton.Config({"ROWS": r, "AHEAD": u}, num_warps=w) for r, u, w in FULL]),
    key=["T", "BH", "N", "K", "TANH", "APPROX"],
    prune_configs_by={"early_config_prune": no_idle_rows})
tuned_diagonal = triton.autotune(
    interpreted([triton.Config({"GROUP": g, "AHEAD": u}, num_warps=w) for g, u, w in DIAGONAL]),
    key=["T", "BH", "N", "K", "APPROX"])
tuned_scan = triton.autotune(
    interpreted([triton.Config({}, num_warps=w) for w in SCAN]), key=["T", "BH", "N", "K"])


# ---- what all of them need ----

@triton.jit
def tanh(x, APPROX: tl.constexpr):
    if APPROX:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x],
                                         dtype=tl.float32, is_pure=True, pack=1)
    # A polynomial where |x| is small, else from e^(-2|x|).
    square = x * x
    size = tl.abs(x)
    p = tl.fma(tl.full(x.shape, 1.643788442e-2, tl.float32), square, -5.267196894e-2)
    p = tl.fma(p, square, 1.332072765e-1)
    p = tl.fma(p, square, -3.333294690e-1)
    e = tl.exp(-2 * size)
    far = (1 - e) / (1 + e)
    return tl.where(size < 0.55, tl.fma(x, p * square, x), tl.where(x < 0, -far, far))


@triton.jit
def gated(y):
    return y * y * tl.sigmoid(y)


@triton.jit
def gated_slope(y):
    s = tl.sigmoid(y)
    return y * s * (2 + y * (1 - s))


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def chain_steps(a, b, c, d):
    """x -> a x + b, then x -> c x + d"""
    return c * a, tl.fma(c, b, d)


@triton.jit
def normaliser(k, axis: tl.constexpr):
    return 1 / (tl.sqrt(tl.sum(k * k, axis)) + EPSILON)


@triton.jit
def key_gradient(k, dkhat, axis: tl.constexpr):
    """dL/dk of k^ = k / (R + eps), R = |k|; the second term is 0 where R is."""
    R = tl.sqrt(tl.sum(k * k, axis))
    inner = tl.sum(k * dkhat, axis)
    second = tl.where(R > 0, inner / (tl.where(R > 0, R, 1.0) * (R + EPSILON) * (R + EPSILON)), 0.0)
    return dkhat / tl.expand_dims(R + EPSILON, axis) - k * tl.expand_dims(second, axis)


@triton.jit
def brought(x, stride, j, way: tl.constexpr, last, there, AHEAD: tl.constexpr):
    """x of the steps j, j + way ... as a tuple; from 0 to last, whatever is asked for."""
    found = ()
    for u in tl.static_range(AHEAD):
        found = found + (tl.load(x + max(min(j + way * u, last), 0) * stride, there, 0.0),)
    return found


@triton.jit
def normalisers(ks, AHEAD: tl.constexpr):
    """1 / (|k| + eps) of each, [1] for a vector or [rows] for a tile of them."""
    found = ()
    for u in tl.static_range(AHEAD):
        k = ks[u].to(tl.float32)
        if len(k.shape) == 1:
            k = k[None, :]
        found = found + (normaliser(k, 1),)
    return found


@triton.jit
def kept(new, old, there, ALL: tl.constexpr):
    """new where there is such a step; ALL says that there always is."""
    if ALL:
        return new
    return tl.where(there, new, old)


# ---- full ----

@triton.jit
def full_step(S, k, v, scale, Sk, TANH: tl.constexpr, APPROX: tl.constexpr):
    """S and delta after a step, given Sk = S k and scale = 1 / (|k| + eps)."""
    delta = v - scale * Sk
    S = S + (delta * scale)[:, None] * k[None, :]
    if TANH:
        S = tanh(S, APPROX)
    return S, delta


@triton.jit
def column(tile, vector, index, which):
    """The tile [rows, steps] with that vector as its column."""
    return tl.where((index == which)[None, :], vector[:, None], tile)


@tuned_full
@triton.jit
def full_forward(k, v, q, S0, out, y, S_T, checkpoints, T: tl.constexpr, BH: tl.constexpr,
                 K: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, TANH: tl.constexpr,
                 APPROX: tl.constexpr, ROWS: tl.constexpr, AHEAD: tl.constexpr):
    PARTS: tl.constexpr = (N + ROWS - 1) // ROWS
    bh = (tl.program_id(0) // PARTS).to(tl.int64)
    rows = tl.program_id(0) % PARTS * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    mine, wide = rows < N, columns < N
    inside = mine[:, None] & wide[None, :]
    state = bh * N * N + rows[:, None] * N + columns[None, :]
    step = BH * N
    across, down = bh * N + columns, bh * N + rows
    index = tl.arange(0, AHEAD)

    S = tl.load(S0 + state, inside, 0.0)
    ks = brought(k + across, step, 0, 1, T - 1, wide, AHEAD)
    qs = brought(q + across, step, 0, 1, T - 1, wide, AHEAD)
    vs = brought(v + down, step, 0, 1, T - 1, mine, AHEAD)
    for t in range(0, T, AHEAD):
        next_ks = brought(k + across, step, t + AHEAD, 1, T - 1, wide, AHEAD)
        next_qs = brought(q + across, step, t + AHEAD, 1, T - 1, wide, AHEAD)
        next_vs = brought(v + down, step, t + AHEAD, 1, T - 1, mine, AHEAD)
        scales = normalisers(ks, AHEAD)
        ys = tl.zeros((ROWS, AHEAD), tl.float32)
        for u in tl.static_range(AHEAD):
            k_t, v_t = ks[u].to(tl.float32), vs[u].to(tl.float32)
            tl.store(checkpoints + ((t + u) // K) * step * N + state, S,
                     inside & ((t + u) % K == 0) & (t + u < T))
            if u == 0:
                Sk = tl.sum(S * k_t[None, :], 1)
            else:
                q_before = qs[u - 1].to(tl.float32)
                Sk, y_before = tl.reduce((S * k_t[None, :], S * q_before[None, :]), 1, add_both)
                ys = column(ys, y_before, index, u - 1)
            new, _ = full_step(S, k_t, v_t, scales[u], Sk, TANH, APPROX)
            S = kept(new, S, t + u < T, T % AHEAD == 0)
        y_t = tl.sum(S * qs[AHEAD - 1].to(tl.float32)[None, :], 1)
        ys = column(ys, y_t, index, AHEAD - 1)
        at = (t + index)[None, :] * step + down[:, None]
        there = mine[:, None] & (t + index < T)[None, :]
        tl.store(y + at, ys, there)
        tl.store(out + at, gated(ys), there)
        ks, qs, vs = next_ks, next_qs, next_vs
    tl.store(S_T + state, S, inside)


@tuned_full
@triton.jit
def full_backward(k, v, q, y, checkpoints, dout, dS_T, states, deltas, dv, dS0, dq_parts,
                  dkhat_parts, T: tl.constexpr, BH: tl.constexpr, K: tl.constexpr,
                  N: tl.constexpr, WIDTH: tl.constexpr, TANH: tl.constexpr,
                  APPROX: tl.constexpr, ROWS: tl.constexpr, AHEAD: tl.constexpr):
    PARTS: tl.constexpr = (N + ROWS - 1) // ROWS
    SEGMENTS: tl.constexpr = (T + K - 1) // K
    EVEN: tl.constexpr = T % K == 0 and K % AHEAD == 0
    bh = (tl.program_id(0) // PARTS).to(tl.int64)
    part = (tl.program_id(0) % PARTS).to(tl.int64)
    rows = tl.program_id(0) % PARTS * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    mine, wide = rows < N, columns < N
    inside = mine[:, None] & wide[None, :]
    here = rows[:, None] * N + columns[None, :]
    step = BH * N
    across, down = bh * N + columns, bh * N + rows
    index = tl.arange(0, AHEAD)
    states += bh * K * N * N + here
    deltas += bh * K * N

    G = tl.load(dS_T + bh * N * N + here, inside, 0.0)
    for c in range(SEGMENTS - 1, -1, -1):
        first = c * K
        last = min(K, T - first) - 1
        # Replay: state j is the one before the segment's step j.
        k_c, v_c = k + first * step + across, v + first * step + down
        S = tl.load(checkpoints + c * step * N + bh * N * N + here, inside, 0.0)
        ks = brought(k_c, step, 0, 1, last, wide, AHEAD)
        vs = brought(v_c, step, 0, 1, last, mine, AHEAD)
        for j in range(0, min(K, T - c * K), AHEAD):
            next_ks = brought(k_c, step, j + AHEAD, 1, last, wide, AHEAD)
            next_vs = brought(v_c, step, j + AHEAD, 1, last, mine, AHEAD)
            scales = normalisers(ks, AHEAD)
            residuals = tl.zeros((ROWS, AHEAD), tl.float32)
            for u in tl.static_range(AHEAD):
                k_t, v_t = ks[u].to(tl.float32), vs[u].to(tl.float32)
                tl.store(states + (j + u) * N * N, S, inside & (j + u <= last))
                Sk = tl.sum(S * k_t[None, :], 1)
                new, delta = full_step(S, k_t, v_t, scales[u], Sk, TANH, APPROX)
                residuals = column(residuals, delta, index, u)
                S = kept(new, S, j + u <= last, EVEN)
            tl.store(deltas + (j + index)[None, :] * N + rows[:, None], residuals,
                     mine[:, None] & (j + index <= last)[None, :])
            ks, vs = next_ks, next_vs
        tl.debug_barrier()
        # Walk back.
        q_c = q + first * step + across
        y_c, dout_c = y + first * step + down, dout + first * step + down
        ks = brought(k_c, step, last, -1, last, wide, AHEAD)
        qs = brought(q_c, step, last, -1, last, wide, AHEAD)
        ys = brought(y_c, step, last, -1, last, mine, AHEAD)
        ds = brought(dout_c, step, last, -1, last, mine, AHEAD)
        rs = brought(deltas + rows, N, last, -1, last, mine, AHEAD)
        for i in range(0, min(K, T - c * K), AHEAD):
            j = last - i
            next_ks = brought(k_c, step, j - AHEAD, -1, last, wide, AHEAD)
            next_qs = brought(q_c, step, j - AHEAD, -1, last, wide, AHEAD)
            next_ys = brought(y_c, step, j - AHEAD, -1, last, mine, AHEAD)
            next_ds = brought(dout_c, step, j - AHEAD, -1, last, mine, AHEAD)
            next_rs = brought(deltas + rows, N, j - AHEAD, -1, last, mine, AHEAD)
            scales = normalisers(ks, AHEAD)
            dvs = tl.zeros((ROWS, AHEAD), tl.float32)
            dqs = tl.zeros((WIDTH, AHEAD), tl.float32)
            dkhats = tl.zeros((WIDTH, AHEAD), tl.float32)
            for u in tl.static_range(AHEAD):
                S_before = tl.load(states + max(j - u, 0) * N * N, inside, 0.0)
                k_t, q_t = ks[u].to(tl.float32), qs[u].to(tl.float32)
                dy = ds[u].to(tl.float32) * gated_slope(ys[u].to(tl.float32))
                dS = G + dy[:, None] * q_t[None, :]
                if TANH:
                    dP = dS * (1 - S * S)
                else:
                    dP = dS
                a = scales[u] * tl.sum(dP * k_t[None, :], 1)
                dq, dkhat = tl.reduce((S * dy[:, None],
                                       dP * rs[u][:, None] - S_before * a[:, None]), 0, add_both)
                G = kept(dP - (a * scales[u])[:, None] * k_t[None, :], G, j - u >= 0, EVEN)
                S = S_before
                dvs = column(dvs, a, index, u)
                dqs = column(dqs, dq, index, u)
                dkhats = column(dkhats, dkhat, index, u)
            t = first + j - index
            there = (j - index >= 0)[None, :]
            tl.store(dv + t[None, :] * step + down[:, None], dvs, mine[:, None] & there)
            at = (part * T + t)[None, :] * step + across[:, None]
            tl.store(dq_parts + at, dqs, wide[:, None] & there)
            tl.store(dkhat_parts + at, dkhats, wide[:, None] & there)
            ks, qs, ys, ds, rs = next_ks, next_qs, next_ys, next_ds, next_rs
        tl.debug_barrier()
    tl.store(dS0 + bh * N * N + here, G, inside)


@triton.jit
def add_parts(k, dq_parts, dkhat_parts, dk, dq, vectors, N: tl.constexpr, WIDTH: tl.constexpr,
              PARTS: tl.constexpr, GROUP: tl.constexpr):
    """Sums over a state's rows from those of its parts, for GROUP keys."""
    vector = tl.program_id(0).to(tl.int64) * GROUP + tl.arange(0, GROUP)
    columns = tl.arange(0, WIDTH)
    inside = (vector < vectors)[:, None] & (columns < N)[None, :]
    at = vector[:, None] * N + columns[None, :]
    dq_t = tl.zeros((GROUP, WIDTH), tl.float32)
    dkhat = tl.zeros((GROUP, WIDTH), tl.float32)
    for p in range(0, PARTS):
        dq_t += tl.load(dq_parts + p * vectors * N + at, inside, 0.0)
        dkhat += tl.load(dkhat_parts + p * vectors * N + at, inside, 0.0)
    k_t = tl.load(k + at, inside, 0.0).to(tl.float32)
    tl.store(dq + at, dq_t, inside)
    tl.store(dk + at, key_gradient(k_t, dkhat, 1), inside)


# ---- diagonal, tanh: step by step ----

@triton.jit
def diagonal_step(S, k, v, scale, APPROX: tl.constexpr):
    khat = k * scale[:, None]
    return tanh(tl.fma(v - S * khat, khat, S), APPROX)


@tuned_diagonal
@triton.jit
def diagonal_forward(k, v, q, S0, out, y, S_T, checkpoints, T: tl.constexpr, BH: tl.constexpr,
                     K: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
                     APPROX: tl.constexpr, GROUP: tl.constexpr, AHEAD: tl.constexpr):
    bh = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    columns = tl.arange(0, WIDTH)
    inside = (bh < BH)[:, None] & (columns < N)[None, :]
    here = bh.to(tl.int64)[:, None] * N + columns[None, :]
    step = BH * N

    S = tl.load(S0 + here, inside, 0.0)
    ks = brought(k + here, step, 0, 1, T - 1, inside, AHEAD)
    vs = brought(v + here, step, 0, 1, T - 1, inside, AHEAD)
    qs = brought(q + here, step, 0, 1, T - 1, inside, AHEAD)
    for t in range(0, T, AHEAD):
        next_ks = brought(k + here, step, t + AHEAD, 1, T - 1, inside, AHEAD)
        next_vs = brought(v + here, step, t + AHEAD, 1, T - 1, inside, AHEAD)
        next_qs = brought(q + here, step, t + AHEAD, 1, T - 1, inside, AHEAD)
        scales = normalisers(ks, AHEAD)
        for u in tl.static_range(AHEAD):
            now = (t + u) * step + here
            there = inside & (t + u < T)
            tl.store(checkpoints + ((t + u) // K) * step + here, S, there & ((t + u) % K == 0))
            new = diagonal_step(S, ks[u].to(tl.float32), vs[u].to(tl.float32), scales[u], APPROX)
            S = kept(new, S, t + u < T, T % AHEAD == 0)
            y_t = S * qs[u].to(tl.float32)
            tl.store(y + now, y_t, there)
            tl.store(out + now, gated(y_t), there)
        ks, vs, qs = next_ks, next_vs, next_qs
    tl.store(S_T + here, S, inside)


@tuned_diagonal
@triton.jit
def diagonal_backward(k, v, q, y, checkpoints, dout, dS_T, states, dk, dv, dq, dS0,
                      T: tl.constexpr, BH: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
                      WIDTH: tl.constexpr, APPROX: tl.constexpr, GROUP: tl.constexpr,
                      AHEAD: tl.constexpr):
    SEGMENTS: tl.constexpr = (T + K - 1) // K
    EVEN: tl.constexpr = T % K == 0 and K % AHEAD == 0
    bh = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    columns = tl.arange(0, WIDTH)
    inside = (bh < BH)[:, None] & (columns < N)[None, :]
    here = bh.to(tl.int64)[:, None] * N + columns[None, :]
    step = BH * N

    G = tl.load(dS_T + here, inside, 0.0)
    for c in range(SEGMENTS - 1, -1, -1):
        first = c * K
        last = min(K, T - first) - 1
        start = first * step + here
        S = tl.load(checkpoints + c * step + here, inside, 0.0)
        ks = brought(k + start, step, 0, 1, last, inside, AHEAD)
        vs = brought(v + start, step, 0, 1, last, inside, AHEAD)
        for j in range(0, min(K, T - c * K), AHEAD):
            next_ks = brought(k + start, step, j + AHEAD, 1, last, inside, AHEAD)
            next_vs = brought(v + start, step, j + AHEAD, 1, last, inside, AHEAD)
            scales = normalisers(ks, AHEAD)
            for u in tl.static_range(AHEAD):
                tl.store(states + (j + u) * step + here, S, inside & (j + u <= last))
                new = diagonal_step(S, ks[u].to(tl.float32), vs[u].to(tl.float32), scales[u],
                                    APPROX)
                S = kept(new, S, j + u <= last, EVEN)
            ks, vs = next_ks, next_vs
        tl.debug_barrier()
        ks = brought(k + start, step, last, -1, last, inside, AHEAD)
        vs = brought(v + start, step, last, -1, last, inside, AHEAD)
        qs = brought(q + start, step, last, -1, last, inside, AHEAD)
        ys = brought(y + start, step, last, -1, last, inside, AHEAD)
        ds = brought(dout + start, step, last, -1, last, inside, AHEAD)
        Ss = brought(states + here, step, last, -1, last, inside, AHEAD)
        for i in range(0, min(K, T - c * K), AHEAD):
            j = last - i
            next_ks = brought(k + start, step, j - AHEAD, -1, last, inside, AHEAD)
            next_vs = brought(v + start, step, j - AHEAD, -1, last, inside, AHEAD)
            next_qs = brought(q + start, step, j - AHEAD, -1, last, inside, AHEAD)
            next_ys = brought(y + start, step, j - AHEAD, -1, last, inside, AHEAD)
            next_ds = brought(dout + start, step, j - AHEAD, -1, last, inside, AHEAD)
            next_Ss = brought(states + here, step, j - AHEAD, -1, last, inside, AHEAD)
            scales = normalisers(ks, AHEAD)
            for u in tl.static_range(AHEAD):
                now = (j - u) * step + start
                there = inside & (j - u >= 0)
                k_t, S_before = ks[u].to(tl.float32), Ss[u]
                khat = k_t * scales[u][:, None]
                dy = ds[u].to(tl.float32) * gated_slope(ys[u].to(tl.float32))
                dP = tl.fma(dy, qs[u].to(tl.float32), G) * (1 - S * S)
                a = dP * khat
                dkhat = dP * (vs[u].to(tl.float32) - S_before * khat) - S_before * a
                tl.store(dq + now, S * dy, there)
                tl.store(dv + now, a, there)
                tl.store(dk + now, key_gradient(k_t, dkhat, 1), there)
                G = kept(dP - a * khat, G, j - u >= 0, EVEN)
                S = S_before
            ks, vs, qs, ys, ds, Ss = next_ks, next_vs, next_qs, next_ys, next_ds, next_Ss
        tl.debug_barrier()
    tl.store(dS0 + here, G, inside)


# ---- diagonal, linear: a scan over each segment ----

@triton.jit
def scan_factors(k, v, at, there):
    """k^ and v of a tile [steps, n], and with them the step S -> a S + b; 1, 0 where not there."""
    k_t = tl.load(k + at, there, 0.0).to(tl.float32)
    v_t = tl.load(v + at, there, 0.0).to(tl.float32)
    khat = k_t * normaliser(k_t, 1)[:, None]
    return k_t, v_t, khat, 1 - khat * khat, v_t * khat


@triton.jit
def row(tile, index, which):
    return tl.sum(tl.where((index == which)[:, None], tile, 0.0), 0)


@tuned_scan
@triton.jit
def scan_forward(k, v, q, S0, out, y, S_T, checkpoints, T: tl.constexpr, BH: tl.constexpr,
                 K: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr):
    bh = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, STEPS)
    columns = tl.arange(0, WIDTH)
    wide = columns < N
    here = bh * N + columns
    step = BH * N

    S = tl.load(S0 + here, wide, 0.0)
    for c in range(0, (T + K - 1) // K):
        steps = min(K, T - c * K)
        there = (j < steps)[:, None] & wide[None, :]
        at = (c * K + j)[:, None] * step + here[None, :]
        tl.store(checkpoints + c * step + here, S, wide)
        _, _, _, a, b = scan_factors(k, v, at, there)
        A, B = tl.associative_scan((a, b), 0, chain_steps)
        S_t = tl.fma(A, S[None, :], B)
        y_t = S_t * tl.load(q + at, there, 0.0).to(tl.float32)
        tl.store(y + at, y_t, there)
        tl.store(out + at, gated(y_t), there)
        S = row(S_t, j, steps - 1)
    tl.store(S_T + here, S, wide)


@tuned_scan
@triton.jit
def scan_backward(k, v, q, y, checkpoints, dout, dS_T, dk, dv, dq, dS0, T: tl.constexpr,
                  BH: tl.constexpr, K: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
                  STEPS: tl.constexpr):
    bh = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, STEPS)
    columns = tl.arange(0, WIDTH)
    wide = columns < N
    here = bh * N + columns
    step = BH * N

    G = tl.load(dS_T + here, wide, 0.0)
    SEGMENTS: tl.constexpr = (T + K - 1) // K
    for c in range(SEGMENTS - 1, -1, -1):
        steps = min(K, T - c * K)
        there = (j < steps)[:, None] & wide[None, :]
        at = (c * K + j)[:, None] * step + here[None, :]
        # States before each step: the scan of the steps before.
        _, _, _, a, b = scan_factors(k, v, at - step, there & (j > 0)[:, None])
        A, B = tl.associative_scan((a, b), 0, chain_steps)
        S_before = tl.fma(A, tl.load(checkpoints + c * step + here, wide, 0.0)[None, :], B)
        k_t, v_t, khat, a, _ = scan_factors(k, v, at, there)
        delta = v_t - S_before * khat
        S_t = tl.fma(delta, khat, S_before)
        y_t = tl.load(y + at, there, 0.0).to(tl.float32)
        d_t = tl.load(dout + at, there, 0.0).to(tl.float32)
        q_t = tl.load(q + at, there, 0.0).to(tl.float32)
        dy = d_t * gated_slope(y_t)
        # Gradients of the states, backwards: those of the next step come through its factor.
        _, _, _, a_next, _ = scan_factors(k, v, at + step, (j + 1 < steps)[:, None] & wide[None, :])
        A, B = tl.associative_scan((a_next, dy * q_t), 0, chain_steps, reverse=True)
        dP = tl.fma(A, G[None, :], B)
        dv_t = dP * khat
        dkhat = dP * delta - S_before * dv_t
        tl.store(dq + at, S_t * dy, there)
        tl.store(dv + at, dv_t, there)
        tl.store(dk + at, key_gradient(k_t, dkhat, 1), there)
        G = row(dP * a, j, 0)
    tl.store(dS0 + here, G, wide)


# ---- as functions that PyTorch differentiates ----

def constants_of(k, K):
    """The sizes that a kernel is compiled for."""
    T, B, H, N = k.shape
    return {"T": T, "BH": B * H, "K": min(K, T), "N": N,
            "WIDTH": max(triton.next_power_of_2(N), 16)}


def approximate(k):
    """May tanh be the hardware's approximation?  For bfloat16, as in our kernels."""
    return k.dtype == torch.bfloat16 and not INTERPRETED


def floats(k, *shape):
    return torch.empty(shape, dtype=torch.float32, device=k.device)


def run_forward(ctx, kernel, grid, constants, k, v, q, S0):
    """Forward, in any of the three kinds: their arguments are the same."""
    out, y, S_T = torch.empty_like(k), torch.empty_like(k), torch.empty_like(S0)
    segments = triton.cdiv(constants["T"], constants["K"])
    checkpoints = floats(k, segments, *S0.shape)
    kernel[grid](k, v, q, S0, out, y, S_T, checkpoints, **constants)
    ctx.save_for_backward(k, v, q, y, checkpoints)
    ctx.constants = constants
    return out.flatten(2), S_T


class Full(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, q, S0, K, has_tanh):
        constants = constants_of(k, K) | {"TANH": has_tanh, "APPROX": approximate(k)}
        return run_forward(ctx, full_forward, Full.grid(constants), constants, k, v, q, S0)

    @staticmethod
    def grid(constants):
        return lambda tuned: (constants["BH"] * triton.cdiv(constants["N"], tuned["ROWS"]),)

    @staticmethod
    def backward(ctx, dout, dS_T):
        k, v, q, y, checkpoints = ctx.saved_tensors
        T, BH, K, N, WIDTH = (ctx.constants[x] for x in ("T", "BH", "K", "N", "WIDTH"))
        dk, dv, dq, dS0 = (torch.empty_like(x) for x in (k, v, q, dS_T))
        most = triton.cdiv(N, fewest_rows())
        dq_parts, dkhat_parts = floats(k, most, T, BH, N), floats(k, most, T, BH, N)
        states, deltas = floats(k, BH, K, N, N), floats(k, BH, K, N)
        full_backward[Full.grid(ctx.constants)](
            k, v, q, y, checkpoints, dout.contiguous(), dS_T.contiguous(), states, deltas, dv, dS0,
            dq_parts, dkhat_parts, **ctx.constants)
        parts = triton.cdiv(N, full_backward.best_config.kwargs["ROWS"])
        group = max(1, 512 // WIDTH)
        add_parts[(triton.cdiv(T * BH, group),)](
            k, dq_parts, dkhat_parts, dk, dq, T * BH, N=N, WIDTH=WIDTH, PARTS=parts, GROUP=group)
        return dk, dv, dq, dS0, None, None


class Diagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, q, S0, K):
        constants = constants_of(k, K) | {"APPROX": approximate(k)}
        return run_forward(ctx, diagonal_forward, Diagonal.grid(constants), constants, k, v, q, S0)

    @staticmethod
    def grid(constants):
        return lambda tuned: (triton.cdiv(constants["BH"], tuned["GROUP"]),)

    @staticmethod
    def backward(ctx, dout, dS_T):
        k, v, q, y, checkpoints = ctx.saved_tensors
        dk, dv, dq, dS0 = (torch.empty_like(x) for x in (k, v, q, dS_T))
        states = floats(k, ctx.constants["K"], *dS_T.shape)
        diagonal_backward[Diagonal.grid(ctx.constants)](
            k, v, q, y, checkpoints, dout.contiguous(), dS_T.contiguous(), states, dk, dv, dq, dS0,
            **ctx.constants)
        return dk, dv, dq, dS0, None


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v, q, S0, K):
        constants = constants_of(k, K)
        constants["STEPS"] = triton.next_power_of_2(constants["K"])
        return run_forward(ctx, scan_forward, (constants["BH"],), constants, k, v, q, S0)

    @staticmethod
    def backward(ctx, dout, dS_T):
        k, v, q, y, checkpoints = ctx.saved_tensors
        dk, dv, dq, dS0 = (torch.empty_like(x) for x in (k, v, q, dS_T))
        scan_backward[(ctx.constants["BH"],)](
            k, v, q, y, checkpoints, dout.contiguous(), dS_T.contiguous(), dk, dv, dq, dS0,
            **ctx.constants)
        return dk, dv, dq, dS0, None


def declines(case):
    """Why these kernels cannot do a case (a trial's attributes), or None."""
    T, B, H, K, n = (int(case[x]) for x in
                     ("steps", "batch", "heads", "checkpoint_interval", "n_state"))
    full = case["state"] == "full"
    if case["state"] not in ("full", "diagonal") or case["nonlin"] not in ("tanh", "linear"):
        return "only full and diagonal states with tanh and linear are written in Triton"
    if case["proj"] != "no_z":
        return "only proj = no_z is written in Triton"
    if case["checkpoint_dtype"] != "fp32":
        return "its checkpoints are float32"
    if not full and case["nonlin"] == "linear" and min(K, T) > LONGEST_SCAN:
        return f"its scan goes over checkpoint_interval steps, up to {LONGEST_SCAN}"
    if B * H * n * max(T, -(-T // K) * (n if full else 1)) >= 2**31:
        return "its indices are 32 bits wide"
    return None


def cell(case, k, v, q, S0):
    """out and S_T of a case that is not declined."""
    K = int(case["checkpoint_interval"])
    has_tanh = case["nonlin"] == "tanh"
    if case["state"] == "full":
        return Full.apply(k, v, q, S0, K, has_tanh)
    return (Diagonal if has_tanh else Scan).apply(k, v, q, S0, K)


def chosen(case):
    """The launch parameters that tuning chose for the case that was run last, or None."""
    if INTERPRETED:
        return None
    has_tanh = case["nonlin"] == "tanh"
    kernels = ((full_forward, full_backward) if case["state"] == "full" else
               (diagonal_forward, diagonal_backward) if has_tanh else (scan_forward, scan_backward))
    return "; ".join(
        " ".join([kernel.base_fn.__name__] +
                 [f"{name} {value}" for name, value in kernel.best_config.kwargs.items()] +
                 [f"num_warps {kernel.best_config.num_warps}"]) for kernel in kernels)
