/* Kernels of e74 and e74_block that are wrong (wrong.h). */
#include "ref/e74_gate.h"
#include "ref/wrong/runs.h"

/* ---- e74: the right kernel on another call ---- */

WRONG_UNLESS(has_q, f->choice[E74_PROJ] <= E74_NO_Z, "no q of its own")
static int exchanged(const struct call *f)
{
    struct call g = *f;
    g.arg[PLACE(e74, W_k)] = f->arg[PLACE(e74, W_q)];
    g.arg[PLACE(e74, W_q)] = f->arg[PLACE(e74, W_k)];
    return right_forward(&g);
}
WRONG_PASSES(layer_qk_exchanged, "k and q are taken from each other's rows", exchanged,
             right_backward, .declines = has_q);

WRONG_UNLESS(has_z, f->choice[E74_PROJ] == E74_WITH_Z, "no z")
WRONG_UNLESS(has_gate, e74_has_gate(f), "no act")
static int without_bias(const struct call *f)
{
    return right_with_zeros(f, FORWARD, PLACE(e74, b_z), 0);
}
WRONG_PASSES(layer_no_b_z, "z is left without its bias", without_bias, right_backward,
             .declines = has_z);

WRONG_CALL(layer_no_act, "the cell's z is W_z x + b_z itself", g.choice[E74_Z_ACT] = E74_IDENTITY,
           .declines = has_gate);
WRONG_CALL(layer_other_act, "sigma for 2 sigma, or 2 sigma for sigma",
           g.choice[E74_Z_ACT] = E74_SIGMOID + E74_TWICE_SIGMOID - f->choice[E74_Z_ACT],
           .declines = has_gate);

static int from_zero(const struct call *f)
{
    const int place = f->arg[PLACE(e74, S0)] ? PLACE(e74, S0) : PLACE(e74, U0);
    return right_with_zeros(f, FORWARD, place, 0);
}
WRONG_PASSES(layer_zero_state, "every sequence begins with a state of 0", from_zero,
             right_backward);

static int without_final(const struct call *f)
{
    const int place = f->arg[PLACE(e74, S0)] ? PLACE(e74, S_T) : PLACE(e74, U_T);
    return right_with_zeros(f, BACKWARD, place, 1);
}
WRONG_PASSES(layer_no_final_gradient, "the gradient of the final state is left out", right_forward,
             without_final);

/* ---- e74: a backward pass of its own ---- */

enum {
    DX_OF_LAST = 1, /* dx is overwritten by each projection */
    DX_WITHOUT_K = 2,
    LAST_STEP_LOST = 4, /* in the weights' gradients */
    B_Z_OF_LAST = 8,    /* d_b_z of the last step */
    SLOPE_LOST = 16,    /* of act */
    SLOPE_OF_GATE = 32  /* act' from the rounded act(p) */
};

/* dz, of the gate before, becomes that of z. */
static void gate_back(const struct call *f, num *dz, int64_t n, unsigned wrong)
{
    const num *gate = ARGS(f, e74)->gate;
    const real scale = f->choice[E74_Z_ACT] == E74_TWICE_SIGMOID ? 2 : 1;

    if (!(wrong & (SLOPE_LOST | SLOPE_OF_GATE)))
        e74_back_through_gate(f, dz, n);
    for (int64_t i = 0; wrong & SLOPE_OF_GATE && i < n; i++)
        dz[i] = store(load(dz[i]) * load(gate[i]) * (1 - load(gate[i]) / scale));
}

/* The gradients of k, v, q and z, [T B,P] each, by the right cell. */
static int cell_back(const struct call *f, num *dp[4], void **workspace, unsigned wrong)
{
    const int64_t n = DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'P');
    struct call c = e74_cell_call(f, (void *[]){f->work, f->work, f->work, f->work}, NULL);
    c.kernel = op_kernel(c.op, c.backend, 0);
    const size_t bytes = ((size_t)n * 4 * sizeof(num) + 63) / 64 * 64;
    char *at = *workspace = calloc(bytes + op_work(&c, BACKWARD), 1);

    if (!at)
        return 1;
    for (int i = 0; i < 4; i++)
        dp[i] = (num *)at + i * n;
    c = e74_cell_call(f, (void *[]){dp[0], dp[1], dp[2], dp[3]}, at + bytes);
    c.kernel = op_kernel(c.op, c.backend, 0);
    const int e = right_backward(&c);
    if (!e && e74_has_gate(f))
        gate_back(f, dp[3], n, wrong);
    return e;
}

/* dx += dp W, dW = dp^T x */
struct projection {
    const num *W, *dp;
    real *dW;
};

static void project_back(const struct call *f, const struct projection *p, real *dx, unsigned wrong)
{
    const num *x = ARGS(f, e74)->x;
    const int64_t M = DIM(f, 'T') * DIM(f, 'B'), P = DIM(f, 'P'), D = DIM(f, 'D');
    const int64_t rows = wrong & LAST_STEP_LOST ? M - DIM(f, 'B') : M;

    memset(p->dW, 0, (size_t)(P * D) * sizeof(real));
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < P; i++) {
            const real dp = load(p->dp[m * P + i]);
            for (int64_t j = 0; j < D; j++) {
                if (dx)
                    dx[m * D + j] += dp * load(p->W[i * D + j]);
                p->dW[i * D + j] += m < rows ? dp * load(x[m * D + j]) : 0;
            }
        }
}

static void bias_back(const struct call *f, const num *dz, unsigned wrong)
{
    const int64_t M = DIM(f, 'T') * DIM(f, 'B'), P = DIM(f, 'P');
    real *db = GRADS(f, e74)->b_z;

    for (int64_t i = 0; db && i < P; i++) {
        db[i] = 0;
        for (int64_t m = wrong & B_Z_OF_LAST ? M - DIM(f, 'B') : 0; m < M; m++)
            db[i] += load(dz[m * P + i]);
    }
}

static int run_forward(const struct call *f, unsigned wrong)
{
    (void)wrong;
    return right_forward(f);
}

static int run_backward(const struct call *f, unsigned wrong)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    const int64_t n = DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D');
    num *dp[4] = {NULL};
    void *workspace = NULL;
    real *dx = calloc((size_t)n, sizeof *dx);
    const int e = !dx || cell_back(f, dp, &workspace, wrong);
    const struct projection all[] = {{a->W_k, dp[0], g->W_k},
                                     {a->W_v, dp[1], g->W_v},
                                     {a->W_q, dp[2], g->W_q},
                                     {a->W_z, dp[3], g->W_z}};

    for (int i = 0; !e && i < 4; i++) {
        if (!all[i].W)
            continue;
        if (wrong & DX_OF_LAST)
            memset(dx, 0, (size_t)n * sizeof *dx);
        project_back(f, &all[i], i == 0 && wrong & DX_WITHOUT_K ? NULL : dx, wrong);
    }
    for (int64_t i = 0; !e && i < n; i++)
        ((num *)g->x)[i] = store(dx[i]);
    if (!e)
        bias_back(f, dp[3], wrong);
    free(workspace);
    free(dx);
    return e;
}

WRONG_UNLESS(several, f->choice[E74_PROJ] != E74_TIED_KVQ, "one projection")
WRONG_BITS(layer_dx_overwritten, "dx is of the last projection alone", 0, DX_OF_LAST,
           .declines = several);
WRONG_BITS(layer_dx_without_k, "dx lacks the keys' part", 0, DX_WITHOUT_K);
WRONG_BITS(layer_last_step_lost, "the weights' gradients lack the last step", 0, LAST_STEP_LOST);
WRONG_BITS(layer_b_z_of_last, "d_b_z is of the last step alone", 0, B_Z_OF_LAST, .declines = has_z);

WRONG_BITS(layer_act_not_back, "d_z is the gradient of act(z)", 0, SLOPE_LOST,
           .declines = has_gate);
WRONG_BITS(layer_slope_of_gate, "the slope of act is computed from act(z), rounded", 0,
           SLOPE_OF_GATE, .declines = has_gate);

WRONG_KERNELS(e74, &layer_qk_exchanged, &layer_no_b_z, &layer_zero_state, &layer_no_final_gradient,
              &layer_dx_overwritten, &layer_dx_without_k, &layer_last_step_lost, &layer_b_z_of_last,
              &layer_no_act, &layer_other_act, &layer_act_not_back, &layer_slope_of_gate);

/* ---- e74_block ---- */

WRONG_CALL(block_no_eps, "the norm's eps is left out", g.real[E74_EPS] = 0);

static int without_weight(const struct call *f)
{
    return right_with_ones(f, FORWARD, PLACE(e74_block, w_norm));
}
WRONG_PASSES(block_no_norm_weight, "the norm is without its weight", without_weight,
             right_backward);

static void no_residual_in(const struct call *f)
{
    const struct e74_block *a = ARGS(f, e74_block);
    const int64_t n = DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D');
    num *out = a->out;
    for (int64_t i = 0; i < n; i++)
        out[i] = store(load(out[i]) - load(((const num *)a->x)[i]));
}
WRONG_AFTER(block_no_residual, "x is not added to out", FORWARD, no_residual_in);

static void residual_of_normed_in(const struct call *f)
{
    const struct e74_block *a = ARGS(f, e74_block);
    const int64_t n = DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D');
    num *out = a->out;
    for (int64_t i = 0; i < n; i++)
        out[i] =
            store(load(out[i]) - load(((const num *)a->x)[i]) + load(((const num *)a->normed)[i]));
}
WRONG_AFTER(block_residual_of_normed, "the normed x is added to out", FORWARD,
            residual_of_normed_in);

static void residual_not_back_in(const struct call *f)
{
    const struct e74_block *g = GRADS(f, e74_block);
    const int64_t n = DIM(f, 'T') * DIM(f, 'B') * DIM(f, 'D');
    num *dx = g->x;
    for (int64_t i = 0; i < n; i++)
        dx[i] = store(load(dx[i]) - load(((const num *)g->out)[i]));
}
WRONG_AFTER(block_residual_not_back, "dx lacks dout", BACKWARD, residual_not_back_in);

static int products_of_x(const struct call *f)
{
    struct call g = *f;
    g.arg[PLACE(e74_block, normed)] = f->arg[PLACE(e74_block, x)];
    return right_backward(&g);
}
WRONG_PASSES(block_products_of_x, "d_W_k and the others are of x, not of the normed x",
             right_forward, products_of_x);

static int without_rstd(const struct call *f)
{
    return right_with_ones(f, BACKWARD, PLACE(e74_block, rstd));
}
WRONG_PASSES(block_no_rstd, "the norm's backward pass leaves out 1 / root", right_forward,
             without_rstd);

static void last_step_lost_in(const struct call *f)
{
    const struct e74_block *a = ARGS(f, e74_block), *g = GRADS(f, e74_block);
    const int64_t M = DIM(f, 'T') * DIM(f, 'B'), P = DIM(f, 'P'), D = DIM(f, 'D');
    const num *read = a->read, *dout = g->out;
    real *dW = g->W_o;
    for (int64_t m = M - DIM(f, 'B'); m < M; m++)
        for (int64_t j = 0; j < D; j++)
            for (int64_t i = 0; i < P; i++)
                dW[j * P + i] -= load(dout[m * D + j]) * load(read[m * P + i]);
}
WRONG_AFTER(block_last_step_lost, "d_W_o lacks the last step", BACKWARD, last_step_lost_in);

WRONG_KERNELS(e74_block, &block_no_eps, &block_no_norm_weight, &block_no_residual,
              &block_residual_of_normed, &block_residual_not_back, &block_products_of_x,
              &block_no_rstd, &block_last_step_lost);
