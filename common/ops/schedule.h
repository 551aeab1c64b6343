/* schedule: what an update needs of the ones before it, made where the update runs, so that a graph that is
 * launched again goes on.
 *
 * what = update: the scalars of a step of adamw (adamw.h), from the sum g2 of the squares of all gradients,
 * which are `scale` times too large; of U updates u are done, and t of them changed the parameters:
 *
 *     found   = g2 is NaN, infinite or below 0, or scale is not above 0 or infinite
 *     lost    = u or t is not within 0 ... U - 1
 *     skip    = found or lost
 *     rate    = rates[u], unbias1 = unbias1s[t], unbias2 = unbias2s[t]; NaN if lost
 *     norm    = sqrt(g2) / scale
 *     factor  = min(1, clip / (norm + 1e-6)) / scale; with clip = 0, and if found, 1 / scale
 *     u_next  = u + 1, t_next = t + not skip
 *     loss_scale = fixed: scale_next = scale, good_next = found ? 0 : good + 1
 *     dynamic, with good' = good + 1 updates running in which nothing was found:
 *         found:           scale_next = scale / 2,             good_next = 0
 *         good' >= growth: scale_next = min(2 scale, 2^24),    good_next = 0
 *         else:            scale_next = scale,                 good_next = good'
 *
 * A scale below 1 says that the run has diverged.
 *
 * what = loss: the gradient of each of R rows' losses, d_row = scale / count, of `count` rows with a target;
 * 0 where there is none. */
#ifndef COMMON_OPS_SCHEDULE_H
#define COMMON_OPS_SCHEDULE_H

struct schedule {
    void *rates, *unbias1s, *unbias2s; /* [U] */
    void *u, *t, *good;                /* [1] */
    void *g2, *scale;                  /* [1] */
    void *count;                       /* [1] */
    void *rate, *unbias1, *unbias2, *factor, *skip;
    void *u_next, *t_next, *good_next, *scale_next;
    void *d_row; /* [R] */
};

enum {
    SCHEDULE_WHAT,
    SCHEDULE_UPDATES,
    SCHEDULE_ROWS,
    SCHEDULE_CLIP,
    SCHEDULE_LOSS_SCALE,
    SCHEDULE_GROWTH,
    SCHEDULE_BETA1,
    SCHEDULE_BETA2,
    SCHEDULE_GRADIENT,
    SCHEDULE_AT,
    SCHEDULE_COUNTED,
    SCHEDULE_TARGETS,
    SCHEDULE_SCALE
};
enum { SCHEDULE_AN_UPDATE, SCHEDULE_A_LOSS };
enum { SCALE_FIXED, SCALE_DYNAMIC };

#define SCHEDULE_MOST_SCALE 0x1p24
#define SCHEDULE_CLIP_EPS 1e-6

#endif
