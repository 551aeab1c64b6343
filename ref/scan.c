/* scan: prefix sums of each row, with or without the element itself. */
#include "common/ops/scan.h"
#include "ref/ref.h"

enum { CHUNK = 256 };

/* The same where sums are backwards: each by itself, from its last element in the chunk to the
 * first, so that all of a chunk end with the same additions. */
static void scan_row_backwards(num *to, const num *from, int64_t n, int64_t step, int exclusive)
{
    real before = 0, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = i / CHUNK * CHUNK;
        if (i == begin)
            add_to(before, sum);
        sum = 0;
        for (int64_t j = i; j >= begin; j--)
            if (j < i || !exclusive)
                add_to(sum, load(from[j * step]));
        to[i * step] = store(before + sum);
        if (exclusive)
            add_to(sum, load(from[i * step]));
    }
}

/* The sums of n elements, each `step` after the one before.  Each chunk is summed by itself, so
 * that few additions have a large sum as an operand. */
static void scan_row(num *to, const num *from, int64_t n, int64_t step, int exclusive)
{
    real before = 0, sum = 0;

    if (REF(noise).order == BACKWARDS) {
        scan_row_backwards(to, from, n, step, exclusive);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        real x = load(from[i * step]);
        if (i % CHUNK == 0 && !sums_in_float()) {
            add_to(before, sum);
            sum = 0;
        }
        to[i * step] = store(before + (exclusive ? sum : sum + x));
        add_to(sum, x);
    }
}

static int forward(const struct call *f)
{
    const struct scan *a = ARGS(f, scan);
    const num *x = a->x;
    num *y = a->y;
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++)
        scan_row(y + r * N, x + r * N, N, 1, f->choice[SCAN_KIND] == SCAN_EXCLUSIVE);
    return 0;
}

/* From each row's end. */
static int backward(const struct call *f)
{
    const struct scan *g = GRADS(f, scan);
    const num *dy = g->y;
    num *dx = g->x;
    int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        int64_t last = (r + 1) * N - 1;
        scan_row(dx + last, dy + last, N, -1, f->choice[SCAN_KIND] == SCAN_EXCLUSIVE);
    }
    return 0;
}

REF_KERNEL(scan, "plain", "one element after the other", forward, backward);
