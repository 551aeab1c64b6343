/* dual_memory, plainly: products with x over all T*B rows at once, those of a
 * step over its B sequences, the rest sequence by sequence.
 *
 * The gate is outside the recurrence: forward it is applied after all steps, and
 * backward its terms of dh and dread of every step are computed before the first
 * step back.  Backward replays a segment's tapes from its checkpoint, with the v
 * and omega that forward saved, so that gradients do not depend on where
 * checkpoints are. */
#include "ref/entmax15.h"
#include "ref/ref.h"

#include "common/ops/dual_memory.h"

/* ---- the sizes and choices of one call ---- */

struct cell {
    int64_t T, B, D, in, N, K;
    int64_t M, rows; /* elements of a sequence's tape; T*B */
    struct dual_parts parts;
    int each; /* is there an initial tape per sequence? */
    real scale, clamp;
    enum dtype kept; /* storage of checkpoints */
};

static struct cell cell_of(const struct call *f)
{
    int64_t T = DIM(f, 'T'), K = DIM(f, 'K'), D = DIM(f, 'D');

    return (struct cell){
        .T = T,
        .B = DIM(f, 'B'),
        .D = D,
        .in = DIM(f, 'I'),
        .N = DIM(f, 'N'),
        .K = K < T ? K : T,
        .M = DIM(f, 'N') * D,
        .rows = T * DIM(f, 'B'),
        .parts = dual_parts(f),
        .each = f->choice[DUAL_TAPE] == DUAL_EACH,
        .scale = constant(1 / sqrt((real)D)),
        .clamp = (real)DIM(f, 'L'),
        .kept = (enum dtype)(F32 + f->choice[DUAL_CHECKPOINT_DTYPE]),
    };
}

/* ---- attention ---- */

static void softmax(real *p, const real *a, int64_t n)
{
    real maximum = a[0], sum = 0;

    for (int64_t i = 1; i < n; i++)
        maximum = max_or_nan(a[i], maximum);
    maximum += above_maximum();
    FOR_SUM (i, n)
        add_to(sum, p[i] = exp(a[i] - maximum));
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
}

static void attend(const struct cell *c, real *p, const real *a)
{
    if (c->parts.attention == DUAL_SOFTMAX)
        softmax(p, a, c->N);
    else
        REF(entmax15_row)(p, a, c->N);
}

/* From dL/dp to dL/da, in place. */
static void attend_back(const struct cell *c, const real *p, real *d)
{
    real dot_pd = 0, sum = 0;

    if (c->parts.attention == DUAL_ENTMAX15) {
        REF(entmax15_row_back)(p, d, c->N);
        return;
    }
    FOR_SUM (i, c->N) {
        add_to(dot_pd, p[i] * d[i]);
        add_to(sum, p[i]);
    }
    for (int64_t i = 0; i < c->N; i++)
        d[i] = p[i] * (d[i] - dot_pd / sum);
}

/* ---- checkpoints ---- */

static void put_checkpoint(const struct cell *c, void *at, int64_t slot, const real *M)
{
    put_kept(c->kept, at, slot * c->M, M, c->M);
}

static void get_checkpoint(const struct cell *c, const void *at, int64_t slot, real *M)
{
    get_kept(c->kept, at, slot * c->M, M, c->M);
}

/* ---- workspace ---- */

/* The arrays of a pass, all of type real. */
struct work {
    real *x, *W_h, *W_write, *W_in, *W_gate; /* copies, where the storage type is narrower */
    real *xp;                                /* [T,B,D]: W_x x */
    real *z, *read, *g;                      /* [T,B,D]: of a gate; backward dg is in g */
    real *dh, *dread, *dz;                   /* [T,B,D]: terms of the gate */
    real *dp, *dv;                           /* [T,B,D] */
    real *h;                                 /* [1+T,B,D]: h0 and h, as a product's operands */
    real *dx;                                /* [T,B,I] */
    real *product, *carry;                   /* [B,D]; dL/dh */
    real *scores;                            /* [B,N] */
    real *dM, *tapes;                        /* [B,N,D]; [K,B,N,D]: before each step */
};

static int64_t lay_out(const struct cell *c, enum pass p, real *at, struct work *w)
{
    int64_t used = 0, backward = p == BACKWARD, D = c->D, TBD = c->rows * D;
    int64_t gated = c->parts.gate != DUAL_NO_GATE, matrix = c->parts.gate == DUAL_MATRIX;
    // clang-format off
    struct { real **to; int64_t n; } parts[] = {
        {&w->x, COPIES * c->rows * c->in}, {&w->W_h, COPIES * D * D}, {&w->W_write, COPIES * D * D},
        {&w->W_in, COPIES * (1 + gated) * D * c->in}, {&w->W_gate, COPIES * matrix * 3 * D * D},
        {&w->xp, !backward * TBD},
        {&w->z, gated * TBD}, {&w->read, gated * TBD}, {&w->g, gated * TBD},
        {&w->dh, backward * TBD}, {&w->dread, backward * gated * TBD},
        {&w->dz, backward * gated * TBD}, {&w->dp, backward * TBD}, {&w->dv, backward * TBD},
        {&w->h, backward * (TBD + c->B * D)}, {&w->dx, backward * c->rows * c->in},
        {&w->product, c->B * D}, {&w->carry, backward * c->B * D}, {&w->scores, c->B * c->N},
        {&w->dM, backward * c->B * c->M}, {&w->tapes, backward * c->K * c->B * c->M},
    };
    // clang-format on
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (at)
            *parts[i].to = at + used;
        used += parts[i].n;
    }
    return used;
}

static size_t work(const struct call *f, enum pass p)
{
    struct cell c = cell_of(f);
    struct work w;
    return sizeof(real) * lay_out(&c, p, NULL, &w);
}

/* x in real: itself, or a copy in `copy`. */
static const real *in_real(const void *x, int64_t n, real *copy)
{
    return widened(x, n, &copy);
}

static void fetch(real *to, const num *from, int64_t n)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        to[i] = load(from[i]);
}

/* To the storage type; x becomes the rounded value. */
static void keep(num *to, real *x, int64_t n)
{
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        x[i] = load(to[i] = store(x[i]));
}

/* ---- operands that a composition of operators stores ---- */

/* Gradients of what is before a nonlinearity, as a product's operands, and of the gate's inputs. */
static void operands(real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = site(DUAL_AT_D, x[i]);
}

/* h0 and h of all steps. */
static void copy_h(const struct cell *c, const struct dual_memory *a, struct work *w)
{
    const int64_t BD = c->B * c->D, n = c->rows * c->D;

    memcpy(w->h, a->h0, BD * sizeof(real));
    memcpy(w->h + BD, a->h, n * sizeof(real));
    for (int64_t i = 0; i < BD + n; i++)
        w->h[i] = site(DUAL_AT_H, w->h[i]);
}

/* ---- the gate ---- */

/* The columns of W_gate [D,3D] that multiply the gate's input i. */
static struct matrix gate_weights(const real *W, int64_t D, int i)
{
    return (struct matrix){W + i * D, D, D, 3 * D, CblasNoTrans};
}

/* g of every step, not yet clamped, into w->g; z and read are in w. */
static void gate_arguments(const struct cell *c, const struct dual_memory *a, struct work *w)
{
    const real *h = a->h;
    int64_t D = c->D;

    if (c->parts.gate == DUAL_MATRIX) {
        const real *W = in_real(a->W_gate, 3 * D * D, w->W_gate);
        const real *in[] = {w->z, w->read, h};
        for (int i = 0; i < 3; i++)
            product(matrix(in[i], c->rows, D), transposed(gate_weights(W, D, i)), i > 0, w->g, D);
        return;
    }
    #pragma omp parallel for
    for (int64_t m = 0; m < c->rows; m++)
        for (int64_t j = 0; j < D; j++) {
            int64_t i = m * D + j;
            if (c->parts.gate == DUAL_SUM)
                w->g[i] = w->z[i] + w->read[i] + h[i];
            else
                w->g[i] = w->z[i] * load(((const num *)a->g_z)[j]) +
                          w->read[i] * load(((const num *)a->g_r)[j]) +
                          h[i] * load(((const num *)a->g_h)[j]) + load(((const num *)a->b_g)[j]);
        }
}

/* Is g outside the clamp?  If so, *g becomes the bound. */
static int clamped(const struct cell *c, real *g)
{
    if (c->parts.gate != DUAL_SCALED || (*g >= -c->clamp && *g <= c->clamp))
        return 0;
    *g = *g > 0 ? c->clamp : -c->clamp;
    return 1;
}

static void gate(const struct cell *c, const struct dual_memory *a, struct work *w)
{
    const real *h = a->h;
    int64_t n = c->rows * c->D;

    if (c->parts.gate != DUAL_NO_GATE) {
        fetch(w->read, a->read, n);
        gate_arguments(c, a, w);
        if (a->g)
            keep(a->g, w->g, n);
    }
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real silu = 1;
        if (c->parts.gate != DUAL_NO_GATE) {
            real g = w->g[i];
            clamped(c, &g);
            silu = g * sigmoid(g);
        }
        ((num *)a->out)[i] = store(h[i] * silu);
    }
}

/* d[j] = the sum over rows of dg x (NULL: 1). */
static void column_sums(const struct cell *c, const real *dg, const real *x, real *d)
{
    #pragma omp parallel for
    for (int64_t j = 0; j < c->D; j++) {
        real sum = 0;
        for (int64_t i = j; i < c->rows * c->D; i += c->D)
            add_to(sum, x ? dg[i] * x[i] : dg[i]);
        d[j] = sum;
    }
}

/* From dg of every step, in w->g, the gradients of the gate's inputs (w->dz, w->dread, added
 * to w->dh) and of its parameters. */
static void gate_inputs_back(const struct cell *c, const struct dual_memory *a,
                             const struct dual_memory *g, struct work *w)
{
    const real *h = w->h + c->B * c->D;
    int64_t D = c->D;

    operands(w->g, c->rows * D);
    operands(w->dh, c->rows * D);
    if (c->parts.gate == DUAL_MATRIX) {
        const real *W = in_real(a->W_gate, 3 * D * D, w->W_gate);
        const real *in[] = {w->z, w->read, h};
        real *to[] = {w->dz, w->dread, w->dh};
        for (int i = 0; i < 3; i++) {
            product(matrix(w->g, c->rows, D), gate_weights(W, D, i), to[i] == w->dh, to[i], D);
            product(transposed(matrix(w->g, c->rows, D)), matrix(in[i], c->rows, D), 0,
                    (real *)g->W_gate + i * D, 3 * D);
        }
        return;
    }
    int scaled = c->parts.gate == DUAL_SCALED;
    #pragma omp parallel for
    for (int64_t m = 0; m < c->rows; m++)
        for (int64_t j = 0; j < D; j++) {
            int64_t i = m * D + j;
            w->dz[i] = w->g[i] * (scaled ? load(((const num *)a->g_z)[j]) : 1);
            w->dread[i] = w->g[i] * (scaled ? load(((const num *)a->g_r)[j]) : 1);
            w->dh[i] += w->g[i] * (scaled ? load(((const num *)a->g_h)[j]) : 1);
        }
    if (scaled) {
        column_sums(c, w->g, w->z, g->g_z);
        column_sums(c, w->g, w->read, g->g_r);
        column_sums(c, w->g, h, g->g_h);
        column_sums(c, w->g, NULL, g->b_g);
    }
}

/* From dout of every step w->dh, w->dread and w->dz. */
static void gate_back(const struct cell *c, const struct dual_memory *a,
                      const struct dual_memory *g, struct work *w)
{
    const num *dout = g->out;
    const real *h = a->h;
    int64_t n = c->rows * c->D;

    if (c->parts.gate == DUAL_NO_GATE) {
        fetch(w->dh, dout, n);
        return;
    }
    fetch(w->z, a->z, n);
    fetch(w->read, a->read, n);
    if (a->g)
        fetch(w->g, a->g, n);
    else
        gate_arguments(c, a, w);
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real x = w->g[i], d = load(dout[i]);
        int held = clamped(c, &x);
        real s = sigmoid(x);
        w->dh[i] = d * x * s;
        w->g[i] = held ? 0 : d * h[i] * s * (1 + x * (1 - s));
    }
    gate_inputs_back(c, a, g, w);
    operands(w->dread, n);
}

/* ---- forward ---- */

/* xp, and z, of all steps. */
static void project(const struct cell *c, const struct dual_memory *a, struct work *w)
{
    const real *x = in_real(a->x, c->rows * c->in, w->x);
    int64_t D = c->D, gated = c->parts.gate != DUAL_NO_GATE;
    const real *W = in_real(gated ? a->W_xz : a->W_x, (1 + gated) * D * c->in, w->W_in);

    product(matrix(x, c->rows, c->in), transposed(matrix(W, D, c->in)), 0, w->xp, D);
    if (gated) {
        product(matrix(x, c->rows, c->in), transposed(matrix(W + D * c->in, D, c->in)), 0, w->z, D);
        keep(a->z, w->z, c->rows * D);
    }
}

/* h before step t. */
static const real *h_before(const struct cell *c, const struct dual_memory *a, int64_t t)
{
    return t ? (const real *)a->h + (t - 1) * c->B * c->D : a->h0;
}

/* p = attend(s M query). */
static void read_tape(const struct cell *c, const real *M, const real *query, real *p, real *scores)
{
    for (int64_t n = 0; n < c->N; n++)
        scores[n] = c->scale * dot(M + n * c->D, query, c->D);
    attend(c, p, scores);
}

/* h of step t, for sequence b; w->product is W_h h. */
static void update_hidden(const struct cell *c, const struct dual_memory *a, struct work *w,
                          int64_t t, int64_t b)
{
    int64_t D = c->D, row = t * c->B + b;
    const real *M = (const real *)a->M_T + b * c->M, *xp = w->xp + row * D;
    real *h = (real *)a->h + row * D, *rho = (real *)a->rho + row * c->N;

    read_tape(c, M, h_before(c, a, t) + b * D, rho, w->scores + b * c->N);
    times_transposed(M, rho, h, c->N, D);
    for (int64_t j = 0; j < D; j++) {
        real read = h[j];
        if (a->read)
            ((num *)a->read)[row * D + j] = store(read);
        h[j] = tanh(w->product[b * D + j] + load(store(xp[j])) + read +
                    load(((const num *)a->b_h)[j]));
    }
}

/* M' = (1 - omega) M + omega v; both may be the same. */
static void blend_tape(const struct cell *c, const real *M, real *to, const real *omega,
                       const num *v)
{
    for (int64_t n = 0; n < c->N; n++)
        for (int64_t j = 0; j < c->D; j++)
            to[n * c->D + j] = (1 - omega[n]) * M[n * c->D + j] + omega[n] * load(v[j]);
}

/* The tape of step t written, for sequence b; w->product is W_write h. */
static void write_tape(const struct cell *c, const struct dual_memory *a, struct work *w, int64_t t,
                       int64_t b)
{
    int64_t D = c->D, row = t * c->B + b;
    real *M = (real *)a->M_T + b * c->M, *omega = (real *)a->omega + row * c->N;
    real *v_real = w->product + b * D;
    num *v = (num *)a->v + row * D;

    for (int64_t j = 0; j < D; j++)
        v_real[j] = load(v[j] = store(v_real[j]));
    read_tape(c, M, c->parts.query == DUAL_QUERY_V ? v_real : (const real *)a->h + row * D, omega,
              w->scores + b * c->N);
    blend_tape(c, M, M, omega, v);
}

static int forward(const struct call *f)
{
    const struct dual_memory *a = ARGS(f, dual_memory);
    struct cell c = cell_of(f);
    struct work w;
    int64_t B = c.B, D = c.D;

    lay_out(&c, FORWARD, f->work, &w);
    const real *W_h = in_real(a->W_h, D * D, w.W_h);
    const real *W_write = in_real(a->W_write, D * D, w.W_write);
    project(&c, a, &w);
    #pragma omp parallel for
    for (int64_t b = 0; b < B; b++)
        memcpy((real *)a->M_T + b * c.M, (const real *)a->M0 + c.each * b * c.M,
               c.M * sizeof(real));
    for (int64_t t = 0; t < c.T; t++) {
        product(matrix(h_before(&c, a, t), B, D), transposed(matrix(W_h, D, D)), 0, w.product, D);
        #pragma omp parallel for
        for (int64_t b = 0; b < B; b++) {
            if (t % c.K == 0)
                put_checkpoint(&c, a->checkpoints, t / c.K * B + b, (const real *)a->M_T + b * c.M);
            update_hidden(&c, a, &w, t, b);
        }
        product(matrix(h_before(&c, a, t + 1), B, D), transposed(matrix(W_write, D, D)), 0,
                w.product, D);
        #pragma omp parallel for
        for (int64_t b = 0; b < B; b++)
            write_tape(&c, a, &w, t, b);
    }
    memcpy(a->h_T, h_before(&c, a, c.T), B * D * sizeof(real));
    gate(&c, a, &w);
    return 0;
}

/* ---- backward ---- */

/* The data of one sequence at one step of the backward pass. */
struct step_view {
    const real *M, *h, *before, *rho, *omega; /* tape before the write; h_t, h_{t-1} */
    const num *v;
    real *dM, *carry, *dh, *dread, *dv, *dp, *scores, *product;
};

static struct step_view step_view(const struct cell *c, const struct dual_memory *a, struct work *w,
                                  int64_t t, int64_t b)
{
    int64_t D = c->D, row = t * c->B + b;
    return (struct step_view){
        .M = w->tapes + (t % c->K * c->B + b) * c->M,
        .h = (const real *)a->h + row * D,
        .before = h_before(c, a, t) + b * D,
        .rho = (const real *)a->rho + row * c->N,
        .omega = (const real *)a->omega + row * c->N,
        .v = (const num *)a->v + row * D,
        .dM = w->dM + b * c->M,
        .carry = w->carry + b * D,
        .dh = w->dh + row * D,
        .dread = c->parts.gate == DUAL_NO_GATE ? NULL : w->dread + row * D,
        .dv = w->dv + row * D,
        .dp = w->dp + row * D,
        .scores = w->scores + b * c->N,
        .product = w->product + b * D,
    };
}

/* Back through the write: carry becomes dL/dh without W_write^T dv; dv is complete. */
static void write_tape_back(const struct cell *c, const struct step_view *m)
{
    int64_t N = c->N, D = c->D;
    int by_v = c->parts.query == DUAL_QUERY_V;

    add(m->carry, 1, m->dh, D);
    for (int64_t n = 0; n < N; n++) {
        real sum = 0;
        FOR_SUM (j, D)
            add_to(sum, m->dM[n * D + j] * (load(m->v[j]) - m->M[n * D + j]));
        m->scores[n] = sum;
    }
    times_transposed(m->dM, m->omega, m->dv, N, D);
    attend_back(c, m->omega, m->scores);
    for (int64_t n = 0; n < N; n++) {
        real score = c->scale * m->scores[n], *dM = m->dM + n * D;
        add(by_v ? m->dv : m->carry, score, m->M + n * D, D);
        for (int64_t j = 0; j < D; j++)
            dM[j] = (1 - m->omega[n]) * dM[j] + score * (by_v ? load(m->v[j]) : m->h[j]);
    }
}

/* Back through the reading: dp, dM before the step, and in m->product the term of
 * dL/dh_{t-1} from the scores. */
static void update_hidden_back(const struct cell *c, const struct step_view *m)
{
    int64_t N = c->N, D = c->D;
    real *dread = m->product; /* until product is computed */

    for (int64_t j = 0; j < D; j++) {
        m->dp[j] = m->carry[j] * (1 - m->h[j] * m->h[j]);
        dread[j] = m->dp[j] + (m->dread ? m->dread[j] : 0);
    }
    for (int64_t n = 0; n < N; n++)
        m->scores[n] = dot(dread, m->M + n * D, D);
    attend_back(c, m->rho, m->scores);
    for (int64_t n = 0; n < N; n++) {
        add(m->dM + n * D, m->rho[n], dread, D);
        add(m->dM + n * D, c->scale * m->scores[n], m->before, D);
    }
    times_transposed(m->M, m->scores, m->product, N, D);
    for (int64_t j = 0; j < D; j++)
        m->product[j] *= c->scale;
}

/* The tapes before steps begin to end - 1, from the checkpoint before the first. */
static void replay(const struct cell *c, const struct dual_memory *a, struct work *w, int64_t begin,
                   int64_t end)
{
    #pragma omp parallel for
    for (int64_t b = 0; b < c->B; b++) {
        get_checkpoint(c, a->checkpoints, begin / c->K * c->B + b, w->tapes + b * c->M);
        for (int64_t t = begin; t + 1 < end; t++) {
            struct step_view m = step_view(c, a, w, t, b);
            blend_tape(c, m.M, w->tapes + ((t + 1 - begin) * c->B + b) * c->M, m.omega, m.v);
        }
    }
}

/* The gradients of x and of the weights, over all steps. */
static void products_back(const struct cell *c, const struct dual_memory *a,
                          const struct dual_memory *g, struct work *w)
{
    int64_t B = c->B, D = c->D, in = c->in, gated = c->parts.gate != DUAL_NO_GATE;
    const real *x = in_real(a->x, c->rows * in, w->x), *h = w->h + B * D;
    const real *W = in_real(gated ? a->W_xz : a->W_x, (1 + gated) * D * in, w->W_in);
    real *dW = gated ? g->W_xz : g->W_x;

    if (gated)
        operands(w->dz, c->rows * D);
    product(transposed(matrix(w->dv, c->rows, D)), matrix(h, c->rows, D), 0, g->W_write, D);
    product(transposed(matrix(w->dp, B, D)), matrix(w->h, B, D), 0, g->W_h, D);
    if (c->T > 1)
        product(transposed(matrix(w->dp + B * D, c->rows - B, D)), matrix(h, c->rows - B, D), 1,
                g->W_h, D);
    product(transposed(matrix(w->dp, c->rows, D)), matrix(x, c->rows, in), 0, dW, in);
    product(matrix(w->dp, c->rows, D), matrix(W, D, in), 0, w->dx, in);
    if (gated) {
        product(transposed(matrix(w->dz, c->rows, D)), matrix(x, c->rows, in), 0, dW + D * in, in);
        product(matrix(w->dz, c->rows, D), matrix(W + D * in, D, in), 1, w->dx, in);
    }
    keep(g->x, w->dx, c->rows * in);
    column_sums(c, w->dp, NULL, g->b_h);
}

static int backward(const struct call *f)
{
    const struct dual_memory *a = ARGS(f, dual_memory), *g = GRADS(f, dual_memory);
    struct cell c = cell_of(f);
    struct work w;
    int64_t B = c.B, D = c.D;

    lay_out(&c, BACKWARD, f->work, &w);
    const real *W_h = in_real(a->W_h, D * D, w.W_h);
    const real *W_write = in_real(a->W_write, D * D, w.W_write);
    copy_h(&c, a, &w);
    gate_back(&c, a, g, &w);
    memcpy(w.carry, g->h_T, B * D * sizeof(real));
    memcpy(w.dM, g->M_T, B * c.M * sizeof(real));
    for (int64_t end = c.T, begin; end > 0; end = begin) {
        begin = (end - 1) / c.K * c.K;
        replay(&c, a, &w, begin, end);
        for (int64_t t = end - 1; t >= begin; t--) {
            #pragma omp parallel for
            for (int64_t b = 0; b < B; b++) {
                struct step_view m = step_view(&c, a, &w, t, b);
                write_tape_back(&c, &m);
            }
            operands(w.dv + t * B * D, B * D);
            product(matrix(w.dv + t * B * D, B, D), matrix(W_write, D, D), 1, w.carry, D);
            #pragma omp parallel for
            for (int64_t b = 0; b < B; b++) {
                struct step_view m = step_view(&c, a, &w, t, b);
                update_hidden_back(&c, &m);
            }
            operands(w.dp + t * B * D, B * D);
            product(matrix(w.dp + t * B * D, B, D), matrix(W_h, D, D), 0, w.carry, D);
            add(w.carry, 1, w.product, B * D);
        }
    }
    memcpy(g->h0, w.carry, B * D * sizeof(real));
    memset(g->M0, 0, (c.each ? B : 1) * c.M * sizeof(real));
    for (int64_t b = 0; b < B; b++)
        add((real *)g->M0 + c.each * b * c.M, 1, w.dM + b * c.M, c.M);
    products_back(&c, a, g, &w);
    return 0;
}

static const char *declines(const struct call *f)
{
    const char *why = too_long_for_blas(DIM(f, 'T') * DIM(f, 'B'), DIM(f, 'F'));
    return why ? why : too_long_for_blas(DIM(f, 'I'), DIM(f, 'D'));
}

REF_KERNEL(dual_memory, "blas", "CBLAS products step by step, checkpoint and replay", forward,
           backward, .work = work, .declines = declines);
