/* Kernels of diag_delta that are wrong (wrong.h). */
#include "common/ops/diag_delta.h"
#include "ref/wrong/runs.h"

static int zero_forward(const struct call *f)
{
    return right_with_zeros(f, FORWARD, PLACE(diag_delta, s0), 0);
}

static int zero_backward(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(diag_delta, s0), 0);
}
WRONG_PASSES(diag_zero_s0, "every sequence begins at 0, not at s0", zero_forward, zero_backward);

/* Mistakes of the passes below. */
enum {
    DECAY_OF_K = 1,     /* 1 - k for 1 - k^2 */
    READ_BEFORE = 2,    /* y of the state before the step */
    NO_TANH = 4,        /* ds through the tanh as it is */
    SLOPE_BEFORE = 8,   /* 1 - s^2 of the state before the step */
    DK_OF_V = 16,       /* dk = da v */
    DK_AFTER = 32,      /* dk of the state after the step */
    CHUNKS_APART = 64,  /* ds is not carried over 16 steps */
    DS0_UNDECAYED = 128 /* ds0 without the first step's decay */
};

static int run_forward(const struct call *f, unsigned wrong)
{
    const struct diag_delta *a = ARGS(f, diag_delta);
    const num *k = a->k, *v = a->v, *q = a->q;
    const int64_t B = DIM(f, 'B'), T = DIM(f, 'T'), N = DIM(f, 'N');
    const real *s0 = a->s0;
    real *s = a->s;
    num *y = a->y;

    for (int64_t b = 0; b < B; b++)
        for (int64_t n = 0; n < N; n++) {
            real state = s0[b * N + n];
            for (int64_t t = 0; t < T; t++) {
                const int64_t i = (b * T + t) * N + n;
                const real kt = load(k[i]), before = state;
                const real decay = 1 - (wrong & DECAY_OF_K ? kt : kt * kt);
                s[i] = state = tanh(decay * state + kt * load(v[i]));
                y[i] = store(load(q[i]) * (wrong & READ_BEFORE ? before : state));
            }
        }
    return 0;
}

static int run_backward(const struct call *f, unsigned wrong)
{
    const struct diag_delta *a = ARGS(f, diag_delta), *g = GRADS(f, diag_delta);
    const num *k = a->k, *v = a->v, *q = a->q, *dy = g->y;
    const int64_t B = DIM(f, 'B'), T = DIM(f, 'T'), N = DIM(f, 'N');
    const real *s0 = a->s0, *s = a->s;
    num *dk = g->k, *dv = g->v, *dq = g->q;

    for (int64_t b = 0; b < B; b++)
        for (int64_t n = 0; n < N; n++) {
            real ds = 0;
            for (int64_t t = T - 1; t >= 0; t--) {
                const int64_t i = (b * T + t) * N + n;
                const real before = t > 0 ? s[i - N] : s0[b * N + n], kt = load(k[i]);
                const real of_slope = wrong & SLOPE_BEFORE ? before : s[i];
                if (wrong & CHUNKS_APART && (t + 1) % 16 == 0)
                    ds = 0;
                dq[i] = store(load(dy[i]) * s[i]);
                ds += load(dy[i]) * load(q[i]);
                const real da = wrong & NO_TANH ? ds : ds * (1 - of_slope * of_slope);
                dv[i] = store(da * kt);
                const real of = wrong & DK_OF_V ? 0 : wrong & DK_AFTER ? s[i] : before;
                dk[i] = store(da * (load(v[i]) - 2 * kt * of));
                ds = wrong & DS0_UNDECAYED && t == 0 ? da : da * (1 - kt * kt);
            }
            ((real *)g->s0)[b * N + n] = ds;
        }
    return 0;
}

WRONG_BITS(diag_decay_of_k, "the state decays by 1 - k, not by 1 - k^2", DECAY_OF_K, 0);
WRONG_BITS(diag_reads_before, "y is of the state before the step", READ_BEFORE, 0);
WRONG_BITS(diag_no_tanh_slope, "backward leaves out the slope of tanh", 0, NO_TANH);
WRONG_BITS(diag_slope_before, "the slope of tanh is 1 - s^2 of the step before", 0, SLOPE_BEFORE);
WRONG_BITS(diag_dk_of_v, "dk leaves out the decay's part, -2 k s", 0, DK_OF_V);
WRONG_BITS(diag_dk_after, "dk has the state after the step for the one before", 0, DK_AFTER);
WRONG_BITS(diag_chunks_apart, "the state's gradient is not carried over 16 steps", 0, CHUNKS_APART);
WRONG_BITS(diag_ds0_undecayed, "d_s0 lacks the decay of the first step", 0, DS0_UNDECAYED);

WRONG_KERNELS(diag_delta, &diag_zero_s0, &diag_decay_of_k, &diag_reads_before, &diag_no_tanh_slope,
              &diag_slope_before, &diag_dk_of_v, &diag_dk_after, &diag_chunks_apart,
              &diag_ds0_undecayed);
