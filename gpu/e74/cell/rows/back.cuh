/* back.cuh - the backward pass of e74_cell's kernel `rows`: its pipeline of
 * subsegments, the rows of a consumer, and what warp roles exchange in shared memory.  The
 * formulas and the warp roles are in back_roles.cuh. */
#ifndef E74_CELL_ROWS_BACK_CUH
#define E74_CELL_ROWS_BACK_CUH

#include "gpu/e74/cell/rows/rows.cuh"

namespace e74_rows
{

enum { REPLAY, SCAN_BACK, PRODUCE, ROLES };

/* Where a row has at least LONG lanes, a consumer has several rows: fewer loads of keys and fewer
 * sums over rows for the same work, and fewer parts of a state. */
enum { LONG = 16, LONG_ROWS = 2, LONG_ROLE_THREADS = 256, LONG_PRODUCER_THREADS = 128 };

/* ---- subsegments ---- */

/* A subsegment of a segment; steps = 0 before the first and after the last. */
struct subsegment {
    int segment, sub, steps;
};

/* A subsegment's first step in the sequence. */
static __device__ __forceinline__ int time_of(const layout &l, const subsegment &w)
{
    return w.segment * (int)l.c.K + begin_of(l, w.sub);
}

static __device__ subsegment subsegment_of(const layout &l, int segment, int sub)
{
    const int begin = begin_of(l, sub);
    const int end = min(begin_of(l, sub + 1), (int)l.c.T - segment * (int)l.c.K);
    return {segment, sub, segment < 0 ? 0 : end - begin};
}

/* The state of a block's pipeline: the subsegment that is scanned back over, the one before
 * it, which is replayed, and the next, whose keys are loaded. */
struct pipeline {
    subsegment back, now, next;
    int intervals;
    int stage, half; /* now's stage of keys; the end of the slots at which its states begin */
};

static __device__ pipeline pipeline_at(const layout &l, const subsegment &back,
                                       const subsegment &now, int stage, int half)
{
    const bool first = now.sub == 0;
    const subsegment next =
        subsegment_of(l, first ? now.segment - 1 : now.segment, first ? l.subs - 1 : now.sub - 1);
    return {back,  now, next, (max(back.steps, now.steps) + l.interval - 1) / l.interval,
            stage, half};
}

static __device__ pipeline pipeline_begin(const layout &l)
{
    const int last = (int)l.segments - 1;
    return pipeline_at(l, {}, subsegment_of(l, last, (int)l.total_subs - last * l.subs - 1), 0, 0);
}

static __device__ int next_stage(int stage)
{
    return stage == 2 ? 0 : stage + 1;
}

static __device__ pipeline pipeline_next(const layout &l, const pipeline &at)
{
    return pipeline_at(l, at.now, at.next, next_stage(at.stage), 1 - at.half);
}

/* ---- a block's shared memory in the backward pass ---- */

/* The operands and results that the warp roles exchange.  Subsegments alternate in the first
 * two, intervals in the others. */
struct smem_layout {
    unsigned char *stages; /* [3] keys and rows' elements of a subsegment */
    float *slots;          /* [slots][rows][width] states before and after each step */
    float *sums; /* [vectors][2][interval][warps][width]: gradients of keys, over a warp's rows */
    float *dv, *dz; /* [2][interval][rows] */
};

/* One subsegment stores its states from the first slot up, the next from the last slot down: the
 * replay overwrites slots that SCAN_BACK has finished with.  In an interval it stores one state per
 * step, in the first interval one more, and overwrites none that is still to be read. */
static __host__ __device__ int slots_of(const layout &l)
{
    return l.steps + 1 + l.interval + 1;
}

/* (A single allocation: the kernel has no registers left to round up the offset of each part.) */
static __host__ __device__ smem_layout alloc_smem(smem_arena *smem, const layout &l)
{
    const int stages = 3 * arena_bytes<alloc_stage>(l, true) / (int)sizeof(float);
    const int slots = slots_of(l) * l.rows * l.width, rows = 2 * l.interval * l.rows;
    const int sums = l.vectors * 2 * l.interval * l.warps * l.width;
    float *const at = smem->alloc<float>(stages + slots + sums + 2 * rows);
    smem_layout d;

    d.stages = (unsigned char *)at;
    d.slots = at + stages;
    d.sums = d.slots + slots;
    d.dv = d.sums + sums;
    d.dz = d.dv + rows;
    return d;
}

/* Each warp role calls it: registers that hold it for all roles would spill. */
static __device__ __forceinline__ smem_layout smem_of(const layout &l, unsigned char *buffer)
{
    smem_arena smem = {buffer, 0};
    return alloc_smem(&smem, l);
}

/* The address of the thread's part of a vector's sums in the i-th step of an interval. */
template <int LANES>
static __device__ float *sums_of(const layout &l, const work_coord &p, const smem_layout &d,
                                 int vector, int half, int i)
{
    const int at = (p.tid % 32 & -LANES) / 4; /* the first of its columns' sums */
    const int column = quad_offset<LANES>(at / 4, p.lane) + at % 4;
    const int row = ((vector * 2 + half) * l.interval + i) * l.warps + p.tid / 32;
    return d.sums + row * l.width + column;
}

/* Stores the sums over the rows of a warp. */
template <int LANES>
static __device__ __forceinline__ void store_warp_sums(float *to, float8 e, int tid)
{
    const int columns = LANES > 4 ? LANES / 4 : 1, once = columns < 4 ? columns : 4;
    warp_reduce_scatter<OCTET, 16, LANES>(e.x);
    if (tid & 3 & -LANES)
        return; /* another thread stores this column */
    for (int i = 0; i < columns; i += once) {
        array<float, once> f;
        for (int j = 0; j < once; j++)
            f.x[j] = e.x[i + j];
        store_array(to + i * LANES, f);
    }
}

static __device__ stage_ptrs stage_of(const layout &l, const smem_layout &d, int stage)
{
    smem_arena at = {d.stages + stage * arena_bytes<alloc_stage>(l, true), 0};
    return alloc_stage(&at, l, true);
}

/* A consumer's first row in the slots of a subsegment. */
struct slot_ptr {
    float *first; /* the state before all steps */
    int next;     /* offset to the state after a step */
};

static __device__ slot_ptr slot_ptr_of(const layout &l, const work_coord &p, const smem_layout &d,
                                       int half)
{
    const int state = l.rows * l.width;
    return {d.slots + (half ? (slots_of(l) - 1) * state : 0) + p.row * l.width,
            half ? -state : state};
}

} /* namespace e74_rows */

#endif
