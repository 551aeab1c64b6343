"""Quantised weights once more, in NumPy: whole blocks at a time, from the layouts of ggml's C structs
(block_q4_K ... block_q8_0) and of bitsandbytes' functional.py."""
import numpy as np

F32 = np.float32
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], F32)


def linspace(first, last, n):
    """torch.linspace in float32 as x86 computes it: from both ends to the middle, by fused
    multiply-adds, which doubles are for these numbers."""
    step = float((F32(last) - F32(first)) / F32(n - 1))
    i = np.arange(n)
    up, down = float(F32(first)) + step * i, float(F32(last)) - step * (n - 1 - i)
    return np.where(i < n // 2, up, down).astype(F32)


def dynamic_map():
    """bitsandbytes' create_dynamic_map(), signed."""
    data = [F32(0), F32(1)]
    for n in range(7):
        ends = linspace(0.1, 1, 2**n + 1)
        means = (ends[:-1] + ends[1:]) / F32(2)
        data += [*(F32(10.0**(n - 6)) * means), *(-F32(10.0**(n - 6)) * means)]
    return np.sort(np.array(data, F32))


def half(block, at):
    """An fp16 of each block, as a column."""
    return np.ascontiguousarray(block[:, at:at + 2]).view("<f2").astype(F32)


def six_bits(packed):
    """Eight scales and eight minima of 12 bytes, [blocks, 8, 1] each."""
    low, high = packed[:, :8] & 63, packed[:, :8] >> 6
    last = packed[:, 8:]
    scale = np.concatenate([low[:, :4], last & 15 | high[:, :4] << 4], 1)
    minimum = np.concatenate([low[:, 4:], last >> 4 | high[:, 4:] << 4], 1)
    return scale.astype(F32)[:, :, None], minimum.astype(F32)[:, :, None]


def halves(packed, width):
    """Bytes in groups of `width`: first the low four bits of a group, then the high ones."""
    groups = packed.reshape(len(packed), -1, 1, width)
    return np.concatenate([groups & 15, groups >> 4], 2).reshape(len(packed), -1)


def by_32(block, q):
    scale, minimum = six_bits(block[:, 4:16])
    q = q.reshape(len(block), 8, 32).astype(F32)
    return half(block, 0)[:, :, None] * scale * q - half(block, 2)[:, :, None] * minimum


def q4_k(block):
    return by_32(block, halves(block[:, 16:], 32))


def q5_k(block):
    fifth = (block[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return by_32(block, halves(block[:, 48:], 32) + 16 * fifth.reshape(len(block), 256))


def q6_k(block):
    low = halves(block[:, :128], 64)
    high = block[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = low.astype(int) + 16 * high.reshape(len(block), 256) - 32
    scale = block[:, 192:208].view(np.int8).astype(F32)
    return half(block, 208)[:, :, None] * scale[:, :, None] * q.reshape(len(block), 16, 16).astype(F32)


def q8_0(block):
    return half(block, 0) * np.ascontiguousarray(block[:, 2:]).view(np.int8).astype(F32)


BLOCKS = {"q4_k": (144, q4_k), "q5_k": (176, q5_k), "q6_k": (210, q6_k), "q8_0": (34, q8_0)}


def nf4(a, given, n):
    block = int(a["block"])
    W = given["W"].astype(np.uint8)
    codes = np.stack([W >> 4, W & 15], 1).ravel()[:n]
    if a["double_quant"] == "yes":
        of_group = np.repeat(given["absmax2"].astype(F32), 256)
        product = dynamic_map()[given["absmax8"].astype(int)] * of_group[:len(given["absmax8"])]
        absmax = product + given["offset"].astype(F32)
    else:
        absmax = given["absmax"].astype(F32)
    return NF4[codes] * np.repeat(absmax, block)[:n]


def dequantise(a, given):
    N, K = int(a["dim_out"]), int(a["dim_in"])
    if a["format"] == "nf4":
        w = nf4(a, given, N * K)
    else:
        size, decode = BLOCKS[a["format"]]
        w = decode(given["W"].astype(np.uint8).reshape(-1, size))
    return {"w": w.reshape(N, K).astype(float)}


def gemm_quantised(a, given, sizes=False):
    """Of each of `weights` matrices; one alone has no axis of them.  With `sizes` the roots of sums of
    squares."""
    many = int(a["weights"]) > 1
    y = []
    for i in range(int(a["weights"])):
        of_one = {name: x[i] if many else x for name, x in given.items()}
        x, w = of_one["x"], dequantise(a, of_one)["w"]
        y.append(np.sqrt(x**2 @ w.T**2) if sizes else x @ w.T)
    return {"y": np.stack(y) if many else y[0]}


def q8_0_bytes(w):
    """Rows of blocks, as ggml's quantize_row_q8_0_ref()."""
    x = w.reshape(-1, 32)
    d = np.abs(x).max(1) / F32(127)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = F32(1) / d
    inverse = np.where(np.isfinite(inverse), inverse, F32(0))
    scaled = x * inverse[:, None]
    whole = np.trunc(scaled)
    q = (whole + np.where(np.abs(scaled - whole) >= 0.5, np.sign(scaled), 0)).astype(np.int8)
    with np.errstate(over="ignore"):
        return np.concatenate([d.astype(np.float16)[:, None].view(np.uint8), q.view(np.uint8)], 1)


def codes(table, x):
    """The number of midpoints of neighbours that x exceeds; NaN exceeds none."""
    middle = (table[:-1] + table[1:]) * F32(0.5)
    return np.where(np.isnan(x), 0, np.searchsorted(middle, x, "left"))


def scaled_codes(table, blocks, absmax, zero):
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = blocks * (F32(1) / absmax)[:, None]
    return np.where(absmax[:, None] == 0, zero, codes(table, scaled))


def in_groups(x, n):
    """As rows of n, zeros behind the last."""
    return np.concatenate([x, np.zeros(-len(x) % n, x.dtype)]).reshape(-1, n)


def pairwise_mean(x):
    s = x.astype(float)
    while len(s) > 1:
        s = in_groups(s, 256)
        while s.shape[1] > 1:
            half = s.shape[1] // 2
            s = s[:, :half] + s[:, half:]
        s = s[:, 0]
    return F32(s[0] / len(x))


# ---- q4_k, q5_k, q6_k: arrays of [super-block, scale, weight], float32 throughout ----


def total(x):
    """Over the last axis, a power of two long: neighbours, then pairs of neighbours."""
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def clamp(x, low, high):
    return np.fmin(np.fmax(x, F32(low)), F32(high))


def stored(x):
    """The fp16 numbers of scales, as float32."""
    return clamp(x, -65504, 65504).astype(np.float16).astype(F32)


def search_of(a):
    """The values of r."""
    if a["search"] == "wide":
        thousandths = range(-1500, 1501, 75)
    elif a["format"] == "q6_k":
        thousandths = range(-900, 901, 100)
    elif a["search"] == "published" and a["importance"] == "yes":
        thousandths = range(-900, 901, 50)
    else:
        thousandths = range(-1000 if a["format"] == "q4_k" else -500, 1001, 100)
    return [F32(r) / F32(1000) for r in thousandths]


def error_weights(a, x, importance):
    ones = np.ones_like(x)
    known = ones
    if importance is not None:
        known = np.where((importance == 0).all(-1, keepdims=True), ones, importance)
    if a["search"] != "published":
        return known
    squares = x * x
    if a["format"] == "q6_k":
        return squares if importance is None else known
    if importance is None:
        return np.sqrt(total(squares) / F32(x.shape[-1]))[..., None] + np.abs(x)
    mean = total(squares.reshape(len(x), -1)) / F32(256)
    return known * np.sqrt(F32(2) * mean[:, None, None] + squares)


def line_fit(a, x, v, n):
    """s and m of x = s q - m."""
    lo, hi = np.fmin(x.min(-1), F32(0)), x.max(-1)
    s, m = (hi - lo) / n, F32(0) - lo
    s[~(hi > lo)] = 0
    V, Sw = total(v), total(v * x)

    def codes(steps):
        return clamp(np.rint((steps / (hi - lo))[..., None] * (x - lo[..., None])), 0, n)

    def error(q, s, m):
        e = s[..., None] * q - m[..., None] - x
        return total(v * e * e)

    best = error(codes(n), s, m)
    for r in search_of(a):
        q = codes(n + r)
        vq = v * q
        Sq, Sqq, Swq = total(vq), total(vq * q), total(vq * x)
        D = V * Sqq - Sq * Sq
        s_now, m_now = (V * Swq - Sw * Sq) / D, (Sq * Swq - Sqq * Sw) / D
        s_now = np.where(m_now < 0, Swq / Sqq, s_now)
        m_now = np.where(m_now < 0, F32(0), m_now)
        e = error(q, s_now, m_now)
        keep = (hi > lo) & (D > 0) & (e < best)
        s, m, best = np.where(keep, s_now, s), np.where(keep, m_now, m), np.where(keep, e, best)
        lo = np.where(keep, F32(0) - m_now, lo)
    return s, m


def first_largest(x):
    """Of each row, the first of the elements whose magnitude is largest."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]


def scale_fit(a, x, v):
    star = first_largest(x)
    s, best = np.zeros_like(star), np.zeros_like(star)
    for r in search_of(a):
        q = clamp(np.rint((-(F32(32) + r) / star)[..., None] * x), -32, 31)
        vq = v * q
        Sqq, Swq = total(vq * q), total(vq * x)
        s_now = Swq / Sqq
        keep = (star != 0) & (Sqq > 0) & (s_now * Swq > best)
        s, best = np.where(keep, s_now, s), np.where(keep, s_now * Swq, best)
    return s


def scale_of_scales(a, s, V):
    top = np.fmax(s.max(-1), F32(0))
    d, best = top / F32(63), np.full_like(top, np.inf)
    for r in search_of(a) if a["search"] == "published" and a["importance"] == "yes" else []:
        L = clamp(np.rint(((F32(63) + r) / top)[:, None] * s), 0, 63)
        now = total(V * L * s) / total(V * L * L)
        e = now[:, None] * L - s
        e = total(V * e * e)
        keep = (top > 0) & (e < best)
        d, best = np.where(keep, now, d), np.where(keep, e, best)
    return d


def encoded(a, x, v, s, m, scales):
    """Codes of scales and weights for d and dmin, and their error."""
    d, dmin = (stored(z)[:, None] for z in scales)
    q6 = a["format"] == "q6_k"
    top = {"q4_k": 15, "q5_k": 31, "q6_k": 31}[a["format"]]
    s_code = np.where(d != 0, clamp(np.rint(s / d), *((-128, 127) if q6 else (0, 63))), F32(0))
    m_code = np.where(dmin != 0, clamp(np.rint(m / dmin), 0, 63), F32(0))
    S, M = (d * s_code)[..., None], (dmin * m_code)[..., None]
    q = np.where(S != 0, clamp(np.rint((x + M) * (F32(1) / S)), -32 if q6 else 0, top), F32(0))
    e = S * q - M - x
    return [total((v * e * e).reshape(len(x), -1)), d[:, 0], dmin[:, 0], s_code, m_code, q]


def chosen(a, x, v, s, m, d, dmin):
    if a["search"] != "wide":
        return encoded(a, x, v, s, m, (d, dmin))
    factors = [F32(k) / F32(100) for k in range(97, 104)]
    best = None
    for by in factors:
        for by_min in factors if a["format"] != "q6_k" else factors[:1]:
            now = encoded(a, x, v, s, m, (d * by, dmin * by_min))
            best = best or now
            keep = now[0] < best[0]
            best = [np.where(keep.reshape(-1, *[1] * (b.ndim - 1)), c, b) for b, c in zip(best, now)]
    return best


def k_bytes(a, d, dmin, s_code, m_code, q):
    n = len(d)
    d, dmin = (z.astype(np.float16)[:, None].view(np.uint8) for z in (d, dmin))
    q = q.reshape(n, 256).astype(int)
    if a["format"] == "q6_k":
        q = (q + 32).reshape(n, 2, 4, 32)
        low = (q & 15).reshape(n, 2, 2, 64)
        high = q >> 4 << np.array([0, 2, 4, 6])[:, None]
        return np.concatenate([(low[:, :, 0] | low[:, :, 1] << 4).reshape(n, -1),
                               high.sum(2).reshape(n, -1), s_code.astype(int) & 255, d], 1)
    s, m = s_code.astype(int), m_code.astype(int)
    header = [d, dmin, s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6,
              s[:, 4:] & 15 | (m[:, 4:] & 15) << 4]
    q = q.reshape(n, 4, 2, 32)
    low = q & 15
    if a["format"] == "q5_k":
        header.append((q.reshape(n, 8, 32) >> 4 << np.arange(8)[:, None]).sum(1))
    return np.concatenate([*header, (low[:, :, 0] | low[:, :, 1] << 4).reshape(n, -1)], 1)


def k_quant(a, given):
    w = given["w"].astype(F32)
    per = 16 if a["format"] == "q6_k" else 32
    x = w.reshape(-1, 256 // per, per)
    importance = None
    if a["importance"] == "yes":
        importance = np.broadcast_to(given["importance"].astype(F32), w.shape).reshape(x.shape)
    with np.errstate(all="ignore"):
        v = error_weights(a, x, importance)
        if a["format"] == "q6_k":
            s = scale_fit(a, x, v)
            m, d, dmin = np.zeros_like(s), -first_largest(s) / F32(128), np.zeros(len(s), F32)
        else:
            s, m = line_fit(a, x, v, F32(15 if a["format"] == "q4_k" else 31))
            d, dmin = (scale_of_scales(a, z, total(v)) for z in (s, m))
        error, d, dmin, s_code, m_code, q = chosen(a, x, v, s, m, d, dmin)
        if a["format"] != "q6_k":
            zeros = (d == 0) & ~(error < total((v * x * x).reshape(len(x), -1)))
            d[zeros], dmin[zeros], m_code[zeros] = 0, 0, 0
    return {"W": k_bytes(a, d, dmin, s_code, m_code, q).reshape(len(w), -1).astype(float)}


def quantise(a, given):
    w = given["w"].astype(F32)
    if a["format"] in BLOCKS and a["format"] != "q8_0":
        return k_quant(a, given)
    if a["format"] == "q8_0":
        return {"W": q8_0_bytes(w).reshape(len(w), -1).astype(float)}
    w, block = w.ravel(), int(a["block"])
    blocks = in_groups(w, block)
    absmax = np.abs(blocks).max(1)
    code = scaled_codes(NF4, blocks, absmax, 7).ravel()[:len(w)]
    code = np.append(code, np.full(len(w) % 2, 7))
    found = {"W": (code[0::2] << 4 | code[1::2]).astype(float)}
    if a["double_quant"] == "no":
        return {**found, "absmax": absmax.astype(float)}
    offset = pairwise_mean(absmax)
    groups = in_groups(absmax, 256)
    rest = groups - offset
    rest[np.arange(groups.size).reshape(groups.shape) >= len(absmax)] = 0
    absmax2 = np.abs(rest).max(1)
    absmax8 = scaled_codes(dynamic_map(), rest, absmax2, 127).ravel()[:len(absmax)]
    return {**found, "absmax8": absmax8.astype(float), "absmax2": absmax2.astype(float),
            "offset": np.array([offset], float)}
