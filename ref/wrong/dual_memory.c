/* Kernels of dual_memory that are wrong (wrong.h). */
#include "common/ops/dual_memory.h"
#include "ref/wrong/runs.h"

enum { NO_CLAMP = 1 << 30 };

/* ---- the right kernel on another call ---- */

WRONG_UNLESS(is_clamped, dual_parts(f).gate == DUAL_SCALED, "no clamp")
WRONG_CALL(dual_no_clamp, "the gate's argument is not clamped", DIM(&g, 'L') = NO_CLAMP,
           .declines = is_clamped);

static int clamp_not_back(const struct call *f)
{
    struct call g = *f;
    DIM(&g, 'L') = NO_CLAMP;
    return right_backward(&g);
}
WRONG_PASSES(dual_clamp_not_back, "backward does not know the clamp", right_forward, clamp_not_back,
             .declines = is_clamped);

/* The cell by its parts, of which a mistake changes one. */
static struct call by_parts(const struct call *f, int attention, int query)
{
    const struct dual_parts of = dual_parts(f);
    struct call g = *f;
    g.choice[DUAL_PRESET] = DUAL_PARTS;
    g.choice[DUAL_ATTENTION] = attention ? !of.attention : of.attention;
    g.choice[DUAL_QUERY] = query ? !of.query : of.query;
    g.choice[DUAL_GATE] = of.gate;
    return g;
}
WRONG_CALL(dual_other_attention, "softmax for entmax15, entmax15 for softmax",
           g = by_parts(f, 1, 0));
WRONG_CALL(dual_other_query, "h for v, v for h is the query of the slots to write to",
           g = by_parts(f, 0, 1));

static int no_tape(const struct call *f)
{
    return right_with_zeros(f, FORWARD, PLACE(dual_memory, M0), 0);
}
WRONG_PASSES(dual_zero_tape, "the tape begins with 0", no_tape, right_backward);

static int no_h0(const struct call *f)
{
    return right_with_zeros(f, FORWARD, PLACE(dual_memory, h0), 0);
}
WRONG_PASSES(dual_zero_h0, "h begins with 0", no_h0, right_backward);

static int no_h0_back(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(dual_memory, h0), 0);
}
WRONG_PASSES(dual_zero_h0_back, "backward takes h0 for 0", right_forward, no_h0_back);

WRONG_UNLESS(own_tapes, f->choice[DUAL_TAPE] == DUAL_EACH && DIM(f, 'B') > 1, "one tape for all")
static int first_tape(const struct call *f)
{
    struct call g = *f;
    g.choice[DUAL_TAPE] = DUAL_SHARED;
    return right_forward(&g);
}
WRONG_PASSES(dual_first_tape, "all sequences begin with the first one's tape", first_tape,
             right_backward, .declines = own_tapes);

static int no_final_tape(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(dual_memory, M_T), 1);
}
WRONG_PASSES(dual_no_final_tape, "the gradient of the final tape is left out", right_forward,
             no_final_tape);

static int no_final_h(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(dual_memory, h_T), 1);
}
WRONG_PASSES(dual_no_final_h, "the gradient of the final h is left out", right_forward, no_final_h);

static int no_gate_h(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(dual_memory, g_h), 0);
}
WRONG_PASSES(dual_gate_without_h, "dh lacks the part of the gate's argument", right_forward,
             no_gate_h, .declines = is_clamped);

static int no_gate_read(const struct call *f)
{
    return right_with_zeros(f, BACKWARD, PLACE(dual_memory, g_r), 0);
}
WRONG_PASSES(dual_gate_without_read, "the gate has no gradient by way of what was read",
             right_forward, no_gate_read, .declines = is_clamped);

/* ---- what a pass made, or read, is changed ---- */

WRONG_UNLESS(several_steps, DIM(f, 'T') > 1, "one step")
static void h_before_last_in(const struct call *f)
{
    const struct dual_memory *a = ARGS(f, dual_memory);
    const int64_t BD = DIM(f, 'B') * DIM(f, 'D');
    memcpy(a->h_T, (const real *)a->h + (DIM(f, 'T') - 2) * BD, (size_t)BD * sizeof(real));
}
WRONG_AFTER(dual_h_before_last, "h_T is h before the last step", FORWARD, h_before_last_in,
            .declines = several_steps);

/* The gradient of a shared tape as if each sequence had its own, of which the last one stays. */
WRONG_UNLESS(shared_tape, f->choice[DUAL_TAPE] == DUAL_SHARED && DIM(f, 'B') > 1, "a tape for each")
static int last_tape(const struct call *f)
{
    const struct dual_memory *a = ARGS(f, dual_memory), *d = GRADS(f, dual_memory);
    const int64_t B = DIM(f, 'B'), ND = DIM(f, 'N') * DIM(f, 'D');
    real *all = malloc((size_t)(2 * B * ND) * sizeof *all), *dM0 = d->M0;
    struct call g = *f;

    if (!all)
        return 1;
    for (int64_t i = 0; i < B * ND; i++)
        all[i] = ((const real *)a->M0)[i % ND];
    g.choice[DUAL_TAPE] = DUAL_EACH;
    g.arg[PLACE(dual_memory, M0)] = all;
    g.grad[PLACE(dual_memory, M0)] = all + B * ND;
    const int e = right_backward(&g);
    if (!e)
        memcpy(dM0, all + (2 * B - 1) * ND, (size_t)ND * sizeof *dM0);
    free(all);
    return e;
}
WRONG_PASSES(dual_last_tape, "d_M0 of a shared tape is not summed over the sequences",
             right_forward, last_tape, .declines = shared_tape);

WRONG_UNLESS(several_chunks, DIM(f, 'C') > 1, "one checkpoint")
static int first_checkpoint(const struct call *f)
{
    const int place = PLACE(dual_memory, checkpoints);
    const size_t each =
        types[f->type[place]].bytes * (size_t)op_count(f, place) / (size_t)DIM(f, 'C');
    char *all = malloc(each * (size_t)DIM(f, 'C'));
    struct call g = *f;

    if (!all)
        return 1;
    for (int64_t c = 0; c < DIM(f, 'C'); c++)
        memcpy(all + (size_t)c * each, f->arg[place], each);
    g.arg[place] = all;
    const int e = right_backward(&g);
    free(all);
    return e;
}
WRONG_PASSES(dual_first_checkpoint, "all steps are replayed from the first checkpoint",
             right_forward, first_checkpoint, .declines = several_chunks);

/* ---- steps of a checkpoint by themselves ---- */

/* Elements of a step of the tensors that have one axis of time. */
static int64_t of_step(const struct call *f, int arg)
{
    return op_count(f, arg) / DIM(f, 'T');
}

static void *advanced(void *at, enum dtype type, int64_t elements)
{
    return at ? (char *)at + (size_t)elements * types[type].bytes : NULL;
}

/* The call of steps begin to end - 1. */
static struct call steps_of(const struct call *f, int64_t begin, int64_t end)
{
    const struct dual_memory *a = ARGS(f, dual_memory);
    const int of_chunk = PLACE(dual_memory, checkpoints);
    struct call g = *f;

    DIM(&g, 'T') = end - begin;
    DIM(&g, 'C') = 1;
    for (int i = 0; i < f->op->n_args; i++) {
        if (op_has(f, i) && op_shape(f, i)[0] == 'T') {
            g.arg[i] = advanced(f->arg[i], (enum dtype)f->type[i], begin * of_step(f, i));
            g.grad[i] = advanced(f->grad[i], (enum dtype)f->grad_type[i], begin * of_step(f, i));
        }
    }
    g.arg[of_chunk] = advanced(f->arg[of_chunk], (enum dtype)f->type[of_chunk],
                               begin / DIM(f, 'K') * op_count(f, of_chunk) / DIM(f, 'C'));
    if (begin)
        g.arg[PLACE(dual_memory, h0)] =
            (real *)a->h + (begin - 1) * of_step(f, PLACE(dual_memory, h));
    return g;
}

/* Gradients that are sums over the steps. */
static int is_sum(const struct call *f, int arg)
{
    return f->op->arg[arg].flags & PARAMETER && op_has(f, arg);
}

/* Those of g, which has some of f's steps, are added to f's. */
static int added(const struct call *f, struct call *g)
{
    int64_t n = 1, at = 0;

    for (int i = 0; i < f->op->n_args; i++)
        n += is_sum(f, i) ? op_count(f, i) : 0;
    real *sums = calloc((size_t)n, sizeof *sums);
    if (!sums)
        return 1;
    for (int i = 0; i < f->op->n_args; i++)
        if (is_sum(f, i)) {
            g->grad[i] = sums + at;
            at += op_count(f, i);
        }
    const int e = right_backward(g);
    for (int i = 0; i < f->op->n_args; i++)
        for (int64_t j = 0; is_sum(f, i) && j < op_count(f, i); j++)
            ((real *)f->grad[i])[j] += ((const real *)g->grad[i])[j];
    free(sums);
    return e;
}

static int chunks_apart(const struct call *f, int carries_h)
{
    const struct dual_memory *d = GRADS(f, dual_memory);
    const int64_t K = DIM(f, 'K'), T = DIM(f, 'T'), BD = DIM(f, 'B') * DIM(f, 'D');
    real *none = calloc((size_t)(BD * DIM(f, 'N') + BD), sizeof *none);
    real *dh = none + BD * DIM(f, 'N');
    int e = !none;

    for (int i = 0; i < f->op->n_args; i++)
        if (is_sum(f, i))
            memset(f->grad[i], 0, (size_t)op_count(f, i) * sizeof(real));
    for (int64_t begin = (T - 1) / K * K; !e && begin >= 0; begin -= K) {
        const int64_t end = begin + K < T ? begin + K : T;
        struct call g = steps_of(f, begin, end);
        if (end < T) {
            if (carries_h)
                memcpy(dh, d->h0, (size_t)BD * sizeof *dh);
            g.grad[PLACE(dual_memory, h_T)] = dh;
            g.grad[PLACE(dual_memory, M_T)] = none;
        }
        e = added(f, &g);
    }
    free(none);
    return e;
}

static int nothing_carried(const struct call *f)
{
    return chunks_apart(f, 0);
}
WRONG_PASSES(dual_chunks_apart, "no gradient is carried over a checkpoint", right_forward,
             nothing_carried, .declines = several_chunks);

static int h_carried(const struct call *f)
{
    return chunks_apart(f, 1);
}
WRONG_PASSES(dual_tapes_apart, "the tape's gradient is not carried over a checkpoint",
             right_forward, h_carried, .declines = several_chunks);

WRONG_KERNELS(dual_memory, &dual_no_clamp, &dual_clamp_not_back, &dual_other_attention,
              &dual_other_query, &dual_zero_tape, &dual_zero_h0, &dual_zero_h0_back,
              &dual_first_tape, &dual_no_final_tape, &dual_no_final_h, &dual_gate_without_h,
              &dual_gate_without_read, &dual_h_before_last, &dual_last_tape, &dual_first_checkpoint,
              &dual_chunks_apart, &dual_tapes_apart);
