/* What a captured graph launches (launches.cuh).  An emulated pass has no graph. */
#include "common/call/machine.h"
#include "gpu/launches.cuh"

#include <stdlib.h>

#ifndef CUDA_EMULATE

/* Of one kernel node; registers is -1 where the runtime does not know its function. */
static struct launches launch_of(cudaGraphNode_t node)
{
    struct launches l = {0};
    cudaKernelNodeParams params = {};
    cudaFuncAttributes of = {};

    l.registers = -1;
    if (cudaGraphKernelNodeGetParams(node, &params) || cudaFuncGetAttributes(&of, params.func))
        return l;
    const int threads = params.blockDim.x * params.blockDim.y * params.blockDim.z;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&l.blocks_per_sm, params.func, threads,
                                                      params.sharedMemBytes))
        return l;
    l.blocks = (int64_t)params.gridDim.x * params.gridDim.y * params.gridDim.z;
    l.threads = threads;
    l.registers = of.numRegs;
    l.spills = (int)of.localSizeBytes;
    l.smem = (int)(of.sharedSizeBytes + params.sharedMemBytes);
    return l;
}

struct launches graph_launches(cudaGraph_t graph, const cudaDeviceProp *device)
{
    struct launches heaviest = {0};
    cudaGraphNode_t *node = NULL;
    size_t nodes = 0;

    heaviest.registers = -1;
    if (!cudaGraphGetNodes(graph, NULL, &nodes))
        node = (cudaGraphNode_t *)calloc(nodes ? nodes : 1, sizeof *node);
    if (!node || cudaGraphGetNodes(graph, node, &nodes))
        nodes = 0;
    for (size_t i = 0; i < nodes; i++) {
        cudaGraphNodeType type;
        if (cudaGraphNodeGetType(node[i], &type) || type != cudaGraphNodeTypeKernel)
            continue;
        struct launches l = launch_of(node[i]);
        l.n = heaviest.n + 1;
        if (l.registers < 0 || l.blocks * l.threads < heaviest.blocks * heaviest.threads)
            heaviest.n = l.n;
        else
            heaviest = l;
    }
    heaviest.sms = device->multiProcessorCount;
    heaviest.threads_per_sm = device->maxThreadsPerMultiProcessor;
    free(node);
    cudaGetLastError(); /* of a function that the runtime does not know */
    return heaviest;
}

#endif
