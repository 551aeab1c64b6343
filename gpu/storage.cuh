/* storage.cuh - the types in which a GPU stores tensors.
 *
 * A further one is a specialisation of storage<T> and a line of GPU_TYPES().  There is no storage of
 * another type: the compiler stops at each place that would need one. */
#ifndef STORAGE_CUH
#define STORAGE_CUH

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#else
#include "gpu/emulate/emulate.h"
#endif

#include "common/base/types.h"

template <typename T>
struct storage;

template <>
struct storage<float> {
    static constexpr enum dtype TYPE = F32; /* of its backend */
};

template <>
struct storage<__nv_bfloat16> {
    static constexpr enum dtype TYPE = BF16;
};

/* DO(float, ...) DO(__nv_bfloat16, ...): once for each. */
#define GPU_TYPES(DO, ...) DO(float, ##__VA_ARGS__) DO(__nv_bfloat16, ##__VA_ARGS__)

#endif
