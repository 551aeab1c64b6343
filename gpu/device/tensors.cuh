/* tensors.cuh - descriptions of tensors in global memory, which a kernel is given as parameters
 * (const __grid_constant__ tensor_map) and fetches boxes of: see tensor_fetch() in ptx.cuh. */
#ifndef TENSORS_CUH
#define TENSORS_CUH

#include "gpu/device/ptx.cuh"

/* How many numbers of a row a box has. */
template <typename T>
static constexpr __host__ __device__ int box_columns(void)
{
    return 128 / sizeof(T);
}

/* Rows begin at multiples of 16 bytes, and coordinates are of 31 bits. */
template <typename T>
static bool tensor_fits(int64_t x, int64_t y, int64_t z)
{
    return x * sizeof(T) % 16 == 0 && x <= 0x7fffffff && y <= 0x7fffffff && z <= 0x7fffffff;
}

#ifndef CUDA_EMULATE

static CUtensorMapDataType tensor_type(const float *)
{
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}
static CUtensorMapDataType tensor_type(const __nv_bfloat16 *)
{
    return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/* z matrices of y rows of x numbers, dense; boxes of `rows` rows. */
template <typename T>
static cudaError_t tensor_map_of(tensor_map *map, const T *at, int64_t x, int64_t y, int64_t z,
                                 int rows)
{
    static decltype(&cuTensorMapEncodeTiled) encode;
    const cuuint64_t size[3] = {(cuuint64_t)x, (cuuint64_t)y, (cuuint64_t)z};
    const cuuint64_t stride[2] = {x * sizeof(T), x * y * sizeof(T)};
    const cuuint32_t box[3] = {(cuuint32_t)box_columns<T>(), (cuuint32_t)rows, 1};
    const cuuint32_t each[3] = {1, 1, 1};

    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        void *p = NULL;
#if CUDART_VERSION >= 12050
        const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                                               cudaEnableDefault, &found);
#else
        const cudaError_t e =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &found);
#endif
        if (e != cudaSuccess || found != cudaDriverEntryPointSuccess || !p)
            return e != cudaSuccess ? e : cudaErrorNotSupported;
        encode = (decltype(encode))p;
    }
    return encode(map, tensor_type(at), 3, (void *)at, size, stride, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#else

template <typename T>
static cudaError_t tensor_map_of(tensor_map *map, const T *at, int64_t x, int64_t y, int64_t z,
                                 int rows)
{
    const int64_t bytes = sizeof(T);
    *map = {(char *)at,
            {x, y, z},
            {bytes, bytes * x, bytes * x * y},
            (int)bytes,
            {box_columns<T>(), rows}};
    return (uintptr_t)at % 16 || !tensor_fits<T>(x, y, z) ? cudaErrorInvalidValue : cudaSuccess;
}

#endif

#endif
