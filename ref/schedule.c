/* schedule: the scalars of an update, and the gradient of a loss's rows; formulas in common/ops/schedule.h. */
#include "common/ops/schedule.h"
#include "ref/ref.h"

static int within(int64_t i, int64_t n)
{
    return i >= 0 && i < n;
}

static void move_scale(const struct call *f, int found)
{
    const struct schedule *a = ARGS(f, schedule);
    const int64_t good = *(const int64_t *)a->good + 1;
    const real scale = *(const real *)a->scale;
    int64_t *good_next = a->good_next;
    real *scale_next = a->scale_next;

    *good_next = found ? 0 : good;
    *scale_next = scale;
    if (f->choice[SCHEDULE_LOSS_SCALE] == SCALE_FIXED)
        return;
    if (found) {
        *scale_next = scale / 2;
    } else if (good >= DIM(f, 'G')) {
        *scale_next = 2 * scale < SCHEDULE_MOST_SCALE ? 2 * scale : SCHEDULE_MOST_SCALE;
        *good_next = 0;
    }
}

/* Each input is read before what may lie in its memory is written. */
static void update(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    const real *rates = a->rates, *unbias1s = a->unbias1s, *unbias2s = a->unbias2s;
    const int64_t u = *(int64_t *)a->u, t = *(int64_t *)a->t, U = DIM(f, 'U');
    const real g2 = *(real *)a->g2, scale = *(real *)a->scale;
    const real clip = constant(f->real[SCHEDULE_CLIP]);
    const int found = !(g2 >= 0 && g2 < INFINITY && scale > 0 && scale < INFINITY);
    const int lost = !within(u, U) || !within(t, U);
    real factor = 1;

    if (clip > 0 && !found) {
        const real norm = special(sqrt(g2)) / scale;
        factor = clip / (norm + constant(SCHEDULE_CLIP_EPS));
        factor = factor < 1 ? factor : 1;
    }
    *(real *)a->factor = factor / scale;
    *(real *)a->rate = lost ? (real)NAN : rates[u];
    *(real *)a->unbias1 = lost ? (real)NAN : unbias1s[t];
    *(real *)a->unbias2 = lost ? (real)NAN : unbias2s[t];
    *(int64_t *)a->skip = found || lost;
    *(int64_t *)a->u_next = u + 1;
    *(int64_t *)a->t_next = t + !(found || lost);
    move_scale(f, found);
}

static void loss(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    const int64_t count = *(const int64_t *)a->count;
    const real each = count > 0 ? *(const real *)a->scale / (real)count : 0;
    real *d_row = a->d_row;

    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        d_row[r] = each;
}

static int forward(const struct call *f)
{
    if (f->choice[SCHEDULE_WHAT] == SCHEDULE_AN_UPDATE)
        update(f);
    else
        loss(f);
    return 0;
}

REF_KERNEL(schedule, "plain", "the formulas", forward, NULL);
