/* persistent_product.cuh - dual_memory, kernel `persistent`: products y = W x by the column warps.
 *
 * W is one of two [D,D] matrices, or both at once.  The four lanes of a column share its row of
 * each matrix: a lane holds 16 bytes of each `slab` of 64 bytes, the first slabs in registers, the
 * others in shared memory.  The lane of a column and sequence gets their sum:
 *
 *     bf16   two neighbouring warps share their rows: each has one half of K for both, and they
 *            exchange partial sums, so each loads half of the vector.  The A operand of mma is
 *            8 rows of one warp above 8 rows of the other; the 8 columns of B are four
 *            vectors, each split into high and low bf16, side by side: a lane gets the high and
 *            the low part of both sums
 *     f32    a lane multiplies its own 16 bytes by all four vectors; then a sum over the lanes */
#ifndef PERSISTENT_PRODUCT_CUH
#define PERSISTENT_PRODUCT_CUH

#include "gpu/device/reduce.cuh"
#include "gpu/dual_memory/persistent_exchange.cuh"

namespace dual
{

/* Leading dimension of the weights, padded for loads of 16 bytes. */
static __host__ __device__ __forceinline__ int padded_ld(int D)
{
    return ceil_of(D, COLUMNS) * COLUMNS;
}

template <typename T>
static size_t packed_bytes(const recurrence &r)
{
    return 2 * sizeof(T) * r.D * padded_ld(r.D);
}

/* Copies W_write and W_h, or their transposes, with this leading dimension to the start of the
 * workspace; the recurrence then refers to the copies. */
template <typename T>
int pack_weights(struct context *on, recurrence *r, bool transposed);

/* Loads a lane's 16 bytes of its row of two matrices, per slab, in the order of mma's A fragments:
 * 4 bytes of one matrix and 4 of the other alternate.  Paired: for half of the slabs, 4 bytes of
 * the first warp's row and 4 of the second's alternate, one matrix after the other.  Elements
 * beyond the last row and column are zero. */
template <typename PASS, typename T>
static __device__ void load_weights(const shape &s, const coord &here, const T *one, const T *other,
                                    int D, uint4 held[held_count<PASS>()])
{
    enum { DEPTH = slab<T>::DEPTH, PAIRED = PASS::PAIRED };
    uint4 *overflow = here.at<uint4>(s.weights) + threadIdx.x;
    const int half = PAIRED ? here.warp % 2 : 0;
    const int first = half * s.slabs / 2 * DEPTH + here.q * slab<T>::PER_LANE;
    const int upper = here.column - half * COLUMNS, lower = upper + PAIRED * COLUMNS;

    const auto load_16_bytes = [&](const T *matrix, int row, int k) {
        const bool there = k < (row < D ? D - first : 0);
        return there ? *(const uint4 *)(matrix + (int64_t)row * padded_ld(D) + first + k) : uint4{};
    };
    const auto fetch = [&](int m, uint4 x[2]) {
        const int k = (PAIRED ? m / 2 : m) * DEPTH;
        const uint4 a = load_16_bytes(PAIRED && m % 2 ? other : one, upper, k);
        const uint4 b = load_16_bytes(PAIRED && m % 2 == 0 ? one : other, lower, k);
        x[0] = {a.x, b.x, a.y, b.y};
        x[1] = {a.z, b.z, a.w, b.w};
    };

    #pragma unroll 64
    for (int m = 0; m < held_count<PASS>() / 2; m++)
        fetch(m, held + 2 * m);
    for (int m = held_count<PASS>() / 2; m < s.slabs; m++, overflow += 2 * s.warps * 32) {
        uint4 x[2];
        fetch(m, x);
        overflow[0] = x[0], overflow[s.warps * 32] = x[1];
    }
}

/* A lane's results of a product: its row of the first matrix times x, and its row of the other
 * times x.  The enum says which of them are computed. */
struct product_sums {
    float one, other;
};

enum { ONE_SUM = 1, OTHER_SUM = 2, BOTH_SUMS = 3 };

template <typename PASS, int WANTED, typename T = typename PASS::type, bool PAIRED = PASS::PAIRED>
struct accumulators;

/* Loads the lane's part of a slab of a vector: B fragments of a quad, for two mma. */
static __device__ __forceinline__ uint4 load_vector_fragment(const coord &here,
                                                             const unsigned char *vector, int slab,
                                                             int quads, int quad)
{
    const int chunk = 4 * slab + here.q;
    return *(const uint4 *)(vector + (chunk * quads + quad) * CHUNK +
                            swizzled_offset(here.q, here.i));
}

static __device__ __forceinline__ void mma_rows(float sum[4], const uint4 &rows, unsigned x,
                                                unsigned y)
{
    const unsigned a[4] = {rows.x, rows.y, rows.z, rows.w}, b[2] = {x, y};
    mma_bf16(sum, a, b);
}

/* bf16: mma; the upper and lower half of an accumulator are rows of the two paired warps. */
template <typename PASS, int WANTED>
struct accumulators<PASS, WANTED, __nv_bfloat16, true> {
    enum {
        QUADS = PASS::QUADS,
        PER_SLAB = 2,              /* steps m per slab */
        PER_ITERATION = 4 / QUADS, /* and per iteration */
        PREFETCH = PASS::PREFETCH,
        MATRICES = WANTED == BOTH_SUMS ? 2 : 1,
        FIRST = WANTED == OTHER_SUM, /* matrix */
        OWN = MATRICES * QUADS,
        CHAINS = 4 / OWN
    };
    float sum[CHAINS][OWN][4];

    __device__ __forceinline__ accumulators() : sum{} {}
    static constexpr __device__ bool uses(int e)
    {
        return e / 2 >= FIRST && e / 2 < FIRST + MATRICES;
    }
    struct operands {
        uint4 of[QUADS];
    };
    static __device__ __forceinline__ operands fetch(const shape &s, const coord &here,
                                                     const unsigned char *vector, int m)
    {
        const int slab = here.warp % 2 * s.slabs / 2 + m / 2;
        operands x;
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            x.of[p] = load_vector_fragment(here, vector, slab, QUADS, p);
        return x;
    }
    __device__ __forceinline__ void add(const coord &, const unsigned char *, int, int first_chain,
                                        const operands &x, const uint4 w[4])
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                mma_rows(sum[first_chain % CHAINS][k * QUADS + p], w[2 * (FIRST + k)], x.of[p].x,
                         x.of[p].y);
            #pragma unroll MATRICES
            for (int k = 0; k < MATRICES; k++)
                mma_rows(sum[(first_chain + 1) % CHAINS][k * QUADS + p], w[2 * (FIRST + k) + 1],
                         x.of[p].z, x.of[p].w);
        }
    }
    __device__ __forceinline__ void end(const shape &s, const coord &here, product_sums *x)
    {
        const bool second = here.warp % 2;
        float *partials = here.at<float>(s.pair_sums) + (FIRST * s.warps * 32 + here.lane) * OWN;
        float own[OWN], theirs[OWN], half[OWN];
        #pragma unroll OWN
        for (int k = 0; k < OWN; k++) {
            float upper = 0, lower = 0;
            #pragma unroll CHAINS
            for (int chain = 0; chain < CHAINS; chain++) {
                upper += sum[chain][k][0] + sum[chain][k][1];
                lower += sum[chain][k][2] + sum[chain][k][3];
            }
            own[k] = second ? lower : upper;
            theirs[k] = second ? upper : lower;
        }
        store_floats<OWN>(partials + here.warp * 32 * OWN, theirs);
        named_barrier_sync(PAIR_BARRIER + here.warp / 2, 64);
        load_floats<OWN>(half, partials + (here.warp ^ 1) * 32 * OWN);
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            x[p].one = WANTED & ONE_SUM ? own[p] + half[p] : 0;
            x[p].other = WANTED & OTHER_SUM ? own[OWN - QUADS + p] + half[OWN - QUADS + p] : 0;
        }
    }
};

template <typename PASS, int WANTED>
struct accumulators<PASS, WANTED, float, false> {
    enum { QUADS = PASS::QUADS, PER_SLAB = 1, PER_ITERATION = 1, PREFETCH = 0 };
    float one[QUADS][4], other[QUADS][4];

    __device__ __forceinline__ accumulators() : one{}, other{} {}
    static constexpr __device__ bool uses(int) { return true; }
    struct operands {
    };
    static __device__ __forceinline__ operands fetch(const shape &, const coord &,
                                                     const unsigned char *, int)
    {
        return {};
    }
    __device__ __forceinline__ void add(const coord &here, const unsigned char *vector, int m, int,
                                        const operands &, const uint4 w[2])
    {
        const int chunk = 2 * m + here.q / 2;
        const unsigned a[4] = {w[0].x, w[0].z, w[1].x, w[1].z};
        const unsigned b[4] = {w[0].y, w[0].w, w[1].y, w[1].w};
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++)
            #pragma unroll 4
            for (int r = 0; r < 4; r++) {
                float x[4];
                load_floats<4>(x, (const float *)(vector + (chunk * QUADS + p) * CHUNK +
                                                  swizzled_offset(chunk, here.q % 2 * 4 + r)));
                #pragma unroll 4
                for (int k = 0; k < 4; k++) {
                    if (WANTED & ONE_SUM)
                        one[p][r] = fmaf(__uint_as_float(a[k]), x[k], one[p][r]);
                    if (WANTED & OTHER_SUM)
                        other[p][r] = fmaf(__uint_as_float(b[k]), x[k], other[p][r]);
                }
            }
    }
    /* Sums over a column's four lanes; lane q gets the sums of sequence q. */
    __device__ __forceinline__ void end(const shape &, const coord &here, product_sums *x)
    {
        #pragma unroll QUADS
        for (int p = 0; p < QUADS; p++) {
            warp_reduce_scatter<4, 2, 1>(one[p], here.lane);
            warp_reduce_scatter<4, 2, 1>(other[p], here.lane);
            x[p] = {one[p][0], other[p][0]};
        }
    }
};

/* Multiplies the lane's rows by a vector in shared memory.  (Slabs beyond the last are zero.) */
template <typename PASS, int WANTED>
static __device__ __forceinline__ void multiply(const shape &s, const coord &here,
                                                const uint4 held[held_count<PASS>()], int vector,
                                                product_sums x[PASS::QUADS])
{
    typedef accumulators<PASS, WANTED> accumulators_of;
    enum {
        REGISTERS = held_count<PASS>() / 2,
        PER_SLAB = accumulators_of::PER_SLAB,
        PER_ITERATION = accumulators_of::PER_ITERATION,
        PREFETCH = accumulators_of::PREFETCH
    };
    const unsigned char *at = here.smem + vector;
    const uint4 *overflow = here.at<uint4>(s.weights) + threadIdx.x;
    const int stride = s.warps * 32;
    typename accumulators_of::operands
        fetched_operands[2][PER_ITERATION]; /* double buffered with PREFETCH */
    accumulators_of all;

    #pragma unroll 4
    for (int k = 0; k < PER_ITERATION && PREFETCH; k += PER_SLAB)
        fetched_operands[0][k] = all.fetch(s, here, at, k);
    #pragma unroll 64
    for (int m = 0; m < REGISTERS; m += PER_ITERATION)
        if (m < s.slabs) {
            const int buffer = m / PER_ITERATION % 2, next = m + PER_ITERATION;
            const int fetched = !PREFETCH ? m : next < s.slabs ? next : 0;
            #pragma unroll 4
            for (int k = 0; k < PER_ITERATION && (!PREFETCH || next < REGISTERS); k += PER_SLAB)
                fetched_operands[buffer ^ PREFETCH][k] = all.fetch(s, here, at, fetched + k);
            #pragma unroll 4
            for (int k = 0; k < PER_ITERATION; k += PER_SLAB)
                all.add(here, at, m + k, m + k, fetched_operands[buffer][k], held + 2 * (m + k));
        }
    #pragma unroll 1
    for (int m = REGISTERS; m < s.slabs; m += PER_SLAB, overflow += 2 * PER_SLAB * stride) {
        uint4 w[2 * PER_SLAB];
        #pragma unroll 4
        for (int e = 0; e < 2 * PER_SLAB; e++)
            if (accumulators_of::uses(e))
                w[e] = overflow[e * stride];
        all.add(here, at, m, 0, all.fetch(s, here, at, m), w);
    }
    all.end(s, here, x);
}

}    // namespace dual

#endif
