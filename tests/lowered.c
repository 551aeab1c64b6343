/* Kernels that use another algorithm above some amount of work (gpu/device_limits.h).  Here the limits are
 * lowered until small cases have several runs, slices of all lengths, teams of all kinds and
 * several rows per team.  The tests are those of tests/parity, which uses the device's own limits.
 *
 * lowered [OPERATION...]: those of these; default: all. */
#include "config.h"

#include <stdio.h>

#include "gpu/device_limits.h"
#include "tests/suite.h"

static struct limits low(const struct limits *device)
{
    struct limits l = *device;
    l.sms = 2;
    l.scan_blocks = 3;
    l.split_steps = 64;
    l.wide_lane_elements = 2048;
    l.records = 1 << 13;
    l.states = 1 << 12;
    l.norm_threads = 64;
    return l;
}

/* The operations, and their kernels; NULL: all. */
static const struct lowered {
    const char *op;
    const char *kernels[4];
} lowered[] = {
    {"e74_cell", {"norms", "rows", "chunked", "split"}},
    {"rmsnorm", {NULL}},
    {"layernorm", {NULL}},
    {"qk_norm", {NULL}},
};

/* Under the sanitizers and the race detector: cases of little work, once each. */
#if defined __SANITIZE_ADDRESS__ || defined EMU_RACE
static const double MAX_WORK = 1.5e5;

static int judge_kernel(const struct run *c, struct question *q, void *data, struct verdicts *list)
{
    struct tensors *got = NULL;
    struct bounds bounds;
    int e = judge_parity(c, q, &got, &bounds, NULL, list);
    (void)data;
    tensors_free(got);
    return e;
}
#else
static const double MAX_WORK = INFINITY;
#define judge_kernel judge_case
#endif

static int lowered_case(const struct call *f, void *data)
{
    return work_of(f) <= MAX_WORK ? test_kernels(f, data) : 0;
}

static int left_out(const struct impl *k, void *data)
{
    const struct lowered *l = data;
    for (size_t i = 0; i < COUNT(l->kernels); i++)
        if (l->kernels[i] && strcmp(l->kernels[i], k->name) == 0)
            return 0;
    return l->kernels[0] != NULL;
}

static void judge(const struct backend *b, const struct lowered *l)
{
    const struct op *o = op_find(l->op);
    struct kernel_test each = {.backend = b,
                               .judge = judge_kernel,
                               .left_out = left_out,
                               .data = (void *)l,
                               .how = ", limits lowered"};
    for_cases(o, o->cases, lowered_case, &each);
}

int main(int argc, char **argv)
{
    if (!all_known(argc, argv))
        return 2;
    if (!any_gpu_or_skip_all())
        return 0;
    struct limits *l = gpu_limits_of(context_of(here(), judged_backend(0)));
    *l = low(l);
    for (int i = 0; judged_backend(i); i++)
        for (size_t n = 0; n < COUNT(lowered) && !backend_unavailable(here(), judged_backend(i));
             n++)
            if (named(op_find(lowered[n].op), argc - 1, argv + 1))
                judge(judged_backend(i), &lowered[n]);
    return done();
}
