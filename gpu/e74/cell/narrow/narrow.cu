/* e74_cell, kernel `narrow`: states with short rows, blocks and factors of at most 16 columns
 * (narrow.cuh).
 *
 * Time is cut into chunks.  A block processes one chunk of one (sequence, head), or of some of its
 * state blocks where these are many.  It loads the chunk's keys into shared memory, normalises them
 * and, where the state is a factor, multiplies them by W_r and V; receives the state from the block
 * of the previous chunk; scans; sends the state on; and only then writes its results.  So
 * everything but the scan runs on many SMs in parallel, off the critical path.
 *
 * Backward processes the chunks in the same way, last chunk first.  Chunks that begin between
 * checkpoints need their initial state: before backward, a launch of the forward kernel over all
 * segments stores it. */
#include "gpu/device/launch.cuh"
#include "gpu/e74/cell/narrow/narrow.cuh"

namespace e74_narrow
{

/* Computes dV and dW_r of each sequence: sums over its chunks, first chunk first. */
__global__ void __launch_bounds__(THREADS) sum_chunks(layout l)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, M = l.c.M;
    if (i >= 2 * l.c.BH * M)
        return;
    const bool of_V = i < l.c.BH * M;
    const int64_t e = of_V ? i : i - l.c.BH * M;
    const float *from = (of_V ? l.dV : l.dW_r) + e / M * l.chunks * M + e % M;
    float sum = 0;
    #pragma unroll 8
    for (int64_t chunk = 0; chunk < l.chunks; chunk++)
        sum += from[chunk * M];
    (of_V ? l.sequence_dV : l.sequence_dW_r)[e] = sum;
}

enum { SUM_WARPS = 8 }; /* of a block; each sums every SUM_WARPS-th sequence */

/* Computes dW_r[h], or a shared dV0[h], from those of each sequence, `from`: each warp sums over
 * its sequences, then one warp sums over the warps. */
__global__ void __launch_bounds__(32 * SUM_WARPS)
    sum_sequences(layout l, const float *from, float *to)
{
    __shared__ float sums[SUM_WARPS][32];
    const int64_t heads_m = l.c.H * l.c.M, e = (int64_t)blockIdx.x * 32 + threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float sum = 0;
    #pragma unroll 8
    for (int64_t b = warp; b < l.c.BH / l.c.H && e < heads_m; b += SUM_WARPS)
        sum += from[b * heads_m + e];
    sums[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp > 0 || e >= heads_m)
        return;
    for (int i = 1; i < SUM_WARPS; i++)
        sum += sums[i][threadIdx.x];
    to[e] = sum;
}

/* ---- launches ---- */

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static size_t shared_bytes(const layout &l, bool back)
{
    return chunk_smem_of(l, back, NULL).bytes;
}

/* `back`: with the chunks of the backward pass, also for a launch of the forward kernel. */
static layout layout_of(const struct call *f, bool back)
{
    layout l = {};
    cell_call &c = l.c = cell_call_of(f);

    l.lanes = c.columns > OCTET ? 2 : 1;
    l.width = OCTET * l.lanes;
    l.groups = min_of(min_of(SCAN_THREADS / l.lanes / c.rows, KEY_WIDTH / l.width), c.N / c.rows);
    l.groups = c.lowrank ? 1 : l.groups;
    l.sets = (int)ceil_div(c.N / c.rows, l.groups);
    l.rows = l.groups * c.rows;
    l.scan_threads = padded(l.rows * l.lanes, 32);
    l.stride = (c.lowrank ? padded(c.N, OCTET) : l.groups * l.width) + 4;
    l.key_stride = c.lowrank ? l.width + 4 : l.stride;
    l.state_stride = OCTET * l.scan_threads + 4;
    l.parts = (int)ceil_div(c.rows, PART_ROWS);
    l.group_threads = c.lowrank ? 8 : 1;
    l.vectorised = c.N % 8 == 0 && l.rows % 8 == 0 && (c.lowrank || c.columns % 4 == 0);
    l.padding = c.lowrank ? 0 : l.width - c.columns;
    l.reciprocal = (int)ceil_div(1 << 16, c.columns);
    l.reads_padding = c.lowrank ? c.N % 4 != 0 : l.padding != 0;
    l.separate_dread = c.lowrank || c.z_inside;
    l.tied_v = f->choice[E74_PROJ] == E74_TIED_KVQ;
    l.steps = back ? STEPS_BACKWARD : STEPS_FORWARD;
    while (l.steps > 1 && shared_bytes(l, back) > gpu_limits(f)->smem / (back ? 1 : 2))
        l.steps /= 2;
    l.steps = (int)(l.steps < c.T ? l.steps : c.T);
    l.chunks = ceil_div(c.T, l.steps);
    const int threads_max =
        !back && l.chunks * c.BH * l.sets >= MANY_BLOCKS ? THREADS / 2 : THREADS;
    l.threads = min_of(padded(l.steps * l.rows / (l.vectorised ? 8 : 1), 32), threads_max);
    l.threads = l.threads < l.scan_threads ? l.scan_threads : l.threads;
    return l;
}

/* Are there chunks that begin between checkpoints? */
static bool needs_initial_states(const layout &l)
{
    return l.steps % l.c.K != 0 && l.chunks > 1;
}

static int64_t handover_floats(const layout &l)
{
    return l.chunks * l.c.BH * l.sets * l.scan_threads * OCTET;
}

/* The first *unsent bytes of the workspace are to be initialised to UNSENT; a ticket counter
 * begins at -1, which has the same bits.  Returns all its bytes. */
static size_t divide_workspace(layout *l, layout *initial, enum pass p, void *work, size_t *unsent)
{
    const cell_call &c = l->c;
    work_arena a = {(char *)work, 0};

    l->ticket = take<unsigned>(&a, 1);
    l->handover = take<float>(&a, handover_floats(*l));
    if (p == BACKWARD && needs_initial_states(*l)) {
        *initial = *l;
        initial->only_initial = true;
        initial->ticket = take<unsigned>(&a, 1);
        l->initial_states = initial->handover = take<float>(&a, handover_floats(*l));
    }
    *unsent = a.bytes;
    if (p == BACKWARD && c.lowrank) {
        l->dV = take<float>(&a, l->chunks * c.BH * c.M);
        l->dW_r = take<float>(&a, l->chunks * c.BH * c.M);
        l->sequence_dW_r = take<float>(&a, c.BH * c.M);
        l->sequence_dV = c.V_shared ? take<float>(&a, c.BH * c.M) : c.dV0;
    }
    return a.bytes;
}

template <typename T>
static cudaError_t launch(struct context *on, const layout &l, bool back)
{
    const size_t shared = shared_bytes(l, back);
    const kernel k = back ? backward_kernel<T>(l) : forward_kernel<T>(l);

    CUDA(allow_smem(k, shared));
    k<<<l.chunks * l.c.BH * l.sets, l.threads, shared, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct call *f)
{
    layout l = layout_of(f, false), none;
    size_t unsent;

    divide_workspace(&l, &none, FORWARD, f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent, gpu_stream(f)));
    return launch<T>(f->context, l, false);
}

static cudaError_t factor_sums(const struct call *f, const layout &l)
{
    const cell_call &c = l.c;
    const int64_t blocks = ceil_div(c.H * c.M, 32);

    sum_chunks<<<ceil_div(2 * c.BH * c.M, THREADS), THREADS, 0, gpu_stream(f)>>>(l);
    CUDA(cudaGetLastError());
    sum_sequences<<<blocks, 32 * SUM_WARPS, 0, gpu_stream(f)>>>(l, l.sequence_dW_r, c.dW_r);
    if (c.V_shared)
        sum_sequences<<<blocks, 32 * SUM_WARPS, 0, gpu_stream(f)>>>(l, l.sequence_dV, c.dV0);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    layout l = layout_of(f, true), initial = {};
    const cell_call &c = l.c;
    size_t unsent;

    divide_workspace(&l, &initial, BACKWARD, f->work, &unsent);
    CUDA(cudaMemsetAsync(f->work, 0xff, unsent, gpu_stream(f)));
    if (initial.only_initial)
        CUDA(launch<T>(f->context, initial, false));
    CUDA(launch<T>(f->context, l, true));
    if (!c.lowrank)
        return 0;
    return factor_sums(f, l);
}

static size_t work(const struct call *f, enum pass p)
{
    layout l = layout_of(f, p == BACKWARD), initial;
    size_t unsent;
    return divide_workspace(&l, &initial, p, NULL, &unsent);
}

static const char *declines(const struct call *f)
{
    const int state = f->choice[E74_STATE], nonlin = f->choice[E74_NONLIN];
    const char *no = plain_cell<float>::kernel.declines(f);

    if (no)
        return no;
    if (state != E74_BLOCKDIAG && state != E74_LOWRANK)
        return "only for state = blockdiag and lowrank";
    if (DIM(f, state == E74_LOWRANK ? 'R' : 'L') > OCTET * LANES_MAX)
        return state == E74_LOWRANK ? "rank beyond 16" : "block_size beyond 16";
    if (nonlin != E74_TANH && nonlin != E74_LINEAR)
        return "rmsnorm and frobnorm couple the rows of a state";
    const layout l = layout_of(f, true);
    if (l.scan_threads > THREADS_MAX)
        return l.lanes == 1 ? "n_state beyond 512" : "n_state beyond 256 where rank is beyond 8";
    if (shared_bytes(l, true) > gpu_limits(f)->smem)
        return "a state and the operands of a step do not fit shared memory";
    if (l.chunks * l.c.BH * l.sets > 0x7fffffff)
        return "more chunks of sequences than a grid has blocks";
    return NULL;
}

}    // namespace e74_narrow

GPU_KERNEL_OF(narrow_cell, narrow,
              .idea = "one thread per short row; blocks hand the state from chunk to chunk",
              .pass = {e74_narrow::forward<T>, e74_narrow::backward<T>}, .work = e74_narrow::work,
              .declines = e74_narrow::declines, .approximates = tanh_of<T>::APPROXIMATES,
              .unit = tanh_of<T>::UNIT);
