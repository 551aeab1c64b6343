/* e74: the projections as products over all T*B rows of x at once, in one launch,
 * then e74_cell; backward the other way round, with one product for dx and one for
 * the gradients of all weights. */
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

/* What is projected from x: k, v, q, z, as far as the call has them. */
struct projections {
    int n;
    const void *W[4];
    void *p[4], *dW[4];
    int place[4]; /* among k, v, q, z */
};

static projections projections_of(const struct frame *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    const void *W[] = {a->W_k, a->W_v, a->W_q, a->W_z};
    void *p[] = {a->k, a->v, a->q, a->z}, *dW[] = {g->W_k, g->W_v, g->W_q, g->W_z};
    projections all = {};

    for (int i = 0; i < 4; i++)
        if (W[i]) {
            all.W[all.n] = W[i], all.p[all.n] = p[i], all.dW[all.n] = dW[i];
            all.place[all.n++] = i;
        }
    return all;
}

/* Every row of z is b_z, and of the others 0: what the products are then added
 * to, so that z is rounded once. */
template <typename T>
__global__ void spread_bias(projections to, const T *b_z, int64_t each, int64_t P)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < each)
        store((T *)to.p[blockIdx.y] + i, (int)blockIdx.y == to.n - 1 ? load(b_z + i % P) : 0.0f);
}

/* The gradients [M,P] of the projections, side by side: [M,n,P]. */
template <typename T>
__global__ void put_side_by_side(T *all, projections from, int64_t M, int64_t P)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < M * P)
        all[(i / P * from.n + blockIdx.y) * P + i % P] = ((const T *)from.p[blockIdx.y])[i];
}

/* The weights, each of `each` numbers, one below the other. */
template <typename T>
__global__ void stack_weights(T *all, projections from, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < each)
        all[blockIdx.y * each + i] = ((const T *)from.W[blockIdx.y])[i];
}

/* And their gradients back again. */
__global__ void unstack_gradients(projections to, const float *all, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < each)
        ((float *)to.dW[blockIdx.y])[i] = all[blockIdx.y * each + i];
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

/* Threads for `each` numbers of n tensors. */
static dim3 grid_of(int64_t each, int n)
{
    return dim3((unsigned)ceil_div(each, BLOCK), n);
}

template <typename T, const struct impl &CELL>
static int forward(const struct frame *f)
{
    const struct e74 *a = ARGS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    projections all = projections_of(f);
    matrix<T> x = {(const T *)a->x, M, D, false}, Wt[4];
    T *to[4];

    if (a->z) {
        const T *b_z = (const T *)a->b_z;
        spread_bias<T><<<grid_of(M * P, all.n), BLOCK, 0, gpu_stream()>>>(all, b_z, M * P, P);
        CUDA(cudaGetLastError());
    }
    for (int i = 0; i < all.n; i++) {
        Wt[i] = {(const T *)all.W[i], D, P, true};
        to[i] = (T *)all.p[i];
    }
    int e = products(all.n, x, Wt, a->z ? 1 : 0, to, (product_room *)f->work);
    if (e)
        return e;
    struct frame c = e74_cell_frame(f, NULL, (char *)f->work + aligned(sizeof(product_room)));
    return CELL.pass[FORWARD](&c);
}

/* How many projections there are, told from the choice alone. */
static int count(const struct frame *f)
{
    int proj = f->choice[E74_PROJ];
    return proj == E74_TIED_KVQ ? 1 : proj == E74_TIED_KQ ? 2 : proj == E74_NO_Z ? 3 : 4;
}

/* Backward's workspace before the cell's own, in bytes from its start. */
struct layout {
    size_t each, all, W, dW, cell; /* `each` are n gradients from 0 on */
};

template <typename T>
static layout layout_of(const struct frame *f)
{
    int64_t n = count(f), MP = rows(f) * DIM(f, 'P'), PD = DIM(f, 'P') * DIM(f, 'D');
    layout l;
    l.each = aligned(MP * sizeof(T));
    l.all = n * l.each;
    l.W = l.all + aligned(n * MP * sizeof(T));
    l.dW = l.W + aligned(n * PD * sizeof(T));
    l.cell = l.dW + aligned(n * PD * sizeof(float));
    return l;
}

/* All projections' gradients side by side, and all weights one below the other,
 * make one product of dx, and one of dW. */
template <typename T, const struct impl &CELL>
static int backward(const struct frame *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    projections all = projections_of(f);
    layout l = layout_of<T>(f);
    char *work = (char *)f->work;
    T *dp = (T *)(work + l.all), *W = (T *)(work + l.W);
    float *dW = (float *)(work + l.dW);
    void *each[4] = {};

    for (int i = 0; i < all.n; i++)
        each[all.place[i]] = all.p[i] = work + i * l.each;
    struct frame c = e74_cell_frame(f, each, work + l.cell);
    int e = CELL.pass[BACKWARD](&c);
    if (e)
        return e;
    put_side_by_side<T><<<grid_of(M * P, all.n), BLOCK, 0, gpu_stream()>>>(dp, all, M, P);
    CUDA(cudaGetLastError());
    stack_weights<T><<<grid_of(P * D, all.n), BLOCK, 0, gpu_stream()>>>(W, all, P * D);
    CUDA(cudaGetLastError());
    int64_t nP = all.n * P;
    matrix<T> dp_all = {dp, M, nP, false}, dpt = {dp, nP, M, true}, W_all = {W, nP, D, false};
    matrix<T> x = {(const T *)a->x, M, D, false};
    e = product(dp_all, W_all, 0, (T *)g->x);
    if (!e)
        e = product(dpt, x, 0, dW);
    if (e)
        return e;
    unstack_gradients<<<grid_of(P * D, all.n), BLOCK, 0, gpu_stream()>>>(all, dW, P * D);
    CUDA(cudaGetLastError());
    if (g->b_z) {
        column_sums<T><<<P, BLOCK, 0, gpu_stream()>>>((float *)g->b_z, (const T *)each[3], M, P);
        CUDA(cudaGetLastError());
    }
    return 0;
}

template <typename T, const struct impl &CELL>
static size_t work(const struct frame *f, enum pass p)
{
    struct frame c = e74_cell_frame(f, NULL, NULL);
    size_t before = p == FORWARD ? aligned(sizeof(product_room)) : layout_of<T>(f).cell;
    return before + CELL.work(&c, p);
}

template <const struct impl &CELL>
static const char *declines(const struct frame *f)
{
    struct frame c = e74_cell_frame(f, NULL, NULL);
    if (rows(f) > 0x7fffffff || DIM(f, 'P') > 0x7fffffff / 4)
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
GPU_KERNEL_LIST(e74, 16, &e74_chunked_layer16, &e74_narrow_layer16, &e74_norms_layer16,
                &e74_rows_layer16, &e74_diagonal_layer16, &e74_plain_layer16);
