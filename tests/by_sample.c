/* Large cases of the operations that a sample judges, on every kernel of every GPU backend: in full,
 * and by sample; a right result passes both.  tests/check-faults.sh counts with it which planted
 * faults each of the two sees.
 *
 *     by_sample [--part N/ALL] [OPERATION...]
 *
 * Part N/ALL has every ALL-th case (tests/parts.h).
 *
 * An emulated GPU has sizes of some hundreds, a real one of some thousands: each a few times a
 * sample, and none a multiple of 8. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/judge/sampled.h"
#include "tests/parts.h"
#include "tests/suite.h"

#define EACH_LAYOUT "transpose_a=no,yes transpose_b=no,yes; "

static const struct {
    const char *op, *emulated, *real;
} large[] = {
    {"gemm",
     "M=201 N=219 K=187; M=130 N=197 K=71 transpose_a=yes alpha=0.5 beta=-1.5; "
     "M=136 N=264 K=200 " EACH_LAYOUT "M=192 N=256 K=328 alpha=2 beta=1; M=67 N=71 K=1100; "
     "M=64 N=56 K=4104 alpha=2 beta=1",
     "M=1001 N=1503 K=503 " EACH_LAYOUT "M=1003 N=501 K=2001 alpha=0.5 beta=-1.5; "
     "M=1024 N=768 K=512 " EACH_LAYOUT "M=2048 N=1024 K=1032 alpha=2 beta=1"},
    {"gemm_splitk", "M=67 N=71 K=2051; M=72 N=136 K=2056 " EACH_LAYOUT "M=3 N=5 K=9000",
     "M=129 N=131 K=50001; M=128 N=128 K=65536 " EACH_LAYOUT},
    {"gemm_batched", "M=33 N=70 K=41 batch=75; M=72 N=24 K=72 batch=67",
     "M=129 N=131 K=133 batch=99; M=128 N=128 K=128 batch=96"},
    {"gemv", "M=301 K=403 alpha=-2 beta=0.75; M=304 K=408 transpose_a=yes alpha=0.5; M=67 K=20000",
     "M=5003 K=4099 alpha=-2 beta=0.75; M=4096 K=4096 transpose_a=yes alpha=0.5"},
    {"linear",
     "rows=150 dim_in=70 dim_out=131 bias=yes act=none,silu,relu; "
     "rows=136 dim_in=72 dim_out=264 bias=no,yes act=none,silu,relu",
     "rows=2049 dim_in=503 dim_out=1001 bias=yes act=none,silu,relu; "
     "rows=2048 dim_in=512 dim_out=1024 bias=no,yes act=none,silu,relu"},
    {"lora", "rows=131 dim_in=75 dim_out=93 rank=5; rows=136 dim_in=72 dim_out=96 rank=8",
     "rows=2049 dim_in=503 dim_out=1001 rank=13; rows=2048 dim_in=512 dim_out=1024 rank=16"},
    {"softmax",
     "rows=301 columns=75; rows=71 columns=1031; rows=67 columns=9001; rows=80 columns=136 "
     "scale=2; "
     "rows=80 columns=2500,20008; fill=masked,shifted,outliers rows=80 columns=33,2504",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=67 columns=50257"},
    {"entmax15", "rows=515 columns=61; fill=masked,shifted,outliers rows=301 columns=16,33",
     "rows=50021 columns=61"},
    {"rmsnorm",
     "rows=301 columns=75; rows=71 columns=1111; rows=67 columns=10001; rows=1200 columns=520",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=67 columns=50257"},
    {"layernorm",
     "rows=301 columns=75; rows=71 columns=1111; rows=67 columns=10001; rows=1200 columns=520",
     "rows=5003 columns=1001; rows=1021 columns=4096; rows=67 columns=50257"},
    {"qk_norm", "batch=3 steps=71 heads=4 kv_heads=2 head_dim=33,128",
     "batch=3 steps=131 heads=16 kv_heads=4 head_dim=128"},
    {"cross_entropy",
     "rows=131 vocabulary=1031 label_smoothing=0,0.1; rows=129 vocabulary=67 ignore_index=3; "
     "fill=masked,shifted,outliers rows=80 vocabulary=67,2504",
     "rows=131 vocabulary=50257 label_smoothing=0.1; rows=5003 vocabulary=1001 ignore_index=3"},
    {"reduce",
     "rows=201 length=33,201 kind=sum,max,mean,norm2; rows=67 length=4099 kind=sum,max,mean,norm2; "
     "rows=67 length=40004 kind=max; fill=masked rows=80 length=33,4104 kind=max",
     "rows=2003 length=2003 kind=sum,max,mean,norm2; rows=67 length=100001 kind=sum,max"},
    {"transpose",
     "batch=2 rows=133 columns=201; batch=1 rows=136 columns=264; rows=71 columns=67 width=3,100",
     "batch=2 rows=2001 columns=3003; batch=1 rows=2048 columns=4096; "
     "rows=1001 columns=503 width=3,100"},
    {"scan",
     "rows=131 length=2049; rows=67 length=70,1096 kind=exclusive; rows=67 length=20008; "
     "rows=67 length=33 kind=inclusive",
     "rows=509 length=20011; rows=5003 length=1001 kind=exclusive; rows=67 length=100000"},
    {"stencil1d", "rows=71 length=301 radius=3; rows=67 length=4100 radius=40",
     "rows=509 length=20011 radius=3,64"},
    {"stencil2d", "batch=67 height=21 width=33 radius=2; batch=66 height=40 width=72 radius=1",
     "batch=129 height=201 width=303 radius=2; batch=66 height=128 width=256 radius=1"},
    {"rope", "batch=67 steps=5 heads=3 dim=6 form=half,interleaved",
     "batch=67 steps=31 heads=66 dim=64 form=half,interleaved"},
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
    int n; /* cases of this operation so far */
    struct part *part;
};

/* The checks that failed of results that a sample judges. */
static int failed_of_sampled(const struct verdicts *list, const struct sampled *s)
{
    int n = 0;

    FOR_RESULTS (&s->call, i, grad) {
        char name[32];
        tensor_name(s->call.op, i, grad, name);
        for (int k = 0; k < list->n; k++)
            n += sampled_cut(s, i) && !list->v[k].pass && strcmp(list->v[k].tensor, name) == 0;
    }
    return n;
}

static void judge(const struct run *c, struct both *b, const struct tensors *got, int by_sample)
{
    const struct judge j = {&b->q.truth, by_sample ? &b->sampled : NULL};
    struct verdicts list = {NULL, 0};
    char text[MAX_TEXT];
    const int e = check_case(&j, &c->call, got, &list), n = verdicts_unjudged(&list, 0);
    const int failed = verdicts_failed(&list, 0);
    const int alone = !by_sample && failed && !failed_of_sampled(&list, &b->sampled);

    op_text(&c->call, text);
    ok(!e && !failed, "%s %s: %s %s%s, %s", b->backend->name, c->call.kernel->name,
       c->call.op->name, text, set_any(&c->call.accumulate) ? " accumulate" : "",
       by_sample ? "by sample"
       : alone   ? "in full, of what a sample does not judge"
                 : "in full");
    print_failed(&list);
    if (n && by_sample)
        printf("# %d results are not judged\n", n);
    verdicts_free(&list);
}

static int both_new(struct both *b, const struct call *f)
{
    const struct call on = call_here(f, b->backend, NULL);
    b->sampled = (struct sampled){.n_cuts = 0};
    return question_new(&b->q, &on) || sampled_find(&b->sampled, &on, b->q.inputs, 1);
}

static int each_kernel(const struct call *given, void *data)
{
    const struct impl *k;
    struct both *b = data;
    struct call adds = *given, *f = &adds;

    f->accumulate =
        b->n++ == 0 ? op_gradients(f->op) : set_none(); /* the first case: backward adds */
    if (!part_takes(b->part))
        return 0;
    if (both_new(b, f))
        ok(0, "%s: %s", f->op->name, err_text());
    else
        for (int n = 0; (k = op_kernel(f->op, b->backend, n)); n++) {
            const struct run c = {.call = call_here(f, b->backend, k)};
            if (other_kernel(k) || declined(&c.call))
                continue;
            struct tensors *got = run_copy(&c, b->q.inputs, NULL);
            if (!got)
                ok(0, "%s %s: %s", b->backend->name, k->name, err_text());
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
    struct part p;

    if (part_read(argc, argv, &p))
        return 2;
    if (!any_gpu_or_skip_all())
        return 0;
    for (int g = 0; judged_backend(g); g++)
        for (size_t i = 0; i < COUNT(large) && !backend_unavailable(here(), judged_backend(g));
             i++) {
            struct both b = {.backend = judged_backend(g), .part = &p};
            const struct op *o = op_find(large[i].op);
            if (named(o, p.n, p.name))
                for_cases(o, emulated(b.backend) ? large[i].emulated : large[i].real, each_kernel,
                          &b);
        }
    return done();
}
