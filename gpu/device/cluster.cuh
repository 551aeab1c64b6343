/* cluster.cuh - blocks of a cluster: their ranks, barriers, shared memory and launch; and how they
 * hand tagged values to each other. */
#ifndef CLUSTER_CUH
#define CLUSTER_CUH

#include "gpu/device/flags.cuh"
#include "gpu/device/smem.cuh"

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
/* A barrier of the cluster in two halves.  It orders no accesses to memory. */
static __device__ __forceinline__ void cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
/* The same place in the shared memory of the cluster's block `rank`.  (Volatile, or it would be put
 * off until the place is needed.) */
template <typename T>
static __device__ __forceinline__ T *map_shared_rank(T *place, int rank)
{
    T *there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(place), "r"(rank));
    return there;
}
/* The same as an address in the cluster's shared memory. */
static __device__ __forceinline__ unsigned smem_address_rank(const void *place, int rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(smem_address(place)), "r"(rank));
    return there;
}
/* A tagged value to a place that map_shared_rank() has found. */
static __device__ __forceinline__ void store_relaxed_cluster(tagged *there, tagged t)
{
    asm volatile("st.relaxed.cluster.b64 [%0], %1;" ::"l"(there), "l"(pack_tagged(t)) : "memory");
}
/* The tagged value in the block's own shared memory. */
static __device__ __forceinline__ tagged load_relaxed_cluster(const tagged *place)
{
    uint64_t word;
    asm volatile("ld.relaxed.cluster.shared::cta.b64 %0, [%1];"
                 : "=l"(word)
                 : "r"(smem_address(place))
                 : "memory");
    return unpack_tagged(word);
}
#else
/* Before capability 9.0 there are no clusters: a block is alone. */
static __device__ void cluster_arrive(void) {}
static __device__ void cluster_wait(void) {}
template <typename T>
static __device__ T *map_shared_rank(T *place, int)
{
    return place;
}
static __device__ void store_relaxed_cluster(tagged *place, tagged t)
{
    *place = t;
}
static __device__ tagged load_relaxed_cluster(const tagged *place)
{
    return *place;
}
#endif
/* A barrier of the cluster after which each thread reads the values that all have written before. */
static __device__ __forceinline__ void cluster_sync(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
#endif
}
#else
static inline void cluster_arrive(void) {}
static inline void cluster_wait(EMU_HERE)
{
    emu_gang_barrier("cluster_wait", here);
}
static inline void cluster_sync(EMU_HERE)
{
    emu_gang_barrier("cluster_sync", here);
}
template <typename T>
static inline T *map_shared_rank(T *place, int rank)
{
    return (T *)emu_map_shared(place, rank);
}
static inline void store_relaxed_cluster(tagged *there, tagged t)
{
    store_relaxed(there, t);
}
static inline tagged load_relaxed_cluster(const tagged *place)
{
    return load_relaxed(place);
}
#endif

/* ---- ranks ---- */

enum { CLUSTER_MAX = 8 }; /* blocks, at most, and always a power of two */

/* a / power where the compiler does not know it for a power of two. */
static __device__ __forceinline__ int div_pow2(int a, int power)
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
    return div_pow2((int)blockIdx.x, cluster);
}

/* ---- handing over ---- */

/* A recurrence whose time is cut into chunks that the blocks of a cluster have in turn: the state
 * behind one chunk goes to the block of the next, into its shared memory.
 *
 * An element is sent as a tagged value, whose tag is the chunk that it is for: the receiver polls
 * its own place until the tag is there, without a barrier.  A place is used again a round later,
 * by a sender that has waited for a value that depends on the last one there. */

/* First of all; and, before the first value goes to another block, which must
 * run and have an empty place: handover_ready().  Between them there is time for loads. */
static __device__ __forceinline__ void handover_init(int cluster, tagged *arrived, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        arrived[i] = {0, -1};
    __syncthreads();
    if (cluster > 1)
        cluster_arrive();
}

static __device__ __forceinline__ void handover_ready(int cluster)
{
    if (cluster > 1)
        cluster_wait();
}

/* Last of all: no block exits while a value may be in flight to it. */
static __device__ __forceinline__ void handover_finish(int cluster)
{
    if (cluster > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

/* The same place in the block that has the chunk after this one; to be asked before one waits. */
static __device__ __forceinline__ tagged *handover_next(int cluster, int chunk, tagged *arrived)
{
    return cluster > 1 ? map_shared_rank(arrived, (chunk + 1) & (cluster - 1)) : arrived;
}

/* ---- launches ---- */

/* Blocks of a cluster, as far as the device in use has clusters. */
static inline int cluster_max(void)
{
    return gpu_properties().clusterLaunch ? CLUSTER_MAX : 1;
}

struct cluster_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute size;
};

/* `clusters` of so many blocks each. */
static inline void cluster_launch_init(cluster_launch *to, int64_t clusters, int cluster,
                                       int threads, size_t shared)
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
