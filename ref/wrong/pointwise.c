/* Kernels of transpose, stencil1d, stencil2d, histogram, reduce, scan, silu, relu, swiglu, add
 * that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/elementwise.h"
#include "common/ops/histogram.h"
#include "common/ops/reduce.h"
#include "common/ops/scan.h"
#include "common/ops/stencil1d.h"
#include "common/ops/stencil2d.h"
#include "common/ops/transpose.h"
#include "ref/wrong/wrong.h"

/* ---- transpose ---- */

/* The elements as they lie in x. */
WRONG_UNLESS(is_no_vector, DIM(f, 'M') > 1 && DIM(f, 'N') > 1, "a vector is its own transpose")
static void transpose_reshape(const struct call *f)
{
    const struct transpose *a = ARGS(f, transpose);
    memcpy(a->out, a->x, op_count(f, PLACE(transpose, x)) * sizeof(num));
}
WRONG_AFTER(transpose_is_reshape, "out has the elements in the order of x", FORWARD,
            transpose_reshape, .declines = is_no_vector);

static void transpose_tiles(const struct call *f)
{
    num *out = ARGS(f, transpose)->out;
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), D = DIM(f, 'D');
    for (int64_t i = 0; i < DIM(f, 'B') * N * M * D; i++)
        if (i / D % M >= whole(M, 16) || i / D / M % N >= whole(N, 16))
            out[i] = store(0);
}
WRONG_AFTER(transpose_tail_lost, "only whole tiles of 16 x 16 are written", FORWARD,
            transpose_tiles);

WRONG_UNLESS(several_matrices, DIM(f, 'B') > 1, "one matrix")
static void transpose_no_stride(const struct call *f)
{
    num *out = ARGS(f, transpose)->out;
    const int64_t n = DIM(f, 'M') * DIM(f, 'N') * DIM(f, 'D');
    for (int64_t b = 1; b < DIM(f, 'B'); b++)
        memcpy(out + b * n, out, n * sizeof *out);
}
WRONG_AFTER(transpose_first_matrix, "x has no stride: all of out is the first matrix", FORWARD,
            transpose_no_stride, .declines = several_matrices);

/* The kernel of forward, M and N as there. */
static void transpose_back_as_forward(const struct call *f)
{
    const struct transpose *d = GRADS(f, transpose);
    const num *dout = d->out;
    num *dx = d->x;
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), D = DIM(f, 'D');
    for (int64_t i = 0; i < DIM(f, 'B') * M * N; i++)
        memcpy(dx + i * D, dout + (i / (M * N) * M * N + i % M * N + i / M % N) * D,
               D * sizeof *dx);
}
WRONG_UNLESS(is_not_square, DIM(f, 'M') != DIM(f, 'N') && !is_no_vector(f), "rows = columns")
WRONG_AFTER(transpose_sizes_back, "backward has the sizes of forward", BACKWARD,
            transpose_back_as_forward, .declines = is_not_square);

/* The D elements of each entry in the opposite order. */
static void transpose_turned(const struct call *f)
{
    num *out = ARGS(f, transpose)->out;
    const int64_t D = DIM(f, 'D');
    for (int64_t i = 0; i < op_count(f, PLACE(transpose, out)); i += D)
        for (int64_t d = 0; d < D / 2; d++) {
            const num first = out[i + d];
            out[i + d] = out[i + D - 1 - d];
            out[i + D - 1 - d] = first;
        }
}
WRONG_UNLESS(wide_entries, DIM(f, 'D') > 1, "width = 1")
WRONG_AFTER(transpose_entry_reversed, "the elements that stay together are reversed", FORWARD,
            transpose_turned, .declines = wide_entries);

/* The whole of a row of N D elements transposed, one by one: out [B,N D,M]. */
static int transpose_elements_run(const struct call *f, enum pass p)
{
    struct call g = *f;
    DIM(&g, 'N') *= DIM(f, 'D');
    DIM(&g, 'D') = 1;
    return right_pass(&g, p);
}
WRONG_UNLESS(wide_in_rows, DIM(f, 'D') > 1 && DIM(f, 'M') > 1, "width = 1, or one row")
WRONG_RUN(transpose_elements, "width is taken for further columns", .declines = wide_in_rows);

/* Of an entry only whole vectors of 4 are copied. */
static void transpose_entry_tails(const struct call *f)
{
    num *out = ARGS(f, transpose)->out;
    const int64_t D = DIM(f, 'D');
    for (int64_t i = 0; i < op_count(f, PLACE(transpose, out)); i++)
        if (i % D >= whole(D, 4))
            out[i] = store(0);
}
WRONG_UNLESS(no_whole_entries, DIM(f, 'D') > 4 && DIM(f, 'D') % 4,
             "width = 4 or a multiple, or less")
WRONG_AFTER(transpose_entry_tail_lost, "of what stays together only whole vectors are written",
            FORWARD, transpose_entry_tails, .declines = no_whole_entries);

WRONG_KERNELS(transpose, &transpose_is_reshape, &transpose_tail_lost, &transpose_first_matrix,
              &transpose_sizes_back, &transpose_entry_reversed, &transpose_elements,
              &transpose_entry_tail_lost);

/* ---- stencil1d, stencil2d ---- */

/* The weight of element k of n in the mean around i, on each axis; what the sum is divided by. */
struct stencil_way {
    int64_t (*weight)(int64_t i, int64_t k, int64_t n, int64_t R);
    int inside; /* by the weights of the elements that there are */
};

static int64_t one(int64_t i, int64_t k, int64_t n, int64_t R)
{
    (void)i, (void)k, (void)n, (void)R;
    return 1;
}

/* The first and the last element are those beyond them as well. */
static int64_t clamped(int64_t i, int64_t k, int64_t n, int64_t R)
{
    return 1 + (k == 0 && i < R ? R - i : 0) + (k == n - 1 && i + R >= n ? i + R - (n - 1) : 0);
}

/* Of a block of 16 elements the ones behind it are not loaded. */
static int64_t no_right_halo(int64_t i, int64_t k, int64_t n, int64_t R)
{
    (void)n, (void)R;
    return k / 16 <= i / 16;
}

static int64_t below_radius(int64_t i, int64_t k, int64_t n, int64_t R)
{
    (void)n;
    return k - i < R || R == 0;
}

/* The mean around element (i, j) of x [H,W], with radius `down` and `across`. */
static real stencil_mean(const num *x, int64_t i, int64_t j, const int64_t size[2],
                         const int64_t radius[2], const struct stencil_way *way)
{
    const int64_t H = size[0], W = size[1], down = radius[0], across = radius[1];
    real sum = 0, inside = 0;

    for (int64_t k = i > down ? i - down : 0; k < H && k <= i + down; k++)
        for (int64_t l = j > across ? j - across : 0; l < W && l <= j + across; l++) {
            const real w = (real)(way->weight(i, k, H, down) * way->weight(j, l, W, across));
            sum += w * load(x[k * W + l]);
            inside += w;
        }
    return sum / (way->inside ? inside : (real)(2 * down + 1) * (real)(2 * across + 1));
}

static int stencil(const struct call *f, const num *x, num *y, const struct stencil_way *way)
{
    const int two = f->op->arg[0].shape[2] != 0;
    const int64_t size[] = {two ? DIM(f, 'H') : 1, two ? DIM(f, 'W') : DIM(f, 'N')};
    const int64_t radius[] = {two ? DIM(f, 'R') : 0, DIM(f, 'R')}, n = size[0] * size[1];

    for (int64_t i = 0; i < DIM(f, 'B') * n; i++)
        y[i] = store(stencil_mean(x + i / n * n, i % n / size[1], i % size[1], size, radius, way));
    return 0;
}

#define STENCIL(name, what, ...)                                                                   \
    static int name##_way(const struct call *f, const void *x, void *y)                            \
    {                                                                                              \
        return stencil(f, x, y, &(const struct stencil_way){__VA_ARGS__});                         \
    }                                                                                              \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        return name##_way(f, ARGS(f, stencil1d)->x, ARGS(f, stencil1d)->y);                        \
    }                                                                                              \
    static int name##_backward(const struct call *f)                                               \
    {                                                                                              \
        return name##_way(f, GRADS(f, stencil1d)->y, GRADS(f, stencil1d)->x);                      \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, name##_backward)

/* struct stencil2d has the same members. */
STENCIL(stencil_edges_repeat, "beyond an edge is its element, not zero", clamped, 0);
STENCIL(stencil_mean_inside, "at an edge the sum is divided by the number of elements inside", one,
        1);
STENCIL(stencil_halo_lost, "what is behind a block of 16 is not in its sums", no_right_halo, 0);
STENCIL(stencil_short, "the last neighbour is not in the sum", below_radius, 0);

WRONG_KERNELS(stencil1d, &stencil_edges_repeat, &stencil_mean_inside, &stencil_halo_lost,
              &stencil_short);
WRONG_KERNELS(stencil2d, &stencil_edges_repeat, &stencil_mean_inside, &stencil_halo_lost,
              &stencil_short);

/* ---- histogram ---- */

static void last_bin_closed(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const num *x = a->x;
    for (int64_t i = 0; i < DIM(f, 'N'); i++)
        if (load(x[i]) == 1) {
            ((int64_t *)a->outside)[HISTOGRAM_ABOVE]--;
            ((int64_t *)a->counts)[DIM(f, 'M') - 1]++;
        }
}
WRONG_AFTER(histogram_closed, "1 is in the last bin, as NumPy has it", FORWARD, last_bin_closed);

static void outside_in_bins(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    int64_t *counts = a->counts, *outside = a->outside;
    counts[0] += outside[HISTOGRAM_BELOW];
    counts[DIM(f, 'M') - 1] += outside[HISTOGRAM_ABOVE];
    outside[HISTOGRAM_BELOW] = outside[HISTOGRAM_ABOVE] = 0;
}
WRONG_AFTER(histogram_clamped, "elements outside are in the first and the last bin", FORWARD,
            outside_in_bins);

static void nan_is_below(const struct call *f)
{
    int64_t *outside = ARGS(f, histogram)->outside;
    outside[HISTOGRAM_BELOW] += outside[HISTOGRAM_NAN];
    outside[HISTOGRAM_NAN] = 0;
}
WRONG_AFTER(histogram_nan_below, "a NaN counts as below 0", FORWARD, nan_is_below);

static void counts_in_bytes(const struct call *f)
{
    int64_t *counts = ARGS(f, histogram)->counts;
    for (int64_t k = 0; k < DIM(f, 'M'); k++)
        counts[k] %= 256;
}
WRONG_AFTER(histogram_bytes, "counts are bytes, which overflow", FORWARD, counts_in_bytes);

static int histogram_of_products(const struct call *f)
{
    const struct histogram *a = ARGS(f, histogram);
    const num *x = a->x;
    const int64_t M = DIM(f, 'M');
    int64_t *counts = a->counts, *outside = a->outside;

    memset(counts, 0, M * sizeof *counts);
    memset(outside, 0, HISTOGRAM_KINDS * sizeof *outside);
    for (int64_t i = 0; i < DIM(f, 'N'); i++) {
        const float xi = (float)load(x[i]), at = floorf(xi * (float)M);
        if (xi >= 0 && xi < 1)
            counts[at < (float)M ? (int64_t)at : M - 1]++;
        else
            outside[xi < 0 ? HISTOGRAM_BELOW : xi >= 1 ? HISTOGRAM_ABOVE : HISTOGRAM_NAN]++;
    }
    return 0;
}
WRONG_PASSES(histogram_rounded, "the bin is the floor of a rounded product", histogram_of_products,
             NULL);

WRONG_KERNELS(histogram, &histogram_closed, &histogram_clamped, &histogram_nan_below,
              &histogram_bytes, &histogram_rounded);

/* ---- reduce ---- */

/* y has R elements, each computed from N of x. */
struct rows {
    int64_t R, N;
};

static struct rows rows_of(const struct call *f)
{
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');
    return f->choice[REDUCE_OVER] == REDUCE_ALL ? (struct rows){1, R * N} : (struct rows){R, N};
}

#define REDUCE_ONLY(name, kind)                                                                    \
    WRONG_UNLESS(name, f->choice[REDUCE_KIND] == kind, "another kind of reduction")
REDUCE_ONLY(reduces_max, REDUCE_MAX)
REDUCE_ONLY(reduces_mean, REDUCE_MEAN)
REDUCE_ONLY(reduces_norm2, REDUCE_NORM2)
REDUCE_ONLY(reduces_sum, REDUCE_SUM)

static void mean_of_vectors(const struct call *f)
{
    const struct rows s = rows_of(f);
    num *y = ARGS(f, reduce)->y;
    for (int64_t r = 0; r < s.R; r++)
        y[r] = store(load(y[r]) * s.N / ((s.N + 7) / 8 * 8));
}
WRONG_AFTER(reduce_padded_mean, "the mean is over a length that is a multiple of 8", FORWARD,
            mean_of_vectors, .declines = reduces_mean);

static void sum_of_vectors(const struct call *f)
{
    const struct rows s = rows_of(f);
    const num *x = ARGS(f, reduce)->x;
    num *y = ARGS(f, reduce)->y;
    for (int64_t r = 0; r < s.R; r++) {
        real sum = 0;
        for (int64_t i = 0; i < whole(s.N, 8); i++)
            sum += load(x[r * s.N + i]);
        y[r] = store(sum);
    }
}
WRONG_AFTER(reduce_tail_lost, "elements behind the last multiple of 8 are not in the sum", FORWARD,
            sum_of_vectors, .declines = reduces_sum);

static void sum_rounded(const struct call *f)
{
    const struct rows s = rows_of(f);
    const num *x = ARGS(f, reduce)->x;
    num *y = ARGS(f, reduce)->y;
    for (int64_t r = 0; r < s.R; r++) {
        float sum = 0;
        for (int64_t i = 0; i < s.N; i++)
            sum = from_bf16(to_bf16(sum + (float)load(x[r * s.N + i])));
        y[r] = store(sum);
    }
}
WRONG_AFTER(reduce_bf16_sum, "the sum is rounded to bf16 at each addition", FORWARD, sum_rounded,
            .declines = reduces_sum);

/* By fmaxf(): -inf where all elements are NaN. */
static void max_of_numbers(const struct call *f)
{
    const struct rows s = rows_of(f);
    const num *x = ARGS(f, reduce)->x;
    num *y = ARGS(f, reduce)->y;
    for (int64_t r = 0; r < s.R; r++) {
        real largest = -INFINITY;
        for (int64_t i = 0; i < s.N; i++)
            largest = load(x[r * s.N + i]) > largest ? load(x[r * s.N + i]) : largest;
        y[r] = store(largest);
    }
}
WRONG_AFTER(reduce_max_drops_nan, "a NaN is never the maximum", FORWARD, max_of_numbers,
            .declines = reduces_max);

/* The lanes without an element have 0. */
static void max_with_zero(const struct call *f)
{
    const struct rows s = rows_of(f);
    num *y = ARGS(f, reduce)->y;
    for (int64_t r = 0; s.N % 32 && r < s.R; r++)
        y[r] = store(load(y[r]) < 0 ? 0 : load(y[r]));
}
WRONG_AFTER(reduce_max_of_0, "where a row is no multiple of 32, 0 is one of its elements", FORWARD,
            max_with_zero, .declines = reduces_max);

static void max_to_ties(const struct call *f)
{
    const struct rows s = rows_of(f);
    const num *x = ARGS(f, reduce)->x, *y = ARGS(f, reduce)->y, *dy = GRADS(f, reduce)->y;
    num *dx = GRADS(f, reduce)->x;
    for (int64_t i = 0; i < s.R * s.N; i++)
        if (load(x[i]) == load(y[i / s.N]))
            dx[i] = dy[i / s.N];
}
WRONG_AFTER(reduce_all_ties, "all that are the maximum get dy", BACKWARD, max_to_ties,
            .declines = reduces_max);

static void norm_of_zeros(const struct call *f)
{
    const struct rows s = rows_of(f);
    const num *y = ARGS(f, reduce)->y;
    num *dx = GRADS(f, reduce)->x;
    for (int64_t i = 0; i < s.R * s.N; i++)
        if (load(y[i / s.N]) == 0)
            dx[i] = store(NAN);
}
WRONG_AFTER(reduce_norm2_of_0, "where the norm is 0 dx is 0 / 0", BACKWARD, norm_of_zeros,
            .declines = reduces_norm2);

WRONG_KERNELS(reduce, &reduce_padded_mean, &reduce_tail_lost, &reduce_bf16_sum,
              &reduce_max_drops_nan, &reduce_max_of_0, &reduce_all_ties, &reduce_norm2_of_0);

/* ---- scan ---- */

WRONG_CALL(scan_other_kind, "inclusive sums for exclusive ones, and those for these",
           g.choice[SCAN_KIND] = !g.choice[SCAN_KIND]);

/* Scans of chunks: what a chunk begins with is `carry` of what the one before began with and of its
 * sum; from the row's end where step is negative. */
enum { SCAN_CHUNK = 512 };
static void scan_chunks(const struct call *f, const num *from, num *to, int64_t step,
                        real (*carry)(real all, real chunk))
{
    const int64_t N = DIM(f, 'N');
    const int exclusive = f->choice[SCAN_KIND] == SCAN_EXCLUSIVE;

    for (int64_t r = 0; r < DIM(f, 'R'); r++) {
        real before = 0, sum = 0;
        for (int64_t i = 0; i < N; i++) {
            const int64_t at = r * N + (step > 0 ? i : N - 1 - i);
            if (i && i % SCAN_CHUNK == 0) {
                before = carry(before, sum);
                sum = 0;
            }
            to[at] = store(before + sum + (exclusive ? 0 : load(from[at])));
            sum += load(from[at]);
        }
    }
}

static real no_carry(real all, real chunk)
{
    (void)all, (void)chunk;
    return 0;
}

static real carry_of_one(real all, real chunk)
{
    (void)all;
    return chunk;
}

static real carry_twice(real all, real chunk)
{
    return 2 * all + chunk;
}

#define SCAN(name, what, carry)                                                                    \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        scan_chunks(f, ARGS(f, scan)->x, ARGS(f, scan)->y, 1, carry);                              \
        return 0;                                                                                  \
    }                                                                                              \
    static int name##_backward(const struct call *f)                                               \
    {                                                                                              \
        scan_chunks(f, GRADS(f, scan)->y, GRADS(f, scan)->x, -1, carry);                           \
        return 0;                                                                                  \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, name##_backward, .declines = has_chunks)

WRONG_UNLESS(has_chunks, DIM(f, 'N') > SCAN_CHUNK, "one chunk")
SCAN(scan_restarts, "the sums start again at each chunk of 512", no_carry);
SCAN(scan_carries_one, "a chunk of 512 carries the sum of the one before alone", carry_of_one);
SCAN(scan_carries_twice, "a chunk's sum has what was carried to it in it already", carry_twice);

static void scan_from_the_start(const struct call *f)
{
    scan_chunks(f, GRADS(f, scan)->y, GRADS(f, scan)->x, 1, carry_twice);
}
WRONG_UNLESS(has_one_chunk, DIM(f, 'N') <= SCAN_CHUNK, "several chunks")
WRONG_AFTER(scan_prefix_back, "dx is the sum of dy up to it, not from it on", BACKWARD,
            scan_from_the_start, .declines = has_one_chunk);

WRONG_KERNELS(scan, &scan_other_kind, &scan_restarts, &scan_carries_one, &scan_carries_twice,
              &scan_prefix_back);

/* ---- silu, relu ---- */

/* y of x, and dx of x, y and dy, element by element. */
static int unary_forward(const struct call *f, real (*of)(real x))
{
    const num *x = ARGS(f, unary)->x;
    num *y = ARGS(f, unary)->y;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        y[i] = store(of(load(x[i])));
    return 0;
}

static int unary_backward(const struct call *f, real (*slope)(real x, real y))
{
    const num *x = ARGS(f, unary)->x, *y = ARGS(f, unary)->y, *dy = GRADS(f, unary)->y;
    num *dx = GRADS(f, unary)->x;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        dx[i] = store(load(dy[i]) * slope(load(x[i]), load(y[i])));
    return 0;
}

#define WRONG_VALUE(name, what, of)                                                                \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        return unary_forward(f, of);                                                               \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, right_backward)
#define WRONG_SLOPE(name, what, of)                                                                \
    static int name##_backward(const struct call *f)                                               \
    {                                                                                              \
        return unary_backward(f, of);                                                              \
    }                                                                                              \
    WRONG_PASSES(name, what, right_forward, name##_backward)

static real quick_silu(real x)
{
    return x * sigmoid((real)1.702 * x);
}
WRONG_VALUE(silu_quick_gelu, "y = x sigmoid(1.702 x)", quick_silu);

static real hard_silu(real x)
{
    const real gate = x / 6 + (real)0.5;
    return x * (gate < 0 ? 0 : gate > 1 ? 1 : gate);
}
WRONG_VALUE(silu_hard, "y = x min(max(x / 6 + 1/2, 0), 1)", hard_silu);

static real silu_by_exp(real x)
{
    return x * exp(x) / (1 + exp(x));
}
WRONG_VALUE(silu_overflows, "y = x exp(x) / (1 + exp(x)), which overflows", silu_by_exp);

static real silu_slope(real z)
{
    const real gate = sigmoid(z);
    return gate * (1 + z * (1 - gate));
}

static real silu_slope_of_y(real x, real y)
{
    (void)x;
    return silu_slope(y);
}
WRONG_SLOPE(silu_slope_at_y, "the slope is taken at y", silu_slope_of_y);

static real silu_gate(real x, real y)
{
    (void)y;
    return sigmoid(x);
}
WRONG_SLOPE(silu_gate_is_constant, "dx takes the sigmoid for a constant", silu_gate);

WRONG_KERNELS(silu, &silu_quick_gelu, &silu_hard, &silu_overflows, &silu_slope_at_y,
              &silu_gate_is_constant);

static real relu_of_numbers(real x)
{
    return x > 0 ? x : 0;
}
WRONG_VALUE(relu_drops_nan, "relu of NaN is 0", relu_of_numbers);

static real relu_by_product(real x)
{
    return x * (x > 0);
}
WRONG_VALUE(relu_times_mask, "y = x (x > 0), of -inf NaN", relu_by_product);

static real leaky_relu(real x)
{
    return x < 0 ? (real)0.01 * x : x;
}
WRONG_VALUE(relu_leaky, "y = 0.01 x below 0", leaky_relu);

static real relu_slope_1(real x, real y)
{
    (void)y;
    return !(x < 0);
}
WRONG_SLOPE(relu_slope_at_0, "the slope at 0 is 1", relu_slope_1);

static real relu_of_dy(real x, real y)
{
    (void)x, (void)y;
    return 1;
}
WRONG_SLOPE(relu_slope_everywhere, "dx is dy where x is below 0, too", relu_of_dy);

WRONG_KERNELS(relu, &relu_drops_nan, &relu_times_mask, &relu_leaky, &relu_slope_at_0,
              &relu_slope_everywhere);

/* ---- swiglu ---- */

static void exchange(void **x)
{
    void *const a = x[PLACE(swiglu, a)];
    x[PLACE(swiglu, a)] = x[PLACE(swiglu, b)];
    x[PLACE(swiglu, b)] = a;
}
WRONG_CALL(swiglu_exchanged, "y = a silu(b): gate and value are exchanged",
           (exchange(g.arg), exchange(g.grad)));

static int swiglu_of(const struct call *f, real (*gate)(real a))
{
    const num *a = ARGS(f, swiglu)->a, *b = ARGS(f, swiglu)->b;
    num *y = ARGS(f, swiglu)->y;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        y[i] = store(gate(load(a[i])) * load(b[i]));
    return 0;
}

static int swiglu_glu_forward(const struct call *f)
{
    return swiglu_of(f, sigmoid);
}
WRONG_PASSES(swiglu_is_glu, "y = sigmoid(a) b", swiglu_glu_forward, right_backward);

static int swiglu_by_exp(const struct call *f)
{
    return swiglu_of(f, silu_by_exp);
}
WRONG_PASSES(swiglu_overflows, "y = a exp(a) / (1 + exp(a)) b, which overflows", swiglu_by_exp,
             right_backward);

static void swiglu_without_b(const struct call *f)
{
    const num *a = ARGS(f, swiglu)->a, *dy = GRADS(f, swiglu)->y;
    num *da = GRADS(f, swiglu)->a;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        da[i] = store(load(dy[i]) * silu_slope(load(a[i])));
}
WRONG_AFTER(swiglu_da_without_b, "da is without the factor b", BACKWARD, swiglu_without_b);

static void swiglu_of_gate(const struct call *f)
{
    const num *a = ARGS(f, swiglu)->a, *b = ARGS(f, swiglu)->b, *dy = GRADS(f, swiglu)->y;
    num *da = GRADS(f, swiglu)->a;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        da[i] = store(load(dy[i]) * load(b[i]) * sigmoid(load(a[i])));
}
WRONG_AFTER(swiglu_gate_is_constant, "da takes the sigmoid for a constant", BACKWARD,
            swiglu_of_gate);

WRONG_KERNELS(swiglu, &swiglu_exchanged, &swiglu_is_glu, &swiglu_overflows, &swiglu_da_without_b,
              &swiglu_gate_is_constant);

/* ---- add ---- */

/* y from element `from` on, of these. */
static void add_from(const struct call *f, int64_t from, real (*of)(real a, real b))
{
    const num *a = ARGS(f, add)->a, *b = ARGS(f, add)->b;
    num *y = ARGS(f, add)->y;
    for (int64_t i = from; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        y[i] = store(of(load(a[i]), load(b[i])));
}

static real plus_twice(real a, real b)
{
    return a + 2 * b;
}

static void add_twice(const struct call *f)
{
    add_from(f, 0, plus_twice);
}
WRONG_AFTER(add_b_twice, "y = a + 2 b: b is added to what has it", FORWARD, add_twice);

static real first_alone(real a, real b)
{
    (void)b;
    return a;
}

static void add_vectors(const struct call *f)
{
    add_from(f, whole(DIM(f, 'M') * DIM(f, 'D'), 8), first_alone);
}
WRONG_UNLESS(add_has_a_tail, whole(DIM(f, 'M') * DIM(f, 'D'), 8) < DIM(f, 'M') * DIM(f, 'D'),
             "no elements behind the last multiple of 8")
WRONG_AFTER(add_tail_lost, "behind the last multiple of 8 elements y = a", FORWARD, add_vectors,
            .declines = add_has_a_tail);

static real half_precision(real a, real b)
{
    return from_f16(to_f16((float)(a + b)));
}

static void add_in_f16(const struct call *f)
{
    add_from(f, 0, half_precision);
}
WRONG_AFTER(add_rounded_to_f16, "the sum is rounded to fp16 before it is stored", FORWARD,
            add_in_f16, .unseen = "bf16: an fp16 has the bits of a bf16 of that size");

static void add_to_db(const struct call *f)
{
    const num *dy = GRADS(f, add)->y;
    num *db = GRADS(f, add)->b;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        db[i] = store(2 * load(dy[i]));
}
WRONG_AFTER(add_db_twice, "db = 2 dy: dy is added to da, which is db too", BACKWARD, add_to_db);

static void add_first_row(const struct call *f)
{
    const int64_t D = DIM(f, 'D');
    const num *a = ARGS(f, add)->a, *b = ARGS(f, add)->b;
    num *y = ARGS(f, add)->y;
    for (int64_t i = D; i < DIM(f, 'M') * D; i++)
        y[i] = store(load(a[i]) + load(b[i % D]));
}
WRONG_UNLESS(add_has_rows, DIM(f, 'M') > 1, "one row")
WRONG_AFTER(add_b_is_a_bias, "b's first row is added to all of a", FORWARD, add_first_row,
            .declines = add_has_rows);

WRONG_KERNELS(add, &add_b_twice, &add_tail_lost, &add_rounded_to_f16, &add_db_twice,
              &add_b_is_a_bias);

/* ---- adamw ---- */
