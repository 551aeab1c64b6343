/* The parts of a layer other than its products: concatenation of matrices, a bias in every row,
 * sums of columns.  threadIdx.x runs along a row. */
#include "gpu/gemm/layer.cuh"

enum { SUMMING = 1024, COPIES = 4 };

/* Concatenates n matrices [M,width] to [M,n,width].  A thread has COPIES rows in flight. */
template <typename V>
__global__ void concatenate_kernel(V *all, matrices from, int64_t M, int64_t width)
{
    const V *p = (const V *)from.p[blockIdx.y];
    const int64_t first = (int64_t)blockIdx.x * blockDim.y * COPIES + threadIdx.y;

    for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
        V x[COPIES];
        #pragma unroll COPIES
        for (int i = 0; i < COPIES; i++)
            x[i] = p[min(first + i * blockDim.y, M - 1) * width + j];
        #pragma unroll COPIES
        for (int i = 0; i < COPIES; i++) {
            const int64_t m = first + i * blockDim.y;
            if (m < M)
                all[(m * from.n + blockIdx.y) * width + j] = x[i];
        }
    }
}

/* Copies 16 bytes at a time where a row is a multiple of 16 bytes. */
template <typename T>
int concatenate(struct context *on, T *all, const matrices &from, int64_t M, int64_t P)
{
    const bool wide = P * sizeof(T) % sizeof(uint4) == 0;
    const int64_t width = wide ? P * sizeof(T) / sizeof(uint4) : P;
    const dim3 block = block_of(width, BLOCK), grid(blocks_of(ceil_div(M, COPIES), block), from.n);

    if (wide)
        concatenate_kernel<uint4><<<grid, block, 0, on->stream>>>((uint4 *)all, from, M, width);
    else
        concatenate_kernel<T><<<grid, block, 0, on->stream>>>(all, from, M, width);
    return cudaGetLastError();
}

template <typename T>
__global__ void put_bias(T *z, const T *b, int64_t M, int64_t P)
{
    const int64_t m = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (m < M)
        for (int64_t j = threadIdx.x; j < P; j += blockDim.x)
            z[m * P + j] = b[j];
}

template <typename T>
int spread_bias(struct context *on, T *z, const T *b, int64_t M, int64_t P)
{
    const dim3 block = block_of(P, BLOCK);

    put_bias<T><<<blocks_of(M, block), block, 0, on->stream>>>(z, b, M, P);
    return cudaGetLastError();
}

/* sums [M/part,P]: each is over `part` rows of x [M,P], in a fixed order.  Unless `by` is NULL,
 * each element of x is multiplied by that of `by`. */
template <typename T, typename U>
__global__ void sum_rows(float *sums, const T *x, const U *by, int64_t part, int64_t M, int64_t P)
{
    __shared__ float partial[SUMMING];
    const int64_t first = blockIdx.y * part, end = min(first + part, M);
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;

    #pragma unroll 8
    for (int64_t m = first + threadIdx.y; j < P && m < end; m += blockDim.y)
        sum = fmaf(load(x + m * P + j), by ? load(by + m * P + j) : 1, sum);
    partial[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= P)
        return;
    for (unsigned y = 1; y < blockDim.y; y++)
        sum += partial[y * blockDim.x + threadIdx.x];
    sums[blockIdx.y * P + j] = sum;
}

template <typename T, typename U>
int column_sums(struct context *on, float *db, float *sums, const T *x, const U *by, int64_t M,
                int64_t P)
{
    const dim3 block = block_of(P, SUMMING), grid((unsigned)ceil_div(P, block.x), parts_of(M));
    const float *one = NULL;

    sum_rows<<<grid, block, 0, on->stream>>>(sums, x, by, part_of(M), M, P);
    CUDA(cudaGetLastError());
    sum_rows<<<grid.x, block, 0, on->stream>>>(db, sums, one, parts_of(M), parts_of(M), P);
    return cudaGetLastError();
}

#define EACH(T)                                                                                    \
    template int concatenate(struct context *, T *, const matrices &, int64_t, int64_t);           \
    template int spread_bias(struct context *, T *, const T *, int64_t, int64_t);                  \
    template int column_sums(struct context *, float *, float *, const T *, const T *, int64_t,    \
                             int64_t);
GPU_TYPES(EACH)
#define OF_FLOAT(T)                                                                                \
    template int column_sums(struct context *, float *, float *, const T *, const float *,         \
                             int64_t, int64_t);
GPU_NARROW_TYPES(OF_FLOAT)
