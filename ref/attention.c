/* attention: o = softmax(scale q k^T + ...) v, row by row (common/ops/attention.h). */
#include "common/ops/attention.h"
#include "ref/ref.h"

/* A call: q, k, v and do as real, and what the formulas need of it. */
struct attention_call {
    int64_t B, T, S, H, G, D, E;
    struct attention_window window;
    struct dropout_mask dropout;
    uint32_t u;
    real scale, softcap, keep; /* keep: 1 / (1 - p) */
    const real *q, *k, *v;
    const real *slopes, *sinks; /* or NULL */
    const num *bias;
};

static struct attention_call call_of(const struct call *f, real **work)
{
    const struct attention *a = ARGS(f, attention);
    struct attention_call c;

    c.B = DIM(f, 'B');
    c.T = DIM(f, 'T');
    c.S = DIM(f, 'S');
    c.H = DIM(f, 'H');
    c.G = DIM(f, 'G');
    c.D = DIM(f, 'D');
    c.E = DIM(f, 'E');
    c.window = attention_window(f);
    c.dropout = attention_dropout(f);
    c.u = dropout_step(a->counter);
    c.scale = constant(attention_scale(f));
    c.softcap = f->real[ATTENTION_SOFTCAP];
    c.keep = 1 / (1 - f->real[ATTENTION_DROPOUT]);
    c.q = widened(a->q, c.B * c.T * c.H * c.D, work);
    c.k = widened(a->k, c.B * c.S * c.G * c.D, work);
    c.v = widened(a->v, c.B * c.S * c.G * c.E, work);
    c.slopes = a->slopes;
    c.bias = a->bias;
    c.sinks = a->sinks;
    return c;
}

/* The places of rows: of q, o and their gradients by (b, i, h), of k and v by (b, j, h's kv head), of
 * lse and delta by (b, h, i). */
static int64_t query(const struct attention_call *c, int64_t b, int64_t i, int64_t h)
{
    return (b * c->T + i) * c->H + h;
}

static int64_t key(const struct attention_call *c, int64_t b, int64_t j, int64_t h)
{
    return (b * c->S + j) * c->G + h * c->G / c->H;
}

static int64_t row(const struct attention_call *c, int64_t b, int64_t h, int64_t i)
{
    return (b * c->H + h) * c->T + i;
}

static int visible(const struct attention_call *c, int64_t i, int64_t j)
{
    return attention_first(&c->window, i) <= j && j < attention_last(&c->window, i);
}

/* s_ij; *slope is its derivative by u_ij. */
static real score(const struct attention_call *c, int64_t b, int64_t h, int64_t i, int64_t j,
                  real *slope)
{
    const real *q = c->q + query(c, b, i, h) * c->D, *k = c->k + key(c, b, j, h) * c->D;
    real s = c->scale * dot(q, k, c->D);

    *slope = 1;
    if (c->softcap > 0) {
        const real t = tanh(s / c->softcap);
        s = c->softcap * t;
        *slope = 1 - t * t;
    }
    if (c->bias)
        s += load(c->bias[(h * c->T + i) * c->S + j]);
    if (c->slopes)
        s -= c->slopes[h] * (real)llabs(i + c->window.offset - j);
    return site(ATTENTION_AT_S, s);
}

/* Z_ij / (1 - p) */
static real kept(const struct attention_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return attention_kept(&c->dropout, c->u, b * c->H + h, i, j) ? c->keep : 0;
}

/* What the weights of a row are divided by before they are stored as P: 1, or their sum, as an eager
 * composition has it, with which the largest of them is rounded, too. */
static real divisor_of(const struct attention_call *c, const real *s, int64_t h, int64_t first,
                       int64_t last, real maximum)
{
    if (!moved_at_site(ATTENTION_AT_P))
        return 1;
    real sum = c->sinks ? exp(c->sinks[h] - maximum) : 0;
    for (int64_t j = first; j < last; j++)
        sum += exp(s[j] - maximum);
    return sum;
}

/* Row i of head h: its o [E] and its lse; s [S] is room for its scores. */
static real forward_row(const struct attention_call *c, int64_t b, int64_t h, int64_t i, real *s,
                        real *o)
{
    const int64_t first = attention_first(&c->window, i), last = attention_last(&c->window, i);
    real maximum = c->sinks ? c->sinks[h] : -INFINITY, sum = 0, slope;

    for (int64_t j = first; j < last; j++) {
        s[j] = score(c, b, h, i, j, &slope);
        maximum = max_or_nan(s[j], maximum);
    }
    memset(o, 0, c->E * sizeof *o);
    if (maximum == -INFINITY)
        return -INFINITY;
    maximum += above_maximum();
    const real divisor = divisor_of(c, s, h, first, last, maximum);
    for (int64_t j = first; j < last; j++) {
        if (s[j] == -INFINITY)
            continue;
        const real p = exp(s[j] - maximum), P = site(ATTENTION_AT_P, p / divisor) * divisor;
        add_to(sum, p);
        add(o, P * kept(c, b, h, i, j), c->v + key(c, b, j, h) * c->E, c->E);
    }
    if (c->sinks)
        add_to(sum, exp(c->sinks[h] - maximum));
    for (int64_t e = 0; e < c->E; e++)
        o[e] /= sum;
    return maximum + log(sum);
}

static int forward(const struct call *f)
{
    const struct attention *a = ARGS(f, attention);
    real *work = f->work, *lse = a->lse, *o32 = a->o32;
    const struct attention_call c = call_of(f, &work);
    num *o = a->o;

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++) {
            real *s = work + (b * c.H + h) * (c.S + c.E), *o_i = s + c.S;
            for (int64_t i = 0; i < c.T; i++) {
                const int64_t at = query(&c, b, i, h) * c.E;
                lse[row(&c, b, h, i)] = forward_row(&c, b, h, i, s, o_i);
                for (int64_t e = 0; e < c.E; e++) {
                    o[at + e] = store(o_i[e]);
                    if (o32)
                        o32[at + e] = o_i[e];
                }
            }
        }
    return 0;
}

/* ---- backward ---- */

/* What backward knows of rows besides: do [.,E], lse and delta [B,H,T]. */
struct rows {
    const real *d_o, *lse;
    real *delta;
};

/* ds_ij, and du_ij; *p is P_ij Z_ij / (1 - p).  Nonzero where the key is not seen: s is -inf.  Where du
 * is 0, what it multiplies is left out: with softcap a key may be infinite, and its score -c. */
static int slopes_of(const struct attention_call *c, const struct rows *r, int64_t b, int64_t h,
                     int64_t i, int64_t j, real *p, real *ds, real *du)
{
    const int64_t at = row(c, b, h, i);
    real slope;
    const real s = score(c, b, h, i, j, &slope), z = kept(c, b, h, i, j);

    if (s == -INFINITY)
        return 1;
    const real P = exp(s - r->lse[at]);
    const real dp = z * dot(r->d_o + query(c, b, i, h) * c->E, c->v + key(c, b, j, h) * c->E, c->E);
    *p = site(ATTENTION_AT_P, P) * z;
    *ds = site(ATTENTION_AT_DS, P * (dp - r->delta[at]));
    *du = *ds * slope;
    return 0;
}

/* delta_i = do_i . o_i - dlse_i */
static void find_delta(const struct call *f, const struct attention_call *c, const struct rows *r)
{
    const struct attention *a = ARGS(f, attention), *g = GRADS(f, attention);
    const num *o = a->o;
    const real *o32 = a->o32, *dlse = g->lse;

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < c->T; i++) {
                const int64_t at = query(c, b, i, h) * c->E;
                real sum = 0;
                FOR_SUM (e, c->E)
                    add_to(sum, r->d_o[at + e] * (o32 ? o32[at + e] : load(o[at + e])));
                r->delta[row(c, b, h, i)] = sum - dlse[row(c, b, h, i)];
            }
}

/* dq_i = scale sum_j du_ij k_j */
static void find_dq(const struct attention_call *c, const struct rows *r, real *dq, int64_t b,
                    int64_t h, int64_t i)
{
    const int64_t last = attention_last(&c->window, i);
    real *to = dq + query(c, b, i, h) * c->D, p, ds, du;

    memset(to, 0, c->D * sizeof *to);
    for (int64_t j = attention_first(&c->window, i); j < last; j++)
        if (!slopes_of(c, r, b, h, i, j, &p, &ds, &du) && du != 0)
            add(to, c->scale * du, c->k + key(c, b, j, h) * c->D, c->D);
}

/* dk_j = scale sum_{i,h} du_ij q_i and dv_j = sum_{i,h} P_ij Z_ij / (1 - p) do_i, over the query heads
 * h of kv head g. */
static void find_dk_dv(const struct attention_call *c, const struct rows *r, real *dk, real *dv,
                       int64_t b, int64_t g, int64_t j)
{
    const int64_t group = c->H / c->G, at = (b * c->S + j) * c->G + g;
    real *to_k = dk + at * c->D, *to_v = dv + at * c->E, p, ds, du;

    memset(to_k, 0, c->D * sizeof *to_k);
    memset(to_v, 0, c->E * sizeof *to_v);
    for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = 0; i < c->T; i++) {
            if (!visible(c, i, j) || slopes_of(c, r, b, h, i, j, &p, &ds, &du))
                continue;
            if (du != 0)
                add(to_k, c->scale * du, c->q + query(c, b, i, h) * c->D, c->D);
            add(to_v, p, r->d_o + query(c, b, i, h) * c->E, c->E);
        }
}

/* dbias[h,i,j] = sum_b ds_ij, 0 where the key is not seen */
static void find_dbias(const struct attention_call *c, const struct rows *r, real *dbias)
{
    real p, ds, du;

    #pragma omp parallel for collapse(2) private(p, ds, du)
    for (int64_t h = 0; h < c->H; h++)
        for (int64_t i = 0; i < c->T; i++)
            for (int64_t j = 0; j < c->S; j++) {
                real sum = 0;
                for (int64_t b = 0; visible(c, i, j) && b < c->B; b++)
                    sum += slopes_of(c, r, b, h, i, j, &p, &ds, &du) ? 0 : ds;
                dbias[(h * c->T + i) * c->S + j] = sum;
            }
}

/* dsinks[h] = -sum_{b,i} exp(sinks[h] - lse_i) delta_i */
static void find_dsinks(const struct attention_call *c, const struct rows *r, real *dsinks)
{
    for (int64_t h = 0; h < c->H; h++) {
        dsinks[h] = 0;
        for (int64_t b = 0; b < c->B; b++)
            for (int64_t i = 0; i < c->T; i++) {
                const int64_t at = row(c, b, h, i);
                dsinks[h] -= exp(c->sinks[h] - r->lse[at]) * r->delta[at];
            }
    }
}

static int backward(const struct call *f)
{
    const struct attention *a = ARGS(f, attention), *g = GRADS(f, attention);
    real *work = f->work;
    const struct attention_call c = call_of(f, &work);
    struct rows r = {widened(g->o, c.B * c.T * c.H * c.E, &work), a->lse, NULL};
    real *dq = to_fill(g->q, c.B * c.T * c.H * c.D, &work);
    real *dk = to_fill(g->k, c.B * c.S * c.G * c.D, &work);
    real *dv = to_fill(g->v, c.B * c.S * c.G * c.E, &work);

    r.delta = work;
    find_delta(f, &c, &r);
    #pragma omp parallel for collapse(3)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t i = 0; i < c.T; i++)
                find_dq(&c, &r, dq, b, h, i);
    #pragma omp parallel for collapse(3)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t j = 0; j < c.S; j++)
            for (int64_t k = 0; k < c.G; k++)
                find_dk_dv(&c, &r, dk, dv, b, k, j);
    filled(g->q, dq, c.B * c.T * c.H * c.D);
    filled(g->k, dk, c.B * c.S * c.G * c.D);
    filled(g->v, dv, c.B * c.S * c.G * c.E);
    if (c.bias)
        find_dbias(&c, &r, g->bias);
    if (c.sinks)
        find_dsinks(&c, &r, g->sinks);
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    const int64_t rows = DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'H');
    const int64_t keys = DIM(f, 'B') * DIM(f, 'S') * DIM(f, 'G');
    const int64_t D = DIM(f, 'D'), E = DIM(f, 'E'), inputs = rows * D + keys * (D + E);

    return sizeof(real) * (p == FORWARD
                               ? COPIES * inputs + DIM(f, 'B') * DIM(f, 'H') * (DIM(f, 'S') + E)
                               : COPIES * (2 * inputs + rows * E) + rows);
}

REF_KERNEL(attention, "plain", "row by row, one row of scores", forward, backward, .work = work);
