/* dual_memory: one product computes xp = W_x x for all T*B steps (and another one z = W_z x), then
 * one of several kernels runs the recurrence, then out = h silu(g) is computed for all steps at
 * once.
 *
 * The backward pass begins with the gate, which has terms of every step's dh and dread.  The
 * recurrence writes dp and dv of every step; products with x, h_t and h_{t-1} give the gradients of
 * x and of the weights.  Nothing in this file depends on the step before, so it is bound by memory
 * bandwidth and by cuBLAS.  Kernels here have one thread per element of a row. */
#include "gpu/device/math.cuh"
#include "gpu/dual_memory/dual_memory.cuh"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/product.cuh"

namespace dual
{

/* ---- one call ---- */

struct dual_call {
    int64_t rows, D, in; /* T*B */
    int gate, each;
    float clamp;
    struct dual_memory a, g;
};

static dual_call dual_call_of(const struct call *f)
{
    return {DIM(f, 'T') * DIM(f, 'B'),
            DIM(f, 'D'),
            DIM(f, 'I'),
            dual_parts(f).gate,
            f->choice[DUAL_TAPE] == DUAL_EACH,
            (float)DIM(f, 'L'),
            *ARGS(f, dual_memory),
            *GRADS(f, dual_memory)};
}

recurrence recurrence_of(const struct call *f)
{
    const dual_call c = dual_call_of(f);
    const struct dual_parts parts = dual_parts(f);
    recurrence r = {};

    r.steps = DIM(f, 'T'), r.batch = DIM(f, 'B');
    r.K = DIM(f, 'K') < r.steps ? DIM(f, 'K') : r.steps;
    r.D = (int)c.D, r.N = (int)DIM(f, 'N');
    r.M = DIM(f, 'N') * c.D;
    r.scale = 1 / sqrtf((float)c.D);
    r.attention = parts.attention, r.query = parts.query;
    r.each = c.each;
    r.kept = f->choice[DUAL_CHECKPOINT_DTYPE];
    r.W_h = c.a.W_h, r.W_write = c.a.W_write, r.b_h = c.a.b_h;
    r.h0 = (const float *)c.a.h0, r.M0 = (const float *)c.a.M0;
    r.h = (float *)c.a.h, r.v = c.a.v, r.read = c.a.read;
    r.rho = (float *)c.a.rho, r.omega = (float *)c.a.omega;
    r.checkpoints = c.a.checkpoints;
    r.h_T = (float *)c.a.h_T, r.M_T = (float *)c.a.M_T;
    r.dh_T = (const float *)c.g.h_T, r.dM_T = (const float *)c.g.M_T;
    r.dh0 = (float *)c.g.h0;
    return r;
}

/* ---- workspace ---- */

struct layout {
    void *xp;                /* T [T,B,D] */
    void *wide;              /* T [T*B,3D]: a matrix gate's z, read and h, and their
                                  gradients; [T*B,2D]: dp and dz side by side */
    void *dg, *dz, *dread;   /* T [T,B,D]: of a gate's argument, z and read; with that of a sum,
                                  the same */
    void *dh, *dp, *dv, *hs; /* T [T,B,D]; [T+1,B,D]: h0 and h */
    float *dM, *sums;        /* [B,N,D] where the tape is shared; see column_sums() */
    void *recurrence;        /* the recurrence kernel's own */
    size_t bytes;            /* before it */
};

template <typename T>
static layout layout_of(const struct call *f, enum pass p)
{
    const dual_call c = dual_call_of(f);
    const bool gated = c.gate != DUAL_NO_GATE, separate = gated && c.gate != DUAL_SUM;
    const int64_t each = c.rows * c.D, tape = DIM(f, 'N') * c.D, B = DIM(f, 'B');
    work_arena a = {(char *)f->work, 0};
    layout l = {};

    if (p == FORWARD)
        l.xp = take<T>(&a, each);
    l.wide = take<T>(&a, (c.gate == DUAL_MATRIX ? 3 : 2 * (p == BACKWARD && gated)) * each);
    if (p == BACKWARD) {
        l.dg = take<T>(&a, gated * each);
        l.dz = separate ? take<T>(&a, each) : l.dg;
        l.dread = separate ? take<T>(&a, each) : l.dg;
        l.dh = take<T>(&a, gated * each);
        l.dp = take<T>(&a, each);
        l.dv = take<T>(&a, each);
        l.hs = take<T>(&a, each + B * c.D);
        l.dM = take<float>(&a, c.each ? 0 : B * tape);
        l.sums = take<float>(&a, max(parts_of(c.rows) * c.D, c.each ? 0 : parts_of(B) * tape));
    }
    l.recurrence = work_rest(&a);
    l.bytes = a.bytes;
    return l;
}

template <typename T>
recurrence recurrence_in(const struct call *f, enum pass p)
{
    const layout l = layout_of<T>(f, p);
    const dual_call c = dual_call_of(f);
    recurrence r = recurrence_of(f);

    r.work = l.recurrence;
    r.xp = l.xp;
    if (p == FORWARD)
        return r;
    r.dh = c.gate == DUAL_NO_GATE ? c.g.out : l.dh;
    r.dread = l.dread;
    r.dp = l.dp, r.dv = l.dv;
    r.dM = c.each ? (float *)c.g.M0 : l.dM;
    return r;
}

#define RECURRENCE(T) template recurrence recurrence_in<T>(const struct call *f, enum pass p);
GPU_TYPES(RECURRENCE)

/* ---- the gate ---- */

/* Loops over a thread's elements: row m, column j, index i. */
#define FOR_MY_ELEMENTS(c, i, m, j)                                                                \
    for (int64_t m = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; m < (c).rows;                 \
         m += (int64_t)gridDim.x * blockDim.y)                                                     \
        for (int64_t j = threadIdx.x, i = m * (c).D + j; j < (c).D;                                \
             j += blockDim.x, i += blockDim.x)

/* The gate's argument g, clamped; *held: was it clamped? */
template <typename T>
static __device__ float argument(const dual_call &c, int64_t i, int64_t j, bool *held)
{
    const struct dual_memory &a = c.a;

    *held = false;
    if (c.gate == DUAL_MATRIX)
        return load((const T *)a.g + i);
    const float z = load((const T *)a.z + i), read = load((const T *)a.read + i);
    const float h = ((const float *)a.h)[i];
    if (c.gate == DUAL_SUM)
        return z + read + h;
    float g = fmaf(z, load((const T *)a.g_z + j), load((const T *)a.b_g + j));
    g = fmaf(read, load((const T *)a.g_r + j), g);
    g = fmaf(h, load((const T *)a.g_h + j), g);
    *held = fabsf(g) > c.clamp;
    return *held ? copysignf(c.clamp, g) : g;
}

/* out = h silu(g), or h. */
template <typename T>
__global__ void apply_gate(dual_call c)
{
    FOR_MY_ELEMENTS (c, i, m, j) {
        float out = ((const float *)c.a.h)[i];
        bool held;
        if (c.gate != DUAL_NO_GATE) {
            const float g = argument<T>(c, i, j, &held);
            out *= g * sigmoid_full(g);
        }
        store((T *)c.a.out + i, out);
    }
}

/* dg; and, unless the gate is a matrix, the gradients of its inputs: dh, dz and dread. */
template <typename T>
__global__ void apply_gate_back(dual_call c, T *dg, T *dh, T *dz, T *dread)
{
    FOR_MY_ELEMENTS (c, i, m, j) {
        bool held;
        const float g = argument<T>(c, i, j, &held), s = sigmoid_full(g);
        const float d = load((const T *)c.g.out + i), h = ((const float *)c.a.h)[i];
        const float slope = held ? 0 : d * h * s * (1 + g * (1 - s));
        store(dg + i, slope);
        if (c.gate == DUAL_SUM)
            store(dh + i, fmaf(d * g, s, slope));
        if (c.gate == DUAL_SCALED) {
            store(dh + i, fmaf(slope, load((const T *)c.a.g_h + j), d * g * s));
            store(dz + i, slope * load((const T *)c.a.g_z + j));
            store(dread + i, slope * load((const T *)c.a.g_r + j));
        }
    }
}

/* Concatenates z, read and h to the operand of a matrix gate. */
template <typename T>
__global__ void gather(dual_call c, T *wide)
{
    FOR_MY_ELEMENTS (c, i, m, j) {
        T *to = wide + m * 3 * c.D + j;
        to[0] = ((const T *)c.a.z)[i];
        to[c.D] = ((const T *)c.a.read)[i];
        store(to + 2 * c.D, ((const float *)c.a.h)[i]);
    }
}

/* Splits the gradient of that operand into dz, dread and dh; dh also gets the term of out = h
 * silu(g). */
template <typename T>
__global__ void scatter(dual_call c, const T *wide, T *dh, T *dz, T *dread)
{
    FOR_MY_ELEMENTS (c, i, m, j) {
        const T *from = wide + m * 3 * c.D + j;
        const float g = load((const T *)c.a.g + i), d = load((const T *)c.g.out + i);
        dz[i] = from[0];
        dread[i] = from[c.D];
        store(dh + i, fmaf(d * g, sigmoid_full(g), load(from + 2 * c.D)));
    }
}

/* dW = a^T b, a sum over all rows. */
template <typename T>
static int weight_gradient(struct context *on, const T *a, int64_t columns, const T *b,
                           int64_t width, int64_t rows, void *dW)
{
    const matrix<T> left = {a, columns, rows, true}, right = {b, rows, width, false};
    return product(on, left, right, 0, (float *)dW);
}

template <typename T>
static int gate_forward(struct context *on, const dual_call &c, T *wide)
{
    const dim3 block = block_of(c.D, BLOCK);
    const unsigned blocks = blocks_of(c.rows, block);

    if (c.gate == DUAL_MATRIX) {
        gather<T><<<blocks, block, 0, on->stream>>>(c, wide);
        CUDA(cudaGetLastError());
        const matrix<T> in = {wide, c.rows, 3 * c.D, false};
        const matrix<T> Wt = {(const T *)c.a.W_gate, 3 * c.D, c.D, true};
        const int e = product(on, in, Wt, 0, (T *)c.a.g);
        if (e)
            return e;
    }
    apply_gate<T><<<blocks, block, 0, on->stream>>>(c);
    return cudaGetLastError();
}

/* The backward pass of the product with W_gate, from dg [T*B,D]. */
template <typename T>
static int matrix_back(struct context *on, const dual_call &c, const T *dg, T *wide, T *dh, T *dz,
                       T *dread)
{
    const dim3 block = block_of(c.D, BLOCK);
    const unsigned blocks = blocks_of(c.rows, block);

    gather<T><<<blocks, block, 0, on->stream>>>(c, wide);
    CUDA(cudaGetLastError());
    CUDA(weight_gradient(on, dg, c.D, (const T *)wide, 3 * c.D, c.rows, c.g.W_gate));
    const matrix<T> slope = {dg, c.rows, c.D, false};
    const matrix<T> W = {(const T *)c.a.W_gate, c.D, 3 * c.D, false};
    CUDA(product(on, slope, W, 0, wide));
    scatter<T><<<blocks, block, 0, on->stream>>>(c, wide, dh, dz, dread);
    return cudaGetLastError();
}

/* The gradients of a scaled gate's parameters. */
template <typename T>
static int scales_back(struct context *on, const dual_call &c, const T *dg, float *sums)
{
    CUDA(column_sums(on, (float *)c.g.g_z, sums, dg, (const T *)c.a.z, c.rows, c.D));
    CUDA(column_sums(on, (float *)c.g.g_r, sums, dg, (const T *)c.a.read, c.rows, c.D));
    CUDA(column_sums(on, (float *)c.g.g_h, sums, dg, (const float *)c.a.h, c.rows, c.D));
    return column_sums(on, (float *)c.g.b_g, sums, dg, (const T *)NULL, c.rows, c.D);
}

template <typename T>
static int gate_backward(struct context *on, const dual_call &c, T *dg, T *dh, T *dz, T *dread,
                         T *wide, float *sums)
{
    const dim3 block = block_of(c.D, BLOCK);

    apply_gate_back<T><<<blocks_of(c.rows, block), block, 0, on->stream>>>(c, dg, dh, dz, dread);
    CUDA(cudaGetLastError());
    if (c.gate == DUAL_MATRIX)
        return matrix_back(on, c, (const T *)dg, wide, dh, dz, dread);
    return c.gate == DUAL_SCALED ? scales_back(on, c, (const T *)dg, sums) : 0;
}

/* ---- forward ---- */

/* The call of the recurrence, on the kernel that the layer is made around. */
static call inner(const struct call *f)
{
    call c = *f;
    c.kernel = (const struct impl *)f->kernel->data;
    return c;
}

template <typename T>
static int forward(const struct call *f)
{
    const dual_call c = dual_call_of(f);
    const layout l = layout_of<T>(f, FORWARD);
    const bool gated = c.gate != DUAL_NO_GATE;
    const T *W = (const T *)(gated ? c.a.W_xz : c.a.W_x);
    const matrix<T> x = {(const T *)c.a.x, c.rows, c.in, false};
    const matrix<T> Wt = {W, c.in, c.D, true}, W_zt = {W + c.D * c.in, c.in, c.D, true};
    const call within = inner(f);

    CUDA(product(f->context, x, Wt, 0, (T *)l.xp));
    if (gated)
        CUDA(product(f->context, x, W_zt, 0, (T *)c.a.z));
    CUDA(call_pass(&within, FORWARD));
    return gate_forward(f->context, c, (T *)l.wide);
}

/* ---- backward ---- */

/* hs = h0, then h of all steps, in T. */
template <typename T>
__global__ void stack_h(T *hs, const float *h0, const float *h, int64_t BD, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        store(hs + i, i < BD ? h0[i] : h[i - BD]);
}

/* Computes the gradients of the weights and of x from dp, dv and dz of all steps. */
template <typename T>
static int products_back(const struct call *f, const T *dp, const T *dv, const T *dz, T *hs,
                         T *wide, float *sums)
{
    const dual_call c = dual_call_of(f);
    const int64_t BD = DIM(f, 'B') * c.D, n = c.rows * c.D + BD;
    const bool gated = c.gate != DUAL_NO_GATE;
    const int64_t columns = (1 + gated) * c.D;

    stack_h<T><<<ceil_div(n, BLOCK), BLOCK, 0, gpu_stream(f)>>>(hs, (const float *)c.a.h0,
                                                                (const float *)c.a.h, BD, n);
    CUDA(cudaGetLastError());
    if (gated)
        CUDA((concatenate(f->context, wide, {2, {dp, dz}}, c.rows, c.D)));
    const matrix<T> all = {gated ? wide : dp, c.rows, columns, false};
    const matrix<T> W = {(const T *)(gated ? c.a.W_xz : c.a.W_x), columns, c.in, false};
    CUDA(weight_gradient(f->context, dv, c.D, (const T *)hs + BD, c.D, c.rows, c.g.W_write));
    CUDA(weight_gradient(f->context, dp, c.D, (const T *)hs, c.D, c.rows, c.g.W_h));
    CUDA(weight_gradient(f->context, all.at, columns, (const T *)c.a.x, c.in, c.rows,
                         gated ? c.g.W_xz : c.g.W_x));
    CUDA(product(f->context, all, W, 0, (T *)c.g.x));
    return column_sums(f->context, (float *)c.g.b_h, sums, dp, (const T *)NULL, c.rows, c.D);
}

template <typename T>
static int backward(const struct call *f)
{
    const dual_call c = dual_call_of(f);
    const layout l = layout_of<T>(f, BACKWARD);
    const recurrence r = recurrence_in<T>(f, BACKWARD);
    const call within = inner(f);
    T *wide = (T *)l.wide;

    if (c.gate != DUAL_NO_GATE)
        CUDA(gate_backward(f->context, c, (T *)l.dg, (T *)l.dh, (T *)l.dz, (T *)l.dread, wide,
                           l.sums));
    CUDA(call_pass(&within, BACKWARD));
    if (!c.each)
        CUDA(column_sums(f->context, (float *)c.g.M0, l.sums, (const float *)r.dM,
                         (const float *)NULL, r.batch, r.M));
    return products_back(f, (const T *)r.dp, (const T *)r.dv, (const T *)l.dz, (T *)l.hs, wide,
                         l.sums);
}

/* ---- the kernels ---- */

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    const call c = inner(f);
    return layout_of<T>(f, p).bytes + op_work(&c, p);
}

/* cuBLAS and struct recurrence have sizes of type int. */
static const char *declines(const struct call *f)
{
    const int64_t max_int = 0x7fffffff, after = (DIM(f, 'T') + 1) * DIM(f, 'B');
    if (after > max_int || DIM(f, 'D') > max_int / 3)
        return "a matrix with more rows or columns than cuBLAS can count (2147483647)";
    const call c = inner(f);
    return impl_declines(&c);
}

/* Each kernel of the recurrence makes a kernel of dual_memory with the same name. */
template <typename T>
static constexpr struct impl layer_around(const char *name, const char *idea,
                                          const struct impl *recurrence)
{
    return {.name = name,
            .type = storage<T>::TYPE,
            .idea = idea,
            .pass = {forward<T>, backward<T>},
            .work = work<T>,
            .declines = declines,
            .link = inner,
            .data = recurrence,
            .products = 1};
}

template <typename T>
static const struct impl persistent_layer = layer_around<T>("persistent", PERSISTENT_IDEA,
                                                            &persistent<T>::kernel);
template <typename T>
static const struct impl steps_layer = layer_around<T>("steps", STEPS_IDEA, &steps<T>::kernel);
static const struct impl template_d_layer =
    layer_around<__nv_bfloat16>("template_d", TEMPLATE_D_IDEA, &template_d);

#define EACH(T) &persistent_layer<T>, &steps_layer<T>,
GPU_KERNELS(dual_memory, GPU_TYPES(EACH) & template_d_layer, );

}    // namespace dual
