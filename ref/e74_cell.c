/* e74_cell, plainly.
 *
 * In all four structures the state is n rows of `columns` elements.  The product of row i and a
 * key takes the `columns` elements of the key from start(i) on.
 *
 *                columns  rows with the same start   keys
 *     full       n        n                          k^, u, q
 *     blockdiag  b        b                          k^, u, q
 *     diagonal   1        1                          k^, u, q
 *     lowrank    r        n                          W_r k^, V^T u, V^T q
 *
 * A step computes rho = S u, P = S + delta k^T, the new state S = f(P) and y = S q.  Backward
 * replays one segment of steps from its checkpoint, keeps its states, and goes through them from
 * the last to the first.  The replay calls the same function as the forward step, so that
 * gradients do not depend on where checkpoints are. */
#include "ref/ref.h"

#include <omp.h>

#include "common/ops/e74.h"

/* ---- the sizes and choices of one call ---- */

struct cell {
    int64_t T, BH, H, N, K;
    int64_t columns, rows; /* of the table above */
    int64_t L, M;          /* elements of a key, of a state */
    int64_t group;         /* elements of k that are normalised together */
    int nonlin, lowrank, V_shared;
    int z_inside, z_outside; /* rho = z (S (z k^)): which of the two are there? */
    enum dtype kept;         /* storage of checkpoints */
};

static struct cell cell_of(const struct call *f)
{
    int64_t N = DIM(f, 'N'), R = DIM(f, 'R'), b = DIM(f, 'L');
    int state = f->choice[E74_STATE], z_mod = f->choice[E74_Z_MOD];
    int z = f->choice[E74_PROJ] == E74_WITH_Z;
    struct cell c = {
        .T = DIM(f, 'T'),
        .BH = DIM(f, 'B') * DIM(f, 'H'),
        .H = DIM(f, 'H'),
        .N = N,
        .K = DIM(f, 'K') < DIM(f, 'T') ? DIM(f, 'K') : DIM(f, 'T'),
        .group = state == E74_BLOCKDIAG ? b : N,
        .nonlin = f->choice[E74_NONLIN],
        .lowrank = state == E74_LOWRANK,
        .V_shared = state == E74_LOWRANK && f->choice[E74_V] == E74_V_SHARED,
        .z_inside = z && z_mod != E74_ROW,
        .z_outside = z && z_mod != E74_COLUMN,
        .kept = (enum dtype)(F32 + f->choice[E74_CHECKPOINT_DTYPE]),
    };
    switch (state) {
    case E74_FULL: c.columns = N, c.rows = N; break;
    case E74_DIAGONAL: c.columns = 1, c.rows = 1; break;
    case E74_LOWRANK: c.columns = R, c.rows = N; break;
    case E74_BLOCKDIAG: c.columns = b, c.rows = b; break;
    }
    c.L = N / c.rows * c.columns;
    c.M = N * c.columns;
    return c;
}

static int64_t start(const struct cell *c, int64_t i)
{
    return i / c->rows * c->columns;
}

/* ---- one thread's workspace ---- */

struct work {
    real *k, *v, *q, *z; /* of this step, in real; tied ones alias k */
    real *khat, *u;
    real *write, *read, *query; /* k^, u and q as the products with S take them */
    real *dkhat, *du, *dq, *dv, *dz, *dy;
    real *dwrite, *dread, *dquery;
    real *W_r;                     /* of this head, in real */
    real *G;                       /* gradient of the state */
    real *states, *reads, *scales; /* of a segment: S, S u and the norm of P */
    /* A kernel may have <G, S> from the rows dy y - dv v, whose sizes are added here, and G as
     * Gamma + beta S, where Gamma is what remains of G without the norms' slopes. */
    real terms, unseen, beta;
    /* Forward: what the roundings of delta left in the state, which a kernel that has all deltas of a
     * chunk at once reads only after the chunk. */
    real *unread;
};

static int64_t carve(const struct cell *c, enum pass p, real *at, struct work *w)
{
    int64_t used = 0, backward = p == BACKWARD, factor = c->lowrank;
    // clang-format off
    struct { real **to; int64_t n; } parts[] = {
        {&w->k, c->N}, {&w->v, c->N}, {&w->q, c->N}, {&w->z, c->N},
        {&w->khat, c->N}, {&w->u, c->N},
        {&w->write, factor * c->L}, {&w->read, factor * c->L}, {&w->query, factor * c->L},
        {&w->W_r, factor * c->L * c->N},
        {&w->states, ((backward ? c->K : 0) + 1) * c->M},
        {&w->reads, (backward ? c->K : 1) * c->N}, {&w->scales, backward ? c->K : 1},
        {&w->dkhat, backward * c->N}, {&w->du, backward * c->N}, {&w->dq, backward * c->N},
        {&w->dv, backward * c->N}, {&w->dz, backward * c->N}, {&w->dy, backward * c->N},
        {&w->dwrite, backward * c->L}, {&w->dread, backward * c->L},
        {&w->dquery, backward * c->L},
        {&w->G, backward * c->M}, {&w->unread, !backward * c->M},
    };
    // clang-format on
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (at && parts[i].n)
            *parts[i].to = at + used;
        used += parts[i].n;
    }
    return used + 16; /* the next thread's begins on another cache line */
}

/* Elements of the partial sums of dW_r and of a shared dV0: backward keeps one of each for each
 * sequence and head, before the threads' own parts, and adds them up at the end in a fixed order. */
static int64_t partials(const struct cell *c, enum pass p)
{
    return p == BACKWARD && c->lowrank ? (1 + c->V_shared) * c->BH * c->M : 0;
}

static size_t work(const struct call *f, enum pass p)
{
    struct cell c = cell_of(f);
    struct work w;
    return sizeof(real) * (partials(&c, p) + omp_get_max_threads() * carve(&c, p, NULL, &w));
}

static struct work my_work(const struct call *f, const struct cell *c, enum pass p)
{
    struct work w = {.unread = NULL};
    int64_t each = carve(c, p, NULL, &w);
    carve(c, p, (real *)f->work + partials(c, p) + omp_get_thread_num() * each, &w);
    if (!c->lowrank)
        w.query = w.q, w.write = w.khat, w.read = w.u;
    return w;
}

/* V of row bh. */
static const real *V_of(const struct cell *c, const struct e74_cell *a, int64_t bh)
{
    return (const real *)a->V0 + (c->V_shared ? bh % c->H : bh) * c->M;
}

/* ---- small loops ---- */

static void zero(real *x, int64_t n)
{
    memset(x, 0, n * sizeof *x);
}

/* y = A x for A [rows,columns] */
static void times(const real *A, const real *x, real *y, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        y[i] = dot(A + i * columns, x, columns);
}

static void put_checkpoint(const struct cell *c, void *at, int64_t i, const real *S)
{
    put_kept(c->kept, at, i * c->M, S, c->M);
}

static void get_checkpoint(const struct cell *c, const void *at, int64_t i, real *S)
{
    get_kept(c->kept, at, i * c->M, S, c->M);
}

/* ---- one step ---- */

static void fetch(real *to, const num *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = load(from[i]);
}

/* k, v, q, z at step t of row bh, and the keys that follow from them. */
static void keys(const struct cell *c, const struct e74_cell *a, int64_t t, int64_t bh,
                 struct work *w)
{
    int64_t N = c->N, at = (t * c->BH + bh) * N;

    fetch(w->k, (const num *)a->k + at, N);
    fetch(w->v, (const num *)(a->v ? a->v : a->k) + at, N);
    fetch(w->q, (const num *)(a->q ? a->q : a->k) + at, N);
    if (a->z)
        fetch(w->z, (const num *)a->z + at, N);
    for (int64_t g = 0; g < N; g += c->group) {
        real length = sqrt(dot(w->k + g, w->k + g, c->group));
        for (int64_t i = g; i < g + c->group; i++) {
            w->khat[i] = rounded(w->k[i] / (length + (real)E74_EPSILON));
            w->u[i] = c->z_inside ? w->z[i] * w->khat[i] : w->khat[i];
        }
    }
    if (c->lowrank) {
        const real *V = V_of(c, a, bh);
        times(w->W_r, w->khat, w->write, c->L, N);
        times_transposed(V, w->u, w->read, N, c->L);
        times_transposed(V, w->q, w->query, N, c->L);
    }
}

/* S = f(P), in place; *scale is the norm that f divides by, less epsilon. */
static void nonlinearity(const struct cell *c, real *P, real *scale)
{
    real mean = c->nonlin == E74_RMSNORM ? 1 / (real)c->M : 1;

    switch (c->nonlin) {
    case E74_TANH:
        for (int64_t j = 0; j < c->M; j++)
            P[j] = tanh(P[j]);
        break;
    case E74_LINEAR: break;
    case E74_RMSNORM:
    case E74_FROBNORM:
        *scale = sqrt(dot(P, P, c->M) * mean);
        for (int64_t j = 0; j < c->M; j++)
            P[j] = rounded(P[j] / special(*scale + (real)E74_EPSILON));
        break;
    }
}

/* <G, S>.  A kernel that has it from the rows does not see what its errors left along S in the steps
 * before: the rounding of these terms, and of <dP, P> = 0, which is c R = 1. */
static real dot_with_state(const struct cell *c, struct work *w, const real *S)
{
    const real GS = dot(w->G, S, c->M);

    if (!at_site(E74_AT_GS))
        return GS;
    w->unseen = site_of_terms(E74_AT_GS, w->unseen, w->terms);
    const real seen = GS + w->unseen;
    w->unseen += special(seen) - seen;
    return seen;
}

enum { SEEN_AGAIN = 16 }; /* steps after which such a kernel has <G, S> from G and S once more */
/* The sizes of its terms there, which hide nothing. */
static void begin_terms(const struct cell *c, struct work *w, const real *S)
{
    w->unseen = w->terms = 0;
    for (int64_t i = 0; at_site(E74_AT_GS) && i < c->M; i++)
        w->terms += fabs(w->G[i] * S[i]);
}

/* From dL/dS to dL/dP, in place, given S = f(P). */
static void nonlinearity_back(const struct cell *c, struct work *w, const real *S, real scale)
{
    real *G = w->G;
    real mean = c->nonlin == E74_RMSNORM ? 1 / (real)c->M : 1;

    switch (c->nonlin) {
    case E74_TANH:
        for (int64_t j = 0; j < c->M; j++)
            G[j] = rounded(G[j] * (1 - S[j] * S[j]));
        break;
    case E74_LINEAR: break;
    case E74_RMSNORM:
    case E74_FROBNORM: {
        /* d scale = mean <P, dP> / scale, and P = (scale + epsilon) S */
        real GS = dot_with_state(c, w, S), divisor = scale + (real)E74_EPSILON;
        real dot_GS = scale > 0 ? special(mean * GS / scale) : 0;
        for (int64_t j = 0; j < c->M; j++)
            G[j] = rounded(rounded(G[j] / special(divisor)) - rounded(dot_GS * S[j]));
        w->beta = (w->beta / divisor - dot_GS) / divisor;
        w->terms = 0;
        break;
    }
    }
}

/* v - rho, where `read` is (S u)[i]. */
static real residual(const struct cell *c, const struct work *w, int64_t i, real read)
{
    return rounded(w->v[i] - (c->z_outside ? w->z[i] * read : read));
}

/* What a float rounds of 1 - w k^, by which a step multiplies element i of a diagonal state: a kernel
 * may compute that factor, and where all steps have one key all of them are off alike. */
static real rounding_of_factor(const struct cell *c, const struct work *w, int64_t i)
{
    const real factor = 1 - (c->z_outside ? w->z[i] * w->u[i] : w->u[i]) * w->khat[i];
    return c->columns == 1 && !c->lowrank ? rounding_of(factor) : 0;
}

/* x, and what is added to it by that rounding of a product with `by`. */
static real with_rounding(real x, real rounding, real by)
{
    return rounding != 0 ? x + rounding * by : x;
}

/* What a step that stores delta, of row i, adds to the state. */
static real stored_delta(const struct cell *c, const struct work *w, int64_t i, real delta)
{
    const real stored = site(E74_AT_DELTA, delta);

    if (at_site(E74_AT_DELTA) && w->unread)
        add(w->unread + i * c->columns, stored - delta, w->write + start(c, i), c->columns);
    return w->unread ? stored : delta;
}

enum { READ_AGAIN = 64 }; /* steps after which such a kernel reads what delta's roundings left */

static void begin_chunk(const struct cell *c, const struct work *w, int64_t t)
{
    if (at_site(E74_AT_DELTA) && t % READ_AGAIN == 0)
        zero(w->unread, c->M);
}

/* next = f(S + delta k^T); S and next may be the same. */
static void step_forward(const struct cell *c, const struct work *w, const real *S, real *next,
                         real *reads, real *scale)
{
    for (int64_t i = 0; i < c->N; i++) {
        const real *row = S + i * c->columns, *write = w->write + start(c, i);
        real *to = next + i * c->columns;
        reads[i] = dot(row, w->read + start(c, i), c->columns);
        if (at_site(E74_AT_DELTA) && w->unread)
            reads[i] -= dot(w->unread + i * c->columns, w->read + start(c, i), c->columns);
        const real delta = stored_delta(c, w, i, residual(c, w, i, reads[i]));
        const real off = rounding_of_factor(c, w, i);
        for (int64_t j = 0; j < c->columns; j++)
            to[j] = rounded(with_rounding(row[j] + delta * write[j], off, row[j]));
    }
    nonlinearity(c, next, scale);
}

/* ---- forward ---- */

static int forward(const struct call *f)
{
    const struct e74_cell *a = ARGS(f, e74_cell);
    struct cell c = cell_of(f);
    const real *first = a->S0 ? a->S0 : a->U0;
    real *last = a->S_T ? a->S_T : a->U_T;

    #pragma omp parallel
    {
        struct work w = my_work(f, &c, FORWARD);
        #pragma omp for
        for (int64_t bh = 0; bh < c.BH; bh++) {
            real *S = w.states;
            memcpy(S, first + bh * c.M, c.M * sizeof *S);
            if (c.lowrank)
                fetch(w.W_r, (const num *)a->W_r + bh % c.H * c.M, c.M);
            for (int64_t t = 0; t < c.T; t++) {
                num *y = (num *)a->y + (t * c.BH + bh) * c.N;
                num *out = (num *)a->out + (t * c.BH + bh) * c.N;
                if (t % c.K == 0)
                    put_checkpoint(&c, a->checkpoints, t / c.K * c.BH + bh, S);
                keys(&c, a, t, bh, &w);
                begin_chunk(&c, &w, t);
                step_forward(&c, &w, S, S, w.reads, w.scales);
                for (int64_t i = 0; i < c.N; i++) {
                    real yi = dot(S + i * c.columns, w.query + start(&c, i), c.columns);
                    y[i] = store(yi);
                    out[i] = store(yi * yi * sigmoid(yi));
                }
            }
            memcpy(last + bh * c.M, S, c.M * sizeof *S);
        }
    }
    return 0;
}

/* ---- backward ---- */

/* A row of a step backward: its state before the step and dL/dP, what it read, and v - rho. */
struct row {
    int64_t i;
    const real *before;
    real *dP;
    real reads, delta;
};

/* dL/dP k^, which a kernel may have as that of Gamma and that of beta (S + delta k^T). */
static real along_key(const struct cell *c, const struct work *w, const struct row *r)
{
    const real *write = w->write + start(c, r->i);
    return site_of_terms(E74_AT_GS, dot(r->dP, write, c->columns),
                         w->beta * (fabs(dot(r->before, write, c->columns)) +
                                    fabs(r->delta * dot(write, write, c->columns))));
}

/* The sizes of these two in element j of the row. */
static real size_of_parts(const struct cell *c, const struct work *w, const struct row *r,
                          int64_t j)
{
    return w->beta * (fabs(r->before[j]) + fabs(r->delta * w->write[start(c, r->i) + j]));
}

/* Adds the row's delta dP to what the key gets. */
static void write_back(const struct cell *c, const struct work *w, const struct row *r)
{
    real *to = w->dwrite + start(c, r->i);

    add(to, r->delta, r->dP, c->columns);
    for (int64_t j = 0; at_site(E74_AT_GS) && j < c->columns; j++)
        to[j] = site_of_terms(E74_AT_GS, to[j], r->delta * size_of_parts(c, w, r, j));
}

/* From dL/dP to dL/dS, in place, by way of what S u was subtracted from. */
static void read_back(const struct cell *c, const struct work *w, const struct row *r, real dreads)
{
    const real off = rounding_of_factor(c, w, r->i), last = r->dP[0];

    add(r->dP, dreads, w->read + start(c, r->i), c->columns);
    r->dP[0] = with_rounding(r->dP[0], off, last);
    for (int64_t j = 0; at_site(E74_AT_GS) && j < c->columns; j++)
        r->dP[j] = site_of_terms(E74_AT_GS, r->dP[j], size_of_parts(c, w, r, j));
}

/* Step t backward: w->G, which is dL/dS_t, becomes dL/dS_{t-1}.  w holds the gradients of v and
 * z, and of k^, u and q as the products with S take them. */
static void step_back(const struct cell *c, struct work *w, const real *before, const real *S,
                      const real *reads, real scale)
{
    zero(w->dwrite, c->L);
    zero(w->dread, c->L);
    zero(w->dquery, c->L);
    for (int64_t i = 0; i < c->N; i++) {
        add(w->G + i * c->columns, w->dy[i], w->query + start(c, i), c->columns);
        add(w->dquery + start(c, i), w->dy[i], S + i * c->columns, c->columns);
        if (at_site(E74_AT_GS))
            w->terms +=
                fabs(w->dy[i] * dot(S + i * c->columns, w->query + start(c, i), c->columns));
    }
    nonlinearity_back(c, w, S, scale);
    for (int64_t i = 0; i < c->N; i++) {
        const struct row r = {.i = i,
                              .before = before + i * c->columns,
                              .dP = w->G + i * c->columns,
                              .reads = reads[i],
                              .delta = site(E74_AT_DELTA, residual(c, w, i, reads[i]))};
        const real ddelta = along_key(c, w, &r);
        const real dreads = c->z_outside ? -ddelta * w->z[i] : -ddelta;
        w->dv[i] = ddelta;
        w->terms += fabs(ddelta * w->v[i]);
        w->dz[i] = c->z_outside ? -ddelta * r.reads : 0;
        write_back(c, w, &r);
        add(w->dread + start(c, i), dreads, r.before, c->columns);
        read_back(c, w, &r, dreads);
    }
}

/* From the gradients of the keys that the products with S take to those of k^, u and q; those of
 * V and W_r are added to dV and dW_r. */
static void keys_back(const struct cell *c, struct work *w, const real *V, real *dV, real *dW_r)
{
    int64_t N = c->N, L = c->L;

    if (c->lowrank) {
        times_transposed(w->W_r, w->dwrite, w->dkhat, L, N);
        times(V, w->dread, w->du, N, L);
        times(V, w->dquery, w->dq, N, L);
        for (int64_t j = 0; j < L; j++)
            add(dW_r + j * N, w->dwrite[j], w->khat, N);
        for (int64_t i = 0; i < N; i++) {
            add(dV + i * L, w->u[i], w->dread, L);
            add(dV + i * L, w->q[i], w->dquery, L);
        }
    } else {
        memcpy(w->dkhat, w->dwrite, N * sizeof(real));
        memcpy(w->du, w->dread, N * sizeof(real));
        memcpy(w->dq, w->dquery, N * sizeof(real));
    }
    for (int64_t i = 0; i < N; i++) {
        w->dkhat[i] += c->z_inside ? w->du[i] * w->z[i] : w->du[i];
        if (c->z_inside)
            w->dz[i] += w->du[i] * w->khat[i];
    }
}

/* The gradient of k through its normalisation, with those of q and v where they are tied to k. */
static void put_gradients(const struct cell *c, const struct work *w, const struct e74_cell *g,
                          int64_t at)
{
    for (int64_t s = 0; s < c->N; s += c->group) {
        const real *k = w->k + s, *dkhat = w->dkhat + s;
        real length = sqrt(dot(k, k, c->group)), scale = length + (real)E74_EPSILON;
        real dot_kd = length > 0 ? dot(k, dkhat, c->group) / (length * scale * scale) : 0;
        for (int64_t i = 0; i < c->group; i++) {
            real dk = dkhat[i] / scale - dot_kd * k[i];
            if (!g->q)
                dk += w->dq[s + i];
            if (!g->v)
                dk += w->dv[s + i];
            ((num *)g->k)[at + s + i] = store(dk);
        }
    }
    for (int64_t i = 0; i < c->N; i++) {
        if (g->v)
            ((num *)g->v)[at + i] = store(w->dv[i]);
        if (g->q)
            ((num *)g->q)[at + i] = store(w->dq[i]);
        if (g->z)
            ((num *)g->z)[at + i] = store(w->dz[i]);
    }
}

/* sum [H][M]: of all sequences' parts [BH][M], first sequence first. */
static void sum_sequences(const struct cell *c, const real *parts, real *sums)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < c->H * c->M; i++) {
        real sum = 0;
        FOR_SUM (b, c->BH / c->H)
            add_to(sum, parts[b * c->H * c->M + i]);
        sums[i] = sum;
    }
}

static int backward(const struct call *f)
{
    const struct e74_cell *a = ARGS(f, e74_cell), *g = GRADS(f, e74_cell);
    struct cell c = cell_of(f);
    const real *dlast = g->S_T ? g->S_T : g->U_T;
    real *dfirst = g->S0 ? g->S0 : g->U0, *dW_r_parts = f->work;
    real *dV_parts = c.V_shared ? dW_r_parts + c.BH * c.M : g->V0;

    #pragma omp parallel
    {
        struct work w = my_work(f, &c, BACKWARD);
        #pragma omp for
        for (int64_t bh = 0; bh < c.BH; bh++) {
            const real *V = c.lowrank ? V_of(&c, a, bh) : NULL;
            real *dV = c.lowrank ? dV_parts + bh * c.M : NULL;
            real *dW_r_part = c.lowrank ? dW_r_parts + bh * c.M : NULL;
            memcpy(w.G, dlast + bh * c.M, c.M * sizeof(real));
            w.beta = 0;
            if (c.lowrank) {
                fetch(w.W_r, (const num *)a->W_r + bh % c.H * c.M, c.M);
                zero(dV, c.M);
                zero(dW_r_part, c.M);
            }
            for (int64_t end = c.T; end > 0;) {
                int64_t begin = (end - 1) / c.K * c.K;
                get_checkpoint(&c, a->checkpoints, begin / c.K * c.BH + bh, w.states);
                for (int64_t t = begin; t < end; t++) {
                    int64_t s = t - begin;
                    keys(&c, a, t, bh, &w);
                    step_forward(&c, &w, w.states + s * c.M, w.states + (s + 1) * c.M,
                                 w.reads + s * c.N, w.scales + s);
                }
                if (end < c.T) /* a kernel may go on from the checkpoint there */
                    kept_all(c.kept, w.states + (end - begin) * c.M, c.M);
                for (int64_t t = end - 1; t >= begin; t--) {
                    int64_t s = t - begin, at = (t * c.BH + bh) * c.N;
                    keys(&c, a, t, bh, &w);
                    for (int64_t i = 0; i < c.N; i++) {
                        real y = load(((const num *)a->y)[at + i]), gate = sigmoid(y);
                        real dout = load(((const num *)g->out)[at + i]);
                        w.dy[i] = dout * y * gate * (2 + y * (1 - gate));
                    }
                    if (t == c.T - 1 || (t + 1) % SEEN_AGAIN == 0)
                        begin_terms(&c, &w, w.states + (s + 1) * c.M);
                    step_back(&c, &w, w.states + s * c.M, w.states + (s + 1) * c.M,
                              w.reads + s * c.N, w.scales[s]);
                    keys_back(&c, &w, V, dV, dW_r_part);
                    put_gradients(&c, &w, g, at);
                }
                end = begin;
            }
            memcpy(dfirst + bh * c.M, w.G, c.M * sizeof(real));
        }
    }
    if (c.lowrank)
        sum_sequences(&c, dW_r_parts, g->W_r);
    if (c.V_shared)
        sum_sequences(&c, dV_parts, g->V0);
    return 0;
}

REF_KERNEL(e74_cell, "plain", "row by row, checkpoint and replay", forward, backward, .work = work);
