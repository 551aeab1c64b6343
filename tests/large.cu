/* Tensors of more than 2^31 elements, on a GPU that has the memory for them: every
 * kernel of an operation that takes the case.  Each input element is a function of its
 * index, computed where it is used.  Of the rows of one axis the oracle computes and judges
 * only the first, the last and some between. */
#include "gpu/gpu.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/call/run.h"
#include "common/judge/check.h"
#include "tests/tap.h"
}

enum { ROWS = 5, BLOCK = 256 };

/* ---- elements as functions of their index ---- */

static __host__ __device__ float element(uint64_t key, int64_t i)
{
    uint64_t x = key + (uint64_t)i * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    return (float)(int64_t)(x >> 40) * 0x1p-23f - 1;
}

__global__ void fill(__nv_bfloat16 *x, int64_t n, uint64_t key)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * BLOCK)
        store(x + i, element(key, i));
}

/* A tensor's elements at one place of an axis: outer x inner of them. */
struct line {
    int64_t outer, length, inner;
};

static struct line line_of(const struct op *o, const struct call *f, int arg, char letter)
{
    struct line l = {1, 0, 1};
    for (const char *c = op_shape(f, arg); *c; c++) {
        if (*c == letter)
            l.length = DIM(f, *c);
        else if (l.length)
            l.inner *= DIM(f, *c);
        else
            l.outer *= DIM(f, *c);
    }
    return l;
}

static __host__ __device__ int64_t place_in(struct line l, int64_t row, int64_t i)
{
    return (i / l.inner * l.length + row) * l.inner + i % l.inner;
}

/* Rows `row` of x, n elements each, laid as a tensor that has no others. */
template <typename T>
__global__ void gather(float *to, const T *x, line l, const int64_t *row, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    const line few = {l.outer, ROWS, l.inner};
    for (int r = 0; i < n && r < ROWS; r++)
        to[place_in(few, r, i)] = load(x + place_in(l, row[r], i));
}

/* ---- a case ---- */

struct session {
    const struct backend *b;
    const struct op *o;
    struct call whole, few; /* the case, and its oracle's */
    char letter;
    int64_t row[ROWS], *row_there;
};

static uint64_t key_of(const struct op *o, int arg, int grad)
{
    return draw_key(grad ? 2 : 1, o->arg[arg].name);
}

/* The elements of a tensor that the oracle gets. */
static void fill_few(const struct session *s, int arg, int grad, double *x)
{
    const struct line l = line_of(s->o, &s->whole, arg, s->letter);
    const uint64_t key = key_of(s->o, arg, grad);
    int64_t n = op_count(&s->few, arg);

    if (!l.length) {
        for (int64_t i = 0; i < n; i++)
            x[i] = element(key, i);
        return;
    }
    const struct line few = {l.outer, ROWS, l.inner};
    for (int r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < n / ROWS; i++)
            x[place_in(few, r, i)] = element(key, place_in(l, s->row[r], i));
}

/* All memory of the case, inputs filled; nonzero: an error code, nothing is freed. */
static int allocate(const struct session *s, struct call *f, size_t work)
{
    for (int i = 0; i < s->o->n_args; i++)
        for (int grad = 0; grad < 2; grad++) {
            const unsigned flags = s->o->arg[i].flags;
            const int64_t n = op_count(f, i);
            void *p;
            if (!n || (grad && !(flags & DIFF)))
                continue;
            const size_t size = types[call_type(f, i, grad)].bytes;
            CUDA(cudaMalloc(&p, n * size));
            (grad ? f->grad : f->arg)[i] = p;
            CUDA(cudaMemsetAsync(p, 0xff, n * size, gpu_stream(f)));
            if ((grad ? flags & OUT : flags & IN)) {
                fill<<<4096, BLOCK, 0, gpu_stream(f)>>>((__nv_bfloat16 *)p, n,
                                                       key_of(s->o, i, grad));
                CUDA(cudaGetLastError());
            }
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

/* The judged rows of a result, as doubles. */
static int fetch(const struct session *s, const struct call *f, int arg, int grad, double *x)
{
    const struct line l = line_of(s->o, &s->whole, arg, s->letter);
    const int64_t n = op_count(&s->few, arg), each = n / ROWS;
    const unsigned blocks = ceil_div(each, BLOCK);
    const void *from = (grad ? f->grad : f->arg)[arg];
    float *there, *here = (float *)malloc(n * sizeof *here);

    CUDA(cudaMalloc(&there, n * sizeof *there));
    if (call_type(f, arg, grad) == BF16)
        gather<<<blocks, BLOCK, 0, gpu_stream(f)>>>(there, (const __nv_bfloat16 *)from, l,
                                                   s->row_there, each);
    else
        gather<<<blocks, BLOCK, 0, gpu_stream(f)>>>(there, (const float *)from, l, s->row_there,
                                                   each);
    CUDA(cudaGetLastError());
    CUDA(cudaStreamSynchronize(gpu_stream(f)));
    CUDA(cudaMemcpy(here, there, n * sizeof *here, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(there));
    for (int64_t i = 0; i < n; i++)
        x[i] = here[i];
    free(here);
    return 0;
}

/* Every result that has the axis, against the oracle's. */
static int judge(const struct session *s, const struct call *f, int backward, struct truth *truth,
                 struct verdicts *list)
{
    const struct call c = call_on(&s->few, s->b, f->kernel);
    struct bounds bounds;

    bounds_from(&bounds, &c, truth);
    for (int i = 0; i < s->o->n_args; i++)
        for (int grad = 0; grad <= backward; grad++) {
            const enum dtype type = call_type(f, i, grad);
            if (!op_results(&s->few, i, grad) ||
                !line_of(s->o, &s->whole, i, s->letter).length || type == I64)
                continue;
            double *x = (double *)malloc(op_count(&s->few, i) * sizeof *x);
            const struct tensor_pair pair = {&c, i, grad, x,
                                             tensors_result(truth->oracle, i, grad)};
            int e = fetch(s, f, i, grad, x);
            if (!e)
                e = check_tensor("large", &pair, X_OR_G(bounds, i, grad), list);
            free(x);
            if (e)
                return e;
        }
    return 0;
}

static int run(const struct session *s, const struct impl *k, struct truth *truth,
               struct verdicts *list)
{
    const int backward = op_passes(s->o) == N_PASSES;
    struct call f = call_on(&s->whole, s->b, k);
    size_t work = 0;

    for (int p = 0; p <= backward; p++)
        work = std::max(work, op_work(&f, (enum pass)p));
    int e = allocate(s, &f, work);
    for (int p = 0; !e && p <= backward; p++)
        e = call_pass(&f, (enum pass)p);
    if (!e)
        e = cudaStreamSynchronize(gpu_stream(&f));
    if (!e)
        e = judge(s, &f, backward, truth, list);
    release(&f);
    if (e > 0)
        printf("# %s\n", s->b->strerror(e));
    return e;
}

static void large(const struct backend *b, const struct op *o, const struct large *c)
{
    struct session s = {};
    struct tensors *inputs = NULL;
    struct truth truth = {};
    int e;

    s.b = b;
    s.o = o;
    s.letter = c->axis;
    if (cases_one(o, c->settings, &s.whole)) {
        ok(0, "%s %s: %s", o->name, c->settings, err_text());
        return;
    }
    s.few = s.whole;
    DIM(&s.few, s.letter) = ROWS;
    const int64_t n = DIM(&s.whole, s.letter), row[ROWS] = {0, 1, n / 2, n - 2, n - 1};
    memcpy(s.row, row, sizeof row);
    e = cudaMalloc(&s.row_there, sizeof row) ||
        cudaMemcpy(s.row_there, row, sizeof row, cudaMemcpyHostToDevice) ||
        op_complete(&s.few) || !(inputs = tensors_new(&s.few));
    for (int i = 0; !e && i < s.o->n_args; i++) {
        if (s.o->arg[i].flags & IN && inputs->x[i])
            fill_few(&s, i, 0, inputs->x[i]);
        if (s.o->arg[i].flags & OUT && inputs->g[i])
            fill_few(&s, i, 1, inputs->g[i]);
    }
    if (!e) {
        const struct call few = call_on(&s.few, b, NULL);
        tensors_round(inputs, &few);
        e = truth_find(&truth, &few, inputs);
    }
    for (const struct impl *const *k = op_kernels(s.o, b); !e && *k; k++) {
        const struct call whole = call_on(&s.whole, b, *k);
        const char *no = impl_declines(&whole);
        struct verdicts list = {};
        if (no) {
            printf("# %s %s declines %s %s: %s\n", b->name, (*k)->name, o->name, c->settings, no);
            continue;
        }
        int failed = run(&s, *k, &truth, &list);
        ok(!failed && list.n && !verdicts_failed(&list, 0), "%s %s: %s %s", b->name, (*k)->name,
           o->name, c->settings);
        for (int i = 0; i < list.n; i++)
            printf("# %s off by %.2g, bound %.2g%s\n", list.v[i].tensor, list.v[i].error,
                   list.v[i].bound, list.v[i].pass ? "" : ": too far");
        verdicts_free(&list);
    }
    if (e)
        ok(0, "%s %s: %s", o->name, c->settings, err_text());
    truth_free(&truth);
    tensors_free(inputs);
    cudaFree(s.row_there);
}

int main(void)
{
    static const int64_t ENOUGH = (int64_t)40 << 30;
    const struct backend *b = backend_find("gpu_bf16");
    const char *why = backend_unavailable(b);

    if (!why && strncmp(backend_device(b), "emulated", strlen("emulated")) == 0)
        why = "an emulated GPU would take hours";
    if (!why && b->memory(context_of(b)) < ENOUGH)
        why = "the GPU has less than 40 GiB free";
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    for (int i = 0; i < N_OPS; i++)
        for (const struct large *c = ops[i]->large; c && c->settings; c++)
            large(b, ops[i], c);
    return done();
}
