/* Kernels of e74_cell that are wrong (wrong.h). */
#include "common/ops/e74.h"
#include "ref/wrong/runs.h"

/* ---- the right kernel on another call ---- */

static int first_state(const struct call *f)
{
    return f->arg[PLACE(e74_cell, S0)] ? PLACE(e74_cell, S0) : PLACE(e74_cell, U0);
}

static int last_state(const struct call *f)
{
    return f->arg[PLACE(e74_cell, S0)] ? PLACE(e74_cell, S_T) : PLACE(e74_cell, U_T);
}

static int from_zero(const struct call *f)
{
    return right_with_zeros(f, FORWARD, first_state(f), 0);
}
WRONG_PASSES(cell_zero_state, "every sequence begins with a state of 0", from_zero, right_backward);

static int without_final(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, last_state(f), 1);
}
WRONG_PASSES(cell_no_final_gradient, "the gradient of the final state is left out", right_forward,
             without_final);

WRONG_UNLESS(one_side, f->choice[E74_PROJ] == E74_WITH_Z && f->choice[E74_Z_MOD] != E74_BOTH,
             "z is not at one side")
WRONG_CALL(cell_z_other_side, "z modulates rows for columns, columns for rows",
           g.choice[E74_Z_MOD] = f->choice[E74_Z_MOD] == E74_ROW ? E74_COLUMN : E74_ROW,
           .declines = one_side);

WRONG_UNLESS(has_blocks, f->choice[E74_STATE] == E74_BLOCKDIAG && DIM(f, 'L') < DIM(f, 'N'),
             "no blocks")

/* ---- passes of its own ---- */

enum {
    RAW_KEY = 1,                /* k for k^ */
    WHOLE_NORM = 1 << 1,        /* blocks' k^ is of all of k */
    READ_BEFORE = 1 << 2,       /* y = S q before the step */
    UNGATED = 1 << 3,           /* out = silu(y) */
    ADDS_VALUE = 1 << 4,        /* delta = v */
    WRITES_U = 1 << 5,          /* S + delta (z k)^T */
    NONLIN_OF_DELTA = 1 << 6,   /* S + f(delta k^T) */
    NORM_OF_N = 1 << 7,         /* rmsnorm: the mean over n, not n n */
    KEY_AS_IS = 1 << 8,         /* dk = dk^ / |k| */
    NORM_IS_CONSTANT = 1 << 9,  /* dP = G / R */
    CHUNKS_APART = 1 << 10,     /* G is not carried over a checkpoint */
    SLOPE_BEFORE = 1 << 11,     /* 1 - S^2 of the state before */
    NO_SLOPE = 1 << 12,         /* no slope of tanh */
    GATE_IS_CONSTANT = 1 << 13, /* dy = 2 dout y sigmoid(y) */
    KEY_ALONE = 1 << 14,        /* tied: dk without dq and dv */
    DZ_INSIDE = 1 << 15,        /* dz without the outside */
    NO_DV = 1 << 16,            /* d_V0 without the query's part */
    DK_OF_WRITE = 1 << 17,      /* dk without what was read by it */
    NO_EPS = 1 << 19,           /* k^ = k / |k| */
    EPS_INSIDE = 1 << 20,       /* k^ = k / sqrt(k k + eps) */
    AT_LEAST_EPS = 1 << 21,     /* k^ = k / max(|k|, eps) */
    LAST_W_R = 1 << 18,         /* d_W_r of the last sequence */
    LAST_V = 1 << 22,           /* a shared d_V0 of the last sequence */
    FIRST_HEAD = 1 << 23        /* a shared V0 read as the first head's */
};

/* A state is N rows of `columns`; the products of row i take a key's elements from start() on. */
struct sizes {
    const struct e74_cell *a, *g;
    int64_t T, BH, H, N, K, columns, rows, L, M, group;
    int nonlin, lowrank, V_shared, inside, outside;
    unsigned wrong;
};

static struct sizes sizes_of(const struct call *f, unsigned wrong)
{
    const int64_t N = DIM(f, 'N'), b = DIM(f, 'L'), R = DIM(f, 'R');
    const int state = f->choice[E74_STATE], z = f->choice[E74_PROJ] == E74_WITH_Z;
    const int64_t columns[] = {N, 1, R, b}, rows[] = {N, 1, N, b};
    struct sizes c = {
        .a = ARGS(f, e74_cell),
        .g = GRADS(f, e74_cell),
        .T = DIM(f, 'T'),
        .BH = DIM(f, 'B') * DIM(f, 'H'),
        .H = DIM(f, 'H'),
        .N = N,
        .K = DIM(f, 'K'),
        .columns = columns[state],
        .rows = rows[state],
        .M = N * columns[state],
        .group = state == E74_BLOCKDIAG && !(wrong & WHOLE_NORM) ? b : N,
        .nonlin = f->choice[E74_NONLIN],
        .lowrank = state == E74_LOWRANK,
        .V_shared = state == E74_LOWRANK && f->choice[E74_V] == E74_V_SHARED,
        .inside = z && f->choice[E74_Z_MOD] != E74_ROW,
        .outside = z && f->choice[E74_Z_MOD] != E74_COLUMN,
        .wrong = wrong,
    };
    c.L = N / c.rows * c.columns;
    return c;
}

static int64_t start(const struct sizes *c, int64_t i)
{
    return i / c->rows * c->columns;
}

/* Of one step: k, v, q, z, k^, u; and k^, u, q as the products take them. */
struct step {
    real *k, *v, *q, *z, *khat, *u, *write, *read, *query, *W_r;
    const real *V;
    /* Gradients. */
    real *dkhat, *du, *dq, *dv, *dz, *dwrite, *dread, *dquery, *G;
    real *states, *P; /* of all steps: [T + 1][M]; what f was applied to, [M] */
};

/* Memory for all, to be freed by its first; NULL: there is none. */
static real *workspace_of(const struct sizes *c, struct step *s)
{
    const int64_t most = c->N > c->L ? c->N : c->L;
    real *at = calloc((size_t)(17 * most + c->L * c->N + (c->T + 3) * c->M), sizeof *at);
    real **const to[] = {&s->k,     &s->v,    &s->q,      &s->z,     &s->khat,  &s->u,
                         &s->write, &s->read, &s->query,  &s->dkhat, &s->du,    &s->dq,
                         &s->dv,    &s->dz,   &s->dwrite, &s->dread, &s->dquery};

    if (!at)
        return NULL;
    for (size_t i = 0; i < COUNT(to); i++)
        *to[i] = at + (int64_t)i * most;
    s->W_r = at + 17 * most;
    s->G = s->W_r + c->L * c->N;
    s->P = s->G + c->M;
    s->states = s->P + c->M;
    return at;
}

/* y [columns] += A^T x, y [rows] = A x, of A [rows,columns] */
static void of_transpose(const real *A, const real *x, real *y, int64_t rows, int64_t columns)
{
    memset(y, 0, (size_t)columns * sizeof *y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[j] += A[i * columns + j] * x[i];
}

static void of_matrix(const real *A, const real *x, real *y, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        y[i] = dot(A + i * columns, x, columns);
}

/* The place of row bh's V in V0, and of its gradient. */
static int64_t place_of_V(const struct sizes *c, int64_t bh)
{
    return (!c->V_shared ? bh : c->wrong & FIRST_HEAD ? 0 : bh % c->H) * c->M;
}

static void begin(const struct sizes *c, struct step *s, int64_t bh)
{
    const real *first = c->a->S0 ? c->a->S0 : c->a->U0;
    memcpy(s->states, first + bh * c->M, (size_t)c->M * sizeof(real));
    s->V = c->lowrank ? (const real *)c->a->V0 + place_of_V(c, bh) : NULL;
    for (int64_t i = 0; c->lowrank && i < c->M; i++)
        s->W_r[i] = load(((const num *)c->a->W_r)[bh % c->H * c->M + i]);
}

/* What k is divided by, of its square. */
static real divisor_of(const struct sizes *c, real square)
{
    const real eps = (real)E74_EPSILON, length = sqrt(square);

    if (c->wrong & RAW_KEY)
        return 1;
    if (c->wrong & EPS_INSIDE)
        return sqrt(square + eps);
    if (c->wrong & AT_LEAST_EPS)
        return length > eps ? length : eps;
    return c->wrong & NO_EPS ? length : length + eps;
}

static void keys(const struct sizes *c, struct step *s, int64_t t, int64_t bh)
{
    const num *k = c->a->k, *v = c->a->v ? c->a->v : k, *q = c->a->q ? c->a->q : k, *z = c->a->z;
    const int64_t N = c->N, at = (t * c->BH + bh) * N;

    for (int64_t i = 0; i < N; i++) {
        s->k[i] = load(k[at + i]);
        s->v[i] = load(v[at + i]);
        s->q[i] = load(q[at + i]);
        s->z[i] = z ? load(z[at + i]) : 1;
    }
    for (int64_t from = 0; from < N; from += c->group) {
        const real divisor = divisor_of(c, dot(s->k + from, s->k + from, c->group));
        for (int64_t i = from; i < from + c->group; i++) {
            s->khat[i] = s->k[i] / divisor;
            s->u[i] = c->inside ? s->z[i] * s->khat[i] : s->khat[i];
        }
    }
    if (c->lowrank) {
        of_matrix(s->W_r, s->khat, s->write, c->L, N);
        of_transpose(s->V, s->u, s->read, N, c->L);
        of_transpose(s->V, s->q, s->query, N, c->L);
    } else {
        memcpy(s->write, c->wrong & WRITES_U ? s->u : s->khat, (size_t)N * sizeof(real));
        memcpy(s->read, s->u, (size_t)N * sizeof(real));
        memcpy(s->query, s->q, (size_t)N * sizeof(real));
    }
}

/* What f divides by, less epsilon. */
static real norm_of(const struct sizes *c, const real *P)
{
    const int64_t n = c->wrong & NORM_OF_N ? c->N : c->M;
    return sqrt(dot(P, P, c->M) / (c->nonlin == E74_RMSNORM ? (real)n : 1));
}

static void nonlinearity(const struct sizes *c, real *P)
{
    const real norm = c->nonlin >= E74_RMSNORM ? norm_of(c, P) + (real)E74_EPSILON : 1;
    for (int64_t j = 0; j < c->M; j++)
        P[j] = c->nonlin == E74_TANH ? tanh(P[j]) : P[j] / norm;
}

/* v - rho of row i. */
static real residual(const struct sizes *c, const struct step *s, const real *S, int64_t i)
{
    const real rho = dot(S + i * c->columns, s->read + start(c, i), c->columns);
    return s->v[i] - (c->wrong & ADDS_VALUE ? 0 : c->outside ? s->z[i] * rho : rho);
}

/* The state after step t; s->P is what f was applied to. */
static void advance(const struct sizes *c, struct step *s, int64_t t)
{
    const real *S = s->states + t * c->M;
    real *next = s->states + (t + 1) * c->M;

    for (int64_t i = 0; i < c->N; i++) {
        const real delta = residual(c, s, S, i), *write = s->write + start(c, i);
        for (int64_t j = 0; j < c->columns; j++) {
            const int64_t at = i * c->columns + j;
            next[at] = (c->wrong & NONLIN_OF_DELTA ? 0 : S[at]) + delta * write[j];
        }
    }
    memcpy(s->P, next, (size_t)c->M * sizeof(real));
    nonlinearity(c, next);
    for (int64_t j = 0; c->wrong & NONLIN_OF_DELTA && j < c->M; j++)
        next[j] += S[j];
}

/* The right one first: it writes the checkpoints. */
static int run_forward(const struct call *f, unsigned wrong)
{
    const struct sizes c = sizes_of(f, wrong);
    const int e = right_forward(f);
    real *last = c.a->S_T ? c.a->S_T : c.a->U_T;
    num *out = c.a->out, *y = c.a->y;
    struct step s;
    real *work = e ? NULL : workspace_of(&c, &s);

    if (!work)
        return e ? e : 1;
    for (int64_t bh = 0; bh < c.BH; bh++) {
        begin(&c, &s, bh);
        for (int64_t t = 0; t < c.T; t++) {
            keys(&c, &s, t, bh);
            advance(&c, &s, t);
            const real *S = s.states + (c.wrong & READ_BEFORE ? t : t + 1) * c.M;
            for (int64_t i = 0; i < c.N; i++) {
                const int64_t at = (t * c.BH + bh) * c.N + i;
                const real yi = dot(S + i * c.columns, s.query + start(&c, i), c.columns);
                y[at] = store(yi);
                out[at] = store(yi * (c.wrong & UNGATED ? 1 : yi) * sigmoid(yi));
            }
        }
        memcpy(last + bh * c.M, s.states + c.T * c.M, (size_t)c.M * sizeof(real));
    }
    free(work);
    return 0;
}

/* ---- backward ---- */

/* From dL/dS to dL/dP, in place, S = f(P). */
static void nonlinearity_back(const struct sizes *c, struct step *s, int64_t t)
{
    const real *S = s->states + (c->wrong & SLOPE_BEFORE ? t : t + 1) * c->M;
    real *G = s->G;

    if (c->nonlin == E74_TANH) {
        for (int64_t j = 0; j < c->M && !(c->wrong & NO_SLOPE); j++)
            G[j] *= 1 - S[j] * S[j];
    } else if (c->nonlin >= E74_RMSNORM) {
        const real norm = norm_of(c, s->P), mean = c->nonlin == E74_RMSNORM ? 1 / (real)c->M : 1;
        const real *right = s->states + (t + 1) * c->M, GS = dot(G, right, c->M);
        const real radial = norm > 0 && !(c->wrong & NORM_IS_CONSTANT) ? mean * GS / norm : 0;
        for (int64_t j = 0; j < c->M; j++)
            G[j] = G[j] / (norm + (real)E74_EPSILON) - radial * right[j];
    }
}

/* G, which is dL/dS_t, becomes dL/dS_(t-1); dy is step t's. */
static void step_back(const struct sizes *c, struct step *s, int64_t t, const real *dy)
{
    const real *before = s->states + t * c->M, *after = before + c->M;

    memset(s->dwrite, 0, (size_t)c->L * sizeof(real));
    memset(s->dread, 0, (size_t)c->L * sizeof(real));
    memset(s->dquery, 0, (size_t)c->L * sizeof(real));
    for (int64_t i = 0; i < c->N; i++) {
        add(s->G + i * c->columns, dy[i], s->query + start(c, i), c->columns);
        add(s->dquery + start(c, i), dy[i], after + i * c->columns, c->columns);
    }
    nonlinearity_back(c, s, t);
    for (int64_t i = 0; i < c->N; i++) {
        real *dP = s->G + i * c->columns;
        const real *row = before + i * c->columns, *read = s->read + start(c, i);
        const real delta = residual(c, s, before, i), reads = dot(row, read, c->columns);
        const real ddelta = dot(dP, s->write + start(c, i), c->columns);
        const real dreads = c->outside ? -ddelta * s->z[i] : -ddelta;
        s->dv[i] = ddelta;
        s->dz[i] = c->outside && !(c->wrong & DZ_INSIDE) ? -ddelta * reads : 0;
        add(s->dwrite + start(c, i), delta, dP, c->columns);
        add(s->dread + start(c, i), dreads, row, c->columns);
        add(dP, dreads, read, c->columns);
    }
}

/* The gradients of k^, u and q; those of V and W_r are added. */
static void keys_back(const struct sizes *c, struct step *s, real *dV, real *dW_r)
{
    const int64_t N = c->N, L = c->L;

    if (c->lowrank) {
        of_transpose(s->W_r, s->dwrite, s->dkhat, L, N);
        of_matrix(s->V, s->dread, s->du, N, L);
        of_matrix(s->V, s->dquery, s->dq, N, L);
        for (int64_t j = 0; j < L; j++)
            add(dW_r + j * N, s->dwrite[j], s->khat, N);
        for (int64_t i = 0; i < N; i++) {
            add(dV + i * L, s->u[i], s->dread, L);
            if (!(c->wrong & NO_DV))
                add(dV + i * L, s->q[i], s->dquery, L);
        }
    } else {
        memcpy(s->dkhat, s->dwrite, (size_t)N * sizeof(real));
        memcpy(s->du, s->dread, (size_t)N * sizeof(real));
        memcpy(s->dq, s->dquery, (size_t)N * sizeof(real));
    }
    for (int64_t i = 0; i < N; i++) {
        if (!(c->wrong & DK_OF_WRITE))
            s->dkhat[i] += c->inside ? s->du[i] * s->z[i] : s->du[i];
        if (c->inside)
            s->dz[i] += s->du[i] * s->khat[i];
    }
}

static void put_gradients(const struct sizes *c, const struct step *s, int64_t at)
{
    const struct e74_cell *g = c->g;
    num *dk = g->k, *dv = g->v, *dq = g->q, *dz = g->z;
    const int tied = !(c->wrong & KEY_ALONE);

    for (int64_t from = 0; from < c->N; from += c->group) {
        const real *k = s->k + from, *dkhat = s->dkhat + from;
        const real length = sqrt(dot(k, k, c->group)), divisor = length + (real)E74_EPSILON;
        const real radial = length > 0 && !(c->wrong & KEY_AS_IS)
                                ? dot(k, dkhat, c->group) / (length * divisor * divisor)
                                : 0;
        for (int64_t i = from; i < from + c->group; i++)
            dk[at + i] = store(s->dkhat[i] / divisor - radial * s->k[i] +
                               (dq || !tied ? 0 : s->dq[i]) + (dv || !tied ? 0 : s->dv[i]));
    }
    for (int64_t i = 0; i < c->N; i++) {
        if (dv)
            dv[at + i] = store(s->dv[i]);
        if (dq)
            dq[at + i] = store(s->dq[i]);
        if (dz)
            dz[at + i] = store(s->dz[i]);
    }
}

/* dy of step t, in s->k's place: k is read afterwards. */
static void outputs_back(const struct sizes *c, int64_t at, real *dy)
{
    for (int64_t i = 0; i < c->N; i++) {
        const real y = load(((const num *)c->a->y)[at + i]), gate = sigmoid(y);
        const real slope = c->wrong & GATE_IS_CONSTANT ? 2 : 2 + y * (1 - gate);
        dy[i] = load(((const num *)c->g->out)[at + i]) * y * gate * slope;
    }
}

/* One sequence and head. */
static void row_back(const struct sizes *c, struct step *s, int64_t bh, real *dy)
{
    const int64_t size = c->M * (int64_t)sizeof(real);
    const real *dlast = c->g->S_T ? c->g->S_T : c->g->U_T;
    real *dfirst = c->g->S0 ? c->g->S0 : c->g->U0, *unused = dy + c->N;
    real *dV = c->lowrank ? (real *)c->g->V0 + place_of_V(c, bh) : NULL;
    real *dW_r = c->lowrank ? (real *)c->g->W_r + bh % c->H * c->M : NULL;

    if (c->wrong & LAST_W_R && bh < c->BH - c->H)
        dW_r = unused;
    if (c->wrong & LAST_V && bh < c->BH - c->H)
        dV = unused;
    begin(c, s, bh);
    for (int64_t t = 0; t < c->T; t++) {
        keys(c, s, t, bh);
        advance(c, s, t);
    }
    memcpy(s->G, dlast + bh * c->M, (size_t)size);
    for (int64_t t = c->T - 1; t >= 0; t--) {
        if (c->wrong & CHUNKS_APART && t + 1 < c->T && (t + 1) % c->K == 0)
            memset(s->G, 0, (size_t)size);
        keys(c, s, t, bh);
        advance(c, s, t);
        outputs_back(c, (t * c->BH + bh) * c->N, dy);
        step_back(c, s, t, dy);
        keys_back(c, s, dV, dW_r);
        put_gradients(c, s, (t * c->BH + bh) * c->N);
    }
    memcpy(dfirst + bh * c->M, s->G, (size_t)size);
}

static int run_backward(const struct call *f, unsigned wrong)
{
    const struct sizes c = sizes_of(f, wrong);
    struct step s;
    real *work = workspace_of(&c, &s), *dy = calloc((size_t)(c.N + c.M), sizeof *dy);

    for (int64_t i = 0; work && dy && c.lowrank && i < c.H * c.M; i++)
        ((real *)c.g->W_r)[i] = 0;
    for (int64_t i = 0; work && dy && c.lowrank && i < (c.V_shared ? c.H : c.BH) * c.M; i++)
        ((real *)c.g->V0)[i] = 0;
    for (int64_t bh = 0; work && dy && bh < c.BH; bh++)
        row_back(&c, &s, bh, dy);
    const int e = !work || !dy;
    free(work);
    free(dy);
    return e;
}

WRONG_UNLESS(has_tanh, f->choice[E74_NONLIN] == E74_TANH, "no tanh")
WRONG_UNLESS(has_norm, f->choice[E74_NONLIN] >= E74_RMSNORM, "no norm")
WRONG_UNLESS(has_rank, f->choice[E74_STATE] == E74_LOWRANK, "not of low rank")
WRONG_UNLESS(shares_V, f->choice[E74_STATE] == E74_LOWRANK && f->choice[E74_V] == E74_V_SHARED,
             "V0 is not shared")
WRONG_UNLESS(shares_heads,
             f->choice[E74_STATE] == E74_LOWRANK && f->choice[E74_V] == E74_V_SHARED &&
                 DIM(f, 'H') > 1,
             "one head shares V0 with none")
WRONG_UNLESS(is_tied, f->choice[E74_PROJ] >= E74_TIED_KQ, "nothing is tied")
WRONG_UNLESS(both_sides, f->choice[E74_PROJ] == E74_WITH_Z && f->choice[E74_Z_MOD] == E74_BOTH,
             "z is not at both sides")
WRONG_UNLESS(has_z_inside,
             f->choice[E74_PROJ] == E74_WITH_Z && f->choice[E74_Z_MOD] != E74_ROW &&
                 f->choice[E74_STATE] != E74_LOWRANK,
             "z is not inside")

WRONG_BITS(cell_raw_key, "the key is not normalised", RAW_KEY, 0);
WRONG_UNLESS(tiny_keys, f->choice[E74_FILL], "its keys do not show it")
WRONG_BITS(cell_key_no_eps, "the key is divided by its norm, without eps", NO_EPS, 0,
           .declines = tiny_keys);
WRONG_BITS(cell_key_eps_inside, "eps is added under the root of the key's norm", EPS_INSIDE, 0,
           .declines = tiny_keys);
WRONG_BITS(cell_key_at_least_eps, "the key is divided by max(|k|, eps)", AT_LEAST_EPS, 0,
           .declines = tiny_keys);
WRONG_BITS(cell_one_norm, "blocks' keys are normalised by the norm of all of them", WHOLE_NORM, 0,
           .declines = has_blocks);
WRONG_BITS(cell_reads_before, "y is read from the state before the step", READ_BEFORE, 0);
WRONG_BITS(cell_silu_alone, "out is silu(y), not y silu(y)", UNGATED, 0);
WRONG_BITS(cell_adds_value, "v is added and not v - rho, as linear attention", ADDS_VALUE, 0);
WRONG_BITS(cell_writes_modulated, "the step writes along z k^, not along k^", WRITES_U, 0,
           .declines = has_z_inside);
WRONG_BITS(cell_f_of_delta, "f is applied to the step's change alone", NONLIN_OF_DELTA, 0,
           .declines = has_tanh);
WRONG_BITS(cell_norm_of_row, "rmsnorm's mean is over n elements, not over the state's", NORM_OF_N,
           0);
WRONG_BITS(cell_key_as_is, "dk leaves out the slope of the key's norm", 0, KEY_AS_IS);
WRONG_BITS(cell_norm_is_constant, "backward takes the state's norm for a constant", 0,
           NORM_IS_CONSTANT, .declines = has_norm);
WRONG_BITS(cell_chunks_apart, "the state's gradient is not carried over a checkpoint", 0,
           CHUNKS_APART);
WRONG_BITS(cell_slope_before, "the slope of tanh is 1 - S^2 of the step before", 0, SLOPE_BEFORE,
           .declines = has_tanh);
WRONG_BITS(cell_no_slope, "backward leaves out the slope of tanh", 0, NO_SLOPE,
           .declines = has_tanh);
WRONG_BITS(cell_gate_is_constant, "dy leaves out the slope of out's sigmoid", 0, GATE_IS_CONSTANT);
WRONG_BITS(cell_key_alone, "a tied key lacks the gradients of q and v", 0, KEY_ALONE,
           .declines = is_tied);
WRONG_BITS(cell_dz_of_one_side, "dz is of the inner z alone where both sides have one", 0,
           DZ_INSIDE, .declines = both_sides);
WRONG_BITS(cell_dv0_of_reads, "d_V0 lacks the query's part", 0, NO_DV, .declines = has_rank);
WRONG_BITS(cell_dk_of_write, "dk is of what is written alone, not of what is read", 0, DK_OF_WRITE);
WRONG_BITS(cell_last_w_r, "d_W_r is not summed over the sequences", 0, LAST_W_R,
           .declines = has_rank);
WRONG_BITS(cell_last_v0, "a shared d_V0 is not summed over the sequences", 0, LAST_V,
           .declines = shares_V);
WRONG_BITS(cell_v0_of_head, "a shared V0 is the first head's for all heads", FIRST_HEAD, FIRST_HEAD,
           .declines = shares_heads);

WRONG_KERNELS(e74_cell, &cell_zero_state, &cell_no_final_gradient, &cell_z_other_side,
              &cell_raw_key, &cell_key_no_eps, &cell_key_eps_inside, &cell_key_at_least_eps,
              &cell_one_norm, &cell_reads_before, &cell_silu_alone, &cell_adds_value,
              &cell_writes_modulated, &cell_f_of_delta, &cell_norm_of_row, &cell_key_as_is,
              &cell_norm_is_constant, &cell_chunks_apart, &cell_slope_before, &cell_no_slope,
              &cell_gate_is_constant, &cell_key_alone, &cell_dz_of_one_side, &cell_dv0_of_reads,
              &cell_dk_of_write, &cell_last_w_r, &cell_last_v0, &cell_v0_of_head);
