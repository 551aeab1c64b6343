/* launches.cuh - the kernels that a captured graph launches. */
#ifndef LAUNCHES_CUH
#define LAUNCHES_CUH

#include "gpu/gpu.cuh"

#ifndef CUDA_EMULATE

/* Their number, and the one with the most threads of those that the runtime can describe: it cannot
 * where a library launches its own. */
struct launches graph_launches(cudaGraph_t graph, const cudaDeviceProp *device);

#endif

#endif
