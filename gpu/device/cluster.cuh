/* cluster.cuh - thread block clusters: ranks, barriers, distributed shared memory, launches; and
 * tagged values that a block stores into the shared memory of another. */
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
/* mapa: the address of the same variable in the shared memory of the cluster's block `rank`.
 * (volatile: else the compiler would move it to the first use, where it adds latency.) */
template <typename T>
static __device__ __forceinline__ T *map_shared_rank(T *place, int rank)
{
    T *there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(place), "r"(rank));
    return there;
}
/* The same as an address in the state space shared::cluster. */
static __device__ __forceinline__ unsigned smem_address_rank(const void *place, int rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(smem_address(place)), "r"(rank));
    return there;
}
/* Stores a tagged value to an address from map_shared_rank(). */
static __device__ __forceinline__ void store_relaxed_cluster(tagged *there, tagged t)
{
    asm volatile("st.relaxed.cluster.b64 [%0], %1;" ::"l"(there), "l"(pack_tagged(t)) : "memory");
}
/* Loads a tagged value from the block's own shared memory. */
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
/* A barrier of the cluster after which each thread reads the values that all have written
 * before. */
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

/* a / power, where the compiler does not know that `power` is a power of two. */
static __device__ __forceinline__ int div_pow2(int a, int power)
{
    return a >> (__ffs(power) - 1);
}

/* The rank of this block in its cluster, and the index of the cluster. */
static __device__ __forceinline__ int cluster_rank(int cluster)
{
    return (int)blockIdx.x & (cluster - 1);
}

static __device__ __forceinline__ int cluster_number(int cluster)
{
    return div_pow2((int)blockIdx.x, cluster);
}

/* ---- hand-over ---- */

/* For a recurrence whose steps are divided into chunks: block i of a cluster of n has chunks i, i +
 * n, ...  The block of a chunk stores the final state into the shared memory of the next chunk's
 * block.
 *
 * An element of the state is a tagged value, and the tag is the chunk that receives it.  The
 * receiver polls its shared memory until the tag has arrived; no barrier is needed.  The same
 * address is used again n chunks later.  By then its value has been read, because the sender has
 * waited for a value that depends on it. */

/* Marks the addresses of the n values as empty.  Called first.  handover_ready() must follow before
 * the first value is sent: it waits until all blocks of the cluster run and are initialised.  Loads
 * between the two overlap with this wait. */
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

/* Called last: no block may exit while a value is in flight to it. */
static __device__ __forceinline__ void handover_finish(int cluster)
{
    if (cluster > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

/* The same address in the block that has the next chunk.  Call it before waiting for a value, so
 * that it is not part of the latency. */
static __device__ __forceinline__ tagged *handover_next(int cluster, int chunk, tagged *arrived)
{
    return cluster > 1 ? map_shared_rank(arrived, (chunk + 1) & (cluster - 1)) : arrived;
}

/* ---- launches ---- */

/* The blocks of a cluster: 1 on a device without clusters. */
static inline int cluster_max(struct context *on)
{
    return on->properties.clusterLaunch ? CLUSTER_MAX : 1;
}

struct cluster_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute size;
};

/* Prepares a launch of `clusters` clusters of `cluster` blocks, with `shared` bytes of dynamic shared
 * memory; blocks of a cluster of 1 are launched as blocks. */
static inline void cluster_launch_init(struct context *on, cluster_launch *to, int64_t clusters,
                                       int cluster, int threads, size_t shared)
{
    *to = {};
    to->size.id = cudaLaunchAttributeClusterDimension;
    to->size.val.clusterDim.x = cluster;
    to->size.val.clusterDim.y = to->size.val.clusterDim.z = 1;
    to->config.gridDim = dim3((unsigned)(clusters * cluster));
    to->config.blockDim = dim3(threads);
    to->config.dynamicSmemBytes = shared;
    to->config.stream = on->stream;
    to->config.attrs = &to->size;
    to->config.numAttrs = cluster > 1;
}

#endif
