/* product: C = alpha A B + beta C by cuBLAS; in the emulated build one thread per element. */
#include "gpu/gemm/product.cuh"

#ifndef CUDA_EMULATE

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

/* The handle of a context uses its stream and a workspace of its own, because a pass that is
 * captured as a graph must not allocate.  (32 MiB is cuBLAS's default on Hopper.)
 * cublasSetStream() resets the workspace, so it is called first. */
static int begin(const struct cublas *cublas, struct context *on)
{
    static const size_t WORKSPACE = 32 << 20;
    cublasHandle_t made;
    void *workspace = NULL;

    if (cublas->create(&made) != CUBLAS_STATUS_SUCCESS)
        return PRODUCT_FAILED + CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t e = cublas->set_stream(made, on->stream);
    if (e == CUBLAS_STATUS_SUCCESS && cudaMalloc(&workspace, WORKSPACE) != cudaSuccess)
        e = CUBLAS_STATUS_ALLOC_FAILED;
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublas->set_workspace(made, workspace, WORKSPACE);
    if (e == CUBLAS_STATUS_SUCCESS) {
        on->products = made;
        on->products_workspace = workspace;
        return 0;
    }
    cudaFree(workspace);
    cudaGetLastError();
    cublas->destroy(made);
    return PRODUCT_FAILED + e;
}

/* The library, and the context's handle. */
static int use(struct context *on, const struct cublas **cublas)
{
    const char *why;
    *cublas = cublas_open(&why);
    return !*cublas ? +PRODUCT_WITHOUT_CUBLAS : on->products ? 0 : begin(*cublas, on);
}

void product_end(struct context *on)
{
    const char *why;
    if (on->products)
        cublas_open(&why)->destroy((cublasHandle_t)on->products);
    cudaFree(on->products_workspace);
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

template int product_batch(struct context *on, int64_t, float, const matrix<float> &,
                           const matrix<float> &, float, float *);
template int product_batch(struct context *on, int64_t, float, const matrix<__nv_bfloat16> &,
                           const matrix<__nv_bfloat16> &, float, __nv_bfloat16 *);

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

const char *product_error(int)
{
    return "a product failed";
}

#endif

template int product(struct context *on, const matrix<float> &, const matrix<float> &, float,
                     float *);
template int product(struct context *on, const matrix<__nv_bfloat16> &,
                     const matrix<__nv_bfloat16> &, float, __nv_bfloat16 *);
template int product(struct context *on, const matrix<__nv_bfloat16> &,
                     const matrix<__nv_bfloat16> &, float, float *);
template int products(struct context *on, int, const matrix<float> &, const matrix<float> *, float,
                      float *const *, product_pointers *);
template int products(struct context *on, int, const matrix<__nv_bfloat16> &,
                      const matrix<__nv_bfloat16> *, float, __nv_bfloat16 *const *,
                      product_pointers *);
