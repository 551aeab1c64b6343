/* What the contract's cases let a judge see: each wrong kernel of the references is refused in one of
 * them, by an output or a gradient, in float and in bf16.
 *
 *     wrong [OPERATION [KERNEL]]
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/suite.h"

enum { MAX_WRONG = 64 };

/* The wrong kernels of an operation on a reference, of which some are not refused as yet. */
struct search {
    const struct backend *on;
    const struct impl *kernel[MAX_WRONG];
    char by[MAX_WRONG][MAX_TEXT + 202]; /* the case and the result that refuse it */
    int n, left, cases;
    int64_t judged[MAX_WRONG]; /* cases that it did not decline */
};

/* Are its results refused?  -1 after err_set(); what was found goes to `said`. */
static int refused(struct question *q, const struct call *f, char said[200])
{
    struct tensors *got = run_copy(&(const struct run){.call = *f}, q->inputs, NULL);
    int found = got ? 0 : -1;

    FOR_RESULTS (f, i, grad) {
        struct verdict v;
        if (found || (f->op->arg[i].flags & (OUT | SAVED)) == SAVED)
            continue;
        const struct tensor_pair pair = {f, i, grad, tensors_values(got, i, grad),
                                         truth_wants(&q->truth, i, grad)};
        if ((found = refuses(&pair, &q->truth, 0, &v)) == 1)
            snprintf(said, 200, "%s %s off by %.2g, bound %.2g", v.tensor, v.distance, v.error,
                     v.bound);
    }
    tensors_free(got);
    return found;
}

static int look(const struct call *f, void *data)
{
    struct search *s = data;
    struct call c = call_here(f, s->on, op_kernel(f->op, s->on, 0));
    struct question q = {.inputs = NULL};
    int e = 0, asked = 0;

    s->cases++;
    for (int k = 0; !e && k < s->n; k++) {
        char said[200], text[MAX_TEXT];
        c.kernel = s->kernel[k];
        if (*s->by[k] || impl_declines(&c))
            continue;
        if (!asked++ && question_new(&q, &c)) {
            e = -1;
            break;
        }
        const int found = refused(&q, &c, said);
        e = found < 0;
        s->judged[k]++;
        if (found <= 0)
            continue;
        op_text(f, text);
        snprintf(s->by[k], sizeof s->by[k], "%s; %s", said, text);
        s->left--;
    }
    if (asked)
        question_free(&q);
    return e ? -1 : s->left == 0;
}

/* Does the storage type not see it, and the kernel says why? */
static int is_unseen(const struct impl *k, const struct backend *on)
{
    const char *type = types[on->type].name;
    return k->unseen && strncmp(k->unseen, type, strlen(type)) == 0;
}

static void test_op(const struct op *o, const struct backend *on, const char *only)
{
    const struct impl *k;
    static struct search s;

    s = (struct search){.on = on};
    for (int i = 0; s.n < MAX_WRONG && (k = op_wrong(o, on, i)); i++)
        if (!only || strcmp(k->name, only) == 0)
            s.kernel[s.n++] = k;
    s.left = s.n;
    if (!only)
        ok(s.n > 0, "%s %s has wrong kernels: %d", o->name, on->name, s.n);
    if (s.n && cases_each(o, o->cases, look, &s) < 0)
        ok(0, "%s %s: %s", o->name, on->name, err_text());
    for (int k = 0; k < s.n; k++) {
        const int unseen = is_unseen(s.kernel[k], on), seen = *s.by[k] != 0;
        ok(seen != unseen, "%s %s %s: %s: %s", o->name, on->name, s.kernel[k]->name,
           s.kernel[k]->idea,
           seen     ? s.by[k]
           : unseen ? s.kernel[k]->unseen
                    : "passes everywhere");
        if (!seen)
            printf("# of %d cases it does not decline %lld\n", s.cases, (long long)s.judged[k]);
    }
}

int main(int argc, char **argv)
{
    for (int i = 0; i < N_OPS; i++) {
        if (argc > 1 && strcmp(argv[1], ops[i]->name) != 0)
            continue;
        test_op(ops[i], &ref32, argc > 2 ? argv[2] : NULL);
        test_op(ops[i], &ref_bf16, argc > 2 ? argv[2] : NULL);
    }
    return done();
}
