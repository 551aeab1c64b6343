"""same.py A B [NAME...]: all datasets of the trials in two dumps and their attributes are equal, but for those of speed,
for the device that ran a trial, and for attributes and datasets of these names."""
import sys
import h5py
import numpy as np

def contents(name):
    found = {}
    def see(path, x):
        if path.endswith("speed") or "/speed" in path or path.split("/")[-1] in other:
            return
        if isinstance(x, h5py.Dataset):
            found[path] = (x.dtype.descr if x.dtype.names else x.dtype, x.shape, x.chunks, x.compression,
                           x[()].tobytes() if not x.dtype.hasobject and not x.dtype.names else repr(x[()].tolist()))
        for key in x.attrs:
            if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "device_number", *other):
                found[path + "@" + key] = repr(np.asarray(x.attrs[key]).tolist())
        if isinstance(x, h5py.Dataset):
            found[path + " scales"] = [[s.name for s in d.values()] for d in x.dims]
    h5py.File(name)["trial"].visititems(see)
    return found

other = sys.argv[3:]
a, b = (contents(name) for name in sys.argv[1:3])
assert len(a) > 100, len(a)
for key in sorted(set(a) | set(b)):
    assert a.get(key) == b.get(key), key
