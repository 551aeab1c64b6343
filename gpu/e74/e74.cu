/* e74: k, v, q, z = x W^T (z with a bias) as GEMMs over all T*B rows of x, in one launch,
 * the gate act(z), then e74_cell; backward in the reverse order, with one GEMM for dx and one for the
 * gradients of all weights. */
#include "gpu/device/math.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/e74/e74_cell.cuh"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/product.cuh"

/* The cell's call within the layer's f, on the kernel that the layer is made around. */
static call cell_within(const struct call *f, void *const dp[4], void *work)
{
    call c = e74_cell_call(f, dp, work);
    c.kernel = (const struct impl *)f->kernel->data;
    return c;
}

static call link(const struct call *f)
{
    return cell_within(f, NULL, NULL);
}

OF_CALL(int64_t, rows, DIM(f, 'T') * DIM(f, 'B'))

/* The projections of x: the first n of k, v, q, z. */
struct projections {
    int n;
    const void *W[4];
    void *p[4], *dW[4];
};

static projections projections_of(const struct call *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    const int proj = f->choice[E74_PROJ];
    const int n = proj == E74_TIED_KVQ ? 1 : proj == E74_TIED_KQ ? 2 : proj == E74_NO_Z ? 3 : 4;

    return {n,
            {a->W_k, a->W_v, a->W_q, a->W_z},
            {a->k, a->v, a->q, a->z},
            {g->W_k, g->W_v, g->W_q, g->W_z}};
}

/* The workspace: the pointers of forward's products; backward's gradients of each projection, and of
 * all side by side, the weights and their gradients one below the other, column_sums()'s; then the
 * cell's own. */
template <typename T>
struct workspace {
    product_pointers *pointers;
    T *each[4], *dp, *W;
    float *dW, *sums;
    void *cell;
    size_t bytes; /* before the cell's */
};

template <typename T>
static workspace<T> workspace_of(const struct call *f, enum pass p)
{
    const int64_t n = projections_of(f).n, P = DIM(f, 'P'), PD = P * DIM(f, 'D');
    work_arena a = {(char *)f->work, 0};
    workspace<T> w = {};

    if (p == FORWARD) {
        w.pointers = take<product_pointers>(&a, 1);
    } else {
        for (int i = 0; i < n; i++)
            w.each[i] = take<T>(&a, rows(f) * P);
        w.dp = take<T>(&a, n * rows(f) * P);
        w.W = take<T>(&a, n * PD);
        w.dW = take<float>(&a, n * PD);
        w.sums = take<float>(&a, parts_of(rows(f)) * P);
    }
    w.cell = work_rest(&a);
    w.bytes = a.bytes;
    return w;
}

/* Concatenates the weights, which have `each` elements each. */
template <typename T>
__global__ void stack_weights(T *all, projections from, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < each)
        all[blockIdx.y * each + i] = ((const T *)from.W[blockIdx.y])[i];
}

/* Copies the gradients of the concatenated weights to the gradient of each weight. */
__global__ void unstack_gradients(projections to, const float *all, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < each)
        ((float *)to.dW[blockIdx.y])[i] = all[blockIdx.y * each + i];
}

/* A grid with one thread per element of n tensors of `each` elements. */
static dim3 grid_of(int64_t each, int n)
{
    return dim3((unsigned)ceil_div(each, BLOCK), n);
}

/* z = x W_z^T + b_z, rounded once. */
template <typename T>
static int project_z(const struct call *f, const matrix<T> &x, const matrix<T> &Wt)
{
    const struct e74 *a = ARGS(f, e74);
    CUDA(spread_bias(f->context, (T *)a->z, (const T *)a->b_z, x.rows, Wt.columns));
    return product(f->context, x, Wt, 1, (T *)a->z);
}

/* ---- the gate ---- */

/* The gate of z; back: dz of the gate's gradient, with act'(z) = factor sigma(z) sigma(-z), for 1 - sigma
 * would cancel. */
static __device__ __forceinline__ float act(float z, float factor)
{
    return factor * sigmoid_full(z);
}

static __device__ __forceinline__ float act_back(float z, float factor, float dgate)
{
    const float e = expf(-fabsf(z)), larger = 1 / (1 + e);
    return dgate * (factor * e * larger * larger);
}

/* The gate to `to`; or, backward, dz in the place of the gate's gradient.  A thread has one vector of n
 * elements; those after the last whole one have a thread each. */
template <typename T, enum pass PASS>
__global__ void through_act(T *to, const T *z, float factor, int64_t n)
{
    const int N = WIDTH<T>;
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, whole = n / N;
    const int64_t single = whole * N + (i - whole);

    if (i < whole) {
        const vec<T> p = load_vec<N>(z + i * N);
        const vec<T> dgate = PASS == BACKWARD ? load_vec<N>((const T *)to + i * N) : p;
        store_vec(to + i * N, make_vec<T>([&](int j) {
                      return PASS == FORWARD ? act(p[j], factor) : act_back(p[j], factor, dgate[j]);
                  }));
    } else if (single < n) {
        const float p = load(z + single);
        const float dgate = PASS == BACKWARD ? load((const T *)to + single) : 0;
        store(to + single, PASS == FORWARD ? act(p, factor) : act_back(p, factor, dgate));
    }
}

template <typename T, enum pass PASS>
static int launch_act(const struct call *f, T *to)
{
    const T *z = (const T *)ARGS(f, e74)->z;
    const int64_t n = rows(f) * DIM(f, 'P'), threads = n / WIDTH<T> + n % WIDTH<T>;
    const float factor = f->choice[E74_Z_ACT] == E74_TWICE_SIGMOID ? 2 : 1;

    through_act<T, PASS><<<grid_of(threads, 1), BLOCK, 0, gpu_stream(f)>>>(to, z, factor, n);
    CUDA(cudaGetLastError());
    return 0;
}

/* ---- the passes ---- */

template <typename T>
static int forward(const struct call *f)
{
    const struct e74 *a = ARGS(f, e74);
    int64_t M = rows(f), D = DIM(f, 'D');
    projections all = projections_of(f);
    matrix<T> x = {(const T *)a->x, M, D, false}, Wt[4];
    T *to[4];

    for (int i = 0; i < all.n; i++) {
        Wt[i] = {(const T *)all.W[i], D, DIM(f, 'P'), true};
        to[i] = (T *)all.p[i];
    }
    int z = a->z != NULL;
    const workspace<T> w = workspace_of<T>(f, FORWARD);
    CUDA(products(f->context, all.n - z, x, Wt, 0, to, w.pointers));
    if (z)
        CUDA(project_z(f, x, Wt[all.n - 1]));
    if (a->gate)
        CUDA((launch_act<T, FORWARD>(f, (T *)a->gate)));
    const call c = cell_within(f, NULL, w.cell);
    return call_pass(&c, FORWARD);
}

/* With the gradients of all projections concatenated along columns, and the weights along rows, dx
 * is one GEMM and dW is another. */
template <typename T>
static int backward(const struct call *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    projections all = projections_of(f);
    const workspace<T> w = workspace_of<T>(f, BACKWARD);

    for (int i = 0; i < 4; i++)
        all.p[i] = w.each[i];
    const call c = cell_within(f, all.p, w.cell);
    CUDA(call_pass(&c, BACKWARD));
    if (a->gate)
        CUDA((launch_act<T, BACKWARD>(f, w.each[3])));
    CUDA((concatenate(f->context, w.dp, {all.n, {all.p[0], all.p[1], all.p[2], all.p[3]}}, M, P)));
    stack_weights<T><<<grid_of(P * D, all.n), BLOCK, 0, gpu_stream(f)>>>(w.W, all, P * D);
    CUDA(cudaGetLastError());
    int64_t nP = all.n * P;
    matrix<T> dp_all = {w.dp, M, nP, false}, dpt = {w.dp, nP, M, true}, W_all = {w.W, nP, D, false};
    matrix<T> x = {(const T *)a->x, M, D, false};
    CUDA(product(f->context, dp_all, W_all, 0, (T *)g->x));
    CUDA(product(f->context, dpt, x, 0, w.dW));
    unstack_gradients<<<grid_of(P * D, all.n), BLOCK, 0, gpu_stream(f)>>>(all, w.dW, P * D);
    CUDA(cudaGetLastError());
    return g->b_z ? column_sums(f->context, (float *)g->b_z, w.sums, (const T *)w.each[3],
                                (const T *)NULL, M, P)
                  : 0;
}

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    const call c = link(f);
    return workspace_of<T>(f, p).bytes + op_work(&c, p);
}

static const char *declines(const struct call *f)
{
    const call c = link(f);
    if (rows(f) > 0x7fffffff || DIM(f, 'P') > 0x7fffffff / 4)
        return "a matrix with more rows or columns than cuBLAS can count (2147483647)";
    return impl_declines(&c);
}

/* The layer's kernel around a kernel of the cell, with the same name. */
template <typename T>
static constexpr struct impl layer_around(const char *name, const struct impl *cell)
{
    return {.name = name,
            .type = storage<T>::TYPE,
            .idea = "cuBLAS products around e74_cell's kernel of this name",
            .pass = {forward<T>, backward<T>},
            .work = work<T>,
            .declines = declines,
            .link = link,
            .data = cell,
            .products = 1};
}

#define LAYER(cell)                                                                                \
    template <typename T>                                                                          \
    static const struct impl cell##_layer = layer_around<T>(#cell, &cell##_cell<T>::kernel)
LAYER(narrow);
LAYER(norms);
LAYER(rows);
LAYER(diagonal);
LAYER(plain);
static const struct impl split_layer = layer_around<__nv_bfloat16>("split", &split_cell);
static const struct impl chunked_layer = layer_around<__nv_bfloat16>("chunked", &chunked_cell);

#define EACH(T)                                                                                    \
    &narrow_layer<T>, &norms_layer<T>, &rows_layer<T>, &diagonal_layer<T>, &plain_layer<T>,
GPU_KERNELS(e74, &split_layer, &chunked_layer, GPU_TYPES(EACH));
