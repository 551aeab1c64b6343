"""Writes GGUF files beside whose odd tensor `tag`, names or shards the tensor n, 1 2 3 4, is to be read."""

import struct

DATA = struct.pack("<4f", 1, 2, 3, 4) + bytes(16)


def s(x):
    return struct.pack("<Q", len(x)) + x


def tensor(name, dims, kind, offset=0):
    return s(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def write(name, tensors, keys=()):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join([*keys, *tensors])
    with open(name, "wb") as to:
        to.write(head + bytes(-len(head) % 32) + DATA)


n = tensor(b"n", [4], 0)
write("empty.gguf", [n, tensor(b"tag", [0], 0, 32)])
write("scalar.gguf", [n, tensor(b"tag", [], 0)])
write("unknown.gguf", [n, tensor(b"tag", [4], 139)])
write("blocks.gguf", [n, tensor(b"tag", [8], 8)])
write("huge.gguf", [n, tensor(b"tag", [2**40, 2**40], 0, 2**63)])
write("none.gguf", [n, tensor(b"tag", [0, 2**63], 0, 7)])
write("odd.gguf", [n, tensor(b"tag", [2**64 - 1], 139, 2**63)])
write("axes.gguf", [n, tensor(b"tag", [1] * 5, 0)])
write("names.gguf", [n, tensor(b"a\033[31m\tb\n\xff\xc2\x9b", [4], 0)])
write("key.gguf", [n], [s(b"a\033[31m") + struct.pack("<I", 77)])
for stem, names in ("m", (b"t1", b"t2", b"t3")), ("again", (b"t4", b"t5", b"t4")):
    for k, name in enumerate(names):
        write(f"{stem}-{k + 1:05}-of-00003.gguf", [tensor(name, [4], 0)],
              [s(b"split.no") + struct.pack("<IH", 2, k), s(b"split.count") + struct.pack("<IH", 2, 3),
               s(b"split.tensors.count") + struct.pack("<Ii", 5, 3)])
