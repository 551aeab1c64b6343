/* examples: a thread per row draws it step by step, by the functions that the reference has
 * (common/ops/examples.h).  A batch is made beside others' work, and takes some 10 us: what bounds it is the latency of a
 * row's words. */
#include "common/ops/examples.h"
#include "gpu/gpu.cuh"

enum { THREADS = 32 };

struct job {
    struct example_task task;
    const int64_t *counter;
    int64_t *token, *target;
};

static __global__ void __launch_bounds__(THREADS) rows_kernel(job j)
{
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r < j.task.B)
        example_row_make(&j.task, j.counter, j.token, j.target, r);
}

template <typename T>
static int forward(const struct call *f)
{
    const struct examples *a = ARGS(f, examples);
    const job j = {example_task_of(f), (const int64_t *)a->counter, (int64_t *)a->token,
                   (int64_t *)a->target};

    rows_kernel<<<ceil_div(j.task.B, THREADS), THREADS, 0, gpu_stream(f)>>>(j);
    return cudaGetLastError();
}

GPU_KERNEL(rows, .idea = "one thread per row", .pass = {forward<T>, NULL});
GPU_KERNELS(examples, IN_TYPES(rows));
