"""out=: results in arrays that the caller gives, in place where the contract allows it; what is refused,
with nothing written."""

import numpy as np
import pytest

import ablate
from ablate import _device, _table
from ablate._case import Case
from ablate._table import INPUT, OUTPUT
from functions import drawn

try:
    import torch

    import ablate.torch as at
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="no PyTorch")
GPU = ablate.backends().get("gpu32", "no") is None
CUDA = torch is not None and torch.cuda.is_available() and GPU
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no GPU"))]
BACKENDS = [b for b, why in ablate.backends().items() if why is None]

# Of each operation that has an output in place: how it is called, and its outputs' inputs.
IN_PLACE = [
    ("adamw", {"tensors": 2}, {"p_next": "p", "m_next": "m", "v_next": "v"}),
    ("adamw", {"master": "yes"}, {"m_next": "m", "v_next": "v", "master_next": "master"}),
    ("add", {}, {"y": "a"}),
    ("dropout", {"dropout": 0.5}, {"y": "x"}),
    ("gemm", {"beta": 0.5}, {"C": "C0"}),
    ("gemm_batched", {"beta": 0.5}, {"C": "C0"}),
    ("gemm_splitk", {"beta": 0.5}, {"C": "C0"}),
    ("gemv", {"beta": -1.5}, {"y": "y0"}),
]
SIZES = {"adamw": {"parameters": 37}, "add": {"rows": 4, "dim": 5}, "dropout": {"rows": 4, "dim": 5}, "gemv": {"M": 7, "K": 9},
         "gemm": {"M": 5, "N": 7, "K": 9}, "gemm_splitk": {"M": 5, "N": 7, "K": 9},
         "gemm_batched": {"batch": 2, "M": 5, "N": 7, "K": 9}}


def text(name, settings):
    return " ".join([name, *(f"{k}={v}" for k, v in settings.items())])


def inputs(name, settings, dtype=np.float64):
    """Drawn inputs that may be written."""
    case = Case(text(name, {**SIZES[name], **settings}) + " dtype=fp32")
    return {n: case.get(n).astype(np.int64 if case.tensor(n).whole else dtype) for n in case.names(INPUT)}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name, settings, over", IN_PLACE)
def test_in_place_on_numpy(name, settings, over, backend):
    given = inputs(name, settings, np.float64 if backend == "ref64" else np.float32)
    op = ablate.op(name, **settings)
    want, before = op(**given, backend=backend), {n: a.copy() for n, a in given.items()}
    got = op(**given, backend=backend, out={o: given[i] for o, i in over.items()})
    assert got.backend == want.backend == backend and list(got) == list(want)
    for n, a in want.items():
        assert same(got[n], a), n
        assert n not in over or got[n] is given[over[n]], n
    for n in given.keys() - over.values():
        assert same(given[n], before[n]), n


def test_in_place_copies_nothing(monkeypatch):
    monkeypatch.setattr("ablate._call.Case", None)
    seen = []
    monkeypatch.setattr("ablate._device._passes",
                        lambda plan, space, given, stream, out, then=_device._passes:
                        seen.append((given, out)) or then(plan, space, given, stream, out))
    for dtype in np.float64, np.float32:
        given = inputs("adamw", {}, dtype)
        ablate.op("adamw")(**given, out={"p_next": given["p"]})
        assert seen[-1] == ({n: a.ctypes.data for n, a in given.items()}, {"p_next": given["p"].ctypes.data})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ablate.ops())
def test_the_bits_of_a_call_without_it(name, backend):
    """Of all results, also of gradients: in arrays of NaN, of some and of all."""
    cases = [Case(drawn(name, 7, i).replace(" dtype=bf16", " dtype=fp32")) for i in range(8)]
    case = min(cases, key=lambda c: sum(t.count for t in c.tensors.values()))
    choices = {p.name: case.words.split(f" {p.name}=")[1].split()[0]
               for p in _table.parameters(name) if f" {p.name}=" in case.words}
    op = ablate.op(name, **choices)
    real = np.float64 if backend == "ref64" else np.float32
    given = {n: a.astype(real) if a.dtype == np.float32 and not case.tensor(n).whole else a
             for n, a in ((n, case.stored(n)) for n in case.names(INPUT) + case.gradients(OUTPUT))}
    want = op(**given, backend=backend)
    for names in list(want)[:1], list(want):
        out = {n: np.full_like(want[n], np.nan if want[n].dtype.kind == "f" else 77) for n in names}
        got = op(**given, backend=backend, out=out)
        assert list(got) == list(want)
        assert all(same(got[n], want[n]) for n in want)
        assert all(got[n] is out[n] for n in names)


def test_results_are_used_again():
    op, x = ablate.op("softmax"), np.random.default_rng(0).normal(size=(3, 4))
    first = op(x=x)
    again = op(x=2 * x, out=first)
    assert again.y is first.y and same(again.y, op(x=2 * x).y)
    y = np.empty((3, 4))
    assert op(x=x, out=y).y is y and op(x=x, out=None).y is not y and op(x=x, out={"y": None}).y is not y


def test_inputs_in_other_forms():
    """Those that are converted, of which the result's memory is none."""
    want = ablate.op("add")(a=np.arange(6.0).reshape(2, 3), b=np.arange(6.0).reshape(3, 2).T)
    for a in ([[0, 1, 2], [3, 4, 5]], np.arange(6).reshape(2, 3), np.arange(6, dtype=">f8").reshape(2, 3),
              np.arange(12.0)[::2].reshape(2, 3) / 2):
        y = np.empty((2, 3))
        assert ablate.op("add")(a=a, b=np.arange(6.0).reshape(3, 2).T, out=y).y is y and same(y, want.y)


def test_columns_beside_a_result_are_no_overlap():
    both = np.arange(12.0).reshape(1, 12)
    wide = np.arange(24.0).reshape(2, 12)
    y = ablate.op("add")(a=wide[:, :3], b=wide[:, 9:], out=wide[0, 3:9].reshape(2, 3)).y
    assert y.base is not None and same(y, (np.arange(24.0).reshape(2, 12)[:, :3]
                                           + np.arange(24.0).reshape(2, 12)[:, 9:]))
    assert ablate.op("add")(a=both[:, :4], b=both[:, 4:8], out=both[:, 8:]).y[0, 0] == 4


def test_an_address_that_is_no_multiple_of_16():
    for first in 1, 2, 3:
        memory = np.arange(40, dtype=np.float32)
        a, b = memory[first:first + 12].reshape(3, 4), np.ones((3, 4), np.float32)
        want = a + b
        assert ablate.op("add")(a=a, b=b, out={"y": a}).y is a and same(a, want)
        assert memory[first - 1] == first - 1 and memory[first + 12] == first + 12


M = np.arange(64.0)
A, B = M[:12].reshape(3, 4), M[16:28].reshape(3, 4)
G, M1, V1 = M[12:16], M[32:36], M[36:40]


def frozen():
    y = np.zeros((3, 4))
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("op, out, sentence", [
    ("add", {"z": A}, "^add has no result z here; it has y$"),
    ("add", {"d_a": np.ones((3, 4))}, "^add has no result d_a here; it has y$"),
    ("add", {"y": np.empty((4, 3))}, r'^out\["y"\] is \[4, 3\], it is to be \[3, 4\] \(rows 3, dim 4\)$'),
    ("add", np.empty(12), r'^out\["y"\] is \[12\], it is to be '),
    ("add", np.empty((3, 4), np.float32), r'^out\["y"\] is float32, in this call it is to be float64$'),
    ("add", np.empty((3, 4), int), r'^out\["y"\] is int64, in this call it is to be float64$'),
    ("add", np.empty((4, 3)).T, r'^out\["y"\] is not contiguous: its strides are \[8, 24\] bytes$'),
    ("add", np.empty((3, 8))[:, ::2], r'^out\["y"\] is not contiguous'),
    ("add", frozen(), r'^out\["y"\] is read-only$'),
    ("add", [[1.0]], r'^out\["y"\] is list: results are written to arrays of NumPy'),
    ("add", np.ma.zeros((3, 4)), r'^out\["y"\] is MaskedArray: '),
    ("add", {"y": B}, r'^out\["y"\] overlaps b: it may overwrite a alone$'),
    ("add", {"y": M[2:14].reshape(3, 4)}, r'^out\["y"\] overlaps a: it is to be the same array, or to have no '),
    ("add", {"y": M[14:26].reshape(3, 4)}, r'^out\["y"\] overlaps b: it may overwrite a alone$'),
    ("softmax", A, r'^out\["y"\] overlaps x: it may overwrite no input$'),
    ("adamw", G, "^adamw has the outputs p_next, m_next, v_next here: give out as a dict of arrays by "),
    ("adamw", {"p_next": M1}, r'^out\["p_next"\] overlaps m: it may overwrite p alone$'),
    ("adamw", {"m_next": M[50:54], "v_next": M[52:56]}, r'^out\["v_next"\] overlaps out\["m_next"\]: each '),
    ("adamw", {"p_next": M[11:15]}, r'^out\["p_next"\] overlaps p: it is to be the same array'),
])
def test_what_is_refused_and_nothing_written(op, out, sentence):
    given = {"add": {"a": A, "b": B}, "softmax": {"x": A},
             "adamw": {"p": G, "g": M[28:32], "m": M1, "v": V1}}[op]
    arrays = [a for a in (out.values() if isinstance(out, dict) else [out]) if isinstance(a, np.ndarray)]
    before = [M.copy(), *[a.copy() for a in arrays]]
    with pytest.raises(ablate.Error, match="(?m)" + sentence):
        ablate.op(op)(**given, out=out)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip([M, *arrays], before))


def test_a_copy_of_the_parameters_is_no_input_in_place():
    given = inputs("adamw", {"master": "yes"})
    with pytest.raises(ablate.Error, match=r'^out\["p_next"\] overlaps master: it may overwrite no input'):
        ablate.op("adamw", master="yes")(**given, out={"p_next": given["master"]})


def test_an_error_of_the_values_writes_nothing():
    loss, y = np.zeros(1), np.zeros((2, 2), np.float32)
    with pytest.raises(ablate.Error, match=r"target has 7 at \[1\]"):
        ablate.op("cross_entropy")(logits=np.ones((2, 3)), target=[1, 7], out={"loss": loss})
    with pytest.raises(ablate.Error, match=r"a has 1e\+39 at \[0,0\]"):
        ablate.op("add")(a=np.full((2, 2), 1e39), b=np.ones((2, 2)), backend="ref32", out=y)
    with pytest.raises(ablate.Error, match="a has whole numbers that float32 does not hold"):
        ablate.op("add")(a=np.full((2, 2), 2**24 + 1), b=np.ones((2, 2)), backend="ref32", out=y)
    with pytest.raises(ablate.Error, match="b is missing"):
        ablate.op("add")(a=np.ones((2, 2), np.float32), out=y)
    with pytest.raises(ablate.Error, match="add has no kernel fastest"):
        ablate.op("add")(a=np.ones((2, 2), np.float32), b=np.ones((2, 2), np.float32), kernel="fastest", out=y)
    assert not loss.any() and not y.any()


def test_gradients_have_places_as_well():
    x, d_y = np.random.default_rng(0).normal(size=(2, 3, 4))
    want, d_x = ablate.op("softmax")(x=x, d_y=d_y), np.empty((3, 4))
    got = ablate.op("softmax")(x=x, d_y=d_y, out={"d_x": d_x})
    assert got.d_x is d_x and same(d_x, want.d_x) and same(got.y, want.y)
    with pytest.raises(ablate.Error, match=r'^out\["d_x"\] overlaps x: it may overwrite no input'):
        ablate.op("softmax")(x=x, d_y=d_y, out={"d_x": x})
    with pytest.raises(ablate.Error, match=r'^out\["d_x"\] overlaps d_y: it may overwrite no input'):
        ablate.op("softmax")(x=x, d_y=d_y, out={"d_x": d_y})


# ---- tensors of PyTorch ----

def tensors(name, settings, dtype, device):
    """Inputs in the types of the call."""
    given = inputs(name, settings)
    wide = {"m", "v", "master", "rate", "unbias1", "unbias2", "factor"} if dtype == torch.bfloat16 else set()
    return {n: torch.tensor(a).to(torch.int64 if a.dtype == np.int64 else torch.float32 if n in wide else dtype)
            .to(device) for n, a in given.items()}


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scalars_that_are_left_out(dtype):
    """Are what the settings say, in PyTorch and on arrays of either kind."""
    given = tensors("adamw", {}, getattr(torch, dtype), "cpu")
    settings = {"lr": 0.125, "beta1": 0.5, "beta2": 0.75, "step": 2, "clip_factor": 0.5}
    said = {"rate": 0.125, "unbias1": 1 / 0.75, "unbias2": 1 / 0.4375, "factor": 0.5, "skip": 0}
    scalars = {n: torch.full_like(given[n], x) for n, x in said.items()}
    rest = {n: t for n, t in given.items() if n not in said}
    want = at.adamw(**rest, **scalars, beta1=0.5, beta2=0.75)
    for n, t in at.adamw(**rest, **settings)._asdict().items():
        assert (t is None and getattr(want, n) is None) or torch.equal(t, getattr(want, n)), n
    if dtype == "float32":
        got = ablate.op("adamw", **settings)(**{n: t.numpy() for n, t in rest.items()})
        assert same(got.p_next, want.p_next.numpy())
        got = ablate.op("adamw", **settings)(**{n: t.numpy() for n, t in rest.items()}, skip=np.array([1]))
        assert same(got.p_next, rest["p"].numpy())


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name, settings, over", IN_PLACE)
def test_in_place_on_tensors(name, settings, over, dtype, device):
    if (dtype, device) == ("float64", "cuda"):
        pytest.skip("no backend has it")
    given = tensors(name, settings, getattr(torch, dtype), device)
    call, settings = getattr(at, name), {k: v for k, v in settings.items() if k not in given}
    want = call(**given, **settings)
    out = {o: given[i] for o, i in over.items()}
    places, versions = {o: t.data_ptr() for o, t in out.items()}, {o: t._version for o, t in out.items()}
    got = call(**given, **settings, out=out)
    named = got._asdict() if isinstance(got, tuple) else {"y" if "y" in out else "C": got}
    wanted = want._asdict() if isinstance(want, tuple) else dict(zip(named, [want]))
    for n, t in wanted.items():
        assert (t is None and named[n] is None) or torch.equal(named[n], t), n
    for o, t in out.items():
        assert named[o] is t and t.data_ptr() == places[o] and t._version > versions[o]


@needs_torch
def test_tensors_where_arrays_of_numpy_are_taken():
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    want, version = a + b, a._version
    assert ablate.op("add")(a=a, b=b, out=a).y is a and torch.equal(a, want) and a._version > version
    y = np.empty((3, 4), np.float32)
    assert ablate.op("add")(a=a, b=b, out=y).y is y and same(y, (a + b).numpy())
    with pytest.raises(ablate.Error, match=r'^out\["y"\] is no tensor that NumPy can write: .* requires grad'):
        ablate.op("add")(a=a.detach(), b=b, out=torch.empty(3, 4, requires_grad=True))
    with pytest.raises(ablate.Error, match=r'^out\["y"\] is no tensor that NumPy can write: .*BFloat16'):
        ablate.op("add")(a=a, b=b, out=torch.empty(3, 4, dtype=torch.bfloat16))


@needs_torch
@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_are_refused(device):
    memory = torch.arange(64.0, device=device)
    a, b = memory[:12].view(3, 4), memory[16:28].view(3, 4)

    def new(*shape, **more):
        return torch.empty(*shape, **{"device": device, **more})
    for out, sentence in [
            ({"z": a}, "^add has no result z here; it has y$"),
            (new(4, 3), r'^out\["y"\] is \[4, 3\], it is to be \[3, 4\]'),
            (new(3, 4, dtype=torch.float64), r'^out\["y"\] is torch.float64, in this call it is to be torch.float32'),
            (new(4, 3).t(), r'^out\["y"\] is not contiguous: its strides are \[1, 3\]$'),
            (new(3, 1).expand(3, 4), r'^out\["y"\] is not contiguous'),
            (new(13)[1:].view(3, 4), r'^out\["y"\] is misaligned'),
            (torch._neg_view(new(3, 4)), r'^out\["y"\] is a negative view$'),
            (torch.empty(3, 4, device="meta"), r'^out\["y"\] is on meta, '),
            (np.empty((3, 4), np.float32), r'^out\["y"\] is ndarray, and no plain tensor'),
            (new(3, 4).to_sparse(), r'^out\["y"\] is sparse'),
            (new(3, 4, requires_grad=True), r'^out\["y"\] asks for a gradient: give it detached'),
            (b, r'^out\["y"\] overlaps b: it may overwrite a alone$'),
            (memory[4:16].view(3, 4), r'^out\["y"\] overlaps a: it is to be the same array'),
            (memory[8:20].view(3, 4), r'^out\["y"\] overlaps (a|b): ')]:
        with pytest.raises(ablate.Error, match=sentence):
            at.add(a=a, b=b, out=out)
    with pytest.raises(ablate.Error, match=r'^out\["y"\] overlaps a: it is to be the same array'):
        at.add(a=torch._neg_view(a), b=b, out=a)
    assert torch.equal(memory.cpu(), torch.arange(64.0))


@needs_torch
def test_autograd_does_not_miss_what_is_overwritten():
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    leaf = a.clone().requires_grad_()
    with pytest.raises(ablate.Error, match="^add with out= has no gradient, and a asks for one: give it"):
        at.add(a=leaf, b=b, out=torch.empty(3, 4))
    with torch.no_grad():
        assert at.add(a=leaf, b=b, out=leaf) is leaf and torch.equal(leaf, a + b) and leaf.requires_grad
    kept = torch.randn(3, 4)
    y = (leaf * kept).sum()
    at.add(a=kept, b=b, out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@needs_torch
def test_out_is_for_eager_calls():
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    want = a + b
    torch.compile(lambda a, b: at.add(a=a, b=b, out=a) + 1, backend="aot_eager")(a, b)
    assert torch.equal(a, want)  # the graph ends before the call
    with pytest.raises(Exception, match="disable"):
        torch.compile(lambda a, b: at.add(a=a, b=b, out=a), backend="eager", fullgraph=True)(a, b)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ablate.Error, match="add with out= takes plain"):
        at.add(a=a, b=b, out=a)
    with pytest.raises(ablate.Error, match="^add with out= takes plain tensors"):
        torch.func.vmap(lambda a, b: at.add(a=a, b=b, out=torch.empty(1, 4)))(a[:, None], b[:, None])
    with torch.inference_mode():
        y = torch.empty(3, 4)
        assert at.add(a=a, b=b, out=y) is y and torch.equal(y, a + b)


@pytest.fixture(params=["cpu", "cuda"])
def device(request, monkeypatch):
    """A GPU, or the host that is taken for one, for what is the same with both."""
    if torch is None:
        pytest.skip("no PyTorch")
    if request.param == "cuda" and not CUDA:
        pytest.skip("no GPU")
    if request.param == "cpu":
        space = _device._Torch
        monkeypatch.setattr(_device, "on_gpu", lambda a: isinstance(a, torch.Tensor) and a.device.type != "meta")
        monkeypatch.setattr(_device, "backend_for", lambda kind, dtype, of=_device.backend_for: of("cpu", dtype))
        monkeypatch.setattr(torch.Tensor, "__dlpack__", lambda self, stream, of=torch.Tensor.__dlpack__: of(self))
        monkeypatch.setattr(space, "stream", lambda self, device: 0)
        monkeypatch.setattr(space, "new", lambda self, shape, dtype, device, fill: getattr(torch, fill)(
            shape, dtype=getattr(torch, _device._FULL[dtype])))
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name, settings, over", IN_PLACE)
def test_in_place_on_a_gpu(name, settings, over, dtype, device):
    given = tensors(name, settings, getattr(torch, dtype), device)
    want = ablate.op(name, **settings)(**given)
    got = ablate.op(name, **settings)(**given, out={o: given[i] for o, i in over.items()})
    assert list(got) == list(want) and all(torch.equal(got[n], want[n]) for n in want)
    assert all(got[o] is given[i] and given[i]._version for o, i in over.items())


def test_what_is_refused_on_a_gpu(device):
    memory = torch.arange(64.0, device=device)
    a, b = memory[:12].view(3, 4), memory[16:28].view(3, 4)
    for out, sentence in [
            ({"z": a}, "^add has no result z here; it has y$"),
            (np.empty((3, 4), np.float32), r'^out\["y"\] is on the host, a on a GPU$'),
            (b.double(), r'^out\["y"\] is fp64, in this call it is to be fp32$'),
            (torch.empty(4, 3, device=device).t(), r'^out\["y"\] is not dense: its strides are \[1, 3\]$'),
            (memory[29:41].view(3, 4), r'^out\["y"\] is misaligned'),
            (a[:2], r'^out\["y"\] is \[2, 4\], it is to be \[3, 4\]'),
            (torch.empty(3, 4, device=device, requires_grad=True), r'^out\["y"\] asks for a gradient'),
            (torch._neg_view(torch.empty(3, 4, device=device)), r'^out\["y"\] is a negative view'),
            (b, r'^out\["y"\] overlaps b: it may overwrite a alone$'),
            (memory[4:16].view(3, 4), r'^out\["y"\] overlaps a: it is to be the same array')]:
        with pytest.raises(ablate.Error, match=sentence):
            ablate.op("add")(a=a, b=b, out=out)
    assert torch.equal(memory.cpu(), torch.arange(64.0))


def test_gradients_on_a_gpu(device):
    x, d_y, d_x = (torch.randn(3, 4, device=device) for _ in range(3))
    want = ablate.op("softmax")(x=x, d_y=d_y)
    got = ablate.op("softmax")(x=x, d_y=d_y, out={"d_x": d_x})
    assert got.d_x is d_x and torch.equal(d_x, want.d_x) and torch.equal(got.y, want.y)
    with pytest.raises(ablate.Error, match=r'^out\["d_x"\] overlaps d_y: it may overwrite no input$'):
        ablate.op("softmax")(x=x, d_y=d_y, out={"d_x": d_y})


def test_states_that_a_call_keeps_in_bf16():
    """NumPy has no such type."""
    words = {"trajectory": "store", "checkpoint_dtype": "bf16"}
    given = {n: np.random.default_rng(1).normal(size=(3, 1, 1, 2)).astype(np.float32) for n in "kvq"}
    op = ablate.op("e74_cell", **words)
    want = op(**given, d_out=np.ones((3, 1, 2), np.float32))
    got = op(**given, d_out=np.ones((3, 1, 2), np.float32), out={"out": np.empty((3, 1, 2), np.float32)})
    assert all(same(got[n], want[n]) for n in want)
