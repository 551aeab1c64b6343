/* Sections of measure = train (training.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/fnv.h"
#include "common/base/number.h"
#include "common/plan/keys.h"
#include "common/plan/training.h"
#include "common/program/layout.h"
#include "common/train/cell.h"

const char TRAIN_OP[] = "train";
/* Rates and corrections in three tables, on the host and on the backend; six curves. */
enum { BYTES_OF_UPDATE = 2 * 3 * 8 + 6 * 8 };
enum { MAX_CORPUS = 1 << 30 }; /* of examples */

/* The mixer's operation. */
static const struct op *op_of_mixer(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *e = section_entry(s, "mixer");
    const struct op *o = e ? cell_op(e->value) : NULL;

    if (!e)
        plan_fault(p, s->line, "%s has no mixer: measure = train needs one, as mixer = e74",
                   p->file ? "the section" : "the line");
    else if (!o && strchr(e->value, ','))
        plan_fault(p, e->line, "mixer = %s: one in a section, as each has keys of its own",
                   e->value);
    else if (!o)
        plan_fault(p, e->line, "%s", err_text());
    return o;
}

const struct op *training_op(struct plan *p, const struct ini_section *s,
                             const struct ini_entry *op, int *known)
{
    const int is = p->x->measure == MEASURE_TRAIN, named = op && strcmp(op->value, TRAIN_OP) == 0;

    *known = !is && !named;
    if (named && !is)
        plan_fault(p, op->line, "op = train: that is measure = train in [experiment]");
    else if (is && op && !named)
        plan_fault(p, op->line, "op = %s: measure = train has models, of a mixer, and no operation",
                   op->value);
    return is && (!op || named) ? op_of_mixer(p, s) : NULL;
}

void training_refuse(struct plan *p, const struct ini_section *s)
{
    static const char *const not [] = {"cases",      "input",   "group", "tensor",
                                       "program",    "kernel",  "goal",  "goal_backward",
                                       "accumulate", "in_place"};

    for (int i = 0; i < (int)COUNT(not ); i++) {
        const struct ini_entry *e = section_entry(s, not [i]);
        if (e)
            plan_fault(p, e->line, "%s: a run of training has none", not [i]);
    }
}

/* The corpus of the plan's next trials. */
static int read_corpus(struct plan *p, const char *file)
{
    uint64_t hash = FNV_BEGIN;
    struct stat st;
    const char *why = file_unreadable(file);

    if (strcmp(p->corpus, file) == 0)
        return 0;
    if (why || stat(file, &st))
        return err_set("file = %s: %s", file, why ? why : "cannot be read");
    if (st.st_size > MAX_CORPUS)
        return err_set("file = %s: has %lld bytes, and a corpus at most %d", file,
                       (long long)st.st_size, MAX_CORPUS);
    p->corpus_bytes = 0;
    if (file_hash(file, &hash, &p->corpus_bytes))
        return err_at("file");
    file_contents_text(hash, p->corpus_bytes, p->contents);
    snprintf(p->corpus, sizeof p->corpus, "%s", file);
    return 0;
}

int training_file(struct plan *p, struct trial *t, const char *file)
{
    t->file[0] = t->group[0] = t->contents[0] = 0;
    if (!cell_has_corpus(&t->call))
        return 0;
    if (!file || !*file)
        return err_set("task = bytes needs file = FILE, its corpus");
    if (read_corpus(p, file))
        return -1;
    snprintf(t->file, sizeof t->file, "%s", file);
    snprintf(t->contents, sizeof t->contents, "%s", p->contents);
    cell_set_corpus(&t->call, (int64_t)p->corpus_bytes);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Can the task have it? */
static int check_length(const struct trial *t, int64_t length)
{
    struct call f = t->call, batch;
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)length);
    return op_set(&f, "length", text) || cell_batch(&f, &batch)
               ? err_at("eval = %lld", (long long)length)
               : 0;
}

int training_lengths(const struct trial *t, int64_t to[MAX_LENGTHS])
{
    char text[sizeof t->eval], *rest = NULL;
    int n = 0;

    memcpy(text, t->eval, sizeof text);
    for (char *word = strtok_r(text, ", \t\n", &rest); word;
         word = strtok_r(NULL, ", \t\n", &rest)) {
        if (n == MAX_LENGTHS)
            return err_set("eval: more than %d lengths", MAX_LENGTHS);
        if (number_whole(word, 1, 1 << 30, &to[n]))
            return err_at("eval = %s", word);
        if (check_length(t, to[n]))
            return -1;
        for (int i = 0; i < n; i++)
            if (to[i] == to[n])
                return err_set("eval: %s twice", word);
        n++;
    }
    qsort(to, n, sizeof *to, by_size);
    return n;
}

/* The i-th that is named and stores the type, or is the oracle. */
static const struct backend *named(const struct experiment *x, const struct trial *t, int i)
{
    for (int k = 0; k < x->n_backends; k++)
        if ((x->backend[k]->type == t->type || x->backend[k] == &ref64) && i-- == 0)
            return x->backend[k];
    return NULL;
}

const struct backend *training_backend(const struct experiment *x, const struct trial *t)
{
    return named(x, t, 0);
}

int training_backends(const struct experiment *x, const struct trial *t)
{
    if (!x->n_backends || (named(x, t, 0) && !named(x, t, 1)))
        return 0;
    return named(x, t, 0)
               ? err_set("backends = %s, %s: a run trains on one", named(x, t, 0)->name,
                         named(x, t, 1)->name)
               : err_set("backends: none of those that are named stores %s", types[t->type].name);
}

/* Are all keys of a part the same? */
static int same_keys(const struct trial *a, const struct trial *b, enum cell_part part)
{
    const struct op *o = a->call.op;
    char one[32], other[32];

    for (int i = 0; i < o->n_params; i++) {
        int k;
        if (cell_part(o, o->param[i].name) != (int)part)
            continue;
        if (!op_param(b->call.op, o->param[i].name, &k) ||
            strcmp(op_value(&a->call, i, one), op_value(&b->call, k, other)) != 0)
            return 0;
    }
    return 1;
}

int training_same_task(const struct trial *a, const struct trial *b)
{
    return strcmp(a->task, b->task) == 0 && strcmp(a->file, b->file) == 0 &&
           same_keys(a, b, CELL_OF_TASK);
}

int training_alike(const struct trial *a, const struct trial *b)
{
    return a->call.op == b->call.op && a->type == b->type && a->model_line == b->model_line &&
           a->adjust_line == b->adjust_line && strcmp(a->eval, b->eval) == 0 &&
           same_keys(a, b, CELL_OF_MODEL) && training_same_task(a, b);
}

const char *training_difference(const struct trial *a, const struct trial *b)
{
    const struct op *o = a->call.op;
    char one[32], other[32];

    if (o != b->call.op)
        return "mixer";
    for (int i = 0; i < o->n_params; i++)
        if (strcmp(o->param[i].name, "lr") != 0 &&
            strcmp(op_value(&a->call, i, one), op_value(&b->call, i, other)) != 0)
            return o->param[i].name;
    return a->type != b->type         ? "dtype"
           : strcmp(a->eval, b->eval) ? "eval"
           : strcmp(a->file, b->file) ? "file"
                                      : NULL;
}

/* Of a model on sequences of another length, beside that of the run. */
static double memory_at(const struct call *model, int64_t length)
{
    struct call f;
    char steps[32];

    op_defaults(model->op->family, &f);
    snprintf(steps, sizeof steps, "%lld", (long long)length);
    if (op_set(&f, "steps", steps) || op_complete(&f))
        return 0;
    f = call_on(&f, &ref64, NULL, NULL);
    f.kernel = op_kernel(f.op, &ref64, 0);
    return (double)op_memory(&f);
}

double training_memory(const struct trial *t)
{
    struct cell *c = malloc(sizeof *c);
    struct layout *l = malloc(sizeof *l);
    double bytes = 0;

    if (c && l && !cell_read(&t->call, t->seed, c)) {
        struct call f = call_on(&c->model, &ref64, NULL, NULL);
        layout_find(l, &f);
        f.kernel = op_kernel(f.op, &ref64, 0);
        bytes = (double)op_memory(&f) + 8 * 6 * (double)(l->storage.elements + l->wide.elements) +
                (double)c->until * BYTES_OF_UPDATE;
        int64_t length[MAX_LENGTHS];
        const int n = training_lengths(t, length);
        bytes += n > 0 ? memory_at(&c->model, length[n - 1]) : 0;
    }
    free(c);
    free(l);
    return bytes;
}

double training_work(const struct trial *t)
{
    struct cell *c = malloc(sizeof *c);
    double work = 0;

    if (c && !cell_read(&t->call, t->seed, c)) {
        const struct op *o = c->model.op;
        work = (double)c->until * (o->flops(&c->model, FORWARD) + o->flops(&c->model, BACKWARD));
    }
    free(c);
    return work;
}

/* Its text, from a copy of the trial whose parameters are set. */
static int line_of(const struct trial *t, const char *const set[][2], int n, char text[MAX_LINE])
{
    struct trial *copy = malloc(sizeof *copy);
    int e = 0;

    if (!copy)
        return err_set("no memory for a line of words");
    *copy = *t;
    for (int i = 0; !e && i < n; i++)
        e = op_set(&copy->call, set[i][0], set[i][1]);
    e = e || plan_text(copy);
    if (!e)
        memcpy(text, copy->text, MAX_LINE);
    free(copy);
    return e;
}

int training_line(const struct trial *t, char text[MAX_LINE])
{
    return line_of(t, NULL, 0, text);
}

int training_again(const struct trial *t, int64_t update, char text[MAX_LINE])
{
    char number[32];
    const char *const set[][2] = {{"parity_every", number}, {"until", number}};

    snprintf(number, sizeof number, "%lld", (long long)update);
    return line_of(t, set, COUNT(set), text);
}
