/* Calls on the caller's own tensors (ablate.h, abl_call_...): every kernel has the bits that it has
 * in a run of the library, on any stream, from several threads at once and in a graph; wrong calls
 * have their sentence; nothing is allocated. */
#include "gpu/gpu.cuh"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/ablate.h"
#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"
#include "tests/here.h"
#include "tests/tap.h"
}

/* ---- tensors on the device, as a caller would have them ---- */

enum { OFF = 16 }; /* no tensor is at a multiple of more bytes than a call asks for */

struct own {
    abl_call *c;
    struct call f; /* the same call, in the library's terms */
    int n, arg[MAX_ARGS];
    void *memory[2 * MAX_ARGS + 1], *tensors[MAX_ARGS], *gradients[MAX_ARGS], *work;
    int64_t bytes;
};

static void own_free(struct own *o)
{
    for (void *p : o->memory)
        cudaFree(p);
    abl_call_free(o->c);
    memset(o, 0, sizeof *o);
}

/* The call of these words, and poisoned memory for all of it; 0, or -1 after err_set(). */
static int own_new(struct own *o, const struct call *f, const char *words)
{
    struct abl_tensor t;
    int m = 0;

    memset(o, 0, sizeof *o);
    o->f = *f;
    o->c = abl_call_new(words, f->backend->name, 0, f->kernel->name);
    if (!o->c)
        return -1;
    for (int i = 0; abl_call_tensor(o->c, i, &t) == 0; i++, o->n++) {
        o->arg[i] = op_arg(f->op, t.name);
        for (int grad = 0; grad <= t.has_gradient; grad++) {
            const size_t bytes = t.count * types[call_type(f, o->arg[i], grad)].bytes;
            char *p = NULL;
            if (cudaMalloc(&p, bytes + OFF) != cudaSuccess)
                return err_set("no memory");
            cudaMemset(p, 0xff, bytes + OFF);
            o->memory[m++] = p;
            (grad ? o->gradients : o->tensors)[i] = p + OFF;
        }
    }
    const int64_t forward = abl_call_workspace(o->c, ABL_FORWARD);
    const int64_t backward = abl_call_workspace(o->c, ABL_BACKWARD);
    o->bytes = max(forward, backward);
    if (o->bytes && cudaMalloc(&o->work, o->bytes) != cudaSuccess)
        return err_set("no memory for the workspace");
    o->memory[m] = o->work;
    cudaMemset(o->work, 0xff, o->bytes);
    return 0;
}

/* Doubles, or bytes as they are. */
static void copy_in(const struct own *o, int i, int grad, const void *values)
{
    const enum dtype type = call_type(&o->f, o->arg[i], grad);
    const int64_t n = op_count(&o->f, o->arg[i]);
    void *bits = malloc(n * types[type].bytes);

    if (type == U8)
        memcpy(bits, values, n);
    else
        narrow(type, bits, (const double *)values, n);
    cudaMemcpy((grad ? o->gradients : o->tensors)[i], bits, n * types[type].bytes,
               cudaMemcpyHostToDevice);
    free(bits);
}

static void copy_out(const struct own *o, int i, int grad, void *values)
{
    const enum dtype type = call_type(&o->f, o->arg[i], grad);
    const int64_t n = op_count(&o->f, o->arg[i]);
    void *bits = malloc(n * types[type].bytes);

    cudaMemcpy(bits, (grad ? o->gradients : o->tensors)[i], n * types[type].bytes,
               cudaMemcpyDeviceToHost);
    if (type == U8)
        memcpy(values, bits, n);
    else
        widen(type, (double *)values, bits, n);
    free(bits);
}

static void give(const struct own *o, const struct tensors *inputs)
{
    for (int i = 0; i < o->n; i++) {
        const unsigned flags = o->f.op->arg[o->arg[i]].flags;
        if (flags & IN)
            copy_in(o, i, 0, tensors_values(inputs, o->arg[i], 0));
        if (flags & OUT && flags & DIFF)
            copy_in(o, i, 1, inputs->g[o->arg[i]]);
    }
}

/* Both passes; backward has nothing that it does not read. */
static int pass_both(const struct own *o, void *stream)
{
    struct abl_tensor t;
    void *back[MAX_ARGS];

    if (abl_call_run(o->c, ABL_FORWARD, o->tensors, NULL, o->work, o->bytes, stream))
        return -1;
    if (op_passes(o->f.op) <= BACKWARD)
        return 0;
    for (int i = 0; abl_call_tensor(o->c, i, &t) == 0; i++)
        back[i] = t.in_backward ? o->tensors[i] : NULL;
    return abl_call_run(o->c, ABL_BACKWARD, back, o->gradients, o->work, o->bytes, stream);
}

/* Gives no scalar that the settings say. */
static void leave_out(struct own *o)
{
    for (int i = 0; i < o->n; i++)
        if (o->f.op->arg[o->arg[i]].settled)
            o->tensors[i] = NULL;
}

static int same(const struct own *o, const struct tensors *inputs, const struct tensors *want)
{
    struct tensors *got = tensors_results(&o->f, inputs);

    for (int i = 0; got && i < o->n; i++) {
        const unsigned flags = o->f.op->arg[o->arg[i]].flags;
        if (!(flags & IN))
            copy_out(o, i, 0, tensors_values(got, o->arg[i], 0));
        else if (flags & DIFF)
            copy_out(o, i, 1, got->g[o->arg[i]]);
    }
    const int equal = got && tensors_same(&o->f, got, want);
    tensors_free(got);
    return equal;
}

/* ---- every kernel ---- */

struct tried {
    const struct backend *b;
    const struct impl *k;
    int n, wrong;
    char why[300];
};

enum { CASES = 2 }; /* of each kernel */

static void words_of(const struct call *f, char words[MAX_TEXT + 100])
{
    char text[MAX_TEXT];
    op_text(f, text);
    snprintf(words, MAX_TEXT + 100, "%s %s", f->op->name, text);
}

static int try_case(const struct call *given, void *data)
{
    struct tried *t = (struct tried *)data;
    struct run run = {};
    struct own o = {};
    char words[MAX_TEXT + 100];

    run.call = call_here(given, t->b, t->k);
    if (impl_declines(&run.call))
        return 0;
    words_of(given, words);
    struct tensors *inputs = tensors_new(&run.call), *want = NULL;
    if (inputs) {
        tensors_draw(inputs, &run.call, 1, 1);
        tensors_round(inputs, &run.call);
        want = run_copy(&run, inputs, NULL);
    }
    int e = !want || own_new(&o, &run.call, words);
    if (!e) {
        give(&o, inputs);
        if (t->n % 2)
            leave_out(&o);
        e = pass_both(&o, NULL) || cudaDeviceSynchronize() != cudaSuccess;
    }
    if (e || !same(&o, inputs, want)) {
        t->wrong++;
        snprintf(t->why, sizeof t->why, "%.200s: %.80s", words, e ? abl_error() : "other bits");
    }
    own_free(&o);
    tensors_free(inputs);
    tensors_free(want);
    return ++t->n >= CASES;
}

static void every_kernel(const struct backend *b)
{
    const struct impl *k;
    for (int i = 0; i < N_OPS; i++)
        for (int n = 0; (k = op_kernel(ops[i], b, n)); n++) {
            struct tried t = {b, k, 0, 0, ""};
            cases_each(ops[i], ops[i]->cases, try_case, &t);
            if (!t.n)
                skip("it declines all cases", "%s %s: %s", b->name, ops[i]->name, k->name);
            else if (!ok(!t.wrong, "%s %s: %s has the bits of a run", b->name, ops[i]->name,
                         k->name))
                printf("# %s\n", t.why);
        }
}

/* ---- one call, in many ways ---- */

/* A call with products, a recurrence and a workspace. */
static const char *const WORDS = "e74 steps=20 batch=2 dim=16 heads=2 n_state=8";

struct example {
    struct own o;
    struct tensors *inputs, *want;
};

static int example_new(struct example *k, const char *words, const struct backend *b)
{
    struct run run = {};
    const char *blank = strchr(words, ' ');
    char name[40];

    memset(k, 0, sizeof *k);
    snprintf(name, sizeof name, "%.*s", (int)(blank - words), words);
    if (cases_one(op_find(name), blank + 1, &run.call))
        return -1;
    run.call = call_here(&run.call, b, NULL);
    run.call.kernel = impl_choose(&run.call, NULL).kernel;
    k->inputs = tensors_new(&run.call);
    tensors_draw(k->inputs, &run.call, 1, 1);
    tensors_round(k->inputs, &run.call);
    k->want = run_copy(&run, k->inputs, NULL);
    if (!k->want || own_new(&k->o, &run.call, words))
        return -1;
    give(&k->o, k->inputs);
    return 0;
}

static void example_free(struct example *k)
{
    own_free(&k->o);
    tensors_free(k->inputs);
    tensors_free(k->want);
}

enum { HOSTS = 4, TIMES = 10 };

struct host {
    pthread_t thread;
    struct example k;
    int e;
    char why[200];
};

static void *work(void *data)
{
    struct host *h = (struct host *)data;
    cudaStream_t stream;

    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int i = 0; i < TIMES && !h->e; i++)
        h->e = pass_both(&h->k.o, stream);
    if (h->e)
        snprintf(h->why, sizeof h->why, "%s", abl_error());
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return NULL;
}

/* One call, on tensors and a stream of each thread. */
static void threads(const struct backend *b)
{
    struct host h[HOSTS] = {};
    int e = 0, right = 1;

    for (int i = 0; i < HOSTS; i++)
        e |= example_new(&h[i].k, WORDS, b);
    abl_call *own[HOSTS];
    for (int i = 0; i < HOSTS; i++) {
        own[i] = h[i].k.o.c;
        h[i].k.o.c = own[0];
    }
    cudaDeviceSynchronize();
    for (int i = 0; !e && i < HOSTS; i++)
        e |= pthread_create(&h[i].thread, NULL, work, &h[i]);
    for (int i = 0; !e && i < HOSTS; i++)
        pthread_join(h[i].thread, NULL);
    for (int i = 0; i < HOSTS; i++) {
        right &= !h[i].e && same(&h[i].k.o, h[i].k.inputs, h[i].k.want);
        h[i].k.o.c = own[i];
    }
    if (!ok(!e && right, "%s: one call on %d streams from as many threads has the same bits", b->name,
            HOSTS))
        printf("# %s %s\n", h[0].why, abl_error());
    for (int i = 0; i < HOSTS; i++)
        example_free(&h[i].k);
}

#ifndef CUDA_EMULATE

static int capture(const struct own *o, cudaStream_t stream, cudaGraphExec_t *ready)
{
    cudaGraph_t graph;

    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    const int e = pass_both(o, stream);
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || e)
        return -1;
    return cudaGraphInstantiate(ready, graph, 0) != cudaSuccess || cudaGraphDestroy(graph);
}

static void graph(const struct backend *b)
{
    struct example k;
    cudaStream_t stream;
    cudaGraphExec_t ready;

    int e = example_new(&k, WORDS, b);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaDeviceSynchronize();
    e = e || capture(&k.o, stream, &ready);
    if (!e) {
        cudaGraphLaunch(ready, stream);
        cudaStreamSynchronize(stream);
        cudaGraphExecDestroy(ready);
    }
    if (!ok(!e && same(&k.o, k.inputs, k.want), "%s: captured into a graph and replayed", b->name))
        printf("# %s, %s\n", abl_error(), cudaGetErrorString(cudaGetLastError()));
    cudaStreamDestroy(stream);
    example_free(&k);
}

#else
static void graph(const struct backend *) {}
#endif

/* (The emulator counts memory to the byte, and takes ten seconds for a thousand calls.) */
#ifdef CUDA_EMULATE
enum { CALLS = 100 };
#else
enum { CALLS = 1000 };
#endif

static void memory(const struct backend *b)
{
    struct example k;
    size_t before, after, total;
    int e = example_new(&k, WORDS, b) || pass_both(&k.o, NULL);

    cudaDeviceSynchronize();
    cudaMemGetInfo(&before, &total);
    for (int i = 0; !e && i < CALLS; i++)
        e = pass_both(&k.o, NULL);
    cudaDeviceSynchronize();
    cudaMemGetInfo(&after, &total);
    if (!e && before != after && !getenv("CHECK_GPU"))
        skip("another program may allocate meanwhile", "%s: %d calls", b->name, CALLS);
    else
        ok(!e && before == after, "%s: %d calls leave device memory as it was", b->name, CALLS);
    example_free(&k);
}

/* ---- wrong calls ---- */

__attribute__((format(printf, 3, 4))) static void refuses(int e, const char *want, const char *fmt,
                                                          ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (!ok(e == -1 && strstr(abl_error(), want), "refused: %s", what))
        printf("# %d, \"%s\", not \"%s\"\n", e, abl_error(), want);
}

/* Forward with one tensor elsewhere. */
static int with(const struct own *o, int i, void *at)
{
    void *tensors[MAX_ARGS];
    memcpy(tensors, o->tensors, sizeof tensors);
    tensors[i] = at;
    return abl_call_run(o->c, ABL_FORWARD, tensors, NULL, o->work, o->bytes, NULL);
}

static int back_with(const struct own *o, int i, void *at)
{
    void *gradients[MAX_ARGS];
    memcpy(gradients, o->gradients, sizeof gradients);
    gradients[i] = at;
    return abl_call_run(o->c, ABL_BACKWARD, o->tensors, gradients, o->work, o->bytes, NULL);
}

static int named(const struct own *o, const char *name)
{
    int i = 0;
    while (i < o->n && strcmp(o->f.op->arg[o->arg[i]].name, name) != 0)
        i++;
    return i;
}

static void made(const char *words, const char *backend, int device, const char *kernel,
                 const char *want)
{
    abl_call *c = abl_call_new(words, backend, device, kernel);
    refuses(c ? 0 : -1, want, "%s on %s %d, kernel %s", words, backend, device,
            kernel ? kernel : "any");
    abl_call_free(c);
}

static void wrong_calls(const struct backend *b)
{
    struct example k;
    static char host[1 << 16] __attribute__((aligned(256)));

    if (example_new(&k, WORDS, b)) {
        ok(0, "%s", abl_error());
        return;
    }
    const struct own *o = &k.o;
    const int x = named(o, "x"), out = named(o, "out"), W = named(o, "W_k");
    char *at = (char *)o->tensors[x];

    refuses(with(o, x, NULL), "x is missing", "an input is NULL");
    refuses(with(o, out, NULL), "out is missing", "an output is NULL");
    refuses(with(o, x, at + 4), "x is misaligned", "an address that is no multiple of 16");
    refuses(with(o, out, at), "out overlaps x", "an output where an input is");
    refuses(with(o, out, at + 16), "out overlaps x", "an output that begins within an input");
    refuses(with(o, x, host), "x is memory of the host", "a pointer to the host's memory");
    refuses(with(o, W, o->work), "the workspace overlaps W_k", "an input in the workspace");
    refuses(abl_call_run(o->c, ABL_FORWARD, o->tensors, NULL, NULL, 0, NULL), "workspace is missing",
            "no workspace");
    refuses(abl_call_run(o->c, ABL_FORWARD, o->tensors, NULL, o->work,
                         abl_call_workspace(o->c, ABL_FORWARD) - 1, NULL),
            "workspace is too small", "a workspace that is a byte too small");
    refuses(abl_call_run(o->c, ABL_FORWARD, o->tensors, NULL, (char *)o->work + 16, o->bytes, NULL),
            "workspace is misaligned", "a workspace at a multiple of 16");
    refuses(abl_call_run(o->c, ABL_FORWARD, o->tensors, NULL, host, sizeof host << 12, NULL),
            "the workspace is memory of the host", "a workspace of the host");
    refuses(back_with(o, x, NULL), "d_x is missing", "the gradient of an input is NULL");
    refuses(back_with(o, out, NULL), "d_out is missing", "the gradient of an output is NULL");
    refuses(back_with(o, x, o->tensors[W]), "d_x overlaps W_k", "a gradient where an input is");
    refuses(abl_call_run(o->c, ABL_BACKWARD, o->tensors, NULL, o->work, o->bytes, NULL),
            "the list of gradients is NULL", "no gradients");
    ok(pass_both(o, NULL) == 0 && cudaDeviceSynchronize() == cudaSuccess &&
           same(o, k.inputs, k.want),
       "after all these the call is right");
    example_free(&k);
    made("e74 steps=2", "gpu99", 0, NULL, "there is no backend gpu99");
    made("e74 steps=2 dtype=bf16", "gpu32", 0, NULL, "gpu32 stores fp32");
    made("e74 step=2", "gpu32", 0, NULL, "step");
    made("relu rows=2 dim=3", "gpu32", 99, NULL, "gpu32: device 99");
    made("relu rows=2 dim=3", "gpu32", -1, NULL, "gpu32: device -1");
    made("relu rows=2 dim=3", "gpu32", 0, "fastest", "relu has no kernel fastest");
    made("relu rows=2 dim=3", "ref32", 1, NULL, "ref32 has no device 1");
}

/* A second device, where there is one: its calls are right, and leave the thread's device alone. */
static void second_device(void)
{
    int devices = 0, current = -1;
    float *x = NULL, *y = NULL, got[6];
    const float given[6] = {1, -2, 3, -4, 5, -6};

    cudaGetDeviceCount(&devices);
    if (devices < 2) {
        skip("there is one device", "a call on a second device");
        return;
    }
    abl_call *c = abl_call_new("relu rows=2 dim=3", "gpu32", 1, NULL);
    cudaSetDevice(1);
    cudaMalloc(&x, sizeof given);
    cudaMalloc(&y, sizeof given);
    cudaMemcpy(x, given, sizeof given, cudaMemcpyHostToDevice);
    cudaSetDevice(0);
    void *tensors[] = {x, y};
    const int e = !c || abl_call_run(c, ABL_FORWARD, tensors, NULL, NULL, 0, NULL);
    cudaGetDevice(&current);
    cudaSetDevice(1);
    cudaMemcpy(got, y, sizeof got, cudaMemcpyDeviceToHost);
    cudaSetDevice(0);
    ok(!e && current == 0 && got[2] == 3 && got[3] == 0, "a call on a second device: %s",
       e ? abl_error() : "right");
    abl_call_free(c);
    c = abl_call_new("relu rows=2 dim=3", "gpu32", 0, NULL);
    refuses(abl_call_run(c, ABL_FORWARD, tensors, NULL, NULL, 0, NULL),
            "memory of device 1, the call is for device 0", "tensors of another device");
    abl_call_free(c);
    cudaFree(x);
    cudaFree(y);
}

int main(void)
{
    for (int i = 0; judged_backend(i); i++) {
        const struct backend *b = judged_backend(i);
        const char *no = backend_unavailable(here(), b);
        if (no) {
            skip(no, "%s", b->name);
            continue;
        }
        every_kernel(b);
        threads(b);
        graph(b);
        memory(b);
    }
    if (!backend_unavailable(here(), judged_backend(0))) {
        wrong_calls(judged_backend(0));
        second_device();
    }
    return done();
}
