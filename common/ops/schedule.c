/* The contract of schedule: sizes, tensors, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/schedule.h"

static const char *const whats[] = {"update", "loss", NULL};
static const char *const loss_scales[] = {"fixed", "dynamic", NULL};
static const char *const gradients[] = {"usual",    "large", "tiny",     "zero",
                                        "infinite", "nan",   "negative", NULL};
enum { USUAL, LARGE, TINY, NONE, INFINITE, NOT_A_NUMBER, NEGATIVE };
static const char *const places[] = {"any", "first", "last", "beyond", "before", "t_beyond", NULL};
enum { ANY, FIRST, LAST, BEYOND, BEFORE, T_BEYOND };
static const char *const counts[] = {"any", "due", "almost", NULL};
static const char *const targets[] = {"some", "all", "none", NULL};
static const char *const scales[] = {"any", "one", "most", "half", "zero", "nan", NULL};

static const char *unless_update(const struct call *f)
{
    return f->choice[SCHEDULE_WHAT] == SCHEDULE_AN_UPDATE ? NULL : "what is not update";
}

static const char *unless_loss(const struct call *f)
{
    return f->choice[SCHEDULE_WHAT] == SCHEDULE_A_LOSS ? NULL : "what is not loss";
}

static const char *unless_dynamic(const struct call *f)
{
    const char *other = unless_update(f);
    return other                                             ? other
           : f->choice[SCHEDULE_LOSS_SCALE] == SCALE_DYNAMIC ? NULL
                                                             : "loss_scale is not dynamic";
}

#define BETA(name_, initial_)                                                                      \
    {                                                                                              \
        .name = name_, .help = "of the tables of corrections", .aside = 1, .draw = 1,              \
        .unless = unless_update, .real = &(const struct real_range)                                \
        {                                                                                          \
            initial_, 0, 0.999999, NULL                                                            \
        }                                                                                          \
    }
#define DRAWN_OF(unless_, name_, choices_, help_)                                                  \
    {                                                                                              \
        .name = name_, .choices = choices_, .help = help_, .aside = 1, .draw = 1,                  \
        .unless = unless_                                                                          \
    }

static const struct param params[] = {
    [SCHEDULE_WHAT] = CHOICE_PARAM("what", whats, 0, "the scalars of a step, or losses' gradients"),
    [SCHEDULE_UPDATES] = {.name = "updates",
                          .letter = 'U',
                          .initial = 1000,
                          .min = 1,
                          .max = 1 << 30,
                          .help = "updates of the run",
                          .unless = unless_update},
    [SCHEDULE_ROWS] = {.name = "rows",
                       .letter = 'R',
                       .initial = 8192,
                       .min = 1,
                       .max = 1 << 30,
                       .help = "rows of losses",
                       .unless = unless_loss},
    [SCHEDULE_CLIP] = {.name = "clip",
                       .help = "the largest norm of the gradient; 0: any",
                       .unless = unless_update,
                       .real = &(const struct real_range){1, 0, 1e6, NULL}},
    [SCHEDULE_LOSS_SCALE] = {.name = "loss_scale",
                             .choices = loss_scales,
                             .help = "does the loss's scale move?",
                             .unless = unless_update},
    [SCHEDULE_GROWTH] = {.name = "growth",
                         .letter = 'G',
                         .initial = 2000,
                         .min = 1,
                         .max = 1 << 30,
                         .help = "good updates after which the scale doubles",
                         .unless = unless_dynamic},
    [SCHEDULE_BETA1] = BETA("beta1", 0.9),
    [SCHEDULE_BETA2] = BETA("beta2", 0.999),
    [SCHEDULE_GRADIENT] = DRAWN_OF(unless_update, "gradient", gradients, "how g2 is drawn"),
    [SCHEDULE_AT] = DRAWN_OF(unless_update, "at", places,
                             "the update: any, the first or last, or outside of the tables"),
    [SCHEDULE_COUNTED] = DRAWN_OF(unless_dynamic, "counted", counts,
                                  "good updates until now: any, or when it grows"),
    [SCHEDULE_TARGETS] =
        DRAWN_OF(unless_loss, "targets", targets, "rows with a target: some, all or none"),
    [SCHEDULE_SCALE] = DRAW_PARAM("scale", scales, 0,
                                  "the loss's scale: any power of 2 from 1 to "
                                  "2^24, the least, the largest, or 1/2"),
};

static const struct axis axes[] = {{'O', "one"}, {0, NULL}};

OF_CALL(int, of_update, f->choice[SCHEDULE_WHAT] == SCHEDULE_AN_UPDATE)
OF_CALL(int, of_loss, f->choice[SCHEDULE_WHAT] == SCHEDULE_A_LOSS)

/* From 1e-5 to 1e-1. */
static void draw_rates(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t U = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < U; i++)
        x[i] = pow(10, -5 + 4 * draw_uniform(key, i));
}

static void draw_corrections(const struct call *f, int64_t U, int beta, double *x)
{
    #pragma omp parallel for
    for (int64_t t = 0; t < U; t++)
        x[t] = 1 / (1 - pow(f->real[beta], (double)(t + 1)));
}

static void draw_unbias1s(const struct call *f, int arg, uint64_t key, double *x)
{
    (void)key;
    draw_corrections(f, op_count(f, arg), SCHEDULE_BETA1, x);
}

static void draw_unbias2s(const struct call *f, int arg, uint64_t key, double *x)
{
    (void)key;
    draw_corrections(f, op_count(f, arg), SCHEDULE_BETA2, x);
}

/* How many updates are done. */
static void draw_u(const struct call *f, int arg, uint64_t key, double *u)
{
    const double U = (double)DIM(f, 'U');

    (void)arg;
    switch (f->choice[SCHEDULE_AT]) {
    case FIRST: *u = 0; break;
    case LAST: *u = U - 1; break;
    case BEYOND: *u = U; break;
    case BEFORE: *u = -1; break;
    default: *u = floor(draw_uniform(key, 0) * U);
    }
}

/* Not u, but for the ends. */
static void draw_t(const struct call *f, int arg, uint64_t key, double *t)
{
    draw_u(f, arg, key, t);
    if (f->choice[SCHEDULE_AT] == LAST)
        *t = floor(draw_uniform(key, 0) * *t);
    if (f->choice[SCHEDULE_AT] == T_BEYOND)
        *t = (double)DIM(f, 'U');
}

/* `due`: the scale grows by this update, `almost`: by the next one. */
static void draw_good(const struct call *f, int arg, uint64_t key, double *good)
{
    const double G = (double)DIM(f, 'G');

    (void)arg;
    switch (f->choice[SCHEDULE_COUNTED]) {
    case 1: *good = G - 1; break;
    case 2: *good = fmax(G - 2, 0); break;
    default: *good = floor(draw_uniform(key, 0) * G);
    }
}

static void draw_scale(const struct call *f, int arg, uint64_t key, double *scale)
{
    (void)arg;
    switch (f->choice[SCHEDULE_SCALE]) {
    case 1: *scale = 1; break;
    case 2: *scale = SCHEDULE_MOST_SCALE; break;
    case 3: *scale = 0.5; break;
    case 4: *scale = 0; break;
    case 5: *scale = NAN; break;
    default: *scale = exp2(floor(draw_uniform(key, 0) * 25));
    }
}

/* Usual norms are about 1, before the gradients are scaled, half of them more. */
static void draw_g2(const struct call *f, int arg, uint64_t key, double *g2)
{
    const double norm = exp(2 * draw_normal(key, 0));

    (void)arg;
    switch (f->choice[SCHEDULE_GRADIENT]) {
    case LARGE: *g2 = 1e30 * norm; break;
    case TINY: *g2 = 1e-30 * norm; break;
    case NONE: *g2 = 0; break;
    case INFINITE: *g2 = INFINITY; break;
    case NOT_A_NUMBER: *g2 = NAN; break;
    case NEGATIVE: *g2 = -1; break;
    default: {
        double scale;
        draw_scale(f, arg, key, &scale);
        *g2 = pow(norm * scale, 2);
    }
    }
}

static void draw_count(const struct call *f, int arg, uint64_t key, double *count)
{
    const double R = (double)DIM(f, 'R');

    (void)arg;
    switch (f->choice[SCHEDULE_TARGETS]) {
    case 1: *count = R; break;
    case 2: *count = 0; break;
    default: *count = 1 + floor(draw_uniform(key, 0) * R);
    }
}

#define OF_UPDATE(member, shape, flags, ...)                                                       \
    ARG(schedule, member, shape, flags, .when = of_update, __VA_ARGS__)

static const struct arg args[] = {
    OF_UPDATE(rates, "U", IN | WIDE, .draw = draw_rates),
    OF_UPDATE(unbias1s, "U", IN | WIDE, .draw = draw_unbias1s),
    OF_UPDATE(unbias2s, "U", IN | WIDE, .draw = draw_unbias2s),
    OF_UPDATE(u, "O", IN | WHOLE, .draw = draw_u),
    OF_UPDATE(t, "O", IN | WHOLE, .draw = draw_t),
    OF_UPDATE(good, "O", IN | WHOLE, .draw = draw_good),
    OF_UPDATE(g2, "O", IN | WIDE, .draw = draw_g2),
    ARG(schedule, scale, "O", IN | WIDE, .draw = draw_scale),
    ARG(schedule, count, "O", IN | WHOLE, .when = of_loss, .draw = draw_count),
    OF_UPDATE(rate, "O", OUT | WIDE),
    OF_UPDATE(unbias1, "O", OUT | WIDE),
    OF_UPDATE(unbias2, "O", OUT | WIDE),
    OF_UPDATE(factor, "O", OUT | WIDE),
    OF_UPDATE(skip, "O", OUT | WHOLE),
    OF_UPDATE(u_next, "O", OUT | WHOLE, .overwrites = "u"),
    OF_UPDATE(t_next, "O", OUT | WHOLE, .overwrites = "t"),
    OF_UPDATE(good_next, "O", OUT | WHOLE, .overwrites = "good"),
    OF_UPDATE(scale_next, "O", OUT | WIDE, .overwrites = "scale"),
    ARG(schedule, d_row, "R", OUT | WIDE, .when = of_loss),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    return 0;
}

/* A root and some quotients, whatever the sizes; a quotient for all rows. */
static double flops(const struct call *f, enum pass p)
{
    enum { OF_AN_UPDATE = 6 };
    return p == BACKWARD ? 0 : of_update(f) ? OF_AN_UPDATE : 1;
}

static double specials(const struct call *f, enum pass p)
{
    return p == FORWARD && of_update(f) ? 3 : p == FORWARD;
}

static const struct cost costs[] = {
    {"updates=5", FORWARD, 6, 0, 3, {0, 0, 0}},
    {"what=loss rows=5", FORWARD, 1, 0, 1, {0, 0, 0}},
    {.settings = NULL},
};

const struct op op_schedule = {
    .name = "schedule",
    .formula =
        "rate = rates[u], factor = min(1, clip / norm) / scale, skip where g2 is not finite; "
        "or d_row = scale / count",
    .source = "common/ops/schedule.h",
    SIGNATURE(schedule, params, args),
    .axis = axes,
    .cases = "updates=1,7 gradient=usual,large,tiny,zero,infinite,nan,negative clip=0,1 "
             "loss_scale=fixed,dynamic; "
             "updates=9 at=first,last,beyond,before,t_beyond gradient=usual,infinite; "
             "updates=5 loss_scale=dynamic growth=1,3,2000 scale=any,one,most,half,zero,nan "
             "gradient=usual,infinite counted=any,due,almost; updates=300 clip=1e-3,5; updates=50 "
             "beta1=0 beta2=0.95; "
             "what=loss rows=1,2,33 scale=any,most targets=some,all,none",
    .shapes = "updates=2,31,1025; what=loss rows=255,256,257,1023,1024,1025,4099",
    .cost = costs,
    .derive = derive,
    .flops = flops,
    .specials = specials,
};
