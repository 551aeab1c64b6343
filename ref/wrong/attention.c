/* Kernels of attention that are wrong (wrong.h). */
#include "common/ops/attention.h"
#include "ref/wrong/runs.h"

/* ---- the right kernel on another call ---- */

WRONG_UNLESS(scale_of_width, f->real[ATTENTION_SCALE] == 0 && DIM(f, 'D') % 8, "no padded width")
WRONG_CALL(scale_of_padded_width, "the scale is that of the width padded to a multiple of 8",
           g.real[ATTENTION_SCALE] = 1 / (sqrt)((double)((DIM(f, 'D') + 7) / 8 * 8)),
           .declines = scale_of_width);

WRONG_UNLESS(has_left, f->choice[ATTENTION_MASK] == MASK_WINDOW && DIM(f, 'L') > 0, "no left side")
WRONG_CALL(window_too_short, "a window of L keys has the query's own among them", DIM(&g, 'L') -= 1,
           .declines = has_left);

WRONG_UNLESS(has_right, f->choice[ATTENTION_MASK] == MASK_WINDOW && DIM(f, 'R') > 0,
             "no right side")
WRONG_CALL(window_without_right, "keys after the query's own are masked in every window",
           DIM(&g, 'R') = 0, .declines = has_right);

WRONG_UNLESS(drops, f->real[ATTENTION_DROPOUT] > 0, "no dropout")
static int other_mask(const struct call *f)
{
    struct call g = *f;
    DIM(&g, 'X') += 1;
    return right_backward(&g);
}
WRONG_PASSES(dropout_drawn_again, "backward draws another dropout mask than forward", right_forward,
             other_mask, .declines = drops);

WRONG_UNLESS(has_step, f->real[ATTENTION_DROPOUT] > 0 && DIM(f, 'U') > 0, "u is 0")
static int at_step(const struct call *f, enum pass p, int64_t u)
{
    struct call g = *f;
    g.arg[PLACE(attention, counter)] = &u;
    return right_pass(&g, p);
}
static int dropout_of_none_run(const struct call *f, enum pass p)
{
    return at_step(f, p, 0);
}
WRONG_RUN(dropout_of_none, "the counter is ignored: one mask for ever", .declines = has_step);

static int next_mask(const struct call *f)
{
    return at_step(f, BACKWARD, *(const int64_t *)ARGS(f, attention)->counter + 1);
}
WRONG_PASSES(dropout_of_next, "backward has the mask of the counter that has been advanced",
             right_forward, next_mask, .declines = drops);

WRONG_UNLESS(has_sink, f->choice[ATTENTION_SINK], "no sink")
static int without_sink(const struct call *f)
{
    struct call g = *f;
    g.choice[ATTENTION_SINK] = 0;
    g.arg[PLACE(attention, sinks)] = NULL;
    return right_forward(&g);
}
WRONG_PASSES(sink_not_in_sum, "the sink is missing in the denominator", without_sink,
             right_backward, .declines = has_sink);

static int without_dlse(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(attention, lse), 1);
}
WRONG_PASSES(delta_without_dlse, "delta leaves out the gradient of lse", right_forward,
             without_dlse);

WRONG_UNLESS(keeps_o, f->choice[ATTENTION_KEEP_O], "o is not kept besides")
static int of_stored_o(const struct call *f)
{
    struct call g = *f;
    g.choice[ATTENTION_KEEP_O] = 0;
    g.arg[PLACE(attention, o32)] = NULL;
    return right_backward(&g);
}
WRONG_PASSES(delta_of_rounded_o, "delta is of o as it is stored, where it is kept in fp32 besides",
             right_forward, of_stored_o, .declines = keeps_o,
             .unseen = "fp32: o is stored in fp32");

/* ---- passes of its own ---- */

enum {
    STRICT = 1,            /* causal: j < i + offset */
    TOP_LEFT = 1 << 1,     /* query i is at key i */
    KEYS_LOST = 1 << 2,    /* those behind the last multiple of 8 */
    HEADS_MODULO = 1 << 3, /* kv head h mod G */
    CAP_AFTER_BIAS = 1 << 4,
    RISING = 1 << 5,          /* ALiBi's slopes are added */
    DISTANCE_OF_ROW = 1 << 6, /* ALiBi's distance is |i - j| */
    NOT_RESCALED = 1 << 7,    /* o where the running maximum grows */
    SEES_ALL = 1 << 8,        /* a row that sees nothing has the mean of v */
    SUM_OF_KEPT = 1 << 9,     /* l without what is dropped */
    NO_CAP_SLOPE = 1 << 10,
    FIRST_HEAD = 1 << 11,       /* dk, dv of the first query head of a group */
    KEPT_BY_1 = 1 << 12,        /* Z for Z / (1 - p) */
    DQ_UNSCALED = 1 << 13,      /* dq = du k */
    DK_TWICE = 1 << 14,         /* dk = scale^2 du q */
    DV_OF_ALL = 1 << 15,        /* dv of P */
    DELTA_OF_ALL = 1 << 16,     /* delta = sum P do.v */
    LAST_SEQUENCE = 1 << 17,    /* dbias, dsinks of the last sequence */
    FLUSHED = 1 << 18,          /* P below 2^-14 is 0 */
    NO_SINK_GRADIENT = 1 << 19, /* dsinks = 0 */
    BIAS_OF_DU = 1 << 20,       /* dbias = scale du */
    NO_DELTA = 1 << 21          /* ds = P dp */
};

struct sizes {
    const struct attention *a;
    int64_t B, T, S, H, G, D, E;
    struct attention_window window;
    struct dropout_mask dropout;
    uint32_t u;
    real scale, cap, keep;
    unsigned wrong;
};

static struct sizes sizes_of(const struct call *f, unsigned wrong)
{
    struct sizes c = {
        .a = ARGS(f, attention),
        .B = DIM(f, 'B'),
        .T = DIM(f, 'T'),
        .S = DIM(f, 'S'),
        .H = DIM(f, 'H'),
        .G = DIM(f, 'G'),
        .D = DIM(f, 'D'),
        .E = DIM(f, 'E'),
        .window = attention_window(f),
        .dropout = attention_dropout(f),
        .u = dropout_step(ARGS(f, attention)->counter),
        .scale = (real)attention_scale(f),
        .cap = (real)f->real[ATTENTION_SOFTCAP],
        .keep = wrong & KEPT_BY_1 ? 1 : (real)(1 / (1 - f->real[ATTENTION_DROPOUT])),
        .wrong = wrong,
    };
    if (wrong & TOP_LEFT)
        c.window.offset = 0;
    return c;
}

static int64_t query(const struct sizes *c, int64_t b, int64_t i, int64_t h)
{
    return (b * c->T + i) * c->H + h;
}

static int64_t key(const struct sizes *c, int64_t b, int64_t j, int64_t h)
{
    return (b * c->S + j) * c->G + (c->wrong & HEADS_MODULO ? h % c->G : h * c->G / c->H);
}

static int64_t row(const struct sizes *c, int64_t b, int64_t h, int64_t i)
{
    return (b * c->H + h) * c->T + i;
}

static int64_t first_of(const struct sizes *c, int64_t i)
{
    return attention_first(&c->window, i);
}

static int64_t last_of(const struct sizes *c, int64_t i)
{
    const int64_t last =
        attention_last(&c->window, i) - (c->wrong & STRICT && c->window.right == 0);
    const int64_t whole = c->S / 8 * 8;
    return c->wrong & KEYS_LOST && c->S >= 8 && last > whole ? whole : last;
}

static real times(const num *x, const num *y, int64_t n)
{
    real a[ATTENTION_MAX_WIDTH], b[ATTENTION_MAX_WIDTH];
    for (int64_t i = 0; i < n; i++) {
        a[i] = load(x[i]);
        b[i] = load(y[i]);
    }
    return dot(a, b, n);
}

static real capped(const struct sizes *c, real s, real *slope)
{
    if (!(c->cap > 0))
        return s;
    const real t = tanh(s / c->cap);
    *slope = c->wrong & NO_CAP_SLOPE ? 1 : 1 - t * t;
    return c->cap * t;
}

/* s_ij; *slope is its derivative by u_ij. */
static real score(const struct sizes *c, int64_t b, int64_t h, int64_t i, int64_t j, real *slope)
{
    const num *q = (const num *)c->a->q + query(c, b, i, h) * c->D;
    const num *k = (const num *)c->a->k + key(c, b, j, h) * c->D, *bias = c->a->bias;
    const real *slopes = c->a->slopes;
    const int64_t at = c->wrong & DISTANCE_OF_ROW ? i : i + c->window.offset;
    real s = c->scale * times(q, k, c->D);

    *slope = 1;
    if (!(c->wrong & CAP_AFTER_BIAS))
        s = capped(c, s, slope);
    if (bias)
        s += load(bias[(h * c->T + i) * c->S + j]);
    if (slopes)
        s += (c->wrong & RISING ? 1 : -1) * slopes[h] * (real)llabs(at - j);
    return c->wrong & CAP_AFTER_BIAS ? capped(c, s, slope) : s;
}

static int kept(const struct sizes *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return attention_kept(&c->dropout, c->u, b * c->H + h, i, j);
}

/* The mean of all v, in o. */
static void mean_of_all(const struct sizes *c, int64_t b, int64_t h, real *o)
{
    for (int64_t j = 0; j < c->S; j++)
        for (int64_t e = 0; e < c->E; e++)
            o[e] += load(((const num *)c->a->v)[key(c, b, j, h) * c->E + e]) / (real)c->S;
}

/* The sums of a row so far, relative to the maximum so far. */
struct running {
    real maximum, sum, *o;
};

static void step(const struct sizes *c, struct running *r, real maximum)
{
    const real by = r->maximum == -INFINITY ? 0 : exp(r->maximum - maximum);
    r->sum *= by;
    for (int64_t e = 0; e < c->E && !(c->wrong & NOT_RESCALED); e++)
        r->o[e] *= by;
    r->maximum = maximum;
}

/* o [E], and lse, of row i. */
static real forward_row(const struct sizes *c, int64_t b, int64_t h, int64_t i, real *s, real *o)
{
    const real *sinks = c->a->sinks;
    const int64_t first = first_of(c, i), last = last_of(c, i);
    const int64_t block = c->wrong & NOT_RESCALED ? 8 : c->S;
    struct running r = {sinks ? sinks[h] : -INFINITY, sinks ? 1 : 0, o};
    real slope;

    memset(o, 0, (size_t)c->E * sizeof *o);
    for (int64_t from = first; from < last; from += block) {
        const int64_t to = from + block < last ? from + block : last;
        real maximum = r.maximum;
        for (int64_t j = from; j < to; j++)
            maximum = max_or_nan(s[j] = score(c, b, h, i, j, &slope), maximum);
        if (maximum == -INFINITY)
            continue;
        step(c, &r, maximum);
        for (int64_t j = from; j < to; j++) {
            const real p = s[j] == -INFINITY ? 0 : exp(s[j] - maximum);
            const int here = kept(c, b, h, i, j);
            r.sum += c->wrong & SUM_OF_KEPT && !here ? 0 : p;
            const real weight = here ? p * c->keep : 0;
            for (int64_t e = 0; weight != 0 && e < c->E; e++)
                o[e] += weight * load(((const num *)c->a->v)[key(c, b, j, h) * c->E + e]);
        }
    }
    if (r.maximum == -INFINITY || r.sum == 0) {
        if (c->wrong & SEES_ALL)
            mean_of_all(c, b, h, o);
        return -INFINITY;
    }
    for (int64_t e = 0; e < c->E; e++)
        o[e] /= r.sum;
    return r.maximum + log(r.sum);
}

static int run_forward(const struct call *f, unsigned wrong)
{
    const struct sizes c = sizes_of(f, wrong);
    real *s = malloc((size_t)(c.S + c.E) * sizeof *s), *o = s ? s + c.S : NULL;
    real *lse = c.a->lse, *o32 = c.a->o32;

    if (!s)
        return 1;
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t i = 0; i < c.T; i++) {
                const int64_t at = query(&c, b, i, h) * c.E;
                lse[row(&c, b, h, i)] = forward_row(&c, b, h, i, s, o);
                for (int64_t e = 0; e < c.E; e++) {
                    ((num *)c.a->o)[at + e] = store(o[e]);
                    if (o32)
                        o32[at + e] = o[e];
                }
            }
    free(s);
    return 0;
}

/* Gradients in real: what is stored as num is rounded at the end. */
struct sums {
    const num *d_o;
    real *dq, *dk, *dv, *dbias, *dsinks;
};

static real delta_of(const struct sizes *c, const struct sums *g, const real *dlse, int64_t b,
                     int64_t h, int64_t i)
{
    const int64_t at = query(c, b, i, h) * c->E;
    const real lse = ((const real *)c->a->lse)[row(c, b, h, i)], *o32 = c->a->o32;
    real sum = 0, slope;

    if (c->wrong & NO_DELTA)
        return 0;
    for (int64_t e = 0; e < c->E && !(c->wrong & DELTA_OF_ALL); e++)
        sum += load(g->d_o[at + e]) * (o32 ? o32[at + e] : load(((const num *)c->a->o)[at + e]));
    for (int64_t j = first_of(c, i); j < last_of(c, i) && c->wrong & DELTA_OF_ALL; j++) {
        const real s = score(c, b, h, i, j, &slope);
        const num *v = (const num *)c->a->v + key(c, b, j, h) * c->E;
        sum += s == -INFINITY ? 0 : exp(s - lse) * times(g->d_o + at, v, c->E);
    }
    return sum - dlse[row(c, b, h, i)];
}

/* What the pair of a query and a key adds to the gradients. */
static void pair(const struct sizes *c, const struct sums *g, int64_t b, int64_t h, int64_t i,
                 int64_t j, real delta)
{
    const int64_t q = query(c, b, i, h), k = key(c, b, j, h);
    const num *d_o = g->d_o + q * c->E;
    const int other_head = c->wrong & FIRST_HEAD && h % (c->H / c->G);
    real slope;
    const real s = score(c, b, h, i, j, &slope);

    if (s == -INFINITY)
        return;
    real P = exp(s - ((const real *)c->a->lse)[row(c, b, h, i)]);
    if (c->wrong & FLUSHED && P < 0x1p-14f)
        P = 0;
    const real z = kept(c, b, h, i, j) ? c->keep : 0;
    const real dp = z * times(d_o, (const num *)c->a->v + k * c->E, c->E);
    const real ds = P * (dp - delta), du = ds * slope;
    const real by_dq = (c->wrong & DQ_UNSCALED ? 1 : c->scale) * du;
    const real by_dk = (c->wrong & DK_TWICE ? c->scale : 1) * (c->scale * du);
    for (int64_t d = 0; d < c->D && du != 0; d++) {
        const real by_k = load(((const num *)c->a->k)[k * c->D + d]);
        const real by_q = load(((const num *)c->a->q)[q * c->D + d]);
        g->dq[q * c->D + d] += by_dq * by_k;
        if (!other_head)
            g->dk[k * c->D + d] += by_dk * by_q;
    }
    for (int64_t e = 0; e < c->E && !other_head; e++)
        g->dv[k * c->E + e] += P * (c->wrong & DV_OF_ALL ? 1 : z) * load(d_o[e]);
    if (g->dbias && (!(c->wrong & LAST_SEQUENCE) || b == c->B - 1))
        g->dbias[(h * c->T + i) * c->S + j] += c->wrong & BIAS_OF_DU ? c->scale * du : ds;
}

static void of_sink(const struct sizes *c, const struct sums *g, int64_t b, int64_t h, int64_t i,
                    real delta)
{
    const real lse = ((const real *)c->a->lse)[row(c, b, h, i)];
    if (!g->dsinks || c->wrong & NO_SINK_GRADIENT || (c->wrong & LAST_SEQUENCE && b < c->B - 1))
        return;
    g->dsinks[h] -= exp(((const real *)c->a->sinks)[h] - lse) * delta;
}

static void stored(num *to, const real *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = store(from[i]);
}

static int run_backward(const struct call *f, unsigned wrong)
{
    const struct sizes c = sizes_of(f, wrong);
    const struct attention *d = GRADS(f, attention);
    const int64_t q = c.B * c.T * c.H * c.D, k = c.B * c.S * c.G * c.D, v = c.B * c.S * c.G * c.E;
    real *work = calloc((size_t)(q + k + v), sizeof *work);

    if (!work)
        return 1;
    const struct sums g = {d->o,
                           work,
                           work + q,
                           work + q + k,
                           c.a->bias ? d->bias : NULL,
                           c.a->sinks ? d->sinks : NULL};
    if (g.dbias)
        memset(g.dbias, 0, (size_t)(c.H * c.T * c.S) * sizeof *g.dbias);
    if (g.dsinks)
        memset(g.dsinks, 0, (size_t)c.H * sizeof *g.dsinks);
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t i = 0; i < c.T; i++) {
                const real delta = delta_of(&c, &g, d->lse, b, h, i);
                for (int64_t j = first_of(&c, i); j < last_of(&c, i); j++)
                    pair(&c, &g, b, h, i, j, delta);
                of_sink(&c, &g, b, h, i, delta);
            }
    stored(d->q, g.dq, q);
    stored(d->k, g.dk, k);
    stored(d->v, g.dv, v);
    free(work);
    return 0;
}

WRONG_UNLESS(is_causal, f->choice[ATTENTION_MASK] == MASK_CAUSAL, "no causal mask")
WRONG_UNLESS(has_other_steps, f->choice[ATTENTION_MASK] != MASK_FULL && DIM(f, 'T') != DIM(f, 'S'),
             "as many keys as steps, or no mask")
WRONG_UNLESS(has_groups, DIM(f, 'G') > 1 && DIM(f, 'G') < DIM(f, 'H'), "no groups of heads")
WRONG_UNLESS(shares_heads, DIM(f, 'G') < DIM(f, 'H'), "each head has keys of its own")
WRONG_UNLESS(has_cap, f->real[ATTENTION_SOFTCAP] > 0, "no softcap")
WRONG_UNLESS(caps_bias, f->real[ATTENTION_SOFTCAP] > 0 && f->choice[ATTENTION_BIAS] != BIAS_NONE,
             "no softcap, or no bias")
WRONG_UNLESS(has_alibi, f->choice[ATTENTION_BIAS] == BIAS_ALIBI, "no slopes")
WRONG_UNLESS(alibi_of_other_steps,
             f->choice[ATTENTION_BIAS] == BIAS_ALIBI && DIM(f, 'T') != DIM(f, 'S'),
             "no slopes, or as many keys as steps")
WRONG_UNLESS(has_bias, f->choice[ATTENTION_BIAS] == BIAS_FULL, "no full bias")
WRONG_UNLESS(sums_over_batch,
             DIM(f, 'B') > 1 &&
                 (f->choice[ATTENTION_BIAS] == BIAS_FULL || f->choice[ATTENTION_SINK]),
             "one sequence, or neither bias nor sink")
WRONG_UNLESS(is_scaled, attention_scale(f) != 1, "the scale is 1")

WRONG_BITS(mask_strict, "a query does not see its own key under a causal mask", STRICT, STRICT,
           .declines = is_causal);
WRONG_BITS(aligned_at_start, "query i is at key i where keys and steps differ", TOP_LEFT, TOP_LEFT,
           .declines = has_other_steps);
WRONG_BITS(keys_lost, "keys behind the last multiple of 8 are lost", KEYS_LOST, KEYS_LOST);
WRONG_BITS(heads_modulo, "query head h has kv head h mod G", HEADS_MODULO, HEADS_MODULO,
           .declines = has_groups);
WRONG_BITS(cap_after_bias, "the softcap has the bias within it", CAP_AFTER_BIAS, CAP_AFTER_BIAS,
           .declines = caps_bias);
WRONG_BITS(alibi_rises, "ALiBi's slopes are added, not subtracted", RISING, RISING,
           .declines = has_alibi);
WRONG_BITS(alibi_of_row, "ALiBi's distance is |i - j| where keys and steps differ", DISTANCE_OF_ROW,
           DISTANCE_OF_ROW, .declines = alibi_of_other_steps);
WRONG_BITS(not_rescaled, "o is not rescaled where the running maximum grows", NOT_RESCALED, 0);
WRONG_BITS(empty_row_sees_all, "a row that sees nothing has the mean of v, not 0", SEES_ALL, 0);
WRONG_BITS(sum_of_kept, "the denominator is of the weights that dropout keeps", SUM_OF_KEPT, 0,
           .declines = drops);
WRONG_BITS(no_cap_slope, "backward leaves out the slope of the softcap", 0, NO_CAP_SLOPE,
           .declines = has_cap);
WRONG_BITS(first_head_of_group, "dk, dv are of the first query head of a group", 0, FIRST_HEAD,
           .declines = shares_heads);
WRONG_BITS(dropout_unscaled, "backward leaves out 1 / (1 - p)", 0, KEPT_BY_1, .declines = drops);
WRONG_BITS(dq_unscaled, "dq leaves out the scale", 0, DQ_UNSCALED, .declines = is_scaled);
WRONG_BITS(dk_scaled_twice, "dk has the scale twice", 0, DK_TWICE, .declines = is_scaled);
WRONG_BITS(dv_of_all, "dv is of P before the dropout", 0, DV_OF_ALL, .declines = drops);
WRONG_BITS(delta_of_all, "delta is sum P do.v, without the dropout", 0, DELTA_OF_ALL,
           .declines = drops);
WRONG_BITS(no_delta, "ds = P dp, without delta", 0, NO_DELTA);
WRONG_BITS(last_sequence, "d_bias and d_sinks are not summed over the sequences", 0, LAST_SEQUENCE,
           .declines = sums_over_batch);
WRONG_BITS(small_flushed, "backward has 0 for P below 2^-14, as fp16 without subnormals", 0,
           FLUSHED);
WRONG_BITS(no_sink_gradient, "d_sinks is 0", 0, NO_SINK_GRADIENT, .declines = has_sink);
WRONG_BITS(bias_of_du, "d_bias is scale du, not ds", 0, BIAS_OF_DU, .declines = has_bias);

WRONG_KERNELS(attention, &scale_of_padded_width, &window_too_short, &window_without_right,
              &dropout_drawn_again, &dropout_of_none, &dropout_of_next, &sink_not_in_sum,
              &delta_without_dlse, &delta_of_rounded_o, &mask_strict, &aligned_at_start, &keys_lost,
              &heads_modulo, &cap_after_bias, &alibi_rises, &alibi_of_row, &not_rescaled,
              &empty_row_sees_all, &sum_of_kept, &no_cap_slope, &first_head_of_group,
              &dropout_unscaled, &dq_unscaled, &dk_scaled_twice, &dv_of_all, &delta_of_all,
              &no_delta, &last_sequence, &small_flushed, &no_sink_gradient, &bias_of_du);
