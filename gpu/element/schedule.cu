/* The scalars of an update, by one thread: rate, corrections of the bias, factor of the gradient, whether
 * to skip, and the counters of the next; or the gradient of a loss's rows, scale / count in each. */
#include "common/ops/schedule.h"
#include "gpu/device/vector.cuh"

enum { THREADS = 256, ELEMENTS = 4 };

struct options {
    int64_t updates, growth;
    float clip;
    bool moves; /* does the scale? */
};

template <typename X>
static __device__ __forceinline__ X one(const void *x)
{
    return *(const X *)x;
}

static __device__ __forceinline__ bool within(int64_t i, int64_t n)
{
    return i >= 0 && i < n;
}

static __device__ __forceinline__ float factor_of(float g2, float scale, float clip)
{
    const float norm = sqrtf(g2) / scale, factor = clip / (norm + (float)SCHEDULE_CLIP_EPS);
    return factor < 1 ? factor : 1;
}

static __device__ __forceinline__ void move_scale(const schedule &a, const options &o, float scale,
                                                  bool found)
{
    const int64_t good = one<int64_t>(a.good) + 1;
    const bool grows = o.moves && !found && good >= o.growth;

    if (o.moves && found)
        scale /= 2;
    if (grows)
        scale = fminf(2 * scale, (float)SCHEDULE_MOST_SCALE);
    *(int64_t *)a.good_next = found || grows ? 0 : good;
    *(float *)a.scale_next = scale;
}

/* Outputs may be in the memory of inputs: all are read before. */
static __global__ void update_kernel(schedule a, options o)
{
    const int64_t u = one<int64_t>(a.u), t = one<int64_t>(a.t);
    const float g2 = one<float>(a.g2), scale = one<float>(a.scale);
    const bool found = !(g2 >= 0 && g2 < INFINITY && scale > 0 && scale < INFINITY);
    const bool lost = !within(u, o.updates) || !within(t, o.updates);

    *(float *)a.factor = (o.clip > 0 && !found ? factor_of(g2, scale, o.clip) : 1) / scale;
    *(float *)a.rate = lost ? NAN : ((const float *)a.rates)[u];
    *(float *)a.unbias1 = lost ? NAN : ((const float *)a.unbias1s)[t];
    *(float *)a.unbias2 = lost ? NAN : ((const float *)a.unbias2s)[t];
    *(int64_t *)a.skip = found || lost;
    *(int64_t *)a.u_next = u + 1;
    *(int64_t *)a.t_next = t + !(found || lost);
    move_scale(a, o, scale, found);
}

/* One vector a thread; the last threads have the elements after the last whole one. */
static __global__ void __launch_bounds__(THREADS)
    loss_kernel(const float *scale, const int64_t *count, float *d_row, int64_t R)
{
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * ELEMENTS;
    const float each = *count > 0 ? *scale / (float)*count : 0;

    if (at + ELEMENTS <= R)
        ((vec<float> *)d_row)[at / ELEMENTS] = make_vec<float>([&](int) { return each; });
    else
        for (int64_t r = at; r < R; r++)
            d_row[r] = each;
}

/* No tensor has the type T. */
template <typename T>
static int plain(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    const int64_t R = DIM(f, 'R');

    if (f->choice[SCHEDULE_WHAT] == SCHEDULE_AN_UPDATE) {
        const options o = {DIM(f, 'U'), DIM(f, 'G'), (float)f->real[SCHEDULE_CLIP],
                           f->choice[SCHEDULE_LOSS_SCALE] == SCALE_DYNAMIC};
        update_kernel<<<1, 1, 0, gpu_stream(f)>>>(*a, o);
    } else {
        loss_kernel<<<ceil_div(R, THREADS * ELEMENTS), THREADS, 0, gpu_stream(f)>>>(
            (const float *)a->scale, (const int64_t *)a->count, (float *)a->d_row, R);
    }
    return cudaGetLastError();
}

GPU_KERNEL(plain, .idea = "one thread; a vector per thread of the rows", .pass = {plain<T>, NULL});

GPU_KERNELS(schedule, IN_TYPES(plain));
