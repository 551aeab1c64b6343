/* turns.cuh - a recurrence whose time is cut into pieces that the blocks of a
 * cluster have in turn: what the walk over one piece ends with goes to the block
 * of the next, into its shared memory.
 *
 * A number travels in one word with the number of the turn that it is for: who
 * waits looks at its own place until it finds its turn there, and nobody meets
 * at a barrier.  A place is used again a round later, by one who has waited for
 * what followed from its last number. */
#ifndef TURNS_CUH
#define TURNS_CUH

#include "gpu/device/ptx.cuh"

enum { CLUSTER = 8 }; /* blocks, at most, and always a power of two */

/* a / power where the compiler does not know it for a power of two. */
static __device__ __forceinline__ int over(int a, int power)
{
    return a >> (__ffs(power) - 1);
}

/* Which block of its cluster, and which cluster. */
static __device__ __forceinline__ int cluster_rank(int cluster)
{
    return (int)blockIdx.x & (cluster - 1);
}

static __device__ __forceinline__ int cluster_number(int cluster)
{
    return over((int)blockIdx.x, cluster);
}

/* First of all; and before the first parcel goes to another block, which must
 * run and have an empty place.  Between them there is time for loads. */
static __device__ __forceinline__ void clear_places(int cluster, parcel *arrived, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        arrived[i] = {0, -1};
    __syncthreads();
    if (cluster > 1)
        cluster_arrive();
}

static __device__ __forceinline__ void all_are_clear(int cluster)
{
    if (cluster > 1)
        cluster_wait();
}

/* Last of all: nobody leaves while a parcel may be on its way to it. */
static __device__ __forceinline__ void leave_together(int cluster)
{
    if (cluster > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

/* The same place in the block that has the turn after; for before one waits. */
static __device__ __forceinline__ parcel *next_place(int cluster, int turn, parcel *arrived)
{
    return cluster > 1 ? place_of(arrived, (turn + 1) & (cluster - 1)) : arrived;
}

/* ---- launches ---- */

/* Blocks of a cluster, as far as the device in use has clusters. */
static int cluster_most(void)
{
    return gpu_properties().clusterLaunch ? CLUSTER : 1;
}

struct cluster_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute size;
};

/* `clusters` of so many blocks each. */
static void prepare_launch(cluster_launch *to, int64_t clusters, int cluster, int threads,
                           size_t shared)
{
    *to = {};
    to->size.id = cudaLaunchAttributeClusterDimension;
    to->size.val.clusterDim.x = cluster;
    to->size.val.clusterDim.y = to->size.val.clusterDim.z = 1;
    to->config.gridDim = dim3((unsigned)(clusters * cluster));
    to->config.blockDim = dim3(threads);
    to->config.dynamicSmemBytes = shared;
    to->config.stream = gpu_stream();
    to->config.attrs = &to->size;
    to->config.numAttrs = cluster > 1;
}

#endif
