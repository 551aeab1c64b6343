"""ablate.torch.Program: the bits of ablate.program, PyTorch's own autograd, names, copies, compilation, errors."""

import copy
import gc
import os
import pickle
import re
import shutil
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.6")

from torch import library as torch_library
from torch.autograd import forward_ad
from torch.nn import functional as F

import ablate
import ablate.torch as at
from ablate.torch import _program

CUDA = torch.cuda.is_available() and ablate.backends().get("gpu32", "no") is None
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no GPU"))]
BACKENDS = {"cpu": {torch.float64: "ref64", torch.float32: "ref32", torch.bfloat16: "ref_bf16"},
            "cuda": {torch.float32: "gpu32", torch.bfloat16: "gpu_bf16"}}

MODEL = """
vocabulary = 11
width  = 8
steps  = 5
batch  = 2
blocks = 2
token  [steps, batch]
target [steps, batch]
x      = embedding token
repeat blocks
    n = rmsnorm x
    h = linear n dim_out=12 bias=yes
    a = silu h
    o = linear a dim_out=width
    x = add x o
f      = rmsnorm x
logits = linear f W=x.E
loss   = cross_entropy logits target
output logits
"""

RECURRENT = """
width  = 8
steps  = 4
batch  = 3
x  [steps, batch, width]
h0 [batch, width]
out h_T M_T = dual_memory x h0=h0 slots=4
"""

# No parameters, and outputs of its blocks.
BLOCKS = """
x [3, 4]
repeat 2
    y = silu x
    x = relu x
"""

# One of its parameters is float32 in a bf16 model, and one has no gradient.
MIXED = """
batch = 2
steps = 3
x [batch, steps, 8]
l = lora x dim_out=8 rank=2
o = attention l l l heads=2 sink=yes
"""


def write(folder, text, name="small.model"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path, MODEL)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def data(device="cpu", steps=5, batch=2, vocabulary=11, seed=1):
    torch.manual_seed(seed)
    return torch.randint(0, vocabulary, (2, steps, batch)).to(device).unbind()


def gradients(m):
    found = {n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    m.zero_grad()
    return found


def step(m, *inputs):
    """The loss, and the gradients."""
    loss = m(*inputs).loss
    loss.backward()
    return loss.detach(), gradients(m)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("device, dtype", [
    pytest.param(d, t, marks=[] if d == "cpu" else pytest.mark.skipif(not CUDA, reason="no GPU"))
    for d, types in BACKENDS.items() for t in types])
def test_the_bits_of_a_call_on_numpy(file, device, dtype):
    m = at.Program(file, width=16, device=device, dtype=dtype)
    token, target = data(device, steps=7, batch=3)
    result = m(token=token, target=target)
    upstream = torch.randn(result.logits.shape, device=device).to(dtype)
    torch.autograd.backward([result.loss, result.logits], [torch.ones_like(result.loss), upstream])
    numpy = {n: p.detach().to("cpu", torch.float64).numpy() for n, p in m.named_parameters()}
    want = ablate.program(file)(
        token=token.cpu().numpy(), target=target.cpu().numpy(), **numpy, d_loss=np.ones(1),
        d_logits=upstream.to("cpu", torch.float64).numpy(), backend=BACKENDS[device][dtype])
    found = {**result._asdict(), **{"d_" + n: g for n, g in gradients(m).items()}}
    assert {*found} == {*want}
    for n, t in found.items():
        assert torch.equal(t.cpu(), torch.tensor(want[n]).to(t.dtype)), n


def composed(p, token, target, blocks=2, eps=1e-6):
    """The model of MODEL in PyTorch."""
    x = F.embedding(token, p["x.E"])
    for i in range(1, blocks + 1):
        n = F.rms_norm(x, x.shape[-1:], p[f"{i}.n.w"], eps)
        a = F.silu(F.linear(n, p[f"{i}.h.W"], p[f"{i}.h.b"]))
        x = x + F.linear(a, p[f"{i}.o.W"])
    logits = F.linear(F.rms_norm(x, x.shape[-1:], p["f.w"], eps), p["x.E"])
    return logits, F.cross_entropy(logits.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_model_in_pytorch(file, device, dtype, close):
    if device == "cuda" and dtype == torch.float64:
        pytest.skip("no backend")
    m = at.Program(file, device=device, dtype=dtype)
    for p in m.parameters():
        torch.nn.init.normal_(p)
    token, target = data(device)
    logits, loss = composed(dict(m.named_parameters()), token, target)
    loss.backward()
    want, result = gradients(m), m(token, target)
    result.loss.backward()
    torch.testing.assert_close(result.loss, loss.reshape(1), rtol=close, atol=close)
    torch.testing.assert_close(result.logits, logits, rtol=close, atol=close)
    torch.testing.assert_close(gradients(m), want, rtol=close, atol=close)


def test_gradcheck(file):
    m = at.Program(file, vocabulary=5, width=4, dtype=torch.float64)
    token, target = data(steps=2, vocabulary=5)
    names, leaves = zip(*m.named_parameters())

    def function(*given):
        return tuple(torch.func.functional_call(m, dict(zip(names, given)), (token, target)))
    assert torch.autograd.gradcheck(function, leaves, atol=1e-5, nondet_tol=0)


# ---- parameters ----

def test_names_and_shapes(file):
    m = at.Program(file, blocks=1, width=6)
    want = {"x.E": (11, 6), "1.n.w": (6,), "1.h.W": (12, 6), "1.h.b": (12,), "1.o.W": (6, 12), "f.w": (6,)}
    assert {n: tuple(p.shape) for n, p in m.named_parameters()} == want
    assert [*m.state_dict()] == [*want]
    assert m.get_parameter("1.h.W") is dict(m.named_parameters())["1.h.W"]


def test_names_of_a_modules_methods(tmp_path):
    """They are names of results as well."""
    file = write(tmp_path, "a = 3\nx [a, 4]\nforward = linear x dim_out=4\ntrain = linear forward dim_out=4\n")
    m = at.Program(file)
    assert [*m.state_dict()] == ["forward.W", "train.W"]
    x = torch.randn(3, 4)
    torch.testing.assert_close(m(x), x @ m.state_dict()["forward.W"].T @ m.state_dict()["train.W"].T)
    assert not m.eval().training


def test_how_they_are_drawn(file):
    torch.manual_seed(3)
    m = at.Program(file, width=256, vocabulary=300)
    for n, p in m.named_parameters():
        if p.dim() == 2:
            assert p.std().item() == pytest.approx(p.shape[1] ** -0.5, rel=0.1), n
        else:
            assert (p == (0 if n.endswith(".b") else 1)).all(), n
    before = {n: p.clone() for n, p in m.state_dict().items()}
    torch.manual_seed(3)
    m.reset_parameters()
    assert same(before, m.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_are_the_contracts(tmp_path, device, dtype):
    m = at.Program(write(tmp_path, MIXED), device=device, dtype=dtype)
    types = {n: (p.dtype, p.requires_grad) for n, p in m.named_parameters()}
    assert types == {"l.W": (dtype, False), "l.A": (dtype, True), "l.B": (dtype, True),
                     "o.sinks": (torch.float32, True)}
    m(torch.randn(2, 3, 8, device=device, dtype=dtype)).sum().backward()
    assert {n: g.dtype for n, g in gradients(m).items()} == {"l.A": dtype, "l.B": dtype,
                                                            "o.sinks": torch.float32}


def test_a_state_dict_is_loaded(file, tmp_path):
    m, other = at.Program(file), at.Program(file)
    torch.save(m.state_dict(), tmp_path / "saved.pt")
    token, target = data()
    assert not torch.equal(m(token, target).loss, other(token, target).loss)
    other.load_state_dict(torch.load(tmp_path / "saved.pt"))
    assert torch.equal(m(token, target).loss, other(token, target).loss)


@pytest.mark.parametrize("of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_need_no_file(file, of):
    m = at.Program(file, width=6)
    want = step(m, *data())
    file.write_text("no program")
    _program.program_operator.cache_clear()
    shutil.rmtree(_program._folder().name, ignore_errors=True)
    other = of(m)
    file.unlink()
    loss, found = step(other, *data())
    assert torch.equal(loss, want[0]) and same(found, want[1])
    assert all(a is not b for a, b in zip(m.parameters(), other.parameters()))
    m(*data(steps=9))  # a plan that is made now


def test_another_text_in_the_same_file(file):
    first = at.Program(file)
    file.write_text(MODEL.replace("dim_out=12", "dim_out=3"))
    second = at.Program(file)
    assert first.state_dict()["1.h.W"].shape == (12, 8) and second.state_dict()["1.h.W"].shape == (3, 8)
    for m in first, second, first:
        step(m, *data(batch=4))


# ---- calls ----

def test_one_module_on_several_sizes(file, device):
    m = at.Program(file, device=device)
    for steps, batch in (5, 2), (3, 7), (1, 1), (5, 2):
        token, target = data(device, steps, batch)
        result = m(token, target=target)
        assert result.logits.shape == (steps, batch, 11) and result.loss.shape == (1,)
        result.loss.backward()


def test_training(file, device):
    torch.manual_seed(2)
    m = at.Program(file, width=16, device=device)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
    token, target = data(device)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = m(token, target).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_dropped_tensors_are_made_again(file):
    torch.manual_seed(4)
    m = at.Program(file)
    other = at.Program(file, recompute=1)
    other.load_state_dict(m.state_dict())
    loss, found = step(other, *data())
    want = step(m, *data())
    assert torch.equal(loss, want[0]) and same(found, want[1])


def test_states_are_inputs_that_may_be_left_out(tmp_path, device):
    m = at.Program(write(tmp_path, RECURRENT), device=device)
    x = torch.randn(4, 3, 8, device=device, requires_grad=True)
    h0 = torch.randn(3, 8, device=device, requires_grad=True)
    assert "h0" not in m.state_dict() and m.get_parameter("out.M0").shape == (4, 8)
    assert torch.equal(m(x).out, m(x, torch.zeros_like(h0)).out)
    result = m(x, h0=h0)
    assert result._fields == ("out", "h_T", "M_T") and not torch.equal(result.out, m(x).out)
    result.out.square().sum().backward()
    assert x.grad.abs().sum() > 0 and h0.grad.abs().sum() > 0


def test_outputs_of_blocks(tmp_path):
    m = at.Program(write(tmp_path, BLOCKS))
    x = torch.randn(3, 4)
    result = m(x)
    assert result._fields == ("y_1", "y_2", "x_2") and not [*m.parameters()]
    torch.testing.assert_close([*result], [F.silu(x), F.silu(F.relu(x)), F.relu(x)])
    with pytest.raises(ablate.Error, match="small.model has no input; it has x"):
        m()


def test_no_gradients_where_none_is_asked_for(file):
    m = at.Program(file)
    with torch.no_grad():
        assert not m(*data()).loss.requires_grad
    m.requires_grad_(False)
    m.get_parameter("1.h.W").requires_grad_()
    assert [*step(m, *data())[1]] == ["1.h.W"]


def test_checkpointing(file):
    from torch.utils.checkpoint import checkpoint
    m = at.Program(file)
    want = step(m, *data())
    checkpoint(lambda *a: m(*a).loss, *data(), use_reentrant=False).backward()
    assert same(gradients(m), want[1])


def test_autocast(file, device):
    m = at.Program(file, device=device)
    with torch.autocast(device, torch.bfloat16):
        result = m(*data(device))
        result.loss.backward()
    assert result.logits.dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(m).values())


def test_a_meta_device_gives_shapes(file):
    m = at.Program(file, device="meta", dtype=torch.bfloat16)
    result = m(*data("meta"))
    assert result.logits.shape == (5, 2, 11) and result.logits.device.type == "meta"
    assert result.loss.dtype == torch.float32


def test_a_module_is_freed(file):
    m = at.Program(file)
    step(m, *data())
    kept = [weakref.ref(p) for p in m.parameters()]
    del m
    gc.collect()
    assert not any(p() is not None for p in kept)


# ---- PyTorch's checks, and its compiler ----

def test_opcheck(file, device):
    m = at.Program(file, device=device)
    torch_library.opcheck(torch.ops.ablate.program.default, ([*data(device), *m.parameters()], *m._operator.key))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph(file, device, backend):
    m = at.Program(file, device=device)
    compiled = torch.compile(m, fullgraph=True, backend=backend)
    for steps in 5, 3:
        want = step(m, *data(device, steps))
        compiled(*data(device, steps)).loss.backward()
        assert same(gradients(m), want[1])
    torch._dynamo.reset()


def test_exported(file):
    m = at.Program(file)
    exported = torch.export.export(m, data()).module()
    assert torch.equal(exported(*data(seed=2)).loss, m(*data(seed=2)).loss)


@pytest.mark.parametrize("call, sentence", [
    (lambda m: torch.func.vmap(lambda t: m(t, t).loss)(data()[0][None]), "small.model is not supported by"),
    (lambda m: torch.autograd.grad(torch.autograd.grad(
        m(*data()).loss, m.get_parameter("f.w"), create_graph=True)[0].sum(), m.get_parameter("f.w")),
     "small.model has no second derivative"),
    (lambda m: torch.jit.trace(m, data()), "trace does not record small.model"),
])
def test_what_is_not_there(file, call, sentence):
    m = at.Program(file)
    with pytest.raises(ablate.Error, match=sentence):
        call(m)


def test_forward_mode_is_refused(file):
    m = at.Program(file)
    p = dict(m.named_parameters())
    with forward_ad.dual_level(), pytest.raises(ablate.Error, match="^f.w of small.model has a tangent"):
        dual = forward_ad.make_dual(p["f.w"], torch.ones(8))
        torch.func.functional_call(m, {**p, "f.w": dual}, data())


# ---- errors ----

TOKEN, TARGET = data()


@pytest.mark.parametrize("call, sentence", [
    (lambda m: m(TOKEN), r"^target is missing: \[steps,batch\], here \[5, 2\]"),
    (lambda m: m(), "^token is missing"),
    (lambda m: m(TOKEN, TARGET, TOKEN), "^small.model has 2 inputs, token, target: 3 are given"),
    (lambda m: m(TOKEN, token=TARGET), "^token is given twice"),
    (lambda m: m(TOKEN, TARGET, mask=TOKEN), "^mask is no input of small.model; it has token, target"),
    (lambda m: m(TOKEN, TARGET, **{"x.E": TOKEN}), "^x.E is a parameter of the module"),
    (lambda m: m(TOKEN, TARGET[:2]), "^target has 2 along steps, token has 5"),
    (lambda m: m(TOKEN[0], TARGET), r"^token is \[2\], it has the axes steps, batch"),
    (lambda m: m(TOKEN.int(), TARGET), "^token is torch.int32, in this call it is to be torch.int64"),
    (lambda m: m(TOKEN.numpy(), TARGET), "^token is ndarray, and no tensor"),
    (lambda m: m.to(torch.float16)(TOKEN, TARGET), "^x.E is torch.float16, in this call it is to be torch.fl"),
])
def test_wrong_calls_have_a_sentence(file, call, sentence):
    m = at.Program(file)
    with pytest.raises(ablate.Error, match=sentence):
        call(m)


@pytest.mark.parametrize("sizes, sentence", [
    ({"depth": 3}, "has no parameter depth; it has vocabulary, width, steps, batch, blocks, recompute"),
    ({"width": 0}, "width = 0: must be 1 to"),
    ({"width": "wide"}, "width = wide"),
    ({"dtype": torch.float16}, "no backend stores fp16 on cpu"),
    ({"dtype": torch.complex64}, "no backend stores torch.complex64 on cpu"),
    ({"device": "cuda", "dtype": torch.float64}, "no backend stores fp64 on cuda"),
])
def test_wrong_sizes_have_a_sentence(file, sizes, sentence):
    with pytest.raises(ablate.Error, match=sentence):
        at.Program(file, **sizes)


@pytest.mark.parametrize("old, new, sentence", [
    ("rmsnorm x", "rmsnrm x", r"small.model:11: there is no operation rmsnrm"),
    ("W=x.E", "W=x.F", r"small.model:17: there is no tensor x.F"),
    ("dim_out=width", "dim_out=5", r"small.model:15: 1.o is \[5,2,5\]"),
])
def test_a_wrong_text_has_its_line(file, old, new, sentence):
    file.write_text(MODEL.replace(old, new))
    with pytest.raises(ablate.Error, match="^" + re.escape(os.fspath(file.parent)) + "/" + sentence):
        at.Program(file)


def test_sizes_that_do_not_fit_in_a_call(tmp_path):
    """The text's line, and the name of the file that it was read from."""
    file = write(tmp_path, "a = 8\nx [3, a]\ny = linear x dim_out=6\nz = attention y y y heads=2 batch=a steps=1\n")
    with pytest.raises(ablate.Error, match="^" + re.escape(os.fspath(file)) + ":4"):
        at.Program(file)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ablate.Error, match="no.model: No such file"):
        at.Program(tmp_path / "no.model")
    (tmp_path / "bytes.model").write_bytes(b"a = 1\n; \xff\nx [a, 4]\ny = silu x\n")
    with pytest.raises(ablate.Error, match="bytes.model: .*utf-8"):
        at.Program(tmp_path / "bytes.model")
    with pytest.raises(ablate.Error, match="has blanks"):
        at.Program("a b.model")
