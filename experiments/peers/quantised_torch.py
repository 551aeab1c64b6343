"""quantised_torch.py - y = x W^T with quantised W, as PyTorch's users compute it.

    cublas        torch.matmul (torch.bmm of several W) on W decoded before, in the type of x
    bnb-4bit      bitsandbytes.matmul_4bit on the bytes and scales of nf4
    torchao-int4  PyTorch's _weight_int4pack_mm, which torchao calls, on the quants of q4_k

Inputs are those of `gemm_quantised` in a dump: x [G,M,K], y [G,M,N], without the axis G where there
is one matrix.  Each way has W as its own library stores it, made once for a trial.  All but cublas
take one matrix in a call.  `case` is a dict of a trial's attributes, `given` the dump's inputs by
name, in NumPy.  W is decoded by tests/definitions_quantised.py.
"""
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests"))
import definitions_quantised as definitions    # noqa: E402

Q4_K_BYTES, GROUP = 144, 32    # of a block; weights that have one scale
INNER_K_TILES = 8              # torchao's choice
UNIT = 2.0**-8                 # of bf16
OF_GROUP_OF_ABSMAX = 256       # absmax8 that have one absmax2


def sizes(case):
    return (int(case[x]) for x in ("weights", "dim_out", "dim_in"))


def of_each(case, given):
    """The inputs of each matrix."""
    many = int(case["weights"])
    return [{name: x[i] if many > 1 else x for name, x in given.items()} for i in range(many)]


def put(x, device, dtype=None):
    return torch.from_numpy(x).to(device, dtype)


class OneByOne:
    """A product for each matrix, with an x and a y of its own."""

    no_backward = None

    def prepared(self, case, x):
        return x.unbind(0) if int(case["weights"]) > 1 else (x,)

    def products(self, weights, *xs):
        return tuple(self.product(w, x) for w, x in zip(weights, xs))

    def finished(self, case, ys):
        return (torch.stack(ys),) if int(case["weights"]) > 1 else ys


class Cublas:
    """All products in one call."""

    package = no_backward = None

    def declines(self, case):
        return None

    def weights(self, case, given, dtype, device):
        each = [put(definitions.dequantise(case, one)["w"], device, dtype)
                for one in of_each(case, given)]
        return torch.stack(each) if len(each) > 1 else each[0]

    def prepared(self, case, x):
        return (x,)

    def products(self, weights, x):
        product = torch.bmm if weights.dim() == 3 else torch.matmul
        return (product(x, weights.transpose(-1, -2)),)

    def finished(self, case, ys):
        return ys


class Bnb(OneByOne):
    package = "bitsandbytes"

    def declines(self, case):
        return None if case["format"] == "nf4" else f"it has no {case['format']}"

    def weights(self, case, given, dtype, device):
        """The bytes and the QuantState of each matrix, as its quantize_4bit() returns them."""
        return [(put(one["W"], device)[:, None], self.state(case, one, dtype, device))
                for one in of_each(case, given)]

    def state(self, case, one, dtype, device):
        from bitsandbytes.functional import QuantState, create_dynamic_map, get_4bit_type
        _, N, K = sizes(case)
        scales = {name: put(one[name], device) for name in one if name != "W"}
        nested = {}
        if case["double_quant"] == "yes":
            nested = {"offset": scales["offset"][0].clone(),
                      "state2": QuantState(absmax=scales["absmax2"],
                                           code=create_dynamic_map().to(device),
                                           blocksize=OF_GROUP_OF_ABSMAX, dtype=torch.float32)}
        return QuantState(absmax=scales["absmax8" if nested else "absmax"],
                          shape=torch.Size((N, K)), code=get_4bit_type("nf4", device=device),
                          blocksize=int(case["block"]), quant_type="nf4", dtype=dtype, **nested)

    def product(self, weights, x):
        import bitsandbytes
        W, state = weights
        return bitsandbytes.matmul_4bit(x, W, quant_state=state)


class Int4(OneByOne):
    """w = (q - 8) scale + zero; q has 4 bits, scale and zero are q4_k's d s and 8 d s - dmin m,
    rounded to bf16."""

    package = None
    no_backward = "PyTorch's int4 kernel has no gradient"

    def declines(self, case):
        _, N, _ = sizes(case)
        if case["format"] != "q4_k":
            return f"it has no {case['format']}"
        if case["dtype"] != "bf16":
            return "its x and scales are bf16"
        if N % 16:
            return "dim_out must be a multiple of 16"    # 8 on a GPU
        return None

    def parts(self, case, one, device):
        """q [N,K], scale and zero [N,K/32]."""
        _, N, K = sizes(case)
        block = one["W"].reshape(-1, Q4_K_BYTES)
        codes, minima = definitions.six_bits(block[:, 4:16])
        d, dmin = (definitions.half(block, at)[:, :, None] for at in (0, 2))
        scale, minimum = d * codes, dmin * minima
        q = put(definitions.halves(block[:, 16:], 32), device).view(N, K)
        return q, *(put(x, device, torch.bfloat16).view(N, K // GROUP)
                    for x in (scale, 8 * scale - minimum))

    def packed(self, q):
        """[N,K] in the kernel's order; a GPU's takes bytes, the first q of two in the high half."""
        if q.is_cuda:
            return torch.ops.aten._convert_weight_to_int4pack(q[:, ::2] << 4 | q[:, 1::2],
                                                              INNER_K_TILES)
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), INNER_K_TILES)

    def weights(self, case, given, dtype, device):
        """Packed quants and, [K/32,N,2], scales and zeros of each matrix."""
        each = [self.parts(case, one, device) for one in of_each(case, given)]
        return [(self.packed(q), torch.stack((scale, zero), -1).transpose(0, 1).contiguous())
                for q, scale, zero in each]

    def product(self, weights, x):
        mm = (torch.ops.aten._weight_int4pack_mm if x.is_cuda
              else torch.ops.aten._weight_int4pack_mm_for_cpu)
        packed, scales_and_zeros = weights
        with torch.no_grad():
            return mm(x, packed, GROUP, scales_and_zeros)

    def correct(self, case, given, x):
        """y by the weights that it has, in float64, and a bound of its distance from q4_k's y."""
        ys, reaches = [], []
        for one, x_one in zip(of_each(case, given), self.prepared(case, x.detach().double())):
            q, scale, zero = self.parts(case, one, x.device)
            each = q.double().unflatten(1, (-1, GROUP)) - 8
            scale, zero = (part.double()[:, :, None] for part in (scale, zero))
            ys.append(x_one @ (each * scale + zero).flatten(1).T)
            rounding = UNIT * (each.abs() * scale.abs() + zero.abs())
            reaches.append(x_one.abs() @ rounding.flatten(1).T)
        return [self.finished(case, tuple(each))[0] for each in (ys, reaches)]


WAYS = {"cublas": Cublas(), "bnb-4bit": Bnb(), "torchao-int4": Int4()}
