/* Checkpoints: a run that goes on from one ends as it would have without, bit for bit; a file that is damaged, cut off or
 * another run's is refused. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/build.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/record.h"
#include "common/train/checkpoint.h"
#include "common/train/run.h"
#include "tests/suite.h"

/* A check whose reason, where it fails, is its own text. */
#define check(good, ...) (ok(good, __VA_ARGS__) ? 1 : (printf("# " __VA_ARGS__), puts(""), 0))

#define SMALL "width=8 length=5 batch=3 updates=9 eval_rows=6 eval_every=2 checkpoint_every=1e-9 "

static char folder[40] = "/dev/shm/checkpoint.XXXXXX"; /* where syncing takes no time */
static char said[20000];                               /* what was said, a line each */

static void say(const char *line, void *data)
{
    (void)data;
    append(said, sizeof said, "%s\n", line);
}

/* A check of that. */
static void says(int good, const char *what)
{
    if (!ok(good, "%s", what))
        printf("# %s\n", said);
}

/* A run, what came of it, and all that it needs. */
struct tested {
    struct cell c;
    struct checkpoints at;
    struct training t;
    struct trained r;
    struct verdicts list;
    int e;
};

static struct tested *prepare(const struct backend *b, const char *mixer, const char *words)
{
    struct tested *x = calloc(1, sizeof *x);
    struct call f;

    if (!x || cases_one(cell_op(mixer), words, &f) || cell_read(&f, 3, &x->c)) {
        check(0, "%s %s: %s", mixer, words, err_text());
        exit(done());
    }
    snprintf(x->at.file, sizeof x->at.file, "%s/0001", folder);
    x->at.of = (struct checkpoint_of){.plan = "plan", .device = "here", .build = "this"};
    snprintf(x->at.of.line, sizeof x->at.of.line, "%s %s", mixer, words);
    snprintf(x->at.of.backend, sizeof x->at.of.backend, "%s", b->name);
    x->at.say = say;
    x->t = (struct training){.backend = b,
                             .context = context_of(here(), b),
                             .seed = 3,
                             .data_seed = 1,
                             .judged = is_judged(b) || b == &ref32,
                             .keep = 1,
                             .checkpoints = &x->at};
    return x;
}

static struct tested *run(struct tested *x)
{
    x->t.cell = &x->c;
    *said = 0;
    x->e = train(&x->t, &x->list, &x->r);
    return x;
}

static void drop(struct tested *x)
{
    verdicts_free(&x->list);
    trained_free(&x->r);
    free(x);
}

/* No file is left of the checkpoint. */
static void clean(void)
{
    static const char *const ends[] = {"", ".before", ".new"};
    char name[100];

    for (int i = 0; i < (int)COUNT(ends); i++) {
        snprintf(name, sizeof name, "%s/0001%s", folder, ends[i]);
        unlink(name);
    }
}

/* The run as it is without checkpoints. */
static struct tested *undisturbed(const struct backend *b, const char *mixer, const char *words)
{
    struct tested *x = prepare(b, mixer, words);
    x->t.checkpoints = NULL;
    return run(x);
}

/* Leaves the checkpoint of a run that has made n of its updates. */
static int leave(const struct backend *b, const char *mixer, const char *words, int64_t n)
{
    struct tested *x = prepare(b, mixer, words);

    clean();
    x->c.until = n + 1;
    const int e = run(x)->e;
    drop(x);
    return e;
}

static struct tested *resumed(const struct backend *b, const char *mixer, const char *words)
{
    struct tested *x = prepare(b, mixer, words);
    x->at.use = CHECKPOINT_OWN;
    x->c.checkpoint_every = 0;
    return run(x);
}

/* ---- what must be the same ---- */

static int same_array(const double *a, const double *b, int64_t n)
{
    return !a == !b && (!a || memcmp(a, b, n * sizeof *a) == 0);
}

static int same_verdicts(const struct verdicts *a, const struct verdicts *b)
{
    int same = a->n == b->n;

    for (int i = 0; same && i < a->n; i++) {
        const struct verdict *v = &a->v[i], *w = &b->v[i];
        same = strcmp(v->check, w->check) == 0 && strcmp(v->tensor, w->tensor) == 0 &&
               strcmp(v->backend, w->backend) == 0 && strcmp(v->kernel, w->kernel) == 0 &&
               strcmp(v->worst, w->worst) == 0 && strcmp(v->distance, w->distance) == 0 &&
               !v->why == !w->why && same_bits(&v->error, &w->error, 1) &&
               same_bits(&v->bound, &w->bound, 1) && same_bits(&v->norm, &w->norm, 1) &&
               v->pass == w->pass && v->unjudged == w->unjudged && v->update == w->update &&
               v->first_bad == w->first_bad && v->elements == w->elements &&
               v->judged == w->judged && v->fixed == w->fixed && v->at == w->at;
    }
    return same;
}

static int same_validations(const struct trained *a, const struct trained *b)
{
    int same = a->n_validations == b->n_validations && a->learned == b->learned;

    for (int i = 0; same && i < a->n_validations; i++)
        same = a->validation[i].update == b->validation[i].update &&
               same_bits(&a->validation[i].loss, &b->validation[i].loss, 1) &&
               same_bits(&a->validation[i].accuracy, &b->validation[i].accuracy, 1);
    return same;
}

static int same_kept(const struct trained *a, const struct trained *b)
{
    const struct call *f = &a->of->cell->batch;
    const int64_t n = DIM(f, 'T') * DIM(f, 'B');
    int same = same_array(a->start, b->start, a->elements) && a->start;

    for (int i = 0; same && i < KEPT_BATCHES; i++)
        same = same_array(a->token[i], b->token[i], n) && same_array(a->target[i], b->target[i], n);
    return same;
}

/* NULL, or the first that is another. */
static const char *differs(const struct tested *x, const struct tested *y)
{
    const struct trained *a = &x->r, *b = &y->r;

    if (x->e || y->e)
        return "the exit";
    if (a->done != b->done || a->end != b->end || a->n_skipped != b->n_skipped)
        return "the end";
    if (!same_array(a->loss, b->loss, a->done) || !same_array(a->norm, b->norm, a->done) ||
        !same_array(a->factor, b->factor, a->done) || !same_array(a->rate, b->rate, a->done) ||
        !same_array(a->scale, b->scale, a->done) || memcmp(a->skipped, b->skipped, a->done) != 0)
        return "a curve";
    if (!same_validations(a, b))
        return "a validation";
    if (memcmp(&a->test, &b->test, sizeof a->test) != 0)
        return "the test";
    if (!same_array(a->final, b->final, a->elements))
        return "the last weights";
    if (!same_kept(a, b))
        return "the start, or a batch";
    if (a->n_judged != b->n_judged || !same_verdicts(&x->list, &y->list) ||
        a->free_updates != b->free_updates || !same_bits(&a->free_error, &b->free_error, 1))
        return "a verdict";
    return NULL;
}

static void equal(const struct tested *want, struct tested *got, const char *what)
{
    const char *other = differs(want, got);

    if (!check(!other, "%s: %s: %s is another", what, got->at.of.line, other ? other : "nothing"))
        printf("# %s\n# %s\n", got->e ? err_text() : "", said);
    drop(got);
}

/* ---- runs ---- */

static const struct {
    const char *mixer, *words;
} models[] = {
    {"e74", SMALL "n_state=4 proj=full z_mod=row task=word parity_every=0"},
    {"e74", SMALL "n_state=4 loss_scale=dynamic mlp=8 head=tied parity_every=0"},
    {"dual_memory", SMALL "dim=8 slots=3 task=counter supervise=last min=3 parity_every=6"},
    {"attention", SMALL "dim=8 blocks=2 schedule=wsd target=0 patience=3 parity_every=0"},
    {"none", SMALL "target=0 patience=2 stop=yes parity_every=2"},
    {"e74", "width=8 n_state=4 length=6 batch=4 updates=3000 until=40 eval_rows=8 eval_every=9 "
            "lr=1000 warmup=0 proj=full nonlin=linear z_mod=row "
            "checkpoint_every=1e-9 parity_every=0"}};

static void goes_on(const struct backend *b, const char *mixer, const char *words)
{
    struct tested *want = undisturbed(b, mixer, words);
    const int64_t at[] = {1, 2, 4, want->r.done - 1};
    char what[100];

    for (int i = 0; i < (int)COUNT(at); i++) {
        if (at[i] < 1 || at[i] >= want->r.done)
            continue;
        const int e = leave(b, mixer, words, at[i]);
        struct tested *got = resumed(b, mixer, words);
        snprintf(what, sizeof what, "the run goes on at update %d", (int)at[i]);
        if (e || !strstr(said, what))
            check(0, "%s: %s: %s", b->name, what, e ? err_text() : said);
        snprintf(what, sizeof what, "%s: from update %d", b->name, (int)at[i]);
        equal(want, got, what);
    }
    drop(want);
}

/* The scale grows after 2000 updates.  The run is asked to end by the count of its validations, behind the first. */
static void grown_scale(const struct backend *b)
{
    static const char words[] = "width=2 length=2 batch=2 updates=2004 eval_rows=2 eval_every=2003 "
                                "loss_scale=dynamic checkpoint_every=0 parity_every=0";
    struct tested *want = undisturbed(b, "none", words), *x = prepare(b, "none", words);

    clean();
    x->t.stop = (const volatile int *)&x->r.n_validations;
    run(x);
    check(x->e && x->r.done == 2003 && x->r.scale[2002] == 0x1p17, "%s: the scale has grown",
          b->name);
    drop(x);
    equal(want, resumed(b, "none", words), "from a scale that has grown, from update 2003");
    drop(want);
}

static void on_backend(const struct backend *b)
{
    const char *why = backend_unavailable(here(), b);

    if (why) {
        skip(why, "%s: checkpoints", b->name);
        return;
    }
    for (int i = 0; i < (int)COUNT(models); i++)
        goes_on(b, models[i].mixer, models[i].words);
    if (!is_judged(b) || b->machine->timing.record)
        grown_scale(b);
}

/* ---- files ---- */

#define TINY                                                                                       \
    "width=2 length=2 batch=2 updates=6 eval_rows=2 eval_every=2 checkpoint_every=1e-9 "           \
    "parity_every=0"

static void put(const char *name, const unsigned char *x, size_t n)
{
    FILE *f = fopen(name, "wb");

    if (!f || fwrite(x, 1, n, f) != n || fclose(f))
        check(0, "%s is written", name);
}

/* Is that file opened as a record? */
static int opens(const char *name)
{
    int missing;
    struct record *k = record_open(name, &missing);

    if (k)
        record_drop(k);
    return k != NULL;
}

#ifdef __SANITIZE_ADDRESS__
enum { EACH = 7 }; /* a sanitized open takes four times as long */
#else
enum { EACH = 1 };
#endif

static void damaged(void)
{
    char name[100];
    size_t n, flipped = 0, cut = 0, some = 0;

    snprintf(name, sizeof name, "%s/0001", folder);
    leave(&ref64, "none", TINY, 4);
    unsigned char *x = file_read(name, &n);
    if (!check(x && opens(name), "a checkpoint opens: %s", x ? "" : err_text()))
        return;
    for (size_t i = 0; i < n; i += EACH, some++) {
        x[i] ^= (unsigned char)(1 << i % 8);
        put(name, x, n);
        flipped += !opens(name);
        x[i] ^= (unsigned char)(1 << i % 8);
    }
    check(flipped == some, "a changed byte is refused: %zu of %zu, of %zu", flipped, some, n);
    for (size_t i = 0; i < n; i += EACH) {
        put(name, x, i);
        cut += !opens(name);
    }
    check(cut == some, "a cut is refused: %zu of %zu, of %zu", cut, some, n);
    x = realloc(x, n + 1);
    x[n] = 0;
    put(name, x, n + 1);
    check(!opens(name), "a byte more is refused");
    free(x);
}

/* One of the two is damaged, or both. */
static void the_one_before(void)
{
    struct tested *want = undisturbed(&ref64, "none", TINY);
    char name[100], before[110];

    snprintf(name, sizeof name, "%s/0001", folder);
    snprintf(before, sizeof before, "%s.before", name);
    leave(&ref64, "none", TINY, 4);
    truncate(name, 100);
    struct tested *got = resumed(&ref64, "none", TINY);
    says(strstr(said, "0001: is damaged or cut off: ") &&
             strstr(said, "; the run goes on from the one before\n") &&
             strstr(said, "goes on at update 3 of 6"),
         "the one before is taken");
    equal(want, got, "from the one before");
    leave(&ref64, "none", TINY, 4);
    unlink(name);
    got = resumed(&ref64, "none", TINY);
    says(strstr(said, "goes on at update 3 of 6") && !strstr(said, "damaged"),
         "killed between two renames");
    equal(want, got, "from the one before");
    leave(&ref64, "none", TINY, 4);
    truncate(name, 100);
    truncate(before, 100);
    got = resumed(&ref64, "none", TINY);
    says(strstr(said, "; the run begins anew\n") && !strstr(said, "goes on"), "both are damaged");
    equal(want, got, "anew");
    drop(want);
}

/* A damaged file never takes the place of the one before. */
static void spoilt(void)
{
    char name[100], before[110];
    size_t n, m;

    snprintf(name, sizeof name, "%s/0001", folder);
    snprintf(before, sizeof before, "%s.before", name);
    leave(&ref64, "none", TINY, 3);
    truncate(name, 100);
    unsigned char *was = file_read(before, &n);
    struct tested *x = prepare(&ref64, "none", TINY);
    x->at.use = CHECKPOINT_OWN;
    x->c.until = 3; /* one is written, at update 2 */
    drop(run(x));
    unsigned char *is = file_read(before, &m);
    check(opens(name) && was && is && m == n && memcmp(was, is, n) == 0,
          "a damaged one does not take the place of the one before");
    free(was);
    free(is);
}

static void interrupted(void)
{
    struct tested *want = undisturbed(&ref64, "none", TINY), *x = prepare(&ref64, "none", TINY);
    const volatile int stop = 1;

    leave(&ref64, "none", TINY, 4);
    x->at.use = CHECKPOINT_OWN;
    x->t.stop = &stop;
    run(x);
    check(x->e && strcmp(err_text(), "interrupted") == 0, "ended early, at once");
    drop(x);
    equal(want, resumed(&ref64, "none", TINY), "and from there");
    drop(want);
}

/* Between an update and its validation, which is then made first.  The count of updates that were made asks it to end. */
static void unsettled(void)
{
    static const char words[] =
        "width=2 length=2 batch=2 updates=6 eval_rows=2 eval_every=1 checkpoint_every=0 "
        "parity_every=0";
    struct tested *want = undisturbed(&ref64, "none", words), *x = prepare(&ref64, "none", words);

    clean();
    x->t.stop = (const volatile int *)&x->r.done;
    run(x);
    check(x->e && x->r.done == 1 && !x->r.n_validations, "ended early, in a validation");
    drop(x);
    x = resumed(&ref64, "none", words);
    says(strstr(said, "goes on at update 1 of 6") != NULL, "which is kept");
    equal(want, x, "and made");
    drop(want);
}

/* Of another plan, line, corpus, backend, device or build. */
static void another(void)
{
    static const char *const what[] = {"plan", "line", "corpus", "backend", "device", "build"};
    struct tested *want = undisturbed(&ref64, "none", TINY);

    for (int i = 0; i < (int)COUNT(what); i++) {
        char is_of[100];
        struct tested *x = NULL;
        for (int any = 0; any < 2; any++) {
            leave(&ref64, "none", TINY, 4);
            x = prepare(&ref64, "none", TINY);
            char *const text[] = {x->at.of.plan,    x->at.of.line,   x->at.of.corpus,
                                  x->at.of.backend, x->at.of.device, x->at.of.build};
            strcpy(text[i], "other");
            x->at.use = any ? CHECKPOINT_ANY : CHECKPOINT_OWN;
            snprintf(is_of, sizeof is_of, "0001: is of another %s: '", what[i]);
            if (any)
                break;
            check(checkpoint_refused(&x->at) && strstr(err_text(), is_of) &&
                      strstr(err_text(), "not 'other'") && err_advice() & ADVICE_ANYWAY,
                  "another %s is refused: %s", what[i], err_text());
            run(x);
            check(x->e && strstr(err_text(), is_of), "and by the run: %s", err_text());
            drop(x);
        }
        check(!checkpoint_refused(&x->at), "unless it is to be taken");
        run(x);
        check(strcmp(x->r.resumed_anyway, what[i]) == 0 &&
                  strstr(said, "though that is of another"),
              "which is marked: %s", x->r.resumed_anyway);
        equal(want, x, "and the run goes on");
    }
    drop(want);
}

static void other_sizes(void)
{
    leave(&ref64, "none", TINY, 4);
    struct tested *x = prepare(&ref64, "none", "width=3 length=2 batch=2 updates=6 parity_every=0");
    x->at.use = CHECKPOINT_ANY;
    run(x);
    check(x->e && strstr(err_text(), "has other weights than the run, "), "another model: %s",
          err_text());
    drop(x);
    leave(&ref64, "none", TINY, 4);
    x = prepare(&ref64, "none", TINY);
    x->c.until = 3;
    x->at.use = CHECKPOINT_ANY;
    run(x);
    check(x->e && strstr(err_text(), "has 4 updates, more than the run"), "fewer updates: %s",
          err_text());
    drop(x);
}

/* A folder that cannot be made: the run goes on, and says so once. */
static void unwritable(void)
{
    struct tested *want = undisturbed(&ref64, "none", TINY), *x = prepare(&ref64, "none", TINY);
    char name[100];

    clean();
    snprintf(name, sizeof name, "%s/file", folder);
    put(name, (const unsigned char *)"x", 1);
    snprintf(x->at.file, sizeof x->at.file, "%s/file/0001", folder);
    run(x);
    const char *first = strstr(said, "cannot be written: ");
    says(first && !strstr(first + 1, "cannot be written: ") &&
             strstr(said, "; the run goes on without that checkpoint\n"),
         "one that cannot be written is said once");
    equal(want, x, "and the run goes on");
    unlink(name);
    drop(want);
}

static void builds(void)
{
    char one[BUILD_TEXT], two[BUILD_TEXT];

    check(strcmp(build_text(one), build_text(two)) == 0 && strstr(one, PACKAGE_VERSION),
          "the build has a name: %s", one);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        strcpy(folder, "checkpoint.XXXXXX");
        if (!mkdtemp(folder))
            return 99;
    }
    for (const struct backend *const *b = backends(); *b; b++)
        on_backend(*b);
    damaged();
    the_one_before();
    spoilt();
    interrupted();
    unsettled();
    another();
    other_sizes();
    unwritable();
    builds();
    clean();
    rmdir(folder);
    return done();
}
