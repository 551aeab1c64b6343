"""What a judged function returns: arrays of any library are taken, all else is refused in a sentence."""

import collections
import fractions

import numpy as np
import pytest

import ablate
from ablate import _returned
from ablate._case import Case
from ablate._returned import named, narrowed, said

N = np.arange(6.0).reshape(2, 3) - 2.25


def taken(value, whole=None):
    return named(value, ["y"], "the function", "outputs", whole)["y"]


# ---- NumPy ----

SAME = {
    "the other byte order": lambda: N.astype(N.dtype.newbyteorder("S")),
    "longdouble": lambda: N.astype(np.longdouble),
    "a matrix": lambda: np.matrix(N),
    "negative strides": lambda: np.ascontiguousarray(N[::-1, ::-1])[::-1, ::-1],
    "another order": lambda: np.asfortranarray(N),
    "a buffer": lambda: memoryview(N),
    "a dict": lambda: {"y": N},
    "a list": lambda: [N],
    "a namedtuple": lambda: collections.namedtuple("Two", "out")(N),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", SAME)
def test_float64_stays_float64(kind):
    y = taken(SAME[kind]())
    assert y.dtype == np.float64 and y.dtype.isnative and np.array_equal(y, N)


def test_scalars_are_arrays_of_no_axes():
    for one in 1.5, np.float32(1.5), np.float64(1.5), np.array(1.5):
        assert taken(one).shape == () and taken(one) == 1.5


def test_what_is_none_is_left_out():
    assert list(named((None, N), ["o", "lse"], "the function", "outputs")) == ["lse"]


def test_narrow_types_are_known():
    assert taken(N.astype(np.float16)).given == "fp16"
    ml_dtypes = pytest.importorskip("ml_dtypes")
    y = taken(N.astype(ml_dtypes.bfloat16))
    assert y.dtype == np.float32 and y.given == "bf16" and np.array_equal(y, N)
    with pytest.raises(ablate.Error, match="^y has the type float8_e4m3fn: return float32"):
        taken(N.astype(ml_dtypes.float8_e4m3fn))


def test_what_is_narrower_than_the_contract_is_declared():
    case = Case("rmsnorm rows=2 columns=3 dtype=bf16")
    found = named({"d_w": np.ones(3, np.float16), "d_x": N.astype(np.float16)}, ["d_x", "d_w"],
                  "backward", "gradients")
    assert narrowed(case, found) == "d_w:fp16"
    assert narrowed(case, found, "xhat:bf16, d_w:bf16") == "xhat:bf16 d_w:bf16"


class Lazy:
    """As dask's arrays."""

    dtype = np.dtype(float)

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("it was computed")

    def __dask_graph__(self):
        return {"a": 1}


class Broken:
    """As JAX's arrays that were deleted, and those that it traces."""

    def __getattr__(self, name):
        raise RuntimeError("the array has been deleted\nof two lines")

    def __array__(self, dtype=None, copy=None):
        return self.values


class Symbolic:
    """As TensorFlow's tensors in a graph."""

    dtype = "float32"

    def __array__(self, dtype=None, copy=None):
        raise NotImplementedError("a symbolic tensor has no values")


ODD = {
    "None": (lambda: None, "the function returned None; it is to return y: "),
    "rows in a list": (lambda: {"y": N.tolist()}, "y is list, and no array of numbers$"),
    "a tuple": (lambda: {"y": (N,)}, "y is tuple, and no array of numbers$"),
    "a generator": (lambda: {"y": (r for r in N)}, "y is generator, and no array of numbers$"),
    "a text": (lambda: {"y": "1"}, "y is str, and no array of numbers$"),
    "bytes": (lambda: bytearray(6), "the function returned an object of the type bytearray"),
    "a fraction": (lambda: fractions.Fraction(1, 2), "y is Fraction, and no array of numbers$"),
    "complex": (lambda: N + 0j, "y has the type complex128, and not that of real numbers$"),
    "bool": (lambda: N > 0, "y has the type bool, and not that of real numbers$"),
    "a mask": (lambda: np.ma.array(N), r"y has a mask: return numbers, by filled\(\)$"),
    "lazy": (Lazy, r"y is Lazy, which is not computed yet: return the values, by compute\(\)$"),
    "deleted": (Broken, "y is no array of numbers: the array has been deleted$"),
    "symbolic": (Symbolic, "y is no array of numbers: a symbolic tensor has no values$"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_array_of_real_numbers(kind):
    make, sentence = ODD[kind]
    with pytest.raises(ablate.Error, match=f"^{sentence}"):
        taken(make())


def test_a_dataset_of_a_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["y"] = N
        with pytest.raises(ablate.Error, match="^y is Dataset of h5py, whose values are in a file"):
            taken(file["y"])


def test_whole_numbers_where_they_are_due():
    for whole in N.astype(int), np.zeros(3, np.uint8), 3, np.round(N):
        assert np.array_equal(taken(whole, {"y"}), whole)
    for found, sentence in [(N, r"y has -2.25 at \[0, 0\], where whole numbers are due"),
                            (np.array([1, np.nan]), r"y has nan at \[1\]"),
                            (np.float32(np.inf), r"y has inf at \[\]")]:
        with pytest.raises(ablate.Error, match=f"^{sentence}"):
            taken(found, {"y"})
    for found in N.astype(int), np.zeros(3, np.uint8), 3:
        with pytest.raises(ablate.Error, match="^y has the type u?int[0-9]+, and not that of real numbers: "
                                               "return float32 or float64$"):
            taken(found, frozenset())
        assert np.array_equal(taken(found), found)


def test_a_case_names_its_whole_numbers():
    assert Case("histogram size=9 bins=4").whole == {"counts", "outside"}
    assert Case("softmax rows=2 columns=3").whole == frozenset()


# ---- other libraries, by objects that have their methods ----

class Tensor:
    """As PyTorch's on a GPU: NumPy takes it when it is on the host, detached and without signs aside."""

    def __init__(self, values, dtype="torch.float32", steps=("detach", "cpu", "resolve_neg")):
        self.values, self.dtype, self.steps = values, dtype, steps

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return Tensor(self.values[i])

    def _without(self, step):
        return Tensor(self.values, self.dtype, [s for s in self.steps if s != step])

    def detach(self):
        return self._without("detach")

    def cpu(self):
        return self._without("cpu")

    def resolve_conj(self):
        return self

    def resolve_neg(self):
        return self._without("resolve_neg")

    def float(self):
        return Tensor(self.values, steps=self.steps)

    def numpy(self):
        if self.steps or self.dtype != "torch.float32":
            raise TypeError(f"cannot convert: {self.steps} {self.dtype}")
        return self.values


class OnGpu:
    """As CuPy's."""

    dtype, __cuda_array_interface__ = np.dtype(float), {}

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion is not allowed")

    def get(self):
        return N


class Numpy:
    """As tinygrad's: no __array__, and none of PyTorch's methods but these."""

    dtype = "dtypes.half"

    def detach(self):
        return self

    def numpy(self):
        return N.astype(np.float16)


@pytest.mark.parametrize("make, given", [
    (lambda: Tensor(N), ""), (lambda: Tensor(N, "torch.bfloat16"), "bf16"),
    (lambda: Tensor(N, "torch.float16"), "fp16"), (OnGpu, ""), (Numpy, "fp16")])
def test_an_array_of_another_library_is_one(make, given):
    for y in taken(make()), taken((make(),)), taken({"y": make()}):
        assert np.array_equal(y, N) and getattr(y, "given", "") == given


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    t = torch.tensor(N)
    for same in [t, t.clone().requires_grad_(), torch.nn.Parameter(t), t.T.contiguous().T, t.flip(0).flip(0),
                 torch._neg_view(-t), (-t * 1j).conj().imag]:
        assert np.array_equal(taken(same), N) and taken(same).dtype == np.float64
    for dtype, given in (torch.bfloat16, "bf16"), (torch.float16, "fp16"):
        y = taken(t.to(dtype).requires_grad_())
        assert np.array_equal(y, N) and y.given == given and y.dtype == np.float32
    for odd, sentence in [
            (t.to_sparse(), r"y is Tensor with the layout torch.sparse_coo: return numbers, by to_dense\(\)$"),
            (torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8), "y is quantised: "),
            (t.to("meta"), "y is Tensor of torch, and has no values$"),
            (torch.nested.nested_tensor([t, t]), "y is nested: "),
            (t + 0j, "y has the type complex128"), (t > 0, "y has the type bool")]:
        with pytest.raises(ablate.Error, match=f"^{sentence}"):
            taken(odd)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        with pytest.raises(ablate.Error, match="^y is FakeTensor of torch, and has no values$"):
            taken(torch.zeros(2))


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(N, "float32")
    assert np.array_equal(taken(x), N) and taken(x.sum()).shape == ()
    assert taken(x.astype("bfloat16")).given == "bf16" and taken(x.astype("float16")).given == "fp16"
    with pytest.raises(ablate.Error, match=r"^y is no array of numbers: .*traced array"):
        jax.jit(lambda x: (taken(x), x)[1])(x)
    x.delete()
    with pytest.raises(ablate.Error, match="^y is no array of numbers: Array has been deleted"):
        taken(x)


# ---- exceptions ----

notes = pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="Python 3.10 has no notes")


@notes
def test_an_exception_says_its_case():
    def raised():
        with said("softmax rows=4"), said("softmax rows=4"):
            raise ValueError("of the function")
    with pytest.raises(ValueError, match="of the function") as caught:
        raised()
    assert caught.value.__notes__ == ["in the case softmax rows=4"]


def test_an_exception_without_notes_says_its_case():
    class Old(ValueError):
        add_note = property()

    with pytest.raises(Old) as caught, said("softmax rows=4"):
        try:
            raise KeyError("first")
        except KeyError as error:
            raise Old("second") from error
    assert isinstance(caught.value.__cause__, KeyError)
    assert str(caught.value.__cause__.__cause__) == "in the case softmax rows=4"


@notes
def test_what_the_library_refuses_says_its_case():
    with pytest.raises(ablate.Error) as caught:
        ablate.op("softmax")(x=np.full((2, 2), 1e39), backend="ref32")
    assert "1e+39" in str(caught.value)
    assert caught.value.__notes__ == ["in the case softmax dtype=fp32 rows=2 columns=2"]


def test_every_unit_has_a_type():
    assert set(_returned._NARROW.values()) <= set(_returned.UNITS)
