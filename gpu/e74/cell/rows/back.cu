/* back.cu - the backward pass of e74_cell's kernel `rows` (back_roles.cuh): how its work is laid out, its
 * launches, and the kernel of rows that have fewer than LONG lanes; back_long.cu has that of longer
 * ones. */
#include "gpu/device/launch.cuh"
#include "gpu/e74/cell/rows/back_roles.cuh"

using namespace e74_rows;

/* Whether z is inside is chosen here, so that both have the producers' code once. */
template <typename T, int LANES>
__global__ void __launch_bounds__(ROLES *ROLE_THREADS, 1) backward_rows(layout l)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const work_coord p = work_coord_of<LANES, 1, 1>(l, blockIdx.x);

    switch (warp_uniform(p.role)) {
    case REPLAY:
        if (l.c.z_inside)
            replay<T, LANES, 1, true>(l, buffer);
        else
            replay<T, LANES, 1, false>(l, buffer);
        break;
    case SCAN_BACK:
        if (l.c.z_inside)
            scan_back<LANES, 1, true>(l, p, buffer);
        else
            scan_back<LANES, 1, false>(l, p, buffer);
        break;
    default:
        if (l.c.columns % 4)
            produce<T, LANES, 1, true, false>(l, p, buffer);
        else
            produce<T, LANES, 1, true, true>(l, p, buffer);
    }
}

/* ---- launches ---- */

static bool fits(struct context *on, layout *l, int steps, int interval)
{
    l->steps = steps;
    l->interval = interval;
    return (size_t)arena_bytes<alloc_smem>(*l) <= on->limits.smem;
}

/* Subsegments have about equal length and are as long as fit into shared memory; then the interval
 * is as long as fits. */
static layout back_layout(const struct call *f)
{
    layout l = layout_of(f, {ROLES, ROLE_THREADS, 0, 1, 1});
    const cell_call &c = l.c;
    int steps = min_int(MAX_SUB_STEPS, (int)c.K), interval = MAX_INTERVAL;

    if (l.lanes >= LONG)
        l = layout_of(f, {ROLES, LONG_ROLE_THREADS, LONG_PRODUCER_THREADS, 1, LONG_ROWS});
    l.warps = l.role_threads / 32;
    while (!fits(f->context, &l, steps, 1) && steps > 1)
        steps--;
    l.subs = (int)ceil_div(c.K, steps);
    steps = (int)ceil_div(c.K, l.subs);
    while (!fits(f->context, &l, steps, interval) && interval > 1)
        interval /= 2;
    l.long_subs = (int)c.K - l.subs * (steps - 1);
    l.segments = ceil_div(c.T, c.K);
    const int left = (int)(c.T - (l.segments - 1) * c.K);
    l.total_subs = (l.segments - 1) * l.subs + 1;
    while (begin_of(l, l.total_subs - (l.segments - 1) * l.subs) < left)
        l.total_subs++;
    return l;
}

/* Sets the pointers into the workspace; returns its bytes. */
static size_t divide(layout *l, void *work)
{
    const cell_call &c = l->c;
    const int64_t all = c.T * c.BH * c.N;
    work_arena a = {(char *)work, 0};

    l->sums = take<float>(&a, l->vectors * l->parts * all);
    l->dv = take<float>(&a, l->tied_v ? all : 0);
    l->dz = take<float>(&a, c.z_inside && c.z_outside ? all : 0);
    l->sub_states = take<float>(&a, l->segments * (l->subs - 1) * c.BH * c.M);
    return a.bytes;
}

template <typename T, int LANES>
static int launch(struct context *on, const layout &l)
{
    const size_t shared = arena_bytes<alloc_smem>(l);
    void (*const kernel)(layout) = backward_rows<T, LANES>;

    CUDA(allow_smem(kernel, shared));
    kernel<<<blocks_of(l), 2 * l.role_threads + l.producer_threads, shared, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T>
static int launch_for_lanes(struct context *on, const layout &l)
{
    switch (l.lanes) {
    case 1: return launch<T, 1>(on, l);
    case 2: return launch<T, 2>(on, l);
    case 4: return launch<T, 4>(on, l);
    case 8: return launch<T, 8>(on, l);
    default: return launch_back_long<T>(on, l);
    }
}

template <typename T>
int e74_rows::backward_pass(const struct call *f)
{
    layout l = back_layout(f);

    divide(&l, f->work);
    if (l.subs > 1)
        CUDA(store_sub_states<T>(f, l));
    CUDA(launch_for_lanes<T>(f->context, l));
    return finish_keys<T>(f->context, l);
}
#define EACH(T) template int e74_rows::backward_pass<T>(const struct call *f);
GPU_TYPES(EACH)

size_t e74_rows::backward_work(const struct call *f)
{
    layout l = back_layout(f);
    return divide(&l, NULL);
}

bool e74_rows::backward_fits(const struct call *f)
{
    layout l = back_layout(f);
    return fits(f->context, &l, l.steps, l.interval);
}
