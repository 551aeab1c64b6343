/* mma.cuh - mma.sync and ldmatrix: a product of small matrices by one warp on tensor cores, and the
 * loads of its fragments. */
#ifndef MMA_CUH
#define MMA_CUH

#include "gpu/device/smem.cuh"

#ifdef __CUDACC__
/* d[16][8] += a[16][16] b[16][8], bf16 operands, float sums; the fragments are in the registers
 * of a warp. */
static __device__ __forceinline__ void mma_bf16(float d[4], const unsigned a[4],
                                                const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d = a b, without registers of zeros. */
static __device__ __forceinline__ void mma_bf16_first(float d[4], const unsigned a[4],
                                                      const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
}

/* An 8 x 8 matrix of 16-bit elements, transposed: lane l has elements l % 4 * 2 and the next
 * of row l / 4. */
static __device__ __forceinline__ unsigned movmatrix_trans(unsigned pair)
{
    unsigned d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(pair));
    return d;
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory.  Lane l passes the address of
 * row l % 8 of matrix l / 8.  It receives, of each matrix, elements l % 4 * 2 and the next of
 * row l / 4; of the transpose, if TRANSPOSED. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void ldmatrix_x4(unsigned d[4], const void *row)
{
    const unsigned at = smem_address(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(at)
                     : "memory");
}
#else
struct emu_mma {
    float *d;
    const unsigned *a, *b;
};

static inline float emu_bf16_of(unsigned pair, int i)
{
    return emu_bits<float>(i ? pair & 0xffff0000 : pair << 16);
}

static inline void emu_resolve_mma(void *const *arg, unsigned present)
{
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        const emu_mma *m = (const emu_mma *)arg[l];
        int group = l / 4, in = l % 4 * 2;
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++)
                a[group + r % 2 * 8][in + r / 2 * 8 + i] = emu_bf16_of(m->a[r], i);
            for (int r = 0; r < 2; r++)
                b[in + r * 8 + i][group] = emu_bf16_of(m->b[r], i);
        }
    }
    (void)present;
    for (int l = 0; l < 32; l++) {
        float *d = ((const emu_mma *)arg[l])->d;
        for (int r = 0; r < 4; r++)
            for (int k = 0; k < 16; k++)
                d[r] += a[l / 4 + r / 2 * 8][k] * b[k][l % 4 * 2 + r % 2];
    }
}

static inline void mma_bf16(float d[4], const unsigned a[4], const unsigned b[2], EMU_HERE)
{
    emu_mma m = {d, a, b};
    if (__popc(__ballot_sync(~0u, 1, here)) != 32)
        emu_fault(here, "mma by less than a full warp");
    emu_collective(~0u, &m, emu_resolve_mma, "mma_bf16", here);
}

static inline void mma_bf16_first(float d[4], const unsigned a[4], const unsigned b[2], EMU_HERE)
{
    d[0] = d[1] = d[2] = d[3] = 0;
    mma_bf16(d, a, b, here);
}

static inline unsigned movmatrix_trans(unsigned pair, EMU_HERE)
{
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    unsigned d = 0;
    for (int i = 0; i < 2; i++) {
        const unsigned from = __shfl_sync(~0u, pair, (column + i) * 4 + row / 2, 32, here);
        d |= (from >> row % 2 * 16 & 0xffff) << 16 * i;
    }
    return d;
}

struct emu_rows {
    unsigned short row[8];
    unsigned d[4];
};

template <bool TRANSPOSED>
static inline void emu_resolve_matrices(void *const *arg, unsigned present)
{
    (void)present;
    for (int l = 0; l < 32; l++)
        for (int m = 0; m < 4; m++) {
            unsigned pair[2];
            for (int i = 0; i < 2; i++) {
                const int row = TRANSPOSED ? l % 4 * 2 + i : l / 4;
                const int column = TRANSPOSED ? l / 4 : l % 4 * 2 + i;
                pair[i] = ((const emu_rows *)arg[8 * m + row])->row[column];
            }
            ((emu_rows *)arg[l])->d[m] = pair[1] << 16 | pair[0];
        }
}

template <bool TRANSPOSED>
static inline void ldmatrix_x4(unsigned d[4], const void *row, EMU_HERE)
{
    emu_rows r;
    if ((uintptr_t)row % 16)
        emu_fault(here, "ldmatrix from an address that 16 does not divide");
    if (__popc(__ballot_sync(~0u, 1, here)) != 32)
        emu_fault(here, "ldmatrix by less than a full warp");
    memcpy(r.row, row, sizeof r.row);
    emu_collective(~0u, &r, emu_resolve_matrices<TRANSPOSED>, "ldmatrix_x4", here);
    memcpy(d, r.d, sizeof r.d);
}
#endif

#endif
