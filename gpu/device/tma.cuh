/* tma.cuh - boxes of tensors between global and shared memory by the tensor memory accelerator
 * (capability 9.0).  A kernel is given a tensor map as a parameter (const __grid_constant__
 * tensor_map). */
#ifndef TMA_CUH
#define TMA_CUH

#include "gpu/device/mbarrier.cuh"

#ifdef __CUDACC__
#include <cuda.h>

/* The layout in memory of a tensor with three axes, x fastest, and the size of a box: always 128
 * bytes along x, and some rows of y.  In shared memory a box begins at a multiple of 1024 bytes
 * and has rows of 128 bytes, swizzled: the 16 bytes i of row r are at position i ^ r % 8.  The
 * part of a box outside the tensor is zero when it is loaded and is not written when it is
 * stored. */
typedef CUtensorMap tensor_map;

/* Loads the box that begins at `at` to `to`; the mbarrier counts its bytes. */
static __device__ __forceinline__ void tma_load(void *to, uint64_t *mbar, const tensor_map *map,
                                                int3 at)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(mbar)), "r"(at.x), "r"(at.y), "r"(at.z)
                 : "memory");
}
/* Multicast: loads it to the same address in each of the cluster's first `blocks` blocks; the
 * mbarrier of each block counts the bytes. */
static __device__ __forceinline__ void tma_load_multicast(int blocks, void *to, uint64_t *mbar,
                                                          const tensor_map *map, int3 at)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(to)),
                 "l"(map), "r"(smem_address(mbar)), "r"(at.x), "r"(at.y), "r"(at.z),
                 "h"((unsigned short)((1 << blocks) - 1))
                 : "memory");
}
/* Prefetches the tensor map. */
static __device__ __forceinline__ void tma_prefetch_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* Stores a box from shared memory into the tensor. */
static __device__ __forceinline__ void tma_store(const tensor_map *map, int3 at, const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_address(from)), "r"(at.x), "r"(at.y), "r"(at.z)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Waits until the stores of this thread, except the last `left`, have read shared memory, which may
 * then be overwritten. */
template <int left>
static __device__ __forceinline__ void tma_store_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}
#else
/* A tensor as CUtensorMap describes it: axes and box in elements, strides in bytes. */
struct tensor_map {
    char *at;
    int64_t size[3], stride[3];
    int bytes, box[2]; /* of an element */
};

/* The swizzle of the 16 bytes i in a row of 128. */
static inline char *emu_swizzled(const char *at)
{
    return (char *)((uintptr_t)at ^ ((uintptr_t)at >> 7 & 7) << 4);
}

/* Copies a box to or from shared memory, element by element. */
static inline void emu_box(bool load, char *shared, const tensor_map *map, int3 from)
{
    for (int y = 0; y < map->box[1]; y++)
        for (int x = 0; x < map->box[0]; x++) {
            const int64_t i[3] = {from.x + x, from.y + y, from.z};
            char *here = emu_swizzled(shared + 128 * y + map->bytes * x), *there = map->at;
            bool inside = true;
            for (int axis = 0; axis < 3; axis++) {
                inside = inside && i[axis] >= 0 && i[axis] < map->size[axis];
                there += i[axis] * map->stride[axis];
            }
            for (int byte = 0; byte < map->bytes; byte++)
                if (load)
                    __atomic_store_n(here + byte, inside ? there[byte] : 0, __ATOMIC_RELAXED);
                else if (inside)
                    there[byte] = here[byte];
        }
}

static inline void emu_check_box(const void *shared, const tensor_map *map, emu_place here)
{
    if ((uintptr_t)shared % 1024)
        emu_fault(here, "a box that does not begin at a multiple of 1024");
    if (map->bytes * map->box[0] != 128 || map->box[1] > 256)
        emu_fault(here, "a box of %d by %d elements", map->box[0], map->box[1]);
}

static inline void emu_tma_load(void *to, uint64_t *mbar, int rank, const tensor_map *map, int3 at,
                                emu_place here)
{
    char *there = (char *)emu_map_shared(to, rank);
    emu_check_box(there, map, here);
    emu_box(true, there, map, at);
    emu_count((uint64_t *)emu_map_shared(mbar, rank), -128 * map->box[1], 0);
}
static inline void tma_load(void *to, uint64_t *mbar, const tensor_map *map, int3 at, EMU_HERE)
{
    emu_tma_load(to, mbar, emu_self->block->rank, map, at, here);
}
static inline void tma_load_multicast(int blocks, void *to, uint64_t *mbar, const tensor_map *map,
                                      int3 at, EMU_HERE)
{
    for (int rank = 0; rank < blocks; rank++)
        emu_tma_load(to, mbar, rank, map, at, here);
}
static inline void tma_prefetch_map(const tensor_map *) {}

/* A store reads shared memory as late as it may: when it is waited for. */
struct emu_tma_store {
    const tensor_map *map;
    const void *from;
    int3 to;
};
static inline void emu_do_tma_store(const void *data)
{
    const emu_tma_store *s = (const emu_tma_store *)data;
    emu_box(false, (char *)s->from, s->map, s->to);
}
static inline void tma_store(const tensor_map *map, int3 at, const void *from, EMU_HERE)
{
    const emu_tma_store s = {map, from, at};
    emu_check_box(from, map, here);
    emu_later(EMU_PUT, emu_do_tma_store, &s, sizeof s);
    emu_later_commit(EMU_PUT);
}
template <int left>
static inline void tma_store_wait_read(void)
{
    emu_later_wait(EMU_PUT, left);
}
#endif

/* ---- tensor maps ---- */

/* The number of elements in a row of a box. */
template <typename T>
static constexpr __host__ __device__ int tma_box_columns(void)
{
    return 128 / sizeof(T);
}

/* Rows must begin at multiples of 16 bytes, and coordinates have 31 bits. */
template <typename T>
static bool tma_fits(int64_t x, int64_t y, int64_t z)
{
    return x * sizeof(T) % 16 == 0 && x <= 0x7fffffff && y <= 0x7fffffff && z <= 0x7fffffff;
}

#ifndef CUDA_EMULATE

static CUtensorMapDataType tensor_map_type(const float *)
{
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}
static CUtensorMapDataType tensor_map_type(const __nv_bfloat16 *)
{
    return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/* The driver's function that makes a tensor map, or why there is none. */
struct tensor_map_encoder {
    decltype(&cuTensorMapEncodeTiled) encode;
    cudaError_t error;
};

static tensor_map_encoder find_encoder(void)
{
    cudaDriverEntryPointQueryResult found;
    void *p = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                                           cudaEnableDefault, &found);
#else
    const cudaError_t e =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &found);
#endif
    if (e == cudaSuccess && (found != cudaDriverEntryPointSuccess || !p))
        return {NULL, cudaErrorNotSupported};
    return {(decltype(&cuTensorMapEncodeTiled))p, e};
}

/* z matrices of y rows of x elements, dense; boxes of `rows` rows. */
template <typename T>
static cudaError_t make_tensor_map(tensor_map *map, const T *at, int64_t x, int64_t y, int64_t z,
                                   int rows)
{
    static const tensor_map_encoder encoder = find_encoder();
    const cuuint64_t size[3] = {(cuuint64_t)x, (cuuint64_t)y, (cuuint64_t)z};
    const cuuint64_t stride[2] = {x * sizeof(T), x * y * sizeof(T)};
    const cuuint32_t box[3] = {(cuuint32_t)tma_box_columns<T>(), (cuuint32_t)rows, 1};
    const cuuint32_t each[3] = {1, 1, 1};

    if (encoder.error != cudaSuccess)
        return encoder.error;
    return encoder.encode(map, tensor_map_type(at), 3, (void *)at, size, stride, box, each,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#else

template <typename T>
static cudaError_t make_tensor_map(tensor_map *map, const T *at, int64_t x, int64_t y, int64_t z,
                                   int rows)
{
    const int64_t bytes = sizeof(T);
    *map = {(char *)at,
            {x, y, z},
            {bytes, bytes * x, bytes * x * y},
            (int)bytes,
            {tma_box_columns<T>(), rows}};
    return (uintptr_t)at % 16 || !tma_fits<T>(x, y, z) ? cudaErrorInvalidValue : cudaSuccess;
}

#endif

#endif
