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


def quantise(a, given):
    w = given["w"].astype(F32)
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
