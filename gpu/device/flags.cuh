/* flags.cuh - values and flags in global memory, exchanged by blocks that run at the same time. */
#ifndef FLAGS_CUH
#define FLAGS_CUH

#include "gpu/gpu.cuh"

/* A value and its tag in one word: a load that finds the tag has the value. */
struct alignas(8) tagged {
    float x;
    int tag;
};

static __device__ __forceinline__ uint64_t pack_tagged(tagged t)
{
    return (uint64_t)(unsigned)t.tag << 32 | __float_as_uint(t.x);
}
static __device__ __forceinline__ tagged unpack_tagged(uint64_t word)
{
    return {__uint_as_float((unsigned)word), (int)(word >> 32)};
}

#ifdef __CUDACC__
/* Four floats, aligned, that blocks running at the same time exchange: they bypass
 * L1, and each float is whole, though not all four at once. */
static __device__ __forceinline__ void load_relaxed(const float *from, float x[4])
{
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "l"(from)
                 : "memory");
}
static __device__ __forceinline__ void store_relaxed(float *to, const float x[4])
{
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

/* The same for a tagged value. */
static __device__ __forceinline__ tagged load_relaxed(const tagged *from)
{
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return unpack_tagged(word);
}
static __device__ __forceinline__ void store_relaxed(tagged *to, tagged t)
{
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(pack_tagged(t)) : "memory");
}

/* A flag: a block that load-acquires a value sees all that the storing block wrote before its
 * store-release. */
static __device__ __forceinline__ void store_release(int *to, int x)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
static __device__ __forceinline__ int load_acquire(const int *from)
{
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

/* Called in a loop that polls a value of another block. */
static __device__ __forceinline__ void spin_yield(void) {}
#else
static inline void load_relaxed(const float *from, float x[4])
{
    for (int i = 0; i < 4; i++)
        x[i] = emu_bits<float>(__atomic_load_n((const unsigned *)from + i, __ATOMIC_SEQ_CST));
}
static inline void store_relaxed(float *to, const float x[4])
{
    for (int i = 0; i < 4; i++)
        __atomic_store_n((unsigned *)to + i, emu_bits<unsigned>(x[i]), __ATOMIC_SEQ_CST);
}

static inline tagged load_relaxed(const tagged *from)
{
    return unpack_tagged(__atomic_load_n((const uint64_t *)from, __ATOMIC_SEQ_CST));
}
static inline void store_relaxed(tagged *to, tagged t)
{
    __atomic_store_n((uint64_t *)to, pack_tagged(t), __ATOMIC_SEQ_CST);
}

static inline void store_release(int *to, int x)
{
    __atomic_store_n(to, x, __ATOMIC_SEQ_CST);
}
static inline int load_acquire(const int *from)
{
    return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}

static inline void spin_yield(void)
{
    emu_yield();
}
#endif

#endif
