/* product: C = alpha A B + beta C by cuBLAS; in the emulated build one thread per element. */
#include "gpu/gemm/product.cuh"

#ifndef CUDA_EMULATE

#include <mutex>
#include <vector>

#include "gpu/gemm/cublas.cuh"

template <typename T>
struct type_of;
template <>
struct type_of<float> {
    static const cudaDataType_t code = CUDA_R_32F;
};
template <>
struct type_of<__nv_bfloat16> {
    static const cudaDataType_t code = CUDA_R_16BF;
};

/* A handle that takes the context's stream and this workspace: a pass that is captured as a graph
 * must not allocate.  cublasSetStream() resets the workspace, so it is called first.  The parts of a
 * sum that cuBLAS splits are not rounded to bf16 before they are added, as its default allows. */
static int set(const struct cublas *cublas, cublasHandle_t handle, cudaStream_t stream,
               void *workspace)
{
    cublasStatus_t e = cublas->set_stream(handle, stream);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublas->set_workspace(handle, workspace, PRODUCTS_WORKSPACE);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublas->set_math_mode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return e == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCT_FAILED + e;
}

/* The context's own handle and workspace. */
static int begin(const struct cublas *cublas, struct context *on)
{
    cublasHandle_t made;
    void *workspace = NULL;

    if (cublas->create(&made) != CUBLAS_STATUS_SUCCESS)
        return PRODUCT_FAILED + CUBLAS_STATUS_NOT_INITIALIZED;
    int e = cudaMalloc(&workspace, PRODUCTS_WORKSPACE) == cudaSuccess
                ? set(cublas, made, on->stream, workspace)
                : PRODUCT_FAILED + CUBLAS_STATUS_ALLOC_FAILED;
    if (!e) {
        on->products = made;
        on->products_workspace = workspace;
        return 0;
    }
    cudaFree(workspace);
    cudaGetLastError();
    cublas->destroy(made);
    return e;
}

/* Handles for passes on the caller's memory: one of a device for each pass that begins at the same
 * time.  They stay until the process ends. */
struct idle_handle {
    int device;
    cublasHandle_t handle;
};
static std::mutex idle_lock;
static std::vector<idle_handle> idle;

static void give_back(int device, cublasHandle_t handle)
{
    const std::lock_guard<std::mutex> hold(idle_lock);
    idle.push_back({device, handle});
}

/* NULL: there is none. */
static cublasHandle_t take_idle(int device)
{
    const std::lock_guard<std::mutex> hold(idle_lock);
    for (size_t i = 0; i < idle.size(); i++)
        if (idle[i].device == device) {
            cublasHandle_t handle = idle[i].handle;
            idle[i] = idle.back();
            idle.pop_back();
            return handle;
        }
    return NULL;
}

/* A new handle allocates, which the thread may not do while it captures a graph, unless it says that
 * this is no part of the graph. */
static cublasHandle_t make_handle(const struct cublas *cublas)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cublasHandle_t made = NULL;

    cudaThreadExchangeStreamCaptureMode(&mode);
    if (cublas->create(&made) != CUBLAS_STATUS_SUCCESS)
        made = NULL;
    cudaThreadExchangeStreamCaptureMode(&mode);
    return made;
}

/* NULL: none can be made. */
static cublasHandle_t take_any(const struct cublas *cublas, int device)
{
    cublasHandle_t handle = take_idle(device);
    return handle ? handle : make_handle(cublas);
}

/* A handle for the copy of a lent context, with the caller's workspace. */
static int take(const struct cublas *cublas, struct context *on)
{
    if (!on->products_workspace)
        return PRODUCT_UNDECLARED;
    cublasHandle_t handle = take_any(cublas, on->device);
    if (!handle)
        return PRODUCT_FAILED + CUBLAS_STATUS_NOT_INITIALIZED;
    on->products = handle;
    return set(cublas, handle, on->stream, on->products_workspace);
}

/* The library, and the context's handle. */
static int use(struct context *on, const struct cublas **cublas)
{
    const char *why;
    *cublas = cublas_open(&why);
    return !*cublas       ? +PRODUCT_WITHOUT_CUBLAS
           : on->products ? 0
           : on->lent     ? take(*cublas, on)
                          : begin(*cublas, on);
}

void product_end(struct context *on)
{
    const char *why;
    if (on->lent) {
        if (on->products)
            give_back(on->device, (cublasHandle_t)on->products);
        return;
    }
    if (on->products)
        cublas_open(&why)->destroy((cublasHandle_t)on->products);
    cudaFree(on->products_workspace);
}

int product_prepare(struct context *on)
{
    const char *why;
    const struct cublas *cublas = cublas_open(&why);
    if (!cublas)
        return PRODUCT_WITHOUT_CUBLAS;
    cublasHandle_t handle = take_any(cublas, on->device);
    if (!handle)
        return PRODUCT_FAILED + CUBLAS_STATUS_NOT_INITIALIZED;
    give_back(on->device, handle);
    return 0;
}

template <typename T>
static cublasOperation_t operation(const matrix<T> &m)
{
    return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* The leading dimension of the stored matrix. */
template <typename T>
static int ld(const matrix<T> &m)
{
    return (int)(m.transposed ? m.rows : m.columns);
}

/* cuBLAS is column-major, where a row-major matrix is its own transpose; so it computes c^T = b^T
 * a^T.  fp32 products use full fp32, not TF32. */
template <typename T, typename C>
int product_batch(struct context *on, int64_t batch, float alpha, const matrix<T> &a,
                  const matrix<T> &b, float beta, C *c)
{
    const int M = (int)a.rows, N = (int)b.columns, K = (int)a.columns;
    const cudaDataType_t in = type_of<T>::code, out = type_of<C>::code;
    const struct cublas *cublas;

    CUDA(use(on, &cublas));
    cublasHandle_t handle = (cublasHandle_t)on->products;
    cublasStatus_t e =
        batch == 1 ? cublas->gemm(handle, operation(b), operation(a), N, M, K, &alpha, b.at, in,
                                  ld(b), a.at, in, ld(a), &beta, c, out, N, CUBLAS_COMPUTE_32F,
                                  CUBLAS_GEMM_DEFAULT)
                   : cublas->gemm_strided(handle, operation(b), operation(a), N, M, K, &alpha, b.at,
                                          in, ld(b), b.rows * b.columns, a.at, in, ld(a),
                                          a.rows * a.columns, &beta, c, out, N, a.rows * b.columns,
                                          (int)batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return e == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCT_FAILED + e;
}

#define BATCH(T)                                                                                   \
    template int product_batch(struct context *on, int64_t, float, const matrix<T> &,              \
                               const matrix<T> &, float, T *);
GPU_TYPES(BATCH)

template <typename T, typename C>
int product(struct context *on, const matrix<T> &a, const matrix<T> &b, float beta, C *c)
{
    return product_batch(on, 1, 1, a, b, beta, c);
}

__global__ void put(product_pointers *to, product_pointers pointers)
{
    *to = pointers;
}

template <typename T>
int products(struct context *on, int n, const matrix<T> &a, const matrix<T> *b, float beta,
             T *const *c, product_pointers *workspace)
{
    const float alpha = 1;
    product_pointers pointers = {};
    const struct cublas *cublas;

    CUDA(use(on, &cublas));
    cublasHandle_t handle = (cublasHandle_t)on->products;
    for (int i = 0; i < n; i++) {
        pointers.a[i] = a.at;
        pointers.b[i] = b[i].at;
        pointers.c[i] = c[i];
    }
    put<<<1, 1, 0, on->stream>>>(workspace, pointers);
    CUDA(cudaGetLastError());
    cublasStatus_t e = cublas->gemm_batched(
        handle, operation(*b), operation(a), (int)b->columns, (int)a.rows, (int)a.columns, &alpha,
        workspace->b, type_of<T>::code, ld(*b), workspace->a, type_of<T>::code, ld(a), &beta,
        workspace->c, type_of<T>::code, (int)b->columns, n, CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT);
    return e == CUBLAS_STATUS_SUCCESS ? 0 : PRODUCT_FAILED + e;
}

const char *product_error(int code)
{
    const char *why;
    const struct cublas *cublas = cublas_open(&why);
    if (code == PRODUCT_UNDECLARED)
        return "the kernel does not say that it uses products";
    return cublas ? cublas->get_status_string((cublasStatus_t)(code - PRODUCT_FAILED)) : why;
}

#else

enum { TILE = 16 };

template <typename T, typename C>
__global__ void plain_product(matrix<T> a, matrix<T> b, float beta, C *c)
{
    int64_t m = (int64_t)blockIdx.y * TILE + threadIdx.y;
    int64_t n = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (m >= a.rows || n >= b.columns)
        return;
    float sum = 0;
    for (int64_t k = 0; k < a.columns; k++)
        sum += load(a.at + (a.transposed ? k * a.rows + m : m * a.columns + k)) *
               load(b.at + (b.transposed ? n * b.rows + k : k * b.columns + n));
    C *to = c + m * b.columns + n;
    store(to, beta == 0 ? sum : sum + beta * load(to));
}

template <typename T, typename C>
int product(struct context *on, const matrix<T> &a, const matrix<T> &b, float beta, C *c)
{
    dim3 grid(ceil_div(b.columns, TILE), ceil_div(a.rows, TILE)), block(TILE, TILE);
    if (on->lent && !on->products_workspace)
        return PRODUCT_UNDECLARED;
    plain_product<<<grid, block, 0, on->stream>>>(a, b, beta, c);
    return cudaGetLastError();
}

template <typename T>
int products(struct context *on, int n, const matrix<T> &a, const matrix<T> *b, float beta,
             T *const *c, product_pointers *)
{
    int e = 0;
    for (int i = 0; !e && i < n; i++)
        e = product(on, a, b[i], beta, c[i]);
    return e;
}

void product_end(struct context *) {}

int product_prepare(struct context *)
{
    return 0;
}

const char *product_error(int code)
{
    return code == PRODUCT_UNDECLARED ? "the kernel does not say that it uses products"
                                      : "a product failed";
}

#endif

#define EACH(T)                                                                                    \
    template int product(struct context *on, const matrix<T> &, const matrix<T> &, float, T *);    \
    template int products(struct context *on, int, const matrix<T> &, const matrix<T> *, float,    \
                          T *const *, product_pointers *);
GPU_TYPES(EACH)
#define TO_FLOAT(T)                                                                                \
    template int product(struct context *on, const matrix<T> &, const matrix<T> &, float, float *);
GPU_NARROW_TYPES(TO_FLOAT)
