/* ablate.h's functions for a case: its inputs, its runs and results, and their judgement; by plan.h, run.h
 * and check.h. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/quote.h"
#include "common/call/values.h"
#include "common/call/watch.h"
#include "common/run/input.h"

/* ---- a case ---- */

int case_add_source(abl_case *c, const char *file)
{
    struct stat st;

    if (stat(file, &st))
        return 0; /* it has gone meanwhile: nothing can replace it */
    for (int i = 0; i < c->n_sources; i++)
        if (c->source[i].dev == st.st_dev && c->source[i].ino == st.st_ino)
            return 0;
    struct file_id *more = grow(c->source, c->n_sources, sizeof *more);
    if (!more)
        return err_set("no memory for the name of a file");
    c->source = more;
    c->source[c->n_sources++] = (struct file_id){st.st_dev, st.st_ino};
    return 0;
}

void case_changed(abl_case *c)
{
    if (c->answer) {
        truth_free(&c->answer->truth);
        tensors_free(c->answer->inputs);
        free(c->answer->passing);
        free(c->answer->refused);
        free(c->answer->hidden);
        free(c->answer);
        c->answer = NULL;
    }
}

static abl_case *case_new(const char *words)
{
    abl_case *c = calloc(1, sizeof *c);

    if (!c)
        err_set("no memory for a case");
    else if (words_parse(words, 0, &c->trial) || !(c->t = tensors_new(&c->trial.call)) ||
             input_fill(&c->trial, c->t, NULL) ||
             (*c->trial.file && case_add_source(c, c->trial.file))) {
        abl_case_free(c);
        c = NULL;
    }
    return c;
}

abl_case *abl_case_new(const char *words)
{
    if (IS_NULL(words, "string of words") || lock_library())
        return NULL;
    abl_case *c = case_new(words);
    unlock_library();
    return c;
}

void abl_case_free(abl_case *c)
{
    if (c) {
        case_changed(c);
        tensors_free(c->t);
        free(c->source);
    }
    free(c);
}

const char *abl_text(const abl_case *c)
{
    if (IS_NULL(c, "case"))
        return NULL;
    return c->trial.text;
}

int call_tensor(const struct call *f, int i, struct abl_tensor *to)
{
    for (int arg = 0; arg < f->op->n_args; arg++)
        if (op_has(f, arg) && i-- == 0) {
            describe_tensor(f->op, f, arg, to);
            return 0;
        }
    return 1;
}

int abl_tensor(const abl_case *c, int i, struct abl_tensor *to)
{
    if (IS_NULL(c, "case") || IS_NULL(to, "destination"))
        return -1;
    const int e = call_tensor(&c->trial.call, i, to);
    if (e == 0) {
        const struct call on = call_on(&c->trial.call, reference_of(c->trial.type), NULL, NULL);
        describe_types(&on, op_arg(on.op, to->name), to);
    }
    return e;
}

void abl_draw(abl_case *c, uint64_t seed, int nonzero_state)
{
    if (IS_NULL(c, "case") || lock_library())
        return;
    case_changed(c);
    tensors_draw(c->t, &c->trial.call, seed, nonzero_state);
    unlock_library();
}

/* What a function of the library is given, or gives: n doubles, or n bytes. */
struct array {
    int bytes;
    int64_t n;
};

/* Is an argument of a function that gives or gets an array NULL? */
#define NO_ARRAY(owner, what)                                                                      \
    (IS_NULL(owner, what) || IS_NULL(name, "name") || IS_NULL(values, "array"))

/* The tensor called "out" or "d_out": a result if `results`, else an input or the gradient of an
 * output.  -1 after err_set() where there is none, or where the array is not one of its type and
 * size. */
static int find(const struct trial *t, const char *name, int results, struct array a, int *grad)
{
    const struct op *o = t->call.op;
    const int arg = tensor_find(o, name, grad);

    if (arg < 0 || !op_has(&t->call, arg))
        return err_set("%s has no tensor %s here", o->name, name);
    unsigned flags = o->arg[arg].flags;
    if (*grad && !(flags & DIFF))
        return err_set("%s of %s has no gradient", name + 2, o->name);
    if (results != (*grad ? !!(flags & IN) : !(flags & IN)))
        return err_set("%s of %s is %s", name, o->name, results ? "no result" : "a result");
    if (op_is_bytes(&t->call, arg) != a.bytes)
        return err_set("%s of %s is %s", name, o->name,
                       a.bytes ? "not of bytes" : "of bytes, not of doubles");
    if (a.n != op_count(&t->call, arg))
        return err_set("%s of %s has %lld elements, not %lld", name, o->name,
                       (long long)op_count(&t->call, arg), (long long)a.n);
    return arg;
}

static size_t array_bytes(struct array a)
{
    return a.n * (a.bytes ? 1 : sizeof(double));
}

static int set(abl_case *c, const char *name, const void *values, struct array a)
{
    int grad, arg = find(&c->trial, name, 0, a, &grad);
    const struct call on = call_on(&c->trial.call, reference_of(c->trial.type), NULL, NULL);
    if (arg < 0 || (a.bytes ? values_check_bytes(&on, arg, name, values)
                            : values_check(&on, arg, grad, name, values)))
        return -1;
    case_changed(c);
    memcpy(tensors_values(c->t, arg, grad), values, array_bytes(a));
    return 0;
}

int abl_set(abl_case *c, const char *name, const double *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : set(c, name, values, (struct array){0, n});
}

int abl_set_bytes(abl_case *c, const char *name, const unsigned char *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : set(c, name, values, (struct array){1, n});
}

static int get(const abl_case *c, const char *name, void *values, struct array a)
{
    int grad, arg = find(&c->trial, name, 0, a, &grad);
    if (arg < 0)
        return -1;
    memcpy(values, tensors_values(c->t, arg, grad), array_bytes(a));
    return 0;
}

int abl_get(const abl_case *c, const char *name, double *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : get(c, name, values, (struct array){0, n});
}

int abl_get_bytes(const abl_case *c, const char *name, unsigned char *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : get(c, name, values, (struct array){1, n});
}

/* ---- runs ---- */

struct tensors *case_rounded(const abl_case *c)
{
    const struct call on = call_on(&c->trial.call, reference_of(c->trial.type), NULL, NULL);
    struct tensors *t = tensors_copy(&on, c->t);
    if (t)
        tensors_round(t, &on);
    return t;
}

int choose_kernel(struct call *f, const char *name)
{
    const struct chosen c = impl_choose(f, name);
    const char *on = f->backend->name;

    f->kernel = c.kernel;
    if (c.kernel)
        return 0;
    return c.last ? err_set("kernel %s on %s declines: %s", c.last->name, on, c.why)
                  : err_set("%s has no kernel %s%son %s", f->op->name, name ? name : "",
                            name ? " " : "", on);
}

/* The backend and kernel for a case; nonzero after err_set(). */
static int run_for(const struct trial *t, const char *backend, const char *kernel, struct run *to)
{
    const struct backend *b = find_backend(backend);

    if (!b)
        return -1;
    const char *no = backend_unavailable(library_contexts(), b);
    if (no)
        return err_set("%s cannot run here: %s", b->name, no);
    if (b->type != F64 && b->type != t->type)
        return err_set("%s stores %s, the case is dtype=%s", b->name, types[b->type].name,
                       types[t->type].name);
    *to = (struct run){.call = call_on(&t->call, b, NULL, context_of(library_contexts(), b))};
    to->call.in_place = t->in_place && is_judged(b);
    return choose_kernel(&to->call, kernel) || run_reserve(to) ? -1 : 0;
}

static const struct impl given = {.name = "given"};

static abl_result *result_new(const abl_case *c)
{
    abl_result *r = calloc(1, sizeof *r);
    if (r)
        r->trial = c->trial;
    else
        err_set("no memory for a result");
    return r;
}

int name_is_taken(const char *name)
{
    /* the tables' axes are among them */
    static const char *const taken[] = {"in",        "dout",       "dinit",           "sample",
                                        "check",     "verdict",    "sample_rows",     "sampled",
                                        "time",      "timing",     "crossover_time",  "measurement",
                                        "crossover", "round_trip", "kernel_and_pass", "packed"};
    for (size_t i = 0; i < COUNT(taken); i++)
        if (strcmp(name, taken[i]) == 0)
            return 1;
    return backend_find(name) != NULL;
}

/* It becomes the name of a group beside those of a dump. */
static int good_name(const char *name)
{
    return *name && !name_is_taken(name) && *name != '.' && !strchr(name, '/') &&
           strlen(name) < sizeof((abl_result *)NULL)->name;
}

abl_result *abl_result_new(const abl_case *c, const char *name)
{
    if (IS_NULL(c, "case") || IS_NULL(name, "name"))
        return NULL;
    abl_result *r = NULL;

    if (!good_name(name))
        err_set("\"%s\" cannot be the name of a result", name);
    else if ((r = result_new(c)) && !(r->t = tensors_new(&c->trial.call))) {
        abl_result_free(r);
        r = NULL;
    }
    if (!r)
        return NULL;
    strcpy(r->name, name);
    r->call = call_on(&c->trial.call, reference_of(c->trial.type), &given, NULL);
    return r;
}

/* As `with` says, but for the call. */
static abl_result *run_case(const abl_case *c, const char *backend, const char *kernel,
                            const struct run *with)
{
    struct run run;
    abl_result *r = run_for(&c->trial, backend, kernel, &run) ? NULL : result_new(c);

    if (!r)
        return NULL;
    r->call = run.call;
    run.forward_only = r->forward_only = with->forward_only;
    run.repeats = r->repeats = with->repeats > 0 ? with->repeats : 0;
    r->t = case_rounded(c);
    if (!r->t || run_op(&run, r->t, &r->outcome)) {
        abl_result_free(r);
        return NULL;
    }
    for (int i = 0; i < MAX_ARGS; i++) {
        r->has.x[i] = 1;
        r->has.g[i] = !with->forward_only;
    }
    return r;
}

abl_result *abl_run(const abl_case *c, const char *backend, const char *kernel, int repeats)
{
    if (IS_NULL(c, "case") || IS_NULL(backend, "backend") || lock_library())
        return NULL;
    abl_result *r = run_case(c, backend, kernel, &(struct run){.repeats = repeats});
    unlock_library();
    return r;
}

abl_result *abl_forward(const abl_case *c, const char *backend, const char *kernel, int repeats)
{
    if (IS_NULL(c, "case") || IS_NULL(backend, "backend") || lock_library())
        return NULL;
    abl_result *r =
        run_case(c, backend, kernel, &(struct run){.repeats = repeats, .forward_only = 1});
    unlock_library();
    return r;
}

static const char *result_name(const abl_result *r)
{
    return *r->name ? r->name : r->call.backend->name;
}

void abl_result_free(abl_result *r)
{
    if (r)
        tensors_free(r->t);
    free(r);
}

static int result_set(abl_result *r, const char *name, const void *values, struct array a)
{
    int grad, arg = find(&r->trial, name, 1, a, &grad);
    if (arg < 0 || (!a.bytes && values_check(&r->call, arg, grad, name, values)))
        return -1;
    memcpy(tensors_values(r->t, arg, grad), values, array_bytes(a));
    X_OR_G(r->has, arg, grad) = 1;
    return 0;
}

int abl_result_set(abl_result *r, const char *name, const double *values, int64_t n)
{
    return NO_ARRAY(r, "result") ? -1 : result_set(r, name, values, (struct array){0, n});
}

int abl_result_set_bytes(abl_result *r, const char *name, const unsigned char *values, int64_t n)
{
    return NO_ARRAY(r, "result") ? -1 : result_set(r, name, values, (struct array){1, n});
}

static int result_get(const abl_result *r, const char *name, void *values, struct array a)
{
    int grad, arg = find(&r->trial, name, 1, a, &grad);
    if (arg < 0)
        return -1;
    if (!X_OR_G(r->has, arg, grad))
        return err_set("%s was not set", name);
    memcpy(values, tensors_values(r->t, arg, grad), array_bytes(a));
    return 0;
}

int abl_result_get(const abl_result *r, const char *name, double *values, int64_t n)
{
    return NO_ARRAY(r, "result") ? -1 : result_get(r, name, values, (struct array){0, n});
}

int abl_result_get_bytes(const abl_result *r, const char *name, unsigned char *values, int64_t n)
{
    return NO_ARRAY(r, "result") ? -1 : result_get(r, name, values, (struct array){1, n});
}

int abl_time(const abl_result *r, enum abl_pass pass, struct abl_time *to)
{
    enum pass p;
    if (IS_NULL(r, "result") || IS_NULL(to, "destination") || IS_NO_PASS(pass, &p))
        return -1;
    const struct call *f = &r->call;

    if (!r->repeats || (p == BACKWARD && r->forward_only))
        return err_set("the %s on %s was not timed", r->repeats ? "backward pass" : "run",
                       result_name(r));
    *to = (struct abl_time){
        r->outcome.median[p], r->outcome.min[p],
        r->outcome.max[p],    f->op->flops ? f->op->flops(f, p) : 0,
        op_bytes(f, p),
    };
    return 0;
}

int64_t abl_peak(const abl_result *r)
{
    if (IS_NULL(r, "result"))
        return -1;
    return r->outcome.peak;
}

/* ---- judgement ---- */

/* The truth of a call and the bounds for its kernel; to be freed in any case. */
static int truth_of(const struct call *f, const struct tensors *inputs, struct truth *truth,
                    struct bounds *bounds)
{
    int e = truth_find(truth, f, inputs);
    if (!e)
        bounds_from(bounds, f, truth);
    return e;
}

enum { DIRECTIONS = 2 };

static int judge(const struct run *run, const struct tensors *inputs, int checks,
                 struct verdicts *list)
{
    struct bounds bounds;
    struct truth truth;
    struct tensors *got = NULL;
    int e = truth_of(&run->call, inputs, &truth, &bounds);

    if (checks & ABL_PARITY)
        e = e || !(got = run_copy(run, inputs, NULL)) || check_parity(got, &bounds, list);
    if (checks & ABL_PROPERTIES)
        e = e || check_properties(run, inputs, &bounds, list);
    if (checks & ABL_DIFFERENCES)
        e = e || check_differences(&run->call, truth.oracle, 0, DIRECTIONS, NULL, list);
    truth_free(&truth);
    tensors_free(got);
    return e || watch_stopped();
}

static abl_verdicts *verdicts_new(void)
{
    abl_verdicts *v = calloc(1, sizeof *v);
    if (!v)
        err_set("no memory for verdicts");
    return v;
}

static abl_verdicts *judge_case(const abl_case *c, const char *backend, const char *kernel,
                                int checks)
{
    struct run run;
    abl_verdicts *v = run_for(&c->trial, backend, kernel, &run) ? NULL : verdicts_new();
    struct tensors *inputs = v ? case_rounded(c) : NULL;

    if (!inputs || judge(&run, inputs, checks, &v->list)) {
        abl_verdicts_free(v);
        v = NULL;
    }
    tensors_free(inputs);
    return v;
}

abl_verdicts *abl_judge(const abl_case *c, const char *backend, const char *kernel, int checks)
{
    const int known = ABL_PARITY | ABL_PROPERTIES | ABL_DIFFERENCES;
    if (IS_NULL(c, "case") || IS_NULL(backend, "backend"))
        return NULL;
    if (checks & ~known)
        return err_null("abl_judge: there are no checks %d, only sums of %d, %d and %d", checks,
                        ABL_PARITY, ABL_PROPERTIES, ABL_DIFFERENCES);
    if (lock_library())
        return NULL;
    abl_verdicts *v = judge_case(c, backend, kernel, checks);
    unlock_library();
    return v;
}

struct answer *answer_of(abl_case *c)
{
    if (c->answer)
        return c->answer;
    const struct call given_call =
        call_on(&c->trial.call, reference_of(c->trial.type), &given, NULL);
    if (!(c->answer = calloc(1, sizeof *c->answer)))
        return err_null("no memory for what the oracle says");
    c->answer->inputs = case_rounded(c);
    if (!c->answer->inputs || truth_find(&c->answer->truth, &given_call, c->answer->inputs))
        case_changed(c);
    return c->answer;
}

static int expected(abl_case *c, const char *name, void *values, struct array a)
{
    int grad, arg = find(&c->trial, name, 1, a, &grad);
    if (arg < 0 || lock_library())
        return -1;
    const int e = !answer_of(c);
    if (!e)
        memcpy(values, tensors_values(c->answer->truth.oracle, arg, grad), array_bytes(a));
    unlock_library();
    return e ? -1 : 0;
}

int abl_expected(abl_case *c, const char *name, double *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : expected(c, name, values, (struct array){0, n});
}

int abl_expected_bytes(abl_case *c, const char *name, unsigned char *values, int64_t n)
{
    return NO_ARRAY(c, "case") ? -1 : expected(c, name, values, (struct array){1, n});
}

static int would_pass(abl_case *c, const char *name, const double *values, struct array a)
{
    int grad, arg = find(&c->trial, name, 1, a, &grad);
    struct bounds bounds;

    if (arg < 0 || !answer_of(c))
        return -1;
    const struct truth *t = &c->answer->truth;
    bounds_from(&bounds, &t->call, &c->answer->truth);
    const struct tensor_pair pair = {&t->call, arg, grad, values, truth_wants(t, arg, grad)};
    return is_within(&pair, &bounds);
}

int abl_would_pass(abl_case *c, const char *name, const double *values, int64_t n)
{
    if (NO_ARRAY(c, "case") || lock_library())
        return -1;
    const int passes = would_pass(c, name, values, (struct array){0, n});
    const int stopped = watch_stopped();
    unlock_library();
    return stopped ? -1 : passes;
}

double abl_distance(const double *values, const double *wanted, int64_t n)
{
    return IS_NULL(values, "array") || IS_NULL(wanted, "array that is wanted")
               ? NAN
               : distance(values, wanted, n).max;
}

/* The truth of a result: the case's own where that is of the same storage type, or *own. */
static struct truth *truth_for(abl_case *c, const abl_result *r, struct answer *own)
{
    if (r->call.backend->type == c->trial.type)
        return answer_of(c) ? &c->answer->truth : NULL;
    own->inputs = case_rounded(c);
    return own->inputs && !truth_find(&own->truth, &r->call, own->inputs) ? &own->truth : NULL;
}

static abl_verdicts *judge_result(abl_case *c, const abl_result *r)
{
    struct answer own = {.inputs = NULL};
    struct bounds bounds;

    if (strcmp(c->trial.text, r->trial.text) != 0)
        return err_null("a result of another case: %.*s", quote_fit(r->trial.text, 400),
                        r->trial.text);
    abl_verdicts *v = verdicts_new();
    if (!v)
        return NULL;
    snprintf(v->name, sizeof v->name, "%s", result_name(r));
    struct truth *truth = truth_for(c, r, &own);
    if (truth)
        bounds_from(&bounds, &r->call, truth);
    bounds.thorough = truth && c->answer && c->answer->passing;
    const int e = !truth || result_judge(r, &bounds, v->name, &v->list) || watch_stopped();
    truth_free(&own.truth);
    tensors_free(own.inputs);
    if (e) {
        abl_verdicts_free(v);
        v = NULL;
    }
    return v;
}

abl_verdicts *abl_judge_result(abl_case *c, const abl_result *r)
{
    if (IS_NULL(c, "case") || IS_NULL(r, "result") || lock_library())
        return NULL;
    abl_verdicts *v = judge_result(c, r);
    unlock_library();
    return v;
}

void abl_verdicts_free(abl_verdicts *v)
{
    if (v)
        verdicts_free(&v->list);
    free(v);
}

int abl_count(const abl_verdicts *v)
{
    if (IS_NULL(v, "list of verdicts"))
        return -1;
    return v->list.n;
}

int abl_failed(const abl_verdicts *v)
{
    if (IS_NULL(v, "list of verdicts"))
        return -1;
    return verdicts_failed(&v->list, 0);
}

int abl_unjudged(const abl_verdicts *v)
{
    if (IS_NULL(v, "list of verdicts"))
        return -1;
    return verdicts_unjudged(&v->list, 0);
}

int abl_verdict(const abl_verdicts *v, int i, struct abl_verdict *to)
{
    if (IS_NULL(v, "list of verdicts") || IS_NULL(to, "destination"))
        return -1;
    if (i < 0 || i >= v->list.n)
        return 1;
    const struct verdict *from = &v->list.v[i];
    *to = (struct abl_verdict){
        .check = from->check,
        .backend = from->backend,
        .kernel = from->kernel,
        .error = from->error,
        .norm = from->norm,
        .bound = from->bound,
        .first_bad = from->first_bad,
        .pass = from->pass,
        .unjudged = from->unjudged,
        .distance = from->distance,
        .slices = from->slices,
        .coarse = from->coarse,
        .sees = from->power.samples ? from->power.all : NAN,
        .sees_row = from->power.samples ? from->power.slice : NAN,
        .sees_element = from->power.samples ? from->power.element : NAN,
    };
    memcpy(to->tensor, from->tensor, sizeof to->tensor);
    memcpy(to->worst, from->worst, sizeof to->worst);
    return 0;
}
