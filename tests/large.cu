/* Tensors of more than 2^31 elements, on a GPU that has the memory for them: every
 * kernel of an operation that takes the case.  Each input element is a function of its
 * index, computed where it is used; what is judged are the elements of a sample of rows, which are
 * gathered on the GPU.  Under emulation the same is done with the operation's small cases. */
#include "gpu/gpu.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/call/run.h"
#include "common/judge/sampled.h"
#include "tests/here.h"
#include "tests/tap.h"
}

enum { FEWEST = 5, BLOCK = 256 };

/* ---- elements as functions of their index ---- */

static __host__ __device__ float element(uint64_t key, int64_t i)
{
    uint64_t x = key + (uint64_t)i * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    return (float)(int64_t)(x >> 40) * 0x1p-23f - 1;
}

template <typename T>
__global__ void fill_kernel(T *x, int64_t n, uint64_t key)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        store(x + i, element(key, i));
}

static uint64_t key_of(const struct op *o, int arg, int grad)
{
    return draw_key(grad ? 2 : 1, o->arg[arg].name);
}

/* The elements of a tensor that a cut of the case has. */
static void fill_cut(const struct sampled *s, const struct cut *c, int arg, int grad, double *x)
{
    const struct cut_map at = sample_map(&s->call, &s->sample, c->axes, arg);
    const uint64_t key = key_of(s->call.op, arg, grad);

    for (int64_t i = 0; i < op_count(&c->call, arg); i++)
        x[i] = element(key, map_index(&at, i));
}

static struct tensors *cut_inputs(const struct sampled *s, const struct cut *c)
{
    struct tensors *t = tensors_new(&c->call);

    for (int i = 0; t && i < s->call.op->n_args; i++) {
        const unsigned flags = s->call.op->arg[i].flags;
        if (flags & IN && t->x[i])
            fill_cut(s, c, i, 0, t->x[i]);
        if (flags & OUT && t->g[i])
            fill_cut(s, c, i, 1, t->g[i]);
    }
    if (t)
        tensors_round(t, &c->call);
    return t;
}

/* ---- a kernel ---- */

static int fill(const struct call *f, int arg, int grad)
{
    void *x = (grad ? f->grad : f->arg)[arg];
    const int64_t n = op_count(f, arg);
    const uint64_t key = key_of(f->op, arg, grad);
    const unsigned blocks = std::min<int64_t>(ceil_div(n, BLOCK), 4096);

    switch (call_type(f, arg, grad)) {
    case BF16:
        fill_kernel<<<blocks, BLOCK, 0, gpu_stream(f)>>>((__nv_bfloat16 *)x, n, key);
        return cudaGetLastError();
    case F32:
        fill_kernel<<<blocks, BLOCK, 0, gpu_stream(f)>>>((float *)x, n, key);
        return cudaGetLastError();
    default: return cudaErrorInvalidValue;
    }
}

/* All memory of the case, inputs filled; nonzero: an error code, nothing is freed. */
static int allocate(struct call *f, size_t work)
{
    for (int i = 0; i < f->op->n_args; i++)
        for (int grad = 0; grad < 2; grad++) {
            const unsigned flags = f->op->arg[i].flags;
            const size_t bytes = op_count(f, i) * types[call_type(f, i, grad)].bytes;
            void *p;
            if (!bytes || (grad && !(flags & DIFF)))
                continue;
            CUDA(cudaMalloc(&p, bytes));
            (grad ? f->grad : f->arg)[i] = p;
            CUDA(cudaMemsetAsync(p, 0xff, bytes, gpu_stream(f)));
            if (flags & (grad ? OUT : IN))
                CUDA(fill(f, i, grad));
        }
    if (work)
        CUDA(cudaMalloc(&f->work, work));
    return 0;
}

static void release(struct call *f)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        cudaFree(f->arg[i]);
        cudaFree(f->grad[i]);
        f->arg[i] = f->grad[i] = NULL;
    }
    cudaFree(f->work);
    f->work = NULL;
}

/* Every result, by the elements of it that its cut has. */
static int judge(const struct sampled *s, const struct call *f, struct verdicts *list)
{
    FOR_RESULTS (&s->call, i, grad) {
        struct cut *c = sampled_cut(s, i);
        struct bounds bounds = {};
        double *x = c ? (double *)malloc(op_count(&c->call, i) * sizeof *x) : NULL;
        int e = c && !x ? err_set("no memory for a sample") : 0;
        if (c && !e)
            e = gpu_gather(f, &s->sample, c->axes, i, grad, x);
        bounds.call = *f;
        if (c && !e)
            bounds_from(&bounds, f, &c->truth);
        if (!e)
            e = check_cut(x, s, i, grad, &bounds, list);
        free(x);
        if (e)
            return e;
    }
    return 0;
}

/* Both passes of a kernel on the whole case; nonzero: an error code, or negative after err_set(). */
static int run(const struct sampled *s, struct call *f, struct verdicts *list)
{
    const int passes = op_passes(f->op);
    size_t work = 0;

    for (int p = 0; p < passes; p++)
        work = std::max(work, op_work(f, (enum pass)p));
    int e = allocate(f, work);
    for (int p = 0; !e && p < passes; p++)
        e = call_pass(f, (enum pass)p);
    if (!e)
        e = cudaStreamSynchronize(gpu_stream(f));
    if (!e)
        e = judge(s, f, list);
    release(f);
    return e;
}

static void print(const struct verdict *v)
{
    if (v->why)
        printf("# %s is not judged: %s\n", v->tensor, v->why);
    else
        printf("# %s off by %.2g at %s, bound %.2g, %lld of %lld elements%s\n", v->tensor, v->error,
               v->worst, v->bound, (long long)v->judged, (long long)v->elements,
               v->pass ? "" : ": too far");
}

static void test_kernel(const struct sampled *s, const struct impl *k, const char *text)
{
    const struct backend *b = s->call.backend;
    struct call f = call_here(&s->call, b, k);
    const char *no = impl_declines(&f);
    struct verdicts list = {};
    int judged = 0;

    if (no) {
        printf("# %s %s declines %s %s: %s\n", b->name, k->name, f.op->name, text, no);
        return;
    }
    const int e = run(s, &f, &list);
    for (int i = 0; i < list.n; i++)
        judged += !list.v[i].unjudged;
    ok(!e && judged && !verdicts_failed(&list, 0), "%s %s: %s %s", b->name, k->name, f.op->name,
       text);
    if (e)
        printf("# %s\n", e > 0 ? b->machine->strerror(e) : err_text());
    for (int i = 0; i < list.n; i++)
        print(&list.v[i]);
    verdicts_free(&list);
}

/* ---- a case ---- */

/* Its cuts, of as many rows as the memory of the host allows.  A truth has up to nine times the
 * tensors of a cut at a time, and three when it is found, so that all need less than 20 GiB. */
static int find_cuts(struct sampled *s, const struct call *f, int most)
{
    static const int64_t ENOUGH = (int64_t)2 << 30;

    for (; most >= FEWEST; most /= 2) {
        int64_t bytes = 0;
        if (sampled_cuts(s, f, most, 1))
            return -1;
        for (int i = 0; i < s->n_cuts; i++)
            bytes += tensors_bytes(&s->cut[i].call);
        if (bytes <= ENOUGH)
            return 0;
        sampled_free(s);
    }
    return err_set("the host has too little memory for its cuts");
}

static int is_cut(const struct sampled *s)
{
    int cut = 0;
    for (int i = 0; i < s->n_cuts; i++)
        cut |= *s->cut[i].axes != 0;
    return cut;
}

/* All kernels in a case, unless it has nothing to cut. */
static int test_case(const struct call *f, void *most)
{
    const struct impl *k;
    const struct backend *b = backend_find("gpu_bf16");
    const struct call whole = call_here(f, b, NULL);
    struct sampled s = {};
    char text[MAX_TEXT], rows[200];

    op_text(f, text);
    int e = find_cuts(&s, &whole, *(const int *)most);
    const int cut = !e && is_cut(&s);
    for (int i = 0; cut && !e && i < s.n_cuts; i++) {
        struct cut *c = &s.cut[i];
        e = cut_find(c, cut_inputs(&s, c));
        printf("# %s %s: a cut has %s\n", f->op->name, text,
               sample_text(f, &s.sample, c->axes, rows, sizeof rows));
    }
    for (int i = 0; cut && !e && (k = op_kernel(f->op, b, i)); i++)
        test_kernel(&s, k, text);
    if (e)
        ok(0, "%s %s: %s", f->op->name, text, err_text());
    sampled_free(&s);
    return 0;
}

/* The emulator has the small cases, whose cuts have few rows. */
static void test_op(const struct op *o, int is_emulated)
{
    int most = is_emulated ? (int)FEWEST : (int)SAMPLE_ROWS;
    int e = is_emulated ? cases_each(o, o->cases, test_case, &most) : 0;

    for (const char *const *c = o->large; !is_emulated && !e && *c; c++)
        e = cases_each(o, *c, test_case, &most);
    if (e)
        ok(0, "%s: %s", o->name, err_text());
}

static int emulated(const struct backend *b)
{
    return strncmp(backend_device(here(), b), "emulated", strlen("emulated")) == 0;
}

int main(void)
{
    static const int64_t ENOUGH = (int64_t)40 << 30;
    const struct backend *b = backend_find("gpu_bf16");
    const char *why = backend_unavailable(here(), b);

    if (!why && !emulated(b) && b->machine->memory.left(context_of(here(), b)) < ENOUGH)
        why = "the GPU has less than 40 GiB free";
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    for (int i = 0; i < N_OPS; i++)
        if (ops[i]->large)
            test_op(ops[i], emulated(b));
    return done();
}
