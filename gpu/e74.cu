/* e74: the projections as products over all T*B rows of x at once, then
 * e74_cell in one launch; backward the other way round. */
#include "gpu/e74_cell.cuh"
#include "gpu/product.cuh"

static int64_t rows(const struct frame *f)
{
    return DIM(f, 'T') * DIM(f, 'B');
}

/* Parts of the workspace begin on 256 bytes. */
static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

enum { BLOCK = 256 };

/* Every row of z is b_z: what the product is then added to, so that z is
 * rounded once. */
template <typename T>
__global__ void spread_bias(T *z, const T *b_z, int64_t n, int64_t P)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        z[i] = b_z[i % P];
}

/* From float to T, where the sum of several products was kept in float. */
template <typename T>
__global__ void convert(T *to, const float *from, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        store(to + i, from[i]);
}

/* db[j] = sum over rows of dz[.][j]: one block a column, in a fixed order. */
template <typename T>
__global__ void column_sums(float *db, const T *dz, int64_t M, int64_t P)
{
    __shared__ float sums[BLOCK];
    float sum = 0;
    for (int64_t m = threadIdx.x; m < M; m += BLOCK)
        sum += load(dz + m * P + blockIdx.x);
    sums[threadIdx.x] = sum;
    for (int d = BLOCK / 2; d; d /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < d)
            sums[threadIdx.x] += sums[threadIdx.x + d];
    }
    if (threadIdx.x == 0)
        db[blockIdx.x] = sums[0];
}

template <typename T, const struct impl &CELL>
static int forward(const struct frame *f)
{
    const struct e74 *a = ARGS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    const void *W[] = {a->W_k, a->W_v, a->W_q, a->W_z};
    void *p[] = {a->k, a->v, a->q, a->z};
    matrix<T> x = {(const T *)a->x, M, D, false};

    if (a->z) {
        spread_bias<T><<<ceil_div(M * P, BLOCK), BLOCK, 0, gpu_stream()>>>(
            (T *)a->z, (const T *)a->b_z, M * P, P);
        CUDA(cudaGetLastError());
    }
    for (int i = 0; i < 4; i++) {
        matrix<T> Wt = {(const T *)W[i], D, P, true};
        int e = W[i] ? product(x, Wt, p[i] == a->z, (T *)p[i]) : 0;
        if (e)
            return e;
    }
    struct frame c = e74_cell_frame(f, NULL, f->work);
    return CELL.pass[FORWARD](&c);
}

/* dx is the sum of up to four products: in float until it is whole. */
template <typename T, const struct impl &CELL>
static int backward(const struct frame *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    size_t each = aligned(M * P * sizeof(T));
    const void *W[] = {a->W_k, a->W_v, a->W_q, a->W_z};
    void *dW[] = {g->W_k, g->W_v, g->W_q, g->W_z}, *dp[4];
    char *work = (char *)f->work;

    for (int i = 0; i < 4; i++)
        dp[i] = work + i * each;
    float *dx = (float *)(work + 4 * each);
    struct frame c = e74_cell_frame(f, dp, work + 4 * each + aligned(M * D * sizeof(float)));
    int e = CELL.pass[BACKWARD](&c);
    for (int i = 0; !e && i < 4; i++) {
        matrix<T> dpi = {(const T *)dp[i], M, P, false}, dpt = {(const T *)dp[i], P, M, true};
        matrix<T> x = {(const T *)a->x, M, D, false}, Wi = {(const T *)W[i], P, D, false};
        if (!W[i])
            continue;
        e = product(dpt, x, 0, (float *)dW[i]);
        if (!e)
            e = product(dpi, Wi, i > 0, dx);
    }
    if (e)
        return e;
    convert<T><<<ceil_div(M * D, BLOCK), BLOCK, 0, gpu_stream()>>>((T *)g->x, dx, M * D);
    CUDA(cudaGetLastError());
    if (g->b_z) {
        column_sums<T><<<P, BLOCK, 0, gpu_stream()>>>((float *)g->b_z, (const T *)dp[3], M, P);
        CUDA(cudaGetLastError());
    }
    return 0;
}

template <typename T, const struct impl &CELL>
static size_t work(const struct frame *f, enum pass p)
{
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    struct frame c = e74_cell_frame(f, NULL, NULL);
    size_t cell = CELL.work(&c, p);
    return p == FORWARD ? cell
                        : 4 * aligned(M * P * sizeof(T)) + aligned(M * D * sizeof(float)) + cell;
}

template <const struct impl &CELL>
static const char *declines(const struct frame *f)
{
    struct frame c = e74_cell_frame(f, NULL, NULL);
    if (rows(f) > 0x7fffffff || DIM(f, 'P') > 0x7fffffff)
        return "a matrix with more rows or columns than cuBLAS can count (2147483647)";
    return CELL.declines(&c);
}

/* The layer around each kernel of the cell is a kernel of that name. */
#define LAYER(bits, T, cell)                                                                       \
    static const struct impl cell##_layer##bits = {                                                \
        cell##bits.name,                                                                           \
        "cuBLAS products around e74_cell's kernel of this name",                                   \
        {forward<T, cell##bits>, backward<T, cell##bits>},                                         \
        work<T, cell##bits>,                                                                       \
        declines<cell##bits>,                                                                      \
        cell##bits.approximates,                                                                   \
        cell##bits.unit,                                                                           \
        cell##bits.chunk}

LAYER(16, __nv_bfloat16, e74_split);
LAYER(16, __nv_bfloat16, e74_chunked);
LAYER(32, float, e74_narrow);
LAYER(16, __nv_bfloat16, e74_narrow);
LAYER(32, float, e74_norms);
LAYER(16, __nv_bfloat16, e74_norms);
LAYER(32, float, e74_rows);
LAYER(16, __nv_bfloat16, e74_rows);
LAYER(32, float, e74_diagonal);
LAYER(16, __nv_bfloat16, e74_diagonal);
LAYER(32, float, e74_plain);
LAYER(16, __nv_bfloat16, e74_plain);

GPU_KERNEL_LIST(e74, 32, &e74_narrow_layer32, &e74_norms_layer32, &e74_rows_layer32,
                &e74_diagonal_layer32, &e74_plain_layer32);
GPU_KERNEL_LIST(e74, 16, &e74_split_layer16, &e74_chunked_layer16, &e74_narrow_layer16,
                &e74_norms_layer16, &e74_rows_layer16, &e74_diagonal_layer16, &e74_plain_layer16);
