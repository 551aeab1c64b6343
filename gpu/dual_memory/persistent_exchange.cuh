/* persistent_exchange.cuh - dual_memory, kernel `persistent`: the messages that the blocks of a
 * cluster send each other.
 *
 * A vector is sent to all blocks in chunks of 128 bytes: a warp's 8 columns of four sequences.  A
 * chunk is 8 units of 16 bytes and swizzled: chunk n is rotated by 2n units, so that the lanes of
 * one load have no bank conflicts.  The chunks of a block are contiguous; one of its warps copies
 * them to one other block.
 *
 * Sums over columns, per slot, are over a warp's 8 columns first (reduce_scatter), then over the
 * block's warps, then over the cluster's blocks, always in that order.  The sums that a block sends
 * are its `message`. */
#ifndef PERSISTENT_EXCHANGE_CUH
#define PERSISTENT_EXCHANGE_CUH

#include "gpu/device/fragment.cuh"
#include "gpu/device/mbarrier.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/dual_memory/persistent_shape.cuh"

namespace dual
{

/* Store or load OWN contiguous floats as float4, float2 or float, aligned to that. */
template <int OWN>
static __device__ __forceinline__ void store_floats(float *at, const float x[OWN])
{
    #pragma unroll 2
    for (int k = 0; k < OWN / 4 * 4; k += 4)
        *(float4 *)(at + k) = make_float4(x[k], x[k + 1], x[k + 2], x[k + 3]);
    if (OWN == 2)
        *(float2 *)at = make_float2(x[0], x[OWN - 1]);
    if (OWN == 1)
        *at = x[0];
}

template <int OWN>
static __device__ __forceinline__ void load_floats(float x[OWN], const float *at)
{
    #pragma unroll 2
    for (int k = 0; k < OWN / 4 * 4; k += 4) {
        const float4 y = *(const float4 *)(at + k);
        x[k] = y.x, x[k + 1] = y.y, x[k + 2] = y.z, x[k + 3] = y.w;
    }
    if (OWN == 2) {
        const float2 y = *(const float2 *)at;
        x[0] = y.x, x[OWN - 1] = y.y;
    }
    if (OWN == 1)
        x[0] = *at;
}

/* Copies what the block has written to the same place of all other blocks by cp.async.bulk; its
 * warps share the copies.  The source may change once all blocks have waited for the copies. */
static __device__ __forceinline__ void copy_to_peers(const shape &s, const coord &here,
                                                     uint64_t *mbar, void *place, int bytes)
{
    if (here.lane == 0)
        for (int block = here.warp; block < s.cluster - 1; block += s.warps)
            cp_async_bulk_cluster(place, bytes, mbar, (here.rank + 1 + block) & (s.cluster - 1));
}

/* x rounded to the storage type.  (Packing a pair is faster than converting one element.) */
static __device__ __forceinline__ float as_stored(float x, float)
{
    return x;
}
static __device__ __forceinline__ float as_stored(float x, __nv_bfloat16)
{
    return high_of_pair(pack_bf16x2(x, x));
}

/* The bits of a stored element; and its value. */
static __device__ __forceinline__ unsigned stored_bits(const float *at)
{
    return *(const unsigned *)at;
}
static __device__ __forceinline__ unsigned stored_bits(const __nv_bfloat16 *at)
{
    return *(const unsigned short *)at;
}
static __device__ __forceinline__ float from_bits(unsigned bits, float)
{
    return __uint_as_float(bits);
}
static __device__ __forceinline__ float from_bits(unsigned bits, __nv_bfloat16)
{
    return __uint_as_float(bits << 16);
}

/* ---- a vector in every block ---- */

/* Byte offset of unit e in a chunk; `chunk` is its index in the cluster. */
static __device__ __forceinline__ int swizzled_offset(int chunk, int e)
{
    return (e + 2 * chunk) % 8 * 16;
}

/* Stores a warp's elements of a vector, x of each lane, as a chunk.  bf16: a unit is a column of
 * mma's B operand, with high and low bf16 of a sequence side by side. */
static __device__ __forceinline__ void store_chunk(const coord &here, unsigned char *chunk,
                                                   int number, float x, __nv_bfloat16)
{
    const float low = x - as_stored(x, __nv_bfloat16{});
    *(unsigned *)(chunk + swizzled_offset(number, here.i) + here.q * WORD) =
        movmatrix_trans(pack_bf16x2(x, low));
}

/* f32: a unit is four columns of a sequence. */
static __device__ __forceinline__ void store_chunk(const coord &here, unsigned char *chunk,
                                                   int number, float x, float)
{
    *(float *)(chunk + swizzled_offset(number, here.i / 4 * 4 + here.q) + here.i % 4 * WORD) = x;
}

/* Sends the block's elements of a vector, one per lane and quad, to all blocks. */
template <typename T, int QUADS>
static __device__ __forceinline__ void broadcast_vector(const shape &s, const coord &here,
                                                        uint64_t *mbar, int number,
                                                        const float x[QUADS])
{
    const int bytes = block_bytes(s, QUADS), chunk = here.rank * s.warps + here.warp;
    unsigned char *own = here.smem + s.vector + number * s.vector_size + here.rank * bytes;

    #pragma unroll QUADS
    for (int p = 0; p < QUADS; p++)
        store_chunk(here, own + (here.warp * QUADS + p) * CHUNK, chunk, x[p], T{});
    fence_proxy_async();
    named_barrier_sync(COLUMNS_BARRIER, 32 * s.warps);
    copy_to_peers(s, here, mbar, own, bytes);
}

/* Bytes of a vector that a block receives from the others. */
static __device__ __forceinline__ int vector_bytes(const shape &s, int quads)
{
    return (s.cluster - 1) * block_bytes(s, quads);
}

/* ---- sums over columns ---- */

/* Reduce-scatter of 8 values per lane over the warp's columns: lane i gets the sum of x[i].  (It
 * equals warp_reduce_scatter<8, 16, 4>, with which kernels of 32 slots or 512 columns would spill
 * registers.) */
static __device__ __forceinline__ float reduce_scatter(const coord &here, float x[8])
{
    #pragma unroll 3
    for (int half = 4; half > 0; half /= 2) {
        const bool upper = here.i & half;
        #pragma unroll 4
        for (int k = 0; k < half; k++) {
            const float kept = upper ? x[k + half] : x[k], given = upper ? x[k] : x[k + half];
            x[k] = kept + __shfl_xor_sync(~0u, given, 4 * half);
        }
    }
    return x[0];
}

/* Stores the sum of term(n) over the warp's columns, for every slot n, to a sequence's row in the
 * warp's part of a message. */
template <typename MESSAGE, typename TERM>
static __device__ __forceinline__ void reduce_slots(const coord &here, float *to, const TERM &term)
{
    enum { OWN = MESSAGE::OWN };
    float own[OWN];
    #pragma unroll OWN
    for (int k = 0; k < OWN; k++) {
        if (OWN > 2)
            __syncwarp(); /* limits the terms in flight, to save registers */
        float x[8];
        #pragma unroll 8
        for (int i = 0; i < 8; i++)
            x[i] = term(i * OWN + k);
        own[k] = reduce_scatter(here, x);
    }
    store_floats<OWN>(to + here.i * OWN, own);
}

/* Stores each column's term of a scalar, which is one value per sequence. */
static __device__ __forceinline__ void store_scalar_part(const shape &s, const coord &here,
                                                         int quads, int quad, float x)
{
    here.at<float>(
        s.scalar_parts)[here.warp * part_stride(quads) + (4 * quad + here.q) * COLUMNS + here.i] =
        x;
}

}    // namespace dual

#endif
