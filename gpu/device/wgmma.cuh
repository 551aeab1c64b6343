/* wgmma.cuh - wgmma: products by a warpgroup on tensor cores, with operands in shared memory
 * (capability 9.0). */
#ifndef WGMMA_CUH
#define WGMMA_CUH

#include "gpu/device/tma.cuh"

#ifdef __CUDACC__
/* A matrix descriptor: the layout of an operand of wgmma() in shared memory.  Rows have 128
 * bytes, swizzled as in the boxes of tma.cuh.  If rows are contiguous along k, `stride` is the
 * distance in bytes from eight rows to the next eight.  If the operand is transposed, rows are
 * contiguous along m or n, `stride` is the distance from eight k to the next eight, and
 * `leading` the distance to the next 64 of m or n. */
typedef uint64_t wgmma_desc;

static __device__ __forceinline__ wgmma_desc make_wgmma_desc(const void *at, int leading,
                                                             int stride)
{
    const uint64_t SWIZZLE_128 = 1;
    return (smem_address(at) & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | SWIZZLE_128 << 62;
}
static __device__ __forceinline__ wgmma_desc wgmma_desc_advance(wgmma_desc o, int bytes)
{
    return o + (bytes >> 4);
}

/* Called before the products of a warpgroup, if its threads have accessed the accumulators. */
static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until all but the last `left` groups of products are complete. */
template <int left>
static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
/* The compiler may not move reads of d from behind this to before it. */
template <int n>
static __device__ __forceinline__ void wgmma_fence_operand(float (&d)[n])
{
    #pragma unroll 128
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* d[64][n] = keep d + a[64][16] b[16][n], by the four warps of a warpgroup: bf16
 * operands, float sums.  Warp w has rows 16 w to 16 w + 15, in the fragments of mma_bf16(). */
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
template <bool TRANS_A, bool TRANS_B>
static __device__ __forceinline__ void wgmma(float (&d)[64], wgmma_desc a, wgmma_desc b, int keep)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                 "%64, %65, p, 1, 1, %67, %68; }"
                 : D16(0), D16(16), D16(32), D16(48)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANS_A), "n"(TRANS_B));
}
template <bool TRANS_A, bool TRANS_B>
static __device__ __forceinline__ void wgmma(float (&d)[128], wgmma_desc a, wgmma_desc b, int keep)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0; "
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
        "%128, %129, p, 1, 1, %131, %132; }"
        : D16(0), D16(16), D16(32), D16(48), D16(64), D16(80), D16(96), D16(112)
        : "l"(a), "l"(b), "r"(keep), "n"(TRANS_A), "n"(TRANS_B));
}
#undef D16
#undef D4
#else
struct wgmma_desc {
    const char *at;
    int leading, stride;
};

static inline wgmma_desc make_wgmma_desc(const void *at, int leading, int stride)
{
    return {(const char *)at, leading, stride};
}
static inline wgmma_desc wgmma_desc_advance(wgmma_desc o, int bytes)
{
    return {o.at + bytes, o.leading, o.stride};
}

/* All 32 lanes are there. */
static inline void emu_whole_warp(const char *what, emu_place here)
{
    if (__popc(__ballot_sync(~0u, 1, here)) != 32)
        emu_fault(here, "%s by less than a full warp", what);
}
static inline void wgmma_fence(EMU_HERE)
{
    emu_whole_warp("wgmma_fence", here);
}
static inline void wgmma_commit(void)
{
    emu_later_commit(EMU_WGMMA);
}
template <int left>
static inline void wgmma_wait(EMU_HERE)
{
    emu_later_wait(EMU_WGMMA, left);
    emu_whole_warp("wgmma_wait", here);
}
template <int n>
static inline void wgmma_fence_operand(float (&)[n])
{
}

/* Sixteen elements along k, of row or column i of an operand. */
template <bool TRANS>
static inline void emu_along_k(float x[16], wgmma_desc o, int i)
{
    const char *row =
        o.at + (TRANS ? i / 64 * o.leading + i % 64 * 2 : i / 8 * o.stride + i % 8 * 128);
    for (int half = 0; half < 2; half++) {
        unsigned short bits[8];
        if (TRANS)
            for (int k = 0; k < 8; k++)
                memcpy(bits + k, emu_swizzled(row + half * o.stride + k * 128), sizeof *bits);
        else
            memcpy(bits, emu_swizzled(row + half * 16), sizeof bits);
        for (int k = 0; k < 8; k++)
            x[8 * half + k] = emu_bits<float>((unsigned)bits[k] << 16);
    }
}

struct emu_product {
    float *d;
    wgmma_desc a, b;
    int keep;
};
template <bool TRANS_A, bool TRANS_B, int n>
static inline void emu_do_wgmma(const void *data)
{
    const emu_product *p = (const emu_product *)data;
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float left[2][16], right[16];
    for (int r = 0; r < 2; r++)
        emu_along_k<TRANS_A>(left[r], p->a, row + 8 * r);
    for (int column = 0; column < n / 2; column++) {
        const int in = threadIdx.x % 4 * 2 + column % 2;
        emu_along_k<TRANS_B>(right, p->b, column / 2 * 8 + in);
        for (int r = 0; r < 2; r++) {
            float *to = p->d + column / 2 * 4 + 2 * r + column % 2, x = 0;
            for (int k = 0; k < 16; k++)
                x += left[r][k] * right[k];
            *to = p->keep ? *to + x : x;
        }
    }
}
/* The product is computed as late as allowed, so that a missing wait shows as a wrong result. */
template <bool TRANS_A, bool TRANS_B, int n>
static inline void wgmma(float (&d)[n], wgmma_desc a, wgmma_desc b, int keep)
{
    const emu_product p = {d, a, b, keep};
    emu_later(EMU_WGMMA, emu_do_wgmma<TRANS_A, TRANS_B, n>, &p, sizeof p);
}
#endif

#endif
