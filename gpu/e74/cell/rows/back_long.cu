/* back_long.cu - the backward pass of e74_cell's kernel `rows` (back_roles.cuh) where a row has at least
 * LONG lanes, and a consumer LONG_ROWS rows. */
#include "gpu/device/launch.cuh"
#include "gpu/e74/cell/rows/back_roles.cuh"

using namespace e74_rows;

template <typename T, int LANES, bool INSIDE, bool ALIGNED>
__global__ void __launch_bounds__(2 * LONG_ROLE_THREADS + LONG_PRODUCER_THREADS, 1)
    backward_long_rows(layout l)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const work_coord p = work_coord_of<LANES, 1, LONG_ROWS>(l, blockIdx.x);

    switch (warp_uniform(p.role)) {
    case REPLAY: replay<T, LANES, LONG_ROWS, INSIDE>(l, buffer); break;
    case SCAN_BACK: scan_back<LANES, LONG_ROWS, INSIDE>(l, p, buffer); break;
    default: produce<T, LANES, LONG_ROWS, INSIDE, ALIGNED>(l, p, buffer);
    }
}

/* ---- launches ---- */

/* ALIGNED: rows are multiples of four columns.  (A kernel for both would spill registers in float.) */
template <typename T, int LANES, bool ALIGNED>
static int launch(struct context *on, const layout &l)
{
    const size_t shared = arena_bytes<alloc_smem>(l);
    void (*const kernel)(layout) = l.c.z_inside ? backward_long_rows<T, LANES, true, ALIGNED>
                                                : backward_long_rows<T, LANES, false, ALIGNED>;

    CUDA(allow_smem(kernel, shared));
    kernel<<<blocks_of(l), 2 * l.role_threads + l.producer_threads, shared, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T, bool ALIGNED>
static int launch_for_lanes(struct context *on, const layout &l)
{
    return l.lanes == LONG ? launch<T, LONG, ALIGNED>(on, l) : launch<T, 2 * LONG, ALIGNED>(on, l);
}

template <typename T>
int e74_rows::launch_back_long(struct context *on, const layout &l)
{
    return l.c.columns % 4 ? launch_for_lanes<T, false>(on, l) : launch_for_lanes<T, true>(on, l);
}
#define EACH(T) template int e74_rows::launch_back_long<T>(struct context * on, const layout &l);
GPU_TYPES(EACH)
