/* e74_cell, kernel `rows`, after its backward pass: adds the sums of several blocks of one
 * (sequence, head), in a fixed order, and computes the gradients of keys from those of normalised
 * keys. */
#include "gpu/e74/cell/rows/rows.cuh"

using namespace e74_rows;

enum { FINISH_THREADS = 128 };

static __device__ __forceinline__ void add(float8 *to, const float8 &e)
{
    for (int j = 0; j < OCTET; j++)
        to->x[j] += e.x[j];
}

/* The sum over the parts, first part first. */
template <int LANES, bool ALIGNED>
static __device__ __forceinline__ float8 sum_of_parts(const layout &l, int vector, int64_t at,
                                                      int columns, int lane)
{
    const int64_t all = l.c.T * l.c.BH * l.c.N;
    const float *from = l.sums + vector * l.parts * all + at;
    float8 sum = {};
    #pragma unroll 4
    for (int part = 0; part < l.parts; part++)
        add(&sum, widened(load_columns<float, LANES, ALIGNED>(from + part * all, columns, lane)));
    return sum;
}

/* Computes dk, dq and dz from the sums, and adds a tied dv to dk, with LANES threads per (step,
 * sequence, head, group). */
template <typename T, int LANES, bool ALIGNED>
__global__ void __launch_bounds__(FINISH_THREADS) finish_rows(layout l)
{
    const cell_call &c = l.c;
    const int lane = threadIdx.x % LANES, groups = c.N / c.rows;
    const int64_t item = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const bool any = item < c.T * c.BH * groups;
    const int64_t at = any ? item / groups * c.N + item % groups * c.columns : 0;
    const int columns = any ? c.columns : 0;

    float8 k = widened(load_columns<T, LANES, ALIGNED>((const T *)c.k + at, columns, lane));
    float8 dkey = sum_of_parts<LANES, ALIGNED>(l, DKEY, at, columns, lane);
    float8 dq = sum_of_parts<LANES, ALIGNED>(l, DQ, at, columns, lane);
    const float length = sqrtf(warp_sum<LANES>(dot(k, k))), r = key_scale(length);
    if (c.z_inside) {
        float8 z = widened(load_columns<T, LANES, ALIGNED>((const T *)c.z + at, columns, lane));
        float8 du = sum_of_parts<LANES, ALIGNED>(l, DU, at, columns, lane), dz;
        for (int j = 0; j < OCTET; j++) {
            dkey.x[j] = fmaf(z.x[j], du.x[j], dkey.x[j]);
            dz.x[j] = du.x[j] * (k.x[j] * r);
        }
        if (l.dz)
            add(&dz, load_floats<LANES>(l.dz + at, columns, lane));
        store_columns<T, LANES>((T *)c.dz + at, columns, lane, dz);
    }
    const float slope = key_slope(warp_sum<LANES>(dot(k, dkey)), length, r);
    for (int j = 0; j < OCTET; j++)
        dkey.x[j] = key_backward(dkey.x[j], k.x[j], r, slope);
    if (c.dq)
        store_columns<T, LANES>((T *)c.dq + at, columns, lane, dq);
    else
        add(&dkey, dq);
    if (l.dv)
        add(&dkey, load_floats<LANES>(l.dv + at, columns, lane));
    store_columns<T, LANES>((T *)c.dk + at, columns, lane, dkey);
}

/* ---- launches ---- */

template <typename T, int LANES>
static int launch(struct context *on, const layout &l)
{
    void (*const kernel)(layout) =
        l.c.columns % 4 ? finish_rows<T, LANES, false> : finish_rows<T, LANES, true>;
    const int64_t items = l.c.T * l.c.BH * (l.c.N / l.c.rows);

    kernel<<<ceil_div(items * LANES, FINISH_THREADS), FINISH_THREADS, 0, on->stream>>>(l);
    return cudaGetLastError();
}

template <typename T>
int e74_rows::finish_keys(struct context *on, const layout &l)
{
    switch (l.lanes) {
    case 1: return launch<T, 1>(on, l);
    case 2: return launch<T, 2>(on, l);
    case 4: return launch<T, 4>(on, l);
    case 8: return launch<T, 8>(on, l);
    case 16: return launch<T, 16>(on, l);
    default: return launch<T, 32>(on, l);
    }
}
#define EACH(T) template int e74_rows::finish_keys<T>(struct context *, const layout &l);
GPU_TYPES(EACH)
