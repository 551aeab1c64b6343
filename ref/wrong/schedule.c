/* Kernels of schedule that are wrong (wrong.h). */
#include "common/ops/schedule.h"
#include "ref/wrong/wrong.h"

static int is_loss(const struct call *f)
{
    return f->choice[SCHEDULE_WHAT] == SCHEDULE_A_LOSS;
}

static const char *of_update(const struct call *f)
{
    return is_loss(f) ? "it is of updates" : NULL;
}

static const char *of_loss(const struct call *f)
{
    return is_loss(f) ? NULL : "it is of losses";
}

static int64_t next_of(const void *counter)
{
    return *(const int64_t *)counter + 1;
}

static int next_rate(const struct call *f)
{
    const int64_t u = next_of(ARGS(f, schedule)->u);
    return right_pass_with(f, FORWARD, PLACE(schedule, u), &u);
}

static int t_is_u(const struct call *f)
{
    return right_pass_with(f, FORWARD, PLACE(schedule, t), ARGS(f, schedule)->u);
}

static int t_late(const struct call *f)
{
    const int64_t t = next_of(ARGS(f, schedule)->t);
    return right_pass_with(f, FORWARD, PLACE(schedule, t), &t);
}

/* With another g2. */
#define OF_G2(name, other)                                                                         \
    static int name(const struct call *f)                                                          \
    {                                                                                              \
        const real g2 = *(const real *)ARGS(f, schedule)->g2;                                      \
        const real scale = *(const real *)ARGS(f, schedule)->scale, made = other;                  \
        (void)scale;                                                                               \
        return right_pass_with(f, FORWARD, PLACE(schedule, g2), &made);                            \
    }
OF_G2(clip_scaled, g2 *scale *scale)
OF_G2(clip_square, g2 *g2)
OF_G2(infinite, g2 == INFINITY ? (real)1e30 : g2)
OF_G2(not_a_number, isnan(g2) ? 0 : g2)
OF_G2(negative, g2 < 0 ? 0 : g2)

#define OF_UPDATE(id, what, pass) WRONG_PASSES(id, what, pass, NULL, .declines = of_update)
OF_UPDATE(schedule_next_rate, "the rate is the next update's", next_rate);
OF_UPDATE(schedule_t_is_u, "the bias is corrected by the updates done", t_is_u);
OF_UPDATE(schedule_t_late, "the bias is corrected by one update too many", t_late);
OF_UPDATE(schedule_clip_scaled, "the norm is that of the scaled gradients", clip_scaled);
OF_UPDATE(schedule_clip_square, "the norm is its square", clip_square);
OF_UPDATE(schedule_infinite, "only a NaN is found", infinite);
OF_UPDATE(schedule_negative, "a sum of squares below 0 is taken for 0", negative);
OF_UPDATE(schedule_nan, "only an infinity is found", not_a_number);

static int by_scale(const struct call *f, real power)
{
    const struct schedule *a = ARGS(f, schedule);
    const int e = right_forward(f);
    *(real *)a->factor *= pow(*(const real *)a->scale, power);
    return e;
}

static int not_unscaled(const struct call *f)
{
    return by_scale(f, 1);
}

/* Where nothing may lie in another's memory, as here. */
static int moved_scale(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    const int e = right_forward(f);
    *(real *)a->factor *= *(const real *)a->scale / *(const real *)a->scale_next;
    return e;
}

static int t_always(const struct call *f)
{
    *(int64_t *)ARGS(f, schedule)->t_next = next_of(ARGS(f, schedule)->t);
    return 0;
}

static int u_if_taken(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    *(int64_t *)a->u_next -= *(const int64_t *)a->skip;
    return 0;
}

static int without_end(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    real *next = a->scale_next;
    if (*next == SCHEDULE_MOST_SCALE && *(const int64_t *)a->good_next == 0 &&
        !*(const int64_t *)a->skip)
        *next = 2 * *(const real *)a->scale;
    return 0;
}

static int across(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    if (*(const int64_t *)a->skip && !*(int64_t *)a->good_next)
        *(int64_t *)a->good_next = *(const int64_t *)a->good;
    return 0;
}

WRONG_PASSES(schedule_scaled, "the scale is not taken out of the factor", not_unscaled, NULL,
             .declines = of_update);
WRONG_PASSES(schedule_moved_scale, "the factor has the scale of the next update", moved_scale, NULL,
             .declines = of_update);
WRONG_AFTER(schedule_t_always, "an update that is skipped counts for the bias", FORWARD, t_always,
            .declines = of_update);
WRONG_AFTER(schedule_u_if_taken, "an update that is skipped does not count", FORWARD, u_if_taken,
            .declines = of_update);
WRONG_AFTER(schedule_without_end, "the scale grows without end", FORWARD, without_end,
            .declines = of_update);
WRONG_AFTER(schedule_across, "good updates are counted across one that was not", FORWARD, across,
            .declines = of_update);
WRONG_CALL(schedule_grows_late, "the scale grows one update late", DIM(&g, 'G')++,
           .declines = of_update);
WRONG_CALL(schedule_fixed, "the scale does not move", g.choice[SCHEDULE_LOSS_SCALE] = SCALE_FIXED,
           .declines = of_update);
WRONG_CALL(schedule_no_clip, "nothing is clipped", g.real[SCHEDULE_CLIP] = 0,
           .declines = of_update);

static int mean_of_rows(const struct call *f)
{
    const int64_t rows = DIM(f, 'R');
    return right_pass_with(f, FORWARD, PLACE(schedule, count), &rows);
}

static int count_of_none(const struct call *f)
{
    const struct schedule *a = ARGS(f, schedule);
    const int64_t count = *(const int64_t *)a->count;
    for (int64_t r = 0; count <= 0 && r < DIM(f, 'R'); r++)
        ((real *)a->d_row)[r] = *(const real *)a->scale / (real)count;
    return 0;
}

WRONG_PASSES(schedule_mean_of_rows, "rows without a target count", mean_of_rows, NULL,
             .declines = of_loss);
WRONG_AFTER(schedule_count_of_none, "where no row has a target the gradient is infinite", FORWARD,
            count_of_none, .declines = of_loss);

WRONG_KERNELS(schedule, &schedule_next_rate, &schedule_t_is_u, &schedule_t_late,
              &schedule_clip_scaled, &schedule_clip_square, &schedule_infinite, &schedule_nan,
              &schedule_negative, &schedule_scaled, &schedule_moved_scale, &schedule_t_always,
              &schedule_u_if_taken, &schedule_without_end, &schedule_across, &schedule_grows_late,
              &schedule_fixed, &schedule_no_clip, &schedule_mean_of_rows, &schedule_count_of_none);
