/* dual_memory_persistent.cuh - a cluster of blocks runs all steps of dual_memory for four or eight
 * sequences: work distribution, products y = W x, and the exchange between blocks.
 *
 * A block has two warp roles.  Each of up to 8 column warps has 8 columns of every vector and of
 * the tape, for four sequences: lane l has column l / 4 of sequence l % 4 (and of sequence l % 4 +
 * 4 where QUADS is 2), with all slots of the tape.  The column warps of a cluster cover all D
 * columns.  The last four warps of a block are the attention warps: they compute the softmax or
 * entmax, one sequence of each four per warp.  They need few registers: setmaxnreg gives the rest
 * to the column warps.  The roles synchronise by named barriers: the producer executes bar.arrive,
 * the consumer bar.sync. */
#ifndef DUAL_MEMORY_PERSISTENT_CUH
#define DUAL_MEMORY_PERSISTENT_CUH

#include <stdio.h>

#include "gpu/device/launch.cuh"
#include "gpu/dual_memory/persistent_attention.cuh"
#include "gpu/dual_memory/persistent_product.cuh"

namespace dual
{

/* ---- a kernel ---- */

/* Zeroes the shared memory and initialises the mbarriers, before any block uses them. */
static __device__ __forceinline__ void init_smem(const shape &s, unsigned char *smem)
{
    for (int k = s.vector + 16 * (int)threadIdx.x; k < s.weights; k += 16 * (int)blockDim.x)
        *(uint4 *)(smem + k) = {};
    if (threadIdx.x < MBARRIERS)
        mbarrier_init((uint64_t *)smem + threadIdx.x);
    __syncthreads();
    cluster_arrive();
    cluster_wait();
}

/* Runs column_role() in the column warps and attention_role() in the last warpgroup. */
template <typename PASS, typename COLUMN_ROLE, typename ATTENTION_ROLE>
static __device__ __forceinline__ void
run_roles(recurrence &r, const shape &given, unsigned char *smem, const COLUMN_ROLE &column_role,
          const ATTENTION_ROLE &attention_role)
{
    const shape s = PASS::WIDTH != 0 ? shape_of<PASS>(PASS::WIDTH, given.cluster) : given;
    if (PASS::WIDTH != 0)
        r.D = PASS::WIDTH, r.N = PASS::SLOTS;
    const int warp = (int)threadIdx.x / 32, attention_warp = warp - first_attention_warp(s);

    init_smem(s, smem);
    if (attention_warp < 0) {
        setmaxnreg_inc<(REGISTER_BUDGET - PASS::ATTENTION_REGISTERS) / 2>();
        if (warp < s.warps)
            column_role(r, s, coord_of(s, PASS::QUADS, smem));
    } else {
        setmaxnreg_dec<PASS::ATTENTION_REGISTERS>();
        attention_role(r, s, attention_lane<PASS>(s, attention_warp, smem));
    }
    handover_finish(s.cluster);
}

/* ---- launches ---- */

typedef void clusters_kernel(recurrence, shape);

static void prepare_shape(struct context *on, cluster_launch *to, const shape &s, int64_t clusters)
{
    cluster_launch_init(on, to, clusters, s.cluster, threads_of(s), s.bytes);
}

/* Sets the kernel's limits of shared memory and cluster size; *clusters: how many can be active. */
static cudaError_t prepare(struct context *on, clusters_kernel *kernel, const shape &s,
                           int *clusters)
{
    cluster_launch l;

    *clusters = 0;
    prepare_shape(on, &l, s, 1);
    CUDA(allow_smem(kernel, s.bytes));
    if (s.cluster > 8)
        CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    if (s.cluster > 1)
        return cudaOccupancyMaxActiveClusters(clusters, kernel, &l.config);
    *clusters = on->limits.sms;
    return cudaSuccess;
}

static int max_cluster_blocks(struct context *on)
{
    return cluster_max(on) > 1 ? MAX_CLUSTER_BLOCKS : 1;
}

/* The smallest cluster whose registers hold the weights, else the smallest whose registers and
 * shared memory hold them; cluster is 0 if there is none.  (Where clusters exist, there are at
 * least two blocks: one block alone cannot broadcast.) */
template <typename PASS>
static shape smallest_shape(struct context *on, int D)
{
    const int max_cluster = max_cluster_blocks(on);
    shape found = {};

    for (int cluster = max_cluster > 1 ? 2 : 1; cluster <= max_cluster; cluster *= 2) {
        const shape s = shape_of<PASS>(D, cluster);
        if (s.warps > MAX_COLUMN_WARPS || s.bytes > (int)on->limits.smem)
            continue;
        if (2 * s.slabs <= held_count<PASS>())
            return s;
        if (!found.cluster)
            found = s;
    }
    return found;
}

/* Launches with four sequences per cluster (ONE) if all clusters can be active at once; else with
 * eight (TWO), if they fit. */
template <typename ONE, typename TWO>
static int launch_clusters(struct context *on, const recurrence &r)
{
    shape s = smallest_shape<ONE>(on, r.D);
    const shape eight = smallest_shape<TWO>(on, r.D);
    clusters_kernel *kernel = ONE::kernel;
    int64_t clusters = ceil_div(r.batch, 4);
    cluster_launch l;
    int max_active;

    CUDA(prepare(on, kernel, s, &max_active));
    if (clusters > max_active && eight.cluster && TWO::QUADS == 2) {
        s = eight, kernel = TWO::kernel, clusters = ceil_div(r.batch, 8);
        CUDA(prepare(on, kernel, s, &max_active));
    }
    prepare_shape(on, &l, s, clusters);
    return cudaLaunchKernelEx(&l.config, kernel, r, s);
}

/* The maximum quads (sequences per lane) whose slots fit into a lane's registers. */
static constexpr int max_quads(int slots)
{
    return slots <= 16 ? 2 : 1;
}

typedef int launching(struct context *on, const recurrence &r);

/* The kernels of a pass. */
template <template <typename, int, int, int> class PASS, typename T>
static int launch_pass(struct context *on, const recurrence &r)
{
    return with_slots(r.N, [&](auto n) {
        return launch_clusters<PASS<T, n.value, 1, 0>, PASS<T, n.value, max_quads(n.value), 0>>(on,
                                                                                                r);
    });
}

/* The kernels of `template_d`. */
#define FIXED_WIDTH 512
#define FIXED_SLOTS 16

template <template <typename, int, int, int> class PASS>
static int launch_fixed(struct context *on, const recurrence &r)
{
    return launch_clusters<PASS<__nv_bfloat16, FIXED_SLOTS, 1, FIXED_WIDTH>,
                           PASS<__nv_bfloat16, FIXED_SLOTS, max_quads(FIXED_SLOTS), FIXED_WIDTH>>(
        on, r);
}

template <template <typename, int, int, int> class PASS, typename T>
static const char *pass_declines(struct context *on, const recurrence &r)
{
    static thread_local char why[160];
    const auto smallest = [&](auto n) { return smallest_shape<PASS<T, n.value, 1, 0>>(on, r.D); };
    const shape s = r.D > 4096 ? shape{} : with_slots(r.N, smallest);
    if (s.cluster)
        return NULL;
    snprintf(why, sizeof why,
             "dim %d with %d slots: weights and tape are more than a cluster of %d blocks can hold",
             r.D, r.N, max_cluster_blocks(on));
    return why;
}

/* The backward pass (dual_memory_persistent_back.cu), also with compile-time sizes. */
template <typename T>
int launch_backward(struct context *on, const recurrence &r);
int launch_backward_fixed(struct context *on, const recurrence &r);
template <typename T>
size_t backward_work(struct context *on, const recurrence &r);
template <typename T>
const char *backward_declines(struct context *on, const recurrence &r);

}    // namespace dual

#endif
