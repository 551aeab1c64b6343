/* Large cases of the operations that a sample judges, on every kernel of every GPU backend: in full,
 * and by sample; a right result passes both.  tests/check-faults.sh counts with it which planted
 * faults each of the two sees.
 *
 *     by_sample [OPERATION...]
 *
 * An emulated GPU has sizes of some hundreds, a real one of some thousands: each a few times a
 * sample, and none a multiple of 8. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/judge/sampled.h"
#include "tests/suite.h"

static const struct {
    const char *op, *emulated, *real;
} large[] = {
    {"gemm", "M=201 N=219 K=187; M=130 N=197 K=71 transpose_a=yes alpha=0.5 beta=-1.5",
     "M=2001 N=1999 K=1003; M=1003 N=2001 K=501 transpose_a=yes alpha=0.5 beta=-1.5; "
     "M=1024 N=2048 K=1024 transpose_b=yes"},
    {"gemm_splitk", "M=67 N=71 K=2051", "M=129 N=131 K=50001; M=128 N=128 K=65536"},
    {"gemm_batched", "M=33 N=70 K=41 batch=75", "M=129 N=131 K=133 batch=99"},
    {"gemv", "M=301 K=403; M=301 K=403 transpose_a=yes",
     "M=5003 K=4099; M=5003 K=4099 transpose_a=yes"},
    {"linear",
     "rows=150 dim_in=70 dim_out=131 bias=yes act=none,silu,relu; rows=131 dim_in=67 dim_out=93",
     "rows=2049 dim_in=1003 dim_out=1501 bias=yes act=none,silu,relu; rows=2048 dim_in=1024 "
     "dim_out=2048"},
    {"lora", "rows=131 dim_in=75 dim_out=93 rank=5", "rows=2049 dim_in=1003 dim_out=1501 rank=13"},
    {"softmax", "rows=301 columns=75; rows=71 columns=1031; rows=67 columns=9001",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=129 columns=50257"},
    {"entmax15", "rows=515 columns=61", "rows=50021 columns=61"},
    {"rmsnorm", "rows=301 columns=75; rows=71 columns=1111; rows=67 columns=10001",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=129 columns=50257"},
    {"layernorm", "rows=301 columns=75; rows=71 columns=1111; rows=67 columns=10001",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=129 columns=50257"},
    {"qk_norm", "batch=3 steps=71 heads=4 kv_heads=2 head_dim=33",
     "batch=3 steps=1021 heads=16 kv_heads=4 head_dim=128"},
    {"cross_entropy", "rows=131 vocabulary=1031; rows=129 vocabulary=67",
     "rows=1021 vocabulary=50257; rows=5003 vocabulary=1001"},
    {"reduce", "rows=201 length=201 kind=sum,max,norm2",
     "rows=5003 length=5003 kind=sum,max,norm2"},
    {"transpose", "batch=2 rows=133 columns=201", "batch=2 rows=2001 columns=3003"},
    {"scan", "rows=131 length=2049; rows=67 length=70 kind=exclusive",
     "rows=509 length=20011; rows=5003 length=1001 kind=exclusive"},
    {"stencil1d", "rows=71 length=301 radius=3", "rows=509 length=20011 radius=3"},
    {"stencil2d", "batch=67 height=21 width=33 radius=2",
     "batch=129 height=201 width=303 radius=2"},
    {"rope", "batch=67 steps=5 heads=3 dim=6", "batch=67 steps=131 heads=66 dim=64"},
};

static void print_failed(const struct verdicts *list)
{
    for (int i = 0; i < list->n; i++)
        if (!list->v[i].pass)
            printf("# %s, %s: off by %.3g at %s, bound %.3g\n", list->v[i].check, list->v[i].tensor,
                   list->v[i].error, list->v[i].worst, list->v[i].bound);
}

/* What the kernels of a backend are judged by in a case, once in each way. */
struct both {
    const struct backend *backend;
    struct question q;
    struct sampled sampled;
};

static void judge(const struct run *c, struct both *b, const struct tensors *got, int by_sample)
{
    const struct judge j = {&b->q.truth, by_sample ? &b->sampled : NULL};
    struct verdicts list = {NULL, 0};
    char text[MAX_TEXT];
    const int e = check_case(&j, &c->call, got, &list), n = verdicts_unjudged(&list, 0);

    op_text(&c->call, text);
    ok(!e && !verdicts_failed(&list, 0), "%s %s: %s %s, %s", b->backend->name, c->call.kernel->name,
       c->call.op->name, text, by_sample ? "by sample" : "in full");
    print_failed(&list);
    if (n && by_sample)
        printf("# %d results are not judged\n", n);
    verdicts_free(&list);
}

static int both_new(struct both *b, const struct call *f)
{
    const struct call on = call_on(f, b->backend, NULL);
    b->sampled = (struct sampled){.n_cuts = 0};
    return question_new(&b->q, &on) || sampled_find(&b->sampled, &on, b->q.inputs, 1);
}

static int each_kernel(const struct call *f, void *data)
{
    struct both *b = data;

    if (both_new(b, f))
        ok(0, "%s: %s", f->op->name, err_text());
    else
        for (const struct impl *const *k = op_kernels(f->op, b->backend); *k; k++) {
            const struct run c = {.call = call_on(f, b->backend, *k)};
            if (other_kernel(*k) || declined(&c.call))
                continue;
            struct tensors *got = run_copy(&c, b->q.inputs, NULL);
            if (!got)
                ok(0, "%s %s: %s", b->backend->name, (*k)->name, err_text());
            for (int way = 0; got && way < 2; way++)
                judge(&c, b, got, way);
            tensors_free(got);
        }
    sampled_free(&b->sampled);
    question_free(&b->q);
    return 0;
}

int main(int argc, char **argv)
{
    const char *why = NULL;

    if (!all_known(argc, argv))
        return 2;
    if (!any_gpu(&why)) {
        printf("1..0 # SKIP 0 GPU checks ran: %s\n", why);
        return 0;
    }
    for (int g = 0; gpu_backends[g]; g++)
        for (size_t i = 0; i < COUNT(large) && !backend_unavailable(gpu_backends[g]); i++) {
            struct both b = {.backend = gpu_backends[g]};
            const struct op *o = op_find(large[i].op);
            if (named(o, argc - 1, argv + 1))
                for_cases(o, emulated(b.backend) ? large[i].emulated : large[i].real, each_kernel,
                          &b);
        }
    return done();
}
