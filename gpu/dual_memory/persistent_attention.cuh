/* persistent_attention.cuh - dual_memory, kernel `persistent`: the attention warps' sums over a
 * cluster's blocks, and their results for the column warps. */
#ifndef PERSISTENT_ATTENTION_CUH
#define PERSISTENT_ATTENTION_CUH

#include "gpu/dual_memory/attend.cuh"
#include "gpu/dual_memory/persistent_exchange.cuh"

namespace dual
{

/* A lane of an attention warp.  The warp has sequence q of each quad; the lane has OWN slots of one
 * of these sequences.  Where a sequence has more lanes than these slots need, the lanes split its
 * sums SPLITS ways. */
template <typename PASS>
struct attention_lane {
    enum {
        SLOTS = PASS::SLOTS,
        QUADS = PASS::QUADS,
        OWN = attention<SLOTS>::OWN,
        LANES = attention<SLOTS>::GROUP, /* that have a sequence's slots */
        SEQUENCE_LANES = 32 / QUADS,     /* per sequence */
        SPLITS = SEQUENCE_LANES / LANES,
        FLOAT4S = SLOTS / 4
    };
    typedef attention<SLOTS> ops;
    int rank, q, quad, lane, row; /* lane: of SEQUENCE_LANES; row: sequence of the batch */
    unsigned char *smem;

    __device__ __forceinline__ attention_lane(const shape &s, int warp, unsigned char *smem_)
        : rank((int)blockIdx.x & (s.cluster - 1)), q(warp),
          quad(opaque_thread_index() % 32 / SEQUENCE_LANES),
          lane(opaque_thread_index() % SEQUENCE_LANES),
          row((int)blockIdx.x / s.cluster * 4 * QUADS + 4 * quad + warp), smem(smem_)
    {
    }
    /* Like opaque_copy() of a coord. */
    __device__ __forceinline__ attention_lane opaque_copy(int iteration) const
    {
        attention_lane same = *this;
        const int zero = iteration >> 30;
        same.rank ^= zero, same.q ^= zero, same.quad ^= zero, same.lane ^= zero;
        same.smem += zero;
        return same;
    }
    __device__ __forceinline__ int slot(void) const { return lane % LANES * OWN; }
    __device__ __forceinline__ bool leader(void) const { return q + quad + lane == 0; }
    __device__ __forceinline__ uint64_t *mbar(int k) const { return (uint64_t *)smem + k; }
    template <typename N>
    __device__ __forceinline__ N *at(int offset) const
    {
        return (N *)(smem + offset);
    }

    /* The sum of TERMS values per slot, with the given stride, always in the same order. */
    template <int TERMS>
    __device__ __forceinline__ void sum_terms(const float *from, int stride, float x[OWN]) const
    {
        float term[TERMS / SPLITS][OWN];
        from += lane / LANES * (TERMS / SPLITS) * stride;
        #pragma unroll 8
        for (int k = 0; k < TERMS / SPLITS; k++)
            load_floats<OWN>(term[k], from + k * stride);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            #pragma unroll 3
            for (int half = TERMS / SPLITS / 2; half > 0; half /= 2)
                #pragma unroll 4
                for (int k = 0; k < half; k++)
                    term[k][i] += term[k + half][i];
            x[i] = warp_sum<SPLITS, LANES>(term[0][i]);
        }
    }

    /* Sums the warps' parts of a message, which have all been written, and sends it to all blocks
     * by st.async. */
    template <typename MESSAGE>
    __device__ __forceinline__ void broadcast_message(const shape &s, uint64_t *mbar, int parts,
                                                      int messages) const
    {
        float *own = at<float>(messages) + rank * MESSAGE::FLOATS;
        #pragma unroll (MESSAGE::KINDS)
        for (int kind = 0; kind < MESSAGE::KINDS; kind++) {
            const int row = MESSAGE::row(quad, kind, q);
            float x[OWN];
            sum_terms<MAX_COLUMN_WARPS>(at<float>(parts) + row + slot(), MESSAGE::FLOATS, x);
            if (lane < LANES)
                store_floats<OWN>(own + row + slot(), x);
        }
        __syncwarp();
        #pragma unroll (MESSAGE::KINDS)
        for (int kind = 0; kind < MESSAGE::KINDS; kind++) {
            float4 *place = (float4 *)(own + MESSAGE::row(quad, kind, q)) +
                            lane % FLOAT4S; /* 16 bytes per lane */
            const float4 x = *place;
            #pragma unroll 1
            for (int block = 1 + lane / FLOAT4S; block < s.cluster;
                 block += SEQUENCE_LANES / FLOAT4S)
                st_async(place, mbar, (rank + block) & (s.cluster - 1), x);
        }
    }

    /* The sums over all blocks, for the lane's slots. */
    template <typename MESSAGE>
    __device__ __forceinline__ void slot_sums(const shape &s, int messages, int kind,
                                              float x[OWN]) const
    {
        const float *from = at<float>(messages) + MESSAGE::row(quad, kind, q) + slot();
        sum_terms<8>(from, MESSAGE::FLOATS, x);
        if (s.cluster > 8) {
            float y[OWN];
            sum_terms<8>(from + 8 * MESSAGE::FLOATS, MESSAGE::FLOATS, y);
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                x[i] += y[i];
        }
    }

    /* Sums the block's parts of a scalar and sends the sum to all blocks by st.async. */
    __device__ __forceinline__ void broadcast_scalar(const shape &s, uint64_t *mbar) const
    {
        float x[COLUMNS];
        load_floats<COLUMNS>(x, at<float>(s.scalar_parts) +
                                    lane % MAX_COLUMN_WARPS * part_stride(QUADS) +
                                    (4 * quad + q) * COLUMNS);
        const float sum = warp_sum<8>(x[0] + x[1] + (x[2] + x[3]) + (x[4] + x[5] + (x[6] + x[7])));
        if (lane < s.cluster)
            st_async(at<float>(s.scalars) + rank * 4 * QUADS + 4 * quad + q, mbar, lane, sum);
    }

    /* The sum over all blocks. */
    __device__ __forceinline__ float scalar_sum(const shape &s) const
    {
        const float *from = at<float>(s.scalars) + 4 * quad + q;
        float x = from[lane % 8 * 4 * QUADS];
        if (s.cluster > 8)
            x += from[(lane % 8 + 8) * 4 * QUADS];
        return warp_sum<8>(x);
    }

    /* Stores a value per slot for the column warps. */
    template <typename MESSAGE>
    __device__ __forceinline__ void store_slots(slot_values<MESSAGE> *all, const float x[OWN]) const
    {
        if (lane < LANES)
            store_floats<OWN>(all->row[4 * quad + q] + slot(), x);
    }
};

template <typename MESSAGE>
static __device__ __forceinline__ int message_bytes(const shape &s)
{
    return (s.cluster - 1) * MESSAGE::KINDS * MESSAGE::ROWS * MESSAGE::SLOTS * WORD;
}

static __device__ __forceinline__ int scalar_bytes(const shape &s, int quads)
{
    return s.cluster * 4 * quads * WORD;
}

/* Loads the values of slots n to n + 3 of a sequence. */
template <typename MESSAGE>
static __device__ __forceinline__ void load_slots(const slot_values<MESSAGE> &all,
                                                  const coord &here, int quad, int n, float x[4])
{
    load_floats<4>(x, all.row[4 * quad + here.q] + n);
}

}    // namespace dual

#endif
