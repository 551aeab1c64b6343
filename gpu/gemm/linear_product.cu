/* linear, product: y = act(x W^T + b) with the products by cuBLAS, and one kernel per pass for the
 * elementwise part, which is bound by memory bandwidth. */
#include "common/call/machine.h"
#include "gpu/device/math.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/linear.cuh"
#include "gpu/gemm/product.cuh"

/* A block covers LANES vectors of columns; a thread takes every ROWS-th row. */
enum { LANES = 32, ROWS = 8, FORWARD_DEPTH = 4, BACKWARD_DEPTH = 2 };

/* A thread's coordinates: its vector of columns, and the index of its block's rows. */
struct thread_coord {
    int64_t column, rows;
    bool inside;
};

static __device__ __forceinline__ thread_coord thread_coord_of(int64_t vectors)
{
    const unsigned blocks = (unsigned)ceil_div(vectors, LANES);
    const int64_t column = (int64_t)(blockIdx.x % blocks) * LANES + threadIdx.x;
    return {column, blockIdx.x / blocks, column < vectors};
}

/* y = act(z + b); b may be NULL, and y may be z.  A thread has FORWARD_DEPTH rows in flight and
 * loads b once. */
template <typename T, int N, int ACT>
__global__ void __launch_bounds__(LANES *ROWS)
    linear_activate(const T *z, const T *b, T *y, int64_t M, int64_t D)
{
    typedef vec<T, N> V;
    const thread_coord at = thread_coord_of(D / N);
    const int64_t first = at.rows * ROWS * FORWARD_DEPTH + threadIdx.y;
    float bias[N] = {};
    V got[FORWARD_DEPTH] = {};

    if (!at.inside)
        return;
    #pragma unroll FORWARD_DEPTH
    for (int j = 0; j < FORWARD_DEPTH; j++)
        if (first + j * ROWS < M)
            got[j] = ((const V *)z)[(first + j * ROWS) * (D / N) + at.column];
    if (b)
        unpack(((const V *)b)[at.column], bias);
    #pragma unroll FORWARD_DEPTH
    for (int j = 0; j < FORWARD_DEPTH; j++) {
        float x[N];
        unpack(got[j], x);
        #pragma unroll N
        for (int i = 0; i < N; i++)
            x[i] = activated<ACT>(x[i] + bias[i]);
        if (first + j * ROWS < M)
            ((V *)y)[(first + j * ROWS) * (D / N) + at.column] = pack<T, N>(x);
    }
}

/* A block adds up `part` of the M rows of D elements. */
struct rows_of_blocks {
    int64_t part, M, D;
};

/* dz = dy act'(z + b).  Unless `sums` is NULL, also the sums of dz over each block's rows, in a
 * fixed order: sums [parts,D].  The slope is computed from `kept`: y, or z for silu. */
template <typename T, int N, int ACT>
__global__ void __launch_bounds__(LANES *ROWS)
    linear_dz(const T *dy, const T *kept, const T *b, T *dz, float *sums, rows_of_blocks r)
{
    __shared__ float of[ROWS][LANES * N];
    typedef vec<T, N> V;
    const thread_coord at = thread_coord_of(r.D / N);
    const int64_t end = min((at.rows + 1) * r.part, r.M);
    float bias[N] = {}, sum[N] = {};

    if (b && at.inside)
        unpack(((const V *)b)[at.column], bias);
    for (int64_t m = at.rows * r.part + threadIdx.y; at.inside && m < end;
         m += ROWS * BACKWARD_DEPTH) {
        V gradient[BACKWARD_DEPTH] = {}, by[BACKWARD_DEPTH] = {};
        #pragma unroll BACKWARD_DEPTH
        for (int j = 0; j < BACKWARD_DEPTH; j++)
            if (m + j * ROWS < end) {
                gradient[j] = ((const V *)dy)[(m + j * ROWS) * (r.D / N) + at.column];
                by[j] = ((const V *)kept)[(m + j * ROWS) * (r.D / N) + at.column];
            }
        #pragma unroll BACKWARD_DEPTH
        for (int j = 0; j < BACKWARD_DEPTH; j++) {
            float d[N], x[N];
            unpack(gradient[j], d);
            unpack(by[j], x);
            #pragma unroll N
            for (int i = 0; i < N; i++) {
                d[i] = through_slope<ACT>(d[i], x[i], bias[i]);
                sum[i] += d[i];
            }
            if (m + j * ROWS < end)
                ((V *)dz)[(m + j * ROWS) * (r.D / N) + at.column] = pack<T, N>(d);
        }
    }
    if (!sums)
        return;
    #pragma unroll N
    for (int i = 0; i < N; i++)
        of[threadIdx.y][i * LANES + threadIdx.x] = sum[i];
    __syncthreads();
    /* Row y of threads adds element y of each vector. */
    if (threadIdx.y >= N || !at.inside)
        return;
    float all = 0;
    for (int y = 0; y < ROWS; y++)
        all += of[y][threadIdx.y * LANES + threadIdx.x];
    sums[at.rows * r.D + at.column * N + threadIdx.y] = all;
}

static const dim3 block(LANES, ROWS);

/* A one-dimensional grid, in which neighbouring blocks have the same rows. */
static unsigned grid_of(int64_t D, int width, int64_t blocks_of_rows)
{
    return (unsigned)(ceil_div(D / width, LANES) * blocks_of_rows);
}

template <typename T, int N, int ACT>
static int activate_by(const struct call *f, const T *z, const T *b)
{
    const struct linear *a = ARGS(f, linear);
    const int64_t M = DIM(f, 'M'), D = DIM(f, 'D');
    const unsigned grid = grid_of(D, N, ceil_div(M, ROWS * FORWARD_DEPTH));

    linear_activate<T, N, ACT><<<grid, block, 0, gpu_stream(f)>>>(z, b, (T *)a->y, M, D);
    return cudaGetLastError();
}

template <typename T, int ACT>
static int activate(const struct call *f, const T *z, const T *b)
{
    return in_vectors<T>(DIM(f, 'D')) ? activate_by<T, WIDTH<T>, ACT>(f, z, b)
                                      : activate_by<T, 1, ACT>(f, z, b);
}

/* relu's slope depends on the sign of z + b.  A z that is rounded to bf16 often gives the wrong
 * sign, so relu's product is added to the bias. */
template <typename T>
static int forward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    const matrix<T> x = {(const T *)a->x, M, C, false}, Wt = {(const T *)a->W, C, D, true};
    const int act = f->choice[LINEAR_ACT];
    const T *b = (const T *)a->b;
    T *z = (T *)(act == ACT_SILU ? a->z : a->y);
    const bool onto_bias = b && act == ACT_RELU && storage<T>::UNIT > 0;

    int e = onto_bias ? spread_bias(f->context, z, b, M, D) : 0;
    e = e ? e : product(f->context, x, Wt, onto_bias, z);
    if (e || (act == ACT_NONE && !b))
        return e;
    b = onto_bias ? NULL : b;
    return act == ACT_NONE   ? activate<T, ACT_NONE>(f, z, b)
           : act == ACT_SILU ? activate<T, ACT_SILU>(f, z, b)
                             : activate<T, ACT_RELU>(f, z, b);
}

template <typename T>
linear_workspace<T> linear_workspace_of(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), D = DIM(f, 'D');
    const bool bias = f->choice[LINEAR_BIAS];
    work_arena a = {(char *)f->work, 0};
    T *dz = take<T>(&a, f->choice[LINEAR_ACT] == ACT_NONE ? 0 : M * D);
    float *sums = take<float>(&a, bias ? parts_of(M) * D : 0);
    float *sums_of_sums = take<float>(&a, bias ? parts_of(parts_of(M)) * D : 0);
    float *db = take<float>(&a, call_accumulates(f, PLACE(linear, b)) ? D : 0);
    return {dz, sums, sums_of_sums, db, work_rest(&a), a.bytes};
}

template <typename T, int N, int ACT>
static int through_by(const struct call *f, const linear_workspace<T> &w)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    const int64_t M = DIM(f, 'M'), D = DIM(f, 'D'), part = part_of(M);
    const unsigned grid = grid_of(D, N, parts_of(M));
    linear_dz<T, N, ACT><<<grid, block, 0, gpu_stream(f)>>>(
        (const T *)g->y, (const T *)(ACT == ACT_SILU ? a->z : a->y), (const T *)a->b, w.dz,
        a->b ? w.sums : NULL, rows_of_blocks{part, M, D});
    return cudaGetLastError();
}

template <typename T, int ACT>
static int through(const struct call *f, const linear_workspace<T> &w)
{
    return in_vectors<T>(DIM(f, 'D')) ? through_by<T, WIDTH<T>, ACT>(f, w)
                                      : through_by<T, 1, ACT>(f, w);
}

template <typename T>
int linear_through(const struct call *f, const linear_workspace<T> &w)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    const int64_t M = DIM(f, 'M'), D = DIM(f, 'D');
    const int act = f->choice[LINEAR_ACT];
    float *db = w.db ? w.db : (float *)g->b;

    int e = act == ACT_NONE   ? 0
            : act == ACT_SILU ? through<T, ACT_SILU>(f, w)
                              : through<T, ACT_RELU>(f, w);
    if (e || !a->b)
        return e;
    e = act == ACT_NONE
            ? column_sums(f->context, db, w.sums, (const T *)g->y, (const T *)NULL, M, D)
            : column_sums(f->context, db, w.sums_of_sums, (const float *)w.sums,
                          (const float *)NULL, parts_of(M), D);
    return e || !w.db ? e : f->backend->machine->memory.add(f, 1, g->b, g->b, db, D);
}

template <typename T>
static int backward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    const linear_workspace<T> w = linear_workspace_of<T>(f);
    const T *dz = f->choice[LINEAR_ACT] == ACT_NONE ? (const T *)g->y : w.dz;
    const matrix<T> of_rows = {dz, M, D, false}, of_columns = {dz, D, M, true};
    const matrix<T> x = {(const T *)a->x, M, C, false}, W = {(const T *)a->W, D, C, false};

    int e = linear_through(f, w);
    e = e ? e : product(f->context, of_rows, W, call_accumulates(f, PLACE(linear, x)), (T *)g->x);
    return e ? e
             : product(f->context, of_columns, x, call_accumulates(f, PLACE(linear, W)),
                       (float *)g->W);
}

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? linear_workspace_of<T>(f).bytes : 0;
}

template linear_workspace<__nv_bfloat16> linear_workspace_of(const struct call *);
template int linear_through(const struct call *, const linear_workspace<__nv_bfloat16> &);

/* It adds by beta, and db by an addition. */
GPU_KERNEL_OF(linear_by_product, product, .idea = "cuBLAS, then bias and act, 16 bytes a load",
              .pass = {forward<T>, backward<T>}, .work = work<T>, .approximates = SIGMOID,
              .unit = SIGMOID_UNIT, .accumulates = 1, .products = 1, .stores = "z dz",
              .cut = CUT_OFF);
