/* mbarrier.cuh - mbarriers in shared memory, and the asynchronous stores and copies between the
 * blocks of a cluster whose bytes they count. */
#ifndef MBARRIER_CUH
#define MBARRIER_CUH

#include "gpu/device/cluster.cuh"

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
/* A phase of an mbarrier completes when `arrivals` threads have arrived and all bytes that they
 * expect have arrived; then the next phase begins.  Bytes may arrive before they are expected. */
static __device__ __forceinline__ void mbarrier_init(uint64_t *mbar, int arrivals = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(mbar)), "r"(arrivals)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* Arrives at the current phase, and adds `bytes` to those that it expects. */
static __device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t *mbar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(mbar)),
                 "r"(bytes)
                 : "memory");
}
/* Arrives at the same mbarrier of the cluster's block `rank`. */
static __device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t *mbar, int rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(smem_address_rank(mbar, rank))
                 : "memory");
}
/* st.async: stores x to the same address in the cluster's block `rank`; its mbarrier counts the
 * bytes. */
static __device__ __forceinline__ void st_async(float *place, uint64_t *mbar, int rank, float x)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
                 "[%0], %1, [%2];" ::"r"(smem_address_rank(place, rank)),
                 "r"(__float_as_uint(x)), "r"(smem_address_rank(mbar, rank))
                 : "memory");
}
static __device__ __forceinline__ void st_async(float4 *place, uint64_t *mbar, int rank,
                                                const float4 &x)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(smem_address_rank(place, rank)),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(smem_address_rank(mbar, rank))
                 : "memory");
}
/* Called by every thread that wrote to the source of an asynchronous copy in shared memory,
 * before the barrier after which one thread starts the copy. */
static __device__ __forceinline__ void fence_proxy_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* cp.async.bulk: copies `bytes` of shared memory, aligned to 16, to the same address in block
 * `rank`; its mbarrier counts the bytes.  The source must not change until they have arrived. */
static __device__ __forceinline__ void cp_async_bulk_cluster(void *place, int bytes, uint64_t *mbar,
                                                             int rank)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(smem_address_rank(place, rank)),
                 "r"(smem_address(place)), "r"(bytes), "r"(smem_address_rank(mbar, rank))
                 : "memory");
}
/* Waits until phase `phase`, counted from 0, is complete: the bytes that it expected have
 * arrived. */
static __device__ __forceinline__ void mbarrier_wait(uint64_t *mbar, int phase)
{
    unsigned over;
    do
        asm volatile("{ .reg .pred p;"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(smem_address(mbar)), "r"(phase & 1)
                     : "memory");
    while (!over);
}
#else
/* Before capability 9.0 a block is alone: the values that its threads store have arrived. */
static __device__ void mbarrier_init(uint64_t *, int = 1) {}
static __device__ void mbarrier_arrive_expect_tx(uint64_t *, int) {}
template <typename T>
static __device__ void st_async(T *place, uint64_t *, int, const T &x)
{
    *place = x;
}
static __device__ void fence_proxy_async(void) {}
static __device__ void cp_async_bulk_cluster(void *, int, uint64_t *, int) {}
static __device__ void mbarrier_wait(uint64_t *, int) {}
#endif
#else
/* An mbarrier: the bytes that are missing in this phase, the threads that have arrived, the number
 * that must arrive, and the number of complete phases. */
struct emu_mbarrier {
    int missing;
    unsigned char arrived, needed;
    unsigned short phases;
};

static inline void emu_count(uint64_t *mbar, int bytes, int arrivals)
{
    emu_mbarrier in = emu_bits<emu_mbarrier>(__atomic_load_n(mbar, __ATOMIC_SEQ_CST));
    in.missing += bytes;
    in.arrived += arrivals;
    if (in.arrived == in.needed && in.missing == 0)
        in.arrived = 0, in.phases++;
    __atomic_store_n(mbar, emu_bits<uint64_t>(in), __ATOMIC_SEQ_CST);
}

static inline void emu_arrive(uint64_t *mbar, int bytes, emu_place here)
{
    const emu_mbarrier in = emu_bits<emu_mbarrier>(__atomic_load_n(mbar, __ATOMIC_SEQ_CST));
    if (in.arrived == in.needed)
        emu_fault(here, "more arrive at an mbarrier than a phase needs, before it is complete");
    emu_count(mbar, bytes, 1);
}

static inline void mbarrier_init(uint64_t *mbar, int arrivals = 1)
{
    const emu_mbarrier in = {0, 0, (unsigned char)arrivals, 0};
    __atomic_store_n(mbar, emu_bits<uint64_t>(in), __ATOMIC_SEQ_CST);
}
static inline void mbarrier_arrive_expect_tx(uint64_t *mbar, int bytes, EMU_HERE)
{
    emu_arrive(mbar, bytes, here);
}
static inline void mbarrier_arrive_cluster(uint64_t *mbar, int rank, EMU_HERE)
{
    emu_arrive((uint64_t *)emu_map_shared(mbar, rank), 0, here);
}
static inline void emu_st_async(void *place, uint64_t *mbar, int rank, const void *from, int words)
{
    unsigned *there = (unsigned *)emu_map_shared(place, rank), x;
    for (int i = 0; i < words; i++) {
        memcpy(&x, (const unsigned *)from + i, sizeof x);
        __atomic_store_n(there + i, x, __ATOMIC_SEQ_CST);
    }
    emu_count((uint64_t *)emu_map_shared(mbar, rank), -4 * words, 0);
}
template <typename T>
static inline void st_async(T *place, uint64_t *mbar, int rank, const T &x)
{
    emu_st_async(place, mbar, rank, &x, sizeof x / 4);
}
static inline void fence_proxy_async(void) {}
static inline void cp_async_bulk_cluster(void *place, int bytes, uint64_t *mbar, int rank)
{
    emu_st_async(place, mbar, rank, place, bytes / 4);
}
/* The instruction takes only the parity of a phase: for any phase but the current one and the one
 * before it, its result would be wrong. */
static inline void mbarrier_wait(uint64_t *mbar, int phase, EMU_HERE)
{
    for (;;) {
        const int ahead =
            (short)(emu_bits<emu_mbarrier>(__atomic_load_n(mbar, __ATOMIC_SEQ_CST)).phases - phase);
        if (ahead == 1)
            return;
        if (ahead)
            emu_fault(here, "an mbarrier is asked for phase %d while %d are complete", phase,
                      phase + ahead);
        emu_yield();
    }
}
#endif

#endif
