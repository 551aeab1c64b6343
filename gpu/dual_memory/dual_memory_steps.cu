/* dual_memory's recurrence, kernel `steps`: several launches per step, as in published
 * designs; a CUDA graph captures them.
 *
 *     forward     W_h h by cuBLAS;  update_hidden: rho, read, h;  W_write h by cuBLAS;
 *                 write_tape: v, omega, the tape
 *     backward    replay: a segment's tapes, in one launch; then for each step
 *                 write_tape_back: domega, dv, dM;  W_write^T dv by cuBLAS;
 *                 update_hidden_back: dp, drho, dM, dh;  W_h^T dp by cuBLAS
 *
 * There is one block per sequence.  For the scores each warp has a slot, and its lanes
 * share the columns; one warp computes the softmax or entmax; then each thread has a
 * column and loops over the slots.  The width is a run-time size, so one row of shared
 * memory is dynamic.  With bf16 storage h stays in float, and so do dv and dp within the
 * step: each is split into high and low bf16, one below the other, as the operand of a
 * product, and the kernel that reads the product adds both parts.
 *
 * The kernel is bound by launch latency, and for large tapes by the bandwidth of one SM.
 * Forward and replay write the tape by the same two instructions, so gradients do not
 * depend on where checkpoints are. */
#include "gpu/device/launch.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/reduce.cuh"
#include "gpu/dual_memory/attend.cuh"
#include "gpu/dual_memory/dual_memory.cuh"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/product.cuh"

namespace dual
{

enum { THREADS = 512, WARPS = THREADS / 32, MAX_IN_FLIGHT = 16 /* loads per thread */ };

/* ---- workspace ---- */

/* The launches of a step pass on the operand of a product, in split_count() parts, and its result;
 * in the backward pass also the tapes before each step of a segment. */
template <typename T>
struct workspace {
    T *operand;     /* [split_count * B,D] */
    float *product; /* [split_count * B,D] */
    float *tapes;   /* [K,B,N,D] */
    int64_t BD;
};

template <typename T>
static constexpr __host__ __device__ int split_count(void)
{
    return storage<T>::UNIT > 0 ? 2 : 1;
}

template <typename T>
static size_t lay_out(const recurrence &r, enum pass p, workspace<T> *w)
{
    const int64_t BD = r.batch * r.D;
    work_arena a = {(char *)r.work, 0};
    T *operand = take<T>(&a, split_count<T>() * BD);
    float *product = take<float>(&a, split_count<T>() * BD);
    float *tapes = take<float>(&a, (p == BACKWARD) * r.K * r.batch * r.M);
    *w = {operand, product, tapes, BD};
    return a.bytes;
}

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    const recurrence r = recurrence_of(f);
    workspace<T> w;
    return lay_out(r, p, &w);
}

template <typename T>
static __device__ __forceinline__ void put_operand(const workspace<T> &w, int64_t i, float x)
{
    const T high = storage<T>::narrow(x);
    w.operand[i] = high;
    if constexpr (split_count<T>() == 2)
        w.operand[w.BD + i] = storage<T>::narrow(x - storage<T>::widen(high));
}

template <typename T>
static __device__ __forceinline__ float get_product(const workspace<T> &w, int64_t i)
{
    return split_count<T>() == 1 ? w.product[i] : w.product[i] + w.product[w.BD + i];
}

/* ---- both passes ---- */

/* h before step t. */
static __device__ __forceinline__ const float *h_before(const recurrence &r, int64_t t)
{
    return t ? r.h + (t - 1) * r.batch * r.D : r.h0;
}

/* sums[n] = <A_n, x - L_n> with SUBTRACT_L, else <A_n, x>; ends with a barrier.  A lane has
 * MAX_IN_FLIGHT elements of its warp's slots in flight; those out of bounds are 0. */
template <int SLOTS, bool SUBTRACT_L, typename X>
static __device__ __forceinline__ void slot_sums(const recurrence &r, const float *A, const X *x,
                                                 const float *L, float *sums)
{
    enum {
        OWN = SLOTS > WARPS ? SLOTS / WARPS : 1,
        COLUMNS = MAX_IN_FLIGHT / OWN / (SUBTRACT_L ? 2 : 1)
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum[OWN] = {};

    for (int first = lane; first < r.D; first += 32 * COLUMNS) {
        float a[COLUMNS][OWN], factor[COLUMNS][OWN];
        #pragma unroll COLUMNS
        for (int k = 0; k < COLUMNS; k++) {
            const int j = first + 32 * k;
            const float of_all = j < r.D ? load(x + j) : 0;
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++) {
                const int n = warp + i * WARPS;
                const int64_t at = (int64_t)n * r.D + j;
                const bool there = j < r.D && n < r.N;
                a[k][i] = there ? A[at] : 0;
                factor[k][i] = SUBTRACT_L && there ? of_all - L[at] : of_all;
            }
        }
        #pragma unroll COLUMNS
        for (int k = 0; k < COLUMNS; k++) {
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                sum[i] = fmaf(a[k][i], factor[k][i], sum[i]);
        }
    }
    #pragma unroll OWN
    for (int i = 0; i < OWN; i++) {
        sum[i] = warp_sum(sum[i]);
        if (lane == 0 && warp + i * WARPS < r.N)
            sums[warp + i * WARPS] = sum[i];
    }
    __syncthreads();
}

/* The lane's i-th slot; lanes beyond the first group have the slots of the first. */
template <int SLOTS>
static __device__ __forceinline__ int slot_of(int i)
{
    return i * 32 + threadIdx.x % attention<SLOTS>::GROUP;
}

/* One warp computes p = attend(scale sums) in place in shared memory, where padding gets 0, and
 * stores p to `kept`.  Ends with a barrier. */
template <int SLOTS>
static __device__ __forceinline__ void attend_slots(const recurrence &r, float *sums, float *kept)
{
    enum { OWN = attention<SLOTS>::OWN };
    if (threadIdx.x < 32) {
        float a[OWN], p[OWN];
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const int n = slot_of<SLOTS>(i);
            a[i] = n < r.N ? r.scale * sums[n] : -INFINITY;
        }
        attention<SLOTS>::attend(r.attention, p, a);
        __syncwarp();
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const int n = slot_of<SLOTS>(i);
            if (threadIdx.x >= attention<SLOTS>::GROUP)
                continue;
            sums[n] = p[i];
            if (n < r.N)
                kept[n] = p[i];
        }
    }
    __syncthreads();
}

/* Slots of a column that a thread has in flight, in each of `matrices` matrices. */
template <int SLOTS>
static constexpr __host__ __device__ int in_flight(int matrices)
{
    return SLOTS < MAX_IN_FLIGHT / matrices ? SLOTS : MAX_IN_FLIGHT / matrices;
}

/* Loads the slots from `first` on of column j, 0 out of bounds. */
template <int IN_FLIGHT>
static __device__ __forceinline__ void load_column(const recurrence &r, const float *M, int first,
                                                   int j, float (&m)[IN_FLIGHT])
{
    #pragma unroll IN_FLIGHT
    for (int i = 0; i < IN_FLIGHT; i++)
        m[i] = first + i < r.N ? M[(int64_t)(first + i) * r.D + j] : 0;
}

template <int IN_FLIGHT>
static __device__ __forceinline__ void store_column(const recurrence &r, float *M, int first, int j,
                                                    const float (&m)[IN_FLIGHT])
{
    #pragma unroll IN_FLIGHT
    for (int i = 0; i < IN_FLIGHT; i++)
        if (first + i < r.N)
            M[(int64_t)(first + i) * r.D + j] = m[i];
}

/* ---- forward ---- */

/* Stores every sequence's initial tape, and h before the first step. */
template <typename T>
__global__ void __launch_bounds__(THREADS) begin_forward(recurrence r, workspace<T> w)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < r.batch * r.M)
        r.M_T[i] = r.M0[r.each ? i : i % r.M];
    if (i < w.BD)
        put_operand(w, i, r.h0[i]);
}

/* Computes rho, read and h of step t; the product is W_h h. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(THREADS, 1) update_hidden(recurrence r, workspace<T> w, int64_t t)
{
    enum { IN_FLIGHT = in_flight<SLOTS>(1) };
    __shared__ float rho[SLOTS];
    const int64_t b = blockIdx.x, row = t * r.batch + b;
    const float *M = r.M_T + b * r.M;

    slot_sums<SLOTS, false>(r, M, h_before(r, t) + b * r.D, NULL, rho);
    attend_slots<SLOTS>(r, rho, r.rho + row * r.N);
    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        const int64_t at = row * r.D + j;
        const float rest = load((const T *)r.xp + at) + load((const T *)r.b_h + j);
        const float sum = get_product(w, b * r.D + j) + rest;
        float read = 0, m[IN_FLIGHT];
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += IN_FLIGHT) {
            load_column(r, M, first, j, m);
            #pragma unroll IN_FLIGHT
            for (int i = 0; i < IN_FLIGHT; i++)
                read = fmaf(rho[first + i], m[i], read);
        }
        if (r.read)
            store((T *)r.read + at, read);
        const float h = tanh_full(sum + read);
        r.h[at] = h;
        put_operand(w, b * r.D + j, h);
        if (t + 1 == r.steps)
            r.h_T[b * r.D + j] = h;
    }
}

/* Computes v and omega of step t, and writes the tape; the product is W_write h. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(THREADS, 1) write_tape(recurrence r, workspace<T> w, int64_t t)
{
    enum { IN_FLIGHT = in_flight<SLOTS>(1) };
    extern __shared__ __align__(16) float v[]; /* [D] */
    __shared__ float omega[SLOTS];
    const int64_t b = blockIdx.x, row = t * r.batch + b;
    float *M = r.M_T + b * r.M;

    if (t % r.K == 0)
        for (int64_t e = threadIdx.x; e < r.M; e += THREADS)
            put_kept(r, t / r.K * r.batch + b, e, M[e]);
    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        T *kept = (T *)r.v + row * r.D + j;
        store(kept, get_product(w, b * r.D + j));
        v[j] = load(kept);
    }
    __syncthreads();
    slot_sums<SLOTS, false>(r, M, r.query == DUAL_QUERY_V ? v : r.h + row * r.D, NULL, omega);
    attend_slots<SLOTS>(r, omega, r.omega + row * r.N);
    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += IN_FLIGHT) {
            float m[IN_FLIGHT];
            load_column(r, M, first, j, m);
            #pragma unroll IN_FLIGHT
            for (int i = 0; i < IN_FLIGHT; i++)
                m[i] = written(m[i], omega[first + i], v[j]);
            store_column(r, M, first, j, m);
        }
    }
}

/* ---- backward ---- */

/* Backward through p = attend(scale M q) in one warp: copies the saved p to shared memory, and
 * replaces d there, dL/dp, by dL/d(M q).  Ends with a barrier. */
template <int SLOTS>
static __device__ __forceinline__ void attend_slots_back(const recurrence &r, const float *kept,
                                                         float *p, float *d)
{
    enum { OWN = attention<SLOTS>::OWN };
    if (threadIdx.x < 32) {
        float weight[OWN], slope[OWN];
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const int n = slot_of<SLOTS>(i);
            weight[i] = n < r.N ? kept[n] : 0;
            slope[i] = n < r.N ? d[n] : 0;
        }
        attention<SLOTS>::back(r.attention, weight, slope);
        __syncwarp();
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            if (threadIdx.x < attention<SLOTS>::GROUP) {
                p[slot_of<SLOTS>(i)] = weight[i];
                d[slot_of<SLOTS>(i)] = r.scale * slope[i];
            }
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS) begin_backward(recurrence r)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < r.batch * r.M)
        r.dM[i] = r.dM_T[i];
    if (i < r.batch * r.D)
        r.dh0[i] = r.dh_T[i];
}

/* Computes the tapes before steps begin to end - 1, one element per thread. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    replay(recurrence r, workspace<T> w, int64_t begin, int64_t end)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, all = r.batch * r.M;
    if (at >= all)
        return;
    const int64_t b = at / r.M, e = at - b * r.M;
    const int n = (int)(e / r.D), j = (int)(e % r.D);
    float m = get_kept(r, begin / r.K * r.batch + b, e), *to = w.tapes + at;

    *to = m;
    #pragma unroll 4
    for (int64_t t = begin; t + 1 < end; t++) {
        const int64_t row = t * r.batch + b;
        m = written(m, r.omega[row * r.N + n], load((const T *)r.v + row * r.D + j));
        to += all;
        *to = m;
    }
}

/* The replayed tape before step t. */
template <typename T>
static __device__ __forceinline__ const float *tape(const recurrence &r, const workspace<T> &w,
                                                    int64_t t, int64_t b)
{
    return w.tapes + (t % r.K * r.batch + b) * r.M;
}

/* Computes domega of step t, then dv and dM, and dh without W_write^T dv; the product is W_h^T dp
 * of step t + 1. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(THREADS, 1)
    write_tape_back(recurrence r, workspace<T> w, int64_t t)
{
    enum { IN_FLIGHT = in_flight<SLOTS>(2) };
    __shared__ float omega[SLOTS];
    __shared__ float dgamma[SLOTS];
    const int64_t b = blockIdx.x, row = t * r.batch + b;
    const float *M = tape(r, w, t, b);
    const T *v = (const T *)r.v + row * r.D;
    float *dM = r.dM + b * r.M;
    const bool query_v = r.query == DUAL_QUERY_V;

    slot_sums<SLOTS, true>(r, dM, v, M, dgamma);
    attend_slots_back<SLOTS>(r, r.omega + row * r.N, omega, dgamma);
    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        const int64_t at = row * r.D + j, i = b * r.D + j;
        const float query = query_v ? load(v + j) : r.h[at];
        const float carry = r.dh0[i] + (t + 1 < r.steps ? get_product(w, i) : 0);
        const float dh = carry + load((const T *)r.dh + at);
        float dv = 0, dquery = 0, m[IN_FLIGHT], d[IN_FLIGHT];
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += IN_FLIGHT) {
            load_column(r, M, first, j, m);
            load_column(r, dM, first, j, d);
            #pragma unroll IN_FLIGHT
            for (int k = 0; k < IN_FLIGHT; k++) {
                const int n = first + k;
                dv = fmaf(omega[n], d[k], dv);
                dquery = fmaf(dgamma[n], m[k], dquery);
                d[k] = fmaf(dgamma[n], query, (1 - omega[n]) * d[k]);
            }
            store_column(r, dM, first, j, d);
        }
        r.dh0[i] = query_v ? dh : dh + dquery;
        dv = query_v ? dv + dquery : dv;
        store((T *)r.dv + at, dv);
        put_operand(w, i, dv);
    }
}

/* Computes dp of step t, then drho, dM, and the term of dh of step t - 1 from the scores; the
 * product is W_write^T dv. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(THREADS, 1)
    update_hidden_back(recurrence r, workspace<T> w, int64_t t)
{
    enum { IN_FLIGHT = in_flight<SLOTS>(2) };
    extern __shared__ __align__(16) float dread[]; /* [D] */
    __shared__ float rho[SLOTS];
    __shared__ float dalpha[SLOTS];
    const int64_t b = blockIdx.x, row = t * r.batch + b;
    const float *M = tape(r, w, t, b), *before = h_before(r, t) + b * r.D;
    float *dM = r.dM + b * r.M;

    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        const int64_t at = row * r.D + j, i = b * r.D + j;
        const float dp = (r.dh0[i] + get_product(w, i)) * fmaf(-r.h[at], r.h[at], 1.0f);
        store((T *)r.dp + at, dp);
        put_operand(w, i, dp);
        dread[j] = dp + (r.dread ? load((const T *)r.dread + at) : 0);
    }
    __syncthreads();
    slot_sums<SLOTS, false>(r, M, dread, NULL, dalpha);
    attend_slots_back<SLOTS>(r, r.rho + row * r.N, rho, dalpha);
    for (int j = threadIdx.x; j < r.D; j += THREADS) {
        const float h = before[j];
        float dh = 0, m[IN_FLIGHT], d[IN_FLIGHT];
        #pragma unroll 1
        for (int first = 0; first < SLOTS; first += IN_FLIGHT) {
            load_column(r, M, first, j, m);
            load_column(r, dM, first, j, d);
            #pragma unroll IN_FLIGHT
            for (int k = 0; k < IN_FLIGHT; k++) {
                const int n = first + k;
                dh = fmaf(dalpha[n], m[k], dh);
                d[k] = fmaf(dalpha[n], h, fmaf(rho[n], dread[j], d[k]));
            }
            store_column(r, dM, first, j, d);
        }
        r.dh0[b * r.D + j] = dh;
    }
}

/* Adds W_h^T dp of the first step to dh0. */
template <typename T>
__global__ void __launch_bounds__(THREADS) end_backward(recurrence r, workspace<T> w)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < w.BD)
        r.dh0[i] += get_product(w, i);
}

/* ---- launches ---- */

/* Multiplies the operand (all h, dv or dp) by W, in the forward pass by W^T. */
template <typename T>
static int multiply(struct context *on, const recurrence &r, const workspace<T> &w, const void *W,
                    bool transposed)
{
    const matrix<T> left = {w.operand, split_count<T>() * r.batch, r.D, false};
    const matrix<T> right = {(const T *)W, r.D, r.D, transposed};
    return product(on, left, right, 0, w.product);
}

/* The bytes of a row of D in dynamic shared memory; above 48 KiB the kernel's limit must be
 * raised. */
static size_t row_bytes(const recurrence &r)
{
    return r.D * sizeof(float);
}

template <typename T>
static unsigned blocks_for(T n)
{
    return (unsigned)ceil_div(n, THREADS);
}

template <typename T, int SLOTS>
static int forward_slots(struct context *on, const recurrence &r)
{
    workspace<T> w;
    const size_t row = row_bytes(r);
    int e = 0;

    lay_out(r, FORWARD, &w);
    CUDA(allow_smem(write_tape<T, SLOTS>, row));
    begin_forward<T><<<blocks_for(r.batch * r.M), THREADS, 0, on->stream>>>(r, w);
    CUDA(cudaGetLastError());
    for (int64_t t = 0; !e && t < r.steps; t++) {
        e = multiply(on, r, w, r.W_h, true);
        if (e)
            break;
        update_hidden<T, SLOTS><<<r.batch, THREADS, 0, on->stream>>>(r, w, t);
        CUDA(cudaGetLastError());
        e = multiply(on, r, w, r.W_write, true);
        if (e)
            break;
        write_tape<T, SLOTS><<<r.batch, THREADS, row, on->stream>>>(r, w, t);
        CUDA(cudaGetLastError());
    }
    return e;
}

template <typename T>
static int forward(const struct call *f)
{
    const recurrence r = recurrence_in<T>(f, FORWARD);
    return with_slots(r.N, [&](auto n) { return forward_slots<T, n.value>(f->context, r); });
}

/* Backward through step t, whose tape has been replayed. */
template <typename T, int SLOTS>
static int step_back(struct context *on, const recurrence &r, const workspace<T> &w, int64_t t)
{
    write_tape_back<T, SLOTS><<<r.batch, THREADS, 0, on->stream>>>(r, w, t);
    CUDA(cudaGetLastError());
    const int e = multiply(on, r, w, r.W_write, false);
    if (e)
        return e;
    update_hidden_back<T, SLOTS><<<r.batch, THREADS, row_bytes(r), on->stream>>>(r, w, t);
    CUDA(cudaGetLastError());
    return multiply(on, r, w, r.W_h, false);
}

template <typename T, int SLOTS>
static int backward_slots(struct context *on, const recurrence &r)
{
    const unsigned blocks = blocks_for(r.batch * r.M);
    workspace<T> w;
    int e = 0;

    lay_out(r, BACKWARD, &w);
    CUDA(allow_smem(update_hidden_back<T, SLOTS>, row_bytes(r)));
    begin_backward<<<blocks, THREADS, 0, on->stream>>>(r);
    CUDA(cudaGetLastError());
    for (int64_t end = r.steps, begin; !e && end > 0; end = begin) {
        begin = (end - 1) / r.K * r.K;
        replay<T><<<blocks, THREADS, 0, on->stream>>>(r, w, begin, end);
        CUDA(cudaGetLastError());
        for (int64_t t = end - 1; !e && t >= begin; t--)
            e = step_back<T, SLOTS>(on, r, w, t);
    }
    if (e)
        return e;
    end_backward<T><<<blocks_for(w.BD), THREADS, 0, on->stream>>>(r, w);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    const recurrence r = recurrence_in<T>(f, BACKWARD);
    return with_slots(r.N, [&](auto n) { return backward_slots<T, n.value>(f->context, r); });
}

/* ---- the kernel ---- */

enum { MAX_WIDTH = 49152 };

static const char *declines(const struct call *f)
{
    if (DIM(f, 'N') > MAX_SLOTS)
        return "slots beyond 64";
    if (DIM(f, 'D') > MAX_WIDTH)
        return "dim beyond 49152: a row does not fit into shared memory";
    return NULL;
}

GPU_KERNEL_OF(steps, steps, .idea = STEPS_IDEA, .pass = {forward<T>, backward<T>}, .work = work<T>,
              .declines = dual::declines, .approximates = "ex2.approx, rcp.approx", .unit = 3e-7,
              .stores = "d h", .cut = CUT_OFF);

}    // namespace dual
