/* From an ini file or a line of words to a list of trials.  Everything that
 * is wrong is collected, each fault with its line, and reported in the order of
 * the lines; a section's product is made only if each of its values is good. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <omp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/cases.h"
#include "common/err.h"
#include "common/file.h"
#include "common/ini.h"
#include "common/keys.h"
#include "common/limits.h"
#include "common/plan.h"
#include "common/quote.h"
#include "common/run.h"

enum {
    MAX_KEYS = 200,  /* of a section */
    MAX_FAULTS = 50, /* reported of one file */
    MAX_REFUSED = 3  /* of them, reported of the combinations of one section */
};

struct plan {
    const char *file; /* NULL: it is from words, whose numbers then stand for lines */
    struct experiment *x;
    struct fault {
        int line, number;
        char *text;
    } * fault;
    int n_faults;
    int no_memory;    /* for one more of them */
    double available; /* bytes for tensors on this machine */
};

/* Room for one more than n; it grows from one power of two to the next. */
static void *grow(void *list, int n, size_t size)
{
    return n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * size);
}

/* ---- faults ---- */

__attribute__((format(printf, 3, 4))) static void fault(struct plan *p, int line, const char *fmt,
                                                        ...)
{
    struct fault *more = grow(p->fault, p->n_faults, sizeof *more);
    va_list ap;

    if (!more) {
        p->no_memory = 1;
        return;
    }
    p->fault = more;
    more += p->n_faults;
    *more = (struct fault){line, p->n_faults, NULL};
    char *text = NULL;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0) {
        more->text = quote_controls(text);
        free(text);
    }
    va_end(ap);
    p->n_faults++;
}

static void ini_fault(void *data, int line, const char *message)
{
    fault(data, line, "%s", message);
}

static int by_line(const void *a, const void *b)
{
    const struct fault *x = a, *y = b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : (x->number > y->number) - (x->number < y->number);
}

/* Tell them all; returns how many there are. */
static int faults_tell(struct plan *p, FILE *errors)
{
    char *quoted = quote_controls(p->file ? p->file : "-t");
    const char *from = quoted ? quoted : "?";

    if (p->no_memory)
        fprintf(errors, "%s: no memory\n", from);
    if (p->fault)
        qsort(p->fault, p->n_faults, sizeof *p->fault, by_line);
    for (int i = 0; i < p->n_faults; i++) {
        const struct fault *f = &p->fault[i];
        if (i < MAX_FAULTS && p->file && f->line)
            fprintf(errors, "%s:%d: %s\n", from, f->line, f->text ? f->text : "no memory");
        else if (i < MAX_FAULTS)
            fprintf(errors, "%s: %s\n", from, f->text ? f->text : "no memory");
        free(f->text);
    }
    if (p->n_faults > MAX_FAULTS)
        fprintf(errors, "%s: and %d more\n", from, p->n_faults - MAX_FAULTS);
    free(p->fault);
    free(quoted);
    return p->n_faults + p->no_memory;
}

/* ---- entries ---- */

static const struct ini_entry *entry_find(const struct ini_section *s, const char *key)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->entry[i].key, key) == 0)
            return &s->entry[i];
    return NULL;
}

static int any_op_has(const char *key)
{
    int has = 0;
    for (int i = 0; i < N_OPS; i++)
        has |= op_param(ops[i], key, NULL) != NULL;
    return has;
}

/* " NAME NAME ...", behind what is in `to`. */
static void add_names(const struct plan_key *keys, char *to, size_t size)
{
    for (; keys->name; keys++) {
        size_t n = strlen(to);
        snprintf(to + n, size - n, " %s", keys->name);
    }
}

/* All keys that may stand there; o may be NULL: not known. */
static void known_keys(const struct op *o, int trial, char *to, size_t size)
{
    *to = 0;
    if (trial && o) {
        snprintf(to, size, " (keys of %s:", o->name);
        for (int i = 0; i < o->n_params; i++) {
            size_t n = strlen(to);
            snprintf(to + n, size - n, " %s", o->param[i].name);
        }
        size_t n = strlen(to);
        snprintf(to + n, size - n, "; of every trial:");
        add_names(trial_keys, to, size);
    } else if (!trial) {
        snprintf(to, size, " (keys:");
        add_names(experiment_keys, to, size);
    }
    if (*to)
        strncat(to, ")", size - strlen(to) - 1);
}

/* Words have but one kind of keys; o may be NULL: not known. */
static void unknown_key(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                        const struct op *o)
{
    int trial = strcmp(s->name, "experiment") != 0, words = !p->file;
    const struct plan_key *own = trial ? trial_keys : experiment_keys;
    const struct plan_key *other = trial ? experiment_keys : trial_keys;
    struct guess g = {e->key, NULL, 0};
    char where[64] = "", more[128] = "", known[1024];

    for (int i = 0; own[i].name; i++)
        guess_among(&g, own[i].name);
    for (int i = 0; words && other[i].name; i++)
        guess_among(&g, other[i].name);
    for (int i = 0; trial && i < N_OPS; i++)
        for (int j = 0; (!o || o == ops[i]) && j < ops[i]->n_params; j++)
            guess_among(&g, ops[i]->param[j].name);
    if (!words)
        snprintf(where, sizeof where, " in [%s]", s->name);
    known_keys(o, trial, known, sizeof known);
    if (!words && (key_find(other, e->key) >= 0 || (!trial && any_op_has(e->key)))) {
        snprintf(more, sizeof more, "; it belongs in [%s]", trial ? "experiment" : "trial");
        *known = 0;
    } else if (trial && o && any_op_has(e->key))
        snprintf(more, sizeof more, "; it is no parameter of %s", o->name);
    else if (g.best)
        snprintf(more, sizeof more, "; did you mean '%s'?", g.best);
    fault(p, e->line, "unknown key '%s'%s%s%s", e->key, where, more, known);
}

/* The text in quotes, where "" stands for one; NULL after err_set(). */
static char *unquoted(const char *key, const char *value)
{
    char *text = strdup(value), *to = text;
    const char *from = value + 1;

    while (text && *from && (*from != '"' || from[1] == '"')) {
        from += *from == '"';
        *to++ = *from++;
    }
    if (text && *from && !from[1]) {
        *to = 0;
        return text;
    }
    free(text);
    err_set("%s = %s: it must end where its quotes do", key, value);
    return NULL;
}

/* The entry's value, without quotes; NULL after a fault. */
static char *entry_value(struct plan *p, const struct ini_section *s, const struct ini_entry *e,
                         int many)
{
    const struct ini_entry *first = entry_find(s, e->key);
    int quoted = e->value[0] == '"';
    char *value = NULL;

    if (first != e && p->file)
        fault(p, e->line, "%s is listed twice in this section, first in line %d", e->key,
              first->line);
    else if (first != e)
        fault(p, e->line, "%s is listed twice, as words %d and %d", e->key, first->line, e->line);
    else if (!many && !quoted && strchr(e->value, ','))
        fault(p, e->line, "%s takes one value, not a list", e->key);
    else if (!(value = quoted ? unquoted(e->key, e->value) : strdup(e->value)))
        fault(p, e->line, "%s", quoted ? err_text() : "no memory");
    else if (!*value)
        fault(p, e->line, "%s: a value is missing", e->key);
    if (value && !*value) {
        free(value);
        value = NULL;
    }
    return value;
}

/* ---- [experiment] ---- */

/* The file's name less .ini, and its length. */
static const char *file_name(const char *file, size_t *n)
{
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    *n = strlen(base);
    if (*n > 4 && strcmp(base + *n - 4, ".ini") == 0)
        *n -= 4;
    return base;
}

/* That, of characters that a name may have, cut to fit. */
static void name_after(struct experiment *x, const char *file)
{
    size_t n;
    const char *base = file_name(file, &n);

    if (n >= sizeof x->name)
        n = sizeof x->name - 1;
    for (size_t i = 0; i < n; i++)
        x->name[i] = key_is_name(base[i]) ? base[i] : '_';
    x->name[n] = 0;
}

/* The default.  Without a name of its own the experiment's is the file's as
 * it is, so that two files never meet at one output. */
static void output_after(struct plan *p, int named)
{
    struct experiment *x = p->x;
    size_t n;
    const char *base = p->file && !named ? file_name(p->file, &n) : x->name;

    if (base == x->name)
        n = strlen(base);
    for (size_t i = 0; i < n; i++)
        if (iscntrl((unsigned char)base[i])) {
            fault(p, 0, "its name has a control character: set output");
            return;
        }
    if (n + sizeof ".h5" > sizeof x->output)
        fault(p, 0, "its name is longer than %zu characters: set output",
              sizeof x->output - sizeof ".h5");
    else
        snprintf(x->output, sizeof x->output, "%.*s.h5", (int)n, base);
    x->scratch = !p->file && !named;
}

static void set_experiment(struct plan *p, int k, const char *value, int line)
{
    const struct setter *how = &experiment_setters[k];
    const char *key = experiment_keys[k].name;
    struct lists *l = how->many ? calloc(1, sizeof *l) : NULL;

    if (how->many && !l)
        fault(p, line, "no memory");
    else if (how->many ? lists_add(l, key, value, line) : how->set(p->x, value))
        fault(p, line, "%s", err_text());
    else
        for (int i = 0; l && i < l->list[0].n_values; i++)
            if (how->set(p->x, l->list[0].value[i]))
                fault(p, line, "%s", err_text());
    if (l)
        lists_free(l);
    free(l);
}

/* Where times are measured, every kernel is judged by parity, and by nothing else. */
static void only_times(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *checks = s ? entry_find(s, "checks") : NULL;
    const struct ini_entry *repeats = s ? entry_find(s, "repeats") : NULL;
    const char *name = measure_names[p->x->measure];

    if (checks && p->x->checks != CHECK_PARITY)
        fault(p, checks->line, "checks: measure = %s makes none but parity", name);
    if (repeats && strcmp(repeats->value, "0") == 0)
        fault(p, repeats->line, "repeats = 0: measure = %s needs timed runs", name);
    p->x->checks = CHECK_PARITY;
}

/* s may be NULL: there is none. */
static void read_experiment(struct plan *p, const struct ini_section *s)
{
    for (int i = 0; s && i < s->n; i++) {
        const struct ini_entry *e = &s->entry[i];
        int k = key_find(experiment_keys, e->key);
        if (k < 0) {
            unknown_key(p, s, e, NULL);
            continue;
        }
        char *value = entry_value(p, s, e, experiment_setters[k].many);
        if (value)
            set_experiment(p, k, value, e->line);
        free(value);
    }
    for (int k = 0; experiment_keys[k].name; k++)
        if (experiment_keys[k].initial && !(s && entry_find(s, experiment_keys[k].name)))
            set_experiment(p, k, experiment_keys[k].initial, 0);
    p->x->checks &= ~CHECK_NONE;
    if (p->x->measure != MEASURE_CHECK)
        only_times(p, s);
    if (!p->x->output[0])
        output_after(p, s && entry_find(s, "name") != NULL);
}

/* ---- [trial] ---- */

/* A section on its way to its trials. */
struct work {
    const struct ini_section *s;
    struct trial t;    /* the trial at hand */
    struct lists l;    /* what makes the product */
    struct frame base; /* the sizes that are not listed */
    int every_op;      /* op = all */
    char said[64];     /* lists that were reported not to apply */
    unsigned wrong;    /* a bit for each of trial_keys whose value is */
    int refused;       /* combinations */
};

static int set_listed(struct trial *t, const char *key, const char *value)
{
    int k = key_find(trial_keys, key);
    return k < 0 ? op_set(t->op, &t->sizes, key, value) : trial_setters[k].set(t, value);
}

static void set_entry(struct plan *p, struct work *w, const struct ini_entry *e, int k,
                      const char *value)
{
    int before = w->l.n, many = k < 0 || trial_setters[k].many;

    if (many ? lists_add(&w->l, e->key, value, e->line) : trial_setters[k].set(&w->t, value))
        fault(p, e->line, "%s", err_text());
    for (int i = before; i < w->l.n; i++)
        for (int v = 0; v < w->l.list[i].n_values; v++)
            if ((k >= 0 || w->t.op) && set_listed(&w->t, e->key, w->l.list[i].value[v]))
                fault(p, e->line, "%s", err_text());
}

static void read_entry(struct plan *p, struct work *w, const struct ini_entry *e)
{
    const struct op *o = w->t.op;
    int k = key_find(trial_keys, e->key), faults = p->n_faults;

    if (k < 0 && !(o ? op_param(o, e->key, NULL) != NULL : any_op_has(e->key))) {
        unknown_key(p, w->s, e, o);
        return;
    }
    char *value = entry_value(p, w->s, e, k < 0 || trial_setters[k].many);
    if (value)
        set_entry(p, w, e, k, value);
    if (k >= 0 && p->n_faults > faults)
        w->wrong |= 1u << k;
    free(value);
}

static int takes_text(const struct op *o)
{
    int takes = 0;
    for (int i = 0; i < o->n_args; i++)
        takes |= o->arg[i].flags & TEXT;
    return takes;
}

/* Make the name of the file one from the working directory, and look whether
 * it can be read. */
static void find_file(struct plan *p, struct trial *t, int line)
{
    const char *slash = p->file ? strrchr(p->file, '/') : NULL;
    char from_here[sizeof t->file];

    if (slash && t->file[0] != '/') {
        int folder = (int)(slash + 1 - p->file);
        int n = snprintf(from_here, sizeof from_here, "%.*s%s", folder, p->file, t->file);
        if (n >= (int)sizeof from_here) {
            fault(p, line, "file: with the folder of the ini file, longer than %zu characters",
                  sizeof from_here - 1);
            return;
        }
        strcpy(t->file, from_here);
    }
    const char *why = file_unreadable(t->file);
    if (why)
        fault(p, line, "file = %s: %s", t->file, why);
}

static void read_input(struct plan *p, struct work *w)
{
    const struct ini_entry *input = entry_find(w->s, "input"), *file = entry_find(w->s, "file"),
                           *group = entry_find(w->s, "group");
    struct trial *t = &w->t;

    if (w->wrong & 1u << key_find(trial_keys, "input"))
        return;
    if (t->input != INPUT_HDF5 && group)
        fault(p, group->line, "group: only input = hdf5 has one");
    if (t->input != INPUT_HDF5)
        t->group[0] = 0;
    int drawn = t->input == INPUT_NORMAL || t->input == INPUT_NONZERO;
    if (drawn && file)
        fault(p, file->line, "file: only input = text and input = hdf5 have one");
    if (drawn)
        return;
    if (!file)
        fault(p, input->line, "input = %s needs a file", input_names[t->input]);
    if (w->every_op)
        fault(p, input->line, "input = %s: op = all takes normal or nonzero; name one operation",
              input_names[t->input]);
    if (t->input == INPUT_TEXT && t->op && !takes_text(t->op))
        fault(p, input->line, "input = text: %s has no tensor that can hold a text", t->op->name);
    if (t->file[0] && !(w->wrong & 1u << key_find(trial_keys, "file")))
        find_file(p, t, file->line);
}

/* A choice of other parameters that, were it another, would make this one
 * apply; -1: none by itself. */
static int blame(const struct op *o, const struct frame *f, const struct param *param)
{
    for (int i = 0; i < o->n_params; i++)
        for (int c = 0; o->param[i].choices && o->param[i].choices[c]; c++) {
            struct frame other = *f;
            other.choice[i] = c;
            if (!param->unless(&other))
                return i;
        }
    return -1;
}

static void does_not_apply(struct plan *p, const struct work *w, const struct list *l,
                           const struct param *param)
{
    const struct op *o = w->t.op;
    const struct frame *f = &w->t.sizes;
    const char *section = p->file ? "this section" : "this line";
    int i = blame(o, f, param);
    char but[128] = "";

    if (i >= 0) {
        const char *name = o->param[i].name, *value = o->param[i].choices[f->choice[i]];
        int listed = 0;
        for (int j = 0; j < w->l.n; j++)
            if (strcmp(w->l.list[j].key, name) == 0)
                listed = w->l.list[j].n_values;
        if (listed)
            snprintf(but, sizeof but, ", but %s %s %s = %s", section,
                     listed > 1 ? "also has" : "has", name, value);
        else
            snprintf(but, sizeof but, ", but %s is %s unless set", name, value);
    }
    fault(p, l->line, "%s: %s%s", l->key, param->unless(f), but);
}

/* Does all that is listed apply to this trial? */
static int all_apply(struct plan *p, struct work *w)
{
    int good = 1;
    for (int i = 0; i < w->l.n; i++) {
        const struct list *l = &w->l.list[i];
        const struct param *param = op_param(w->t.op, l->key, NULL);
        if (!param || !param->unless || !param->unless(&w->t.sizes))
            continue;
        good = 0;
        if (!w->said[i])
            does_not_apply(p, w, l, param);
        w->said[i] = 1;
    }
    return good;
}

static double work_bytes(const struct impl *k, const struct frame *f)
{
    if (!k || !k->work)
        return 0;
    double forward = (double)k->work(f, FORWARD), backward = (double)k->work(f, BACKWARD);
    return forward > backward ? forward : backward;
}

/* Bytes that the trial takes on this machine: on the host one set of tensors
 * for each of oracle, yardstick and judged backend, four more that differences
 * move, or two that bounds need; then what is on the references' side.  Workspace is asked for only
 * when the rest fits, for its own sizes are not bounded. */
static double memory_needed(const struct plan *p, const struct trial *t)
{
    const struct backend *yardstick = t->type == F32 ? &ref32 : &ref16;
    int timed = p->x->measure != MEASURE_CHECK;
    int sets = p->x->checks & CHECK_DIFFERENCES ? 7 : timed ? 5 : 3;
    double sum = sets * (double)tensors_bytes(t->op, &t->sizes) +
                 (double)op_memory(t->op, &ref64, NULL, &t->sizes) +
                 (double)op_memory(t->op, yardstick, NULL, &t->sizes);
    if (sum > p->available)
        return sum;
    return sum + work_bytes(op_kernels(t->op, &ref64)[0], &t->sizes) +
           work_bytes(op_kernels(t->op, yardstick)[0], &t->sizes);
}

static const char *bytes_text(double bytes, char text[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int i = 0;
    for (bytes /= 1024; bytes >= 1024 && i < (int)COUNT(units) - 1; i++)
        bytes /= 1024;
    snprintf(text, 32, "%.1f %s", bytes, units[i]);
    return text;
}

/* As it can stand among words. */
static void quoted(const char *value, char *to, size_t size)
{
    size_t n = 0;
    if (!strpbrk(value, " ,\"")) {
        snprintf(to, size, "%s", value);
        return;
    }
    to[n++] = '"';
    for (; *value && n + 4 < size; value++) {
        if (*value == '"')
            to[n++] = '"';
        to[n++] = *value;
    }
    to[n++] = '"';
    to[n] = 0;
}

int plan_text(struct trial *t)
{
    char sizes[MAX_TEXT], more[2 * sizeof t->file + 8];
    char *at = t->text, *end = at + sizeof t->text;

    op_text(t->op, &t->sizes, sizes);
    at += snprintf(at, end - at, "%s%s%s dtype=%s seed=%" PRIu64 " input=%s", t->op->name,
                   *sizes ? " " : "", sizes, dtype_name(t->type), t->seed, input_names[t->input]);
    const char *const keys[] = {" file", " group", " kernel"};
    const char *const values[] = {t->file, t->group, t->kernel};
    for (int i = 0; i < 3 && at < end; i++) {
        quoted(values[i], more, sizeof more);
        if (*values[i])
            at += snprintf(at, end - at, "%s=%s", keys[i], more);
    }
    if (at >= end)
        return err_set("as a line of words it is longer than %d characters", MAX_LINE - 1);
    return 0;
}

static int append(struct experiment *x, const struct trial *t)
{
    struct trial *more = grow(x->trial, x->n, sizeof *more);
    if (!more)
        return err_set("no memory for %d trials", x->n + 1);
    x->trial = more;
    x->trial[x->n++] = *t;
    return 0;
}

/* Is this list at its first value?  Whether it applies at all is then reported, once. */
static int at_first(const struct lists *l, const char *key)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->list[i].key, key) == 0)
            return l->list[i].at == 0;
    return 1;
}

static void refuse(struct plan *p, struct work *w)
{
    if (w->refused++ < MAX_REFUSED)
        fault(p, w->s->line, "%s", err_text());
}

static void make_trial(struct plan *p, struct work *w)
{
    struct trial *t = &w->t;
    char need[32], have[32], text[MAX_TEXT];

    t->sizes = w->base;
    for (int i = 0; i < w->l.n; i++)
        set_listed(t, w->l.list[i].key, w->l.list[i].value[w->l.list[i].at]);
    if (!all_apply(p, w))
        return;
    op_text(t->op, &t->sizes, text);
    if (op_complete(t->op, &t->sizes)) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_text());
        err_set("%s: %s (%s)", t->op->name, why, text);
        if (at_first(&w->l, "dtype") && at_first(&w->l, "seed"))
            refuse(p, w);
        return;
    }
    double bytes = memory_needed(p, t);
    if (bytes > p->available) {
        err_set("%s needs %s of memory, %s are available (%s dtype=%s)", t->op->name,
                bytes_text(bytes, need), bytes_text(p->available, have), text, dtype_name(t->type));
        if (at_first(&w->l, "seed"))
            refuse(p, w);
    } else if (plan_text(t) || append(p->x, t)) {
        refuse(p, w);
    }
}

static int count_case(const struct op *o, const struct frame *f, void *data)
{
    (void)o;
    (void)f;
    ++*(double *)data;
    return 0;
}

/* Where a case is being made. */
struct making {
    struct plan *p;
    struct work *w;
};

/* The product of the lists, with these sizes; those that do not apply keep their default, as where a
 * trial's words are read. */
static int make_case(const struct op *o, const struct frame *f, void *data)
{
    const struct making *m = data;

    op_defaults(o, &m->w->base);
    for (int i = 0; i < o->n_params; i++) {
        const struct param *param = &o->param[i];
        if (param->unless && param->unless(f))
            continue;
        if (param->letter)
            DIM(&m->w->base, param->letter) = DIM(f, param->letter);
        m->w->base.choice[i] = f->choice[i];
        m->w->base.real[i] = f->real[i];
    }
    do
        make_trial(m->p, m->w);
    while (lists_next(&m->w->l));
    return 0;
}

static void make_product(struct plan *p, struct work *w)
{
    const struct op *o = w->t.op;
    struct making m = {p, w};
    struct frame plain;
    const char *cases = w->t.cases == CASES_SHAPES ? o->shapes : o->cases;
    double n = 1;

    if (w->t.cases != CASES_NONE) {
        n = 0;
        if (cases && cases_each(o, cases, count_case, &n))
            fault(p, w->s->line, "cases of %s: %s", o->name, err_text());
    }
    for (int i = 0; i < w->l.n; i++)
        n *= w->l.list[i].n_values;
    if (p->x->n + n > MAX_TRIALS) {
        fault(p, w->s->line, "this makes %.0f trials%s; an experiment has at most %d", n,
              p->x->n ? " more" : "", MAX_TRIALS);
        return;
    }
    op_defaults(o, &plain);
    if (w->t.cases == CASES_NONE)
        make_case(o, &plain, &m);
    else if (n > 0)
        cases_each(o, cases, make_case, &m);
    if (w->refused > MAX_REFUSED)
        fault(p, w->s->line, "and %d more", w->refused - MAX_REFUSED);
}

/* Of the section's lists, which are all operations', those that are this one's, with values that it
 * takes. */
static void make_product_of(struct plan *p, const struct work *every, const struct op *o)
{
    struct work *w = malloc(sizeof *w);
    int faults = p->n_faults;

    if (!w) {
        fault(p, every->s->line, "no memory");
        return;
    }
    *w = *every;
    w->t.op = o;
    w->l.n = 0;
    for (int i = 0; i < every->l.n; i++) {
        const struct list *l = &every->l.list[i];
        if (key_find(trial_keys, l->key) < 0 && !op_param(o, l->key, NULL))
            continue;
        w->l.list[w->l.n++] = *l;
        for (int v = 0; v < l->n_values; v++)
            if (set_listed(&w->t, l->key, l->value[v]))
                fault(p, l->line, "%s: %s", o->name, err_text());
    }
    if (p->n_faults == faults)
        make_product(p, w);
    free(w); /* its lists are the section's */
}

/* What cannot stand beside `op = all` or `cases`. */
static void refuse_beside(struct plan *p, const struct work *w)
{
    const struct ini_entry *kernel = entry_find(w->s, "kernel");

    if (w->every_op && kernel)
        fault(p, kernel->line, "kernel: op = all takes none; name one operation");
    for (int i = 0; w->t.cases != CASES_NONE && i < w->l.n; i++)
        if (key_find(trial_keys, w->l.list[i].key) < 0)
            fault(p, w->l.list[i].line, "%s: cases = %s sets every parameter", w->l.list[i].key,
                  case_names[w->t.cases]);
    if (w->t.cases == CASES_SHAPES && w->t.op && !w->t.op->shapes)
        fault(p, entry_find(w->s, "cases")->line, "cases = %s: %s has none", case_names[w->t.cases],
              w->t.op->name);
}

static void read_trials(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *op = entry_find(s, "op");
    const char *name = s->name + strlen("trial");
    struct work *w = calloc(1, sizeof *w);
    int faults = p->n_faults;

    if (!w) {
        fault(p, s->line, "no memory");
        return;
    }
    w->s = s;
    w->t.line = p->file ? s->line : 0;
    w->t.seed = p->x->seed;
    for (int k = 0; trial_keys[k].name; k++)
        if (trial_keys[k].initial)
            trial_setters[k].set(&w->t, trial_keys[k].initial);
    char *section = quote_controls(name + strspn(name, " \t"));
    snprintf(w->t.section, sizeof w->t.section, "%.63s", section ? section : "");
    free(section);
    if (op)
        read_entry(p, w, op); /* the meaning of the others hangs on it */
    else if (p->file)
        fault(p, s->line, "[%s] has no op", s->name);
    else
        fault(p, s->line, "no operation is named");
    w->every_op = p->n_faults == faults && !w->t.op;
    for (int i = 0; i < s->n; i++)
        if (&s->entry[i] != op)
            read_entry(p, w, &s->entry[i]);
    read_input(p, w);
    refuse_beside(p, w);
    for (int i = 0; p->n_faults == faults && w->every_op && i < N_OPS; i++)
        make_product_of(p, w, ops[i]);
    if (p->n_faults == faults && !w->every_op)
        make_product(p, w);
    lists_free(&w->l);
    free(w);
}

/* ---- sections ---- */

static int is_trial(const char *name)
{
    return strncmp(name, "trial", 5) == 0 && (!name[5] || name[5] == ' ' || name[5] == '\t');
}

/* First [experiment], wherever it stands, for trials go by it. */
static void read_experiments(struct plan *p, const struct ini *ini)
{
    const struct ini_section *first = NULL;
    for (int i = 0; i < ini->n; i++) {
        const struct ini_section *s = &ini->section[i];
        if (!s->name || strcmp(s->name, "experiment") != 0)
            continue;
        if (first)
            fault(p, s->line, "a second [experiment]; the first is in line %d", first->line);
        else
            first = s;
    }
    read_experiment(p, first);
}

/* Its NAME, of [trial NAME]. */
static const char *trial_name(const struct ini_section *s)
{
    const char *name = s->name + strlen("trial");
    return name + strspn(name, " \t");
}

/* A name can be given once; any number of sections have none. */
static void refuse_second(struct plan *p, const struct ini *ini, const struct ini_section *s)
{
    for (const struct ini_section *first = ini->section; *trial_name(s) && first < s; first++)
        if (first->name && is_trial(first->name) && strcmp(trial_name(first), trial_name(s)) == 0) {
            fault(p, s->line, "a second [%s]; the first is in line %d", s->name, first->line);
            return;
        }
}

/* What no plan can be made of is not looked at any further. */
static int too_large(struct plan *p, const struct ini *ini)
{
    int faults = p->n_faults;

    if (ini->n > MAX_TRIALS + 1)
        fault(p, 0, "it has %d sections; an experiment has at most %d trials", ini->n, MAX_TRIALS);
    for (int i = 0; i < ini->n; i++)
        if (ini->section[i].n > MAX_KEYS)
            fault(p, ini->section[i].line, "%s has %d keys, more than any operation",
                  p->file ? "this section" : "this line", ini->section[i].n);
    return p->n_faults > faults;
}

static void read_sections(struct plan *p, const struct ini *ini)
{
    int others = p->n_faults, trials = 0;

    if (too_large(p, ini))
        return;
    read_experiments(p, ini);
    for (int i = 0; i < ini->n; i++) {
        const struct ini_section *s = &ini->section[i];
        if (!s->name) {
            others++;
        } else if (is_trial(s->name)) {
            trials++;
            refuse_second(p, ini, s);
            read_trials(p, s);
        } else if (strcmp(s->name, "experiment") != 0 && !s->line) {
            fault(p, s->entry[0].line, "%s = %s stands before any section", s->entry[0].key,
                  s->entry[0].value);
        } else if (strcmp(s->name, "experiment") != 0) {
            others++;
            fault(p, s->line, "unknown section [%s]", s->name);
        }
    }
    if (!trials && !others)
        fault(p, 0, "it has no [trial]");
}

/* Bytes for tensors on this machine. */
static int64_t available(void)
{
    int64_t there = ref64.memory(), room = limits_room(NULL);

    if (room == INT64_MAX)
        return there;
    room -= limits_overhead(omp_get_max_threads());
    room = room > 0 ? room : 0;
    return room < there ? room : there;
}

static int finish(struct plan *p, struct ini *ini, FILE *errors)
{
    struct experiment *x = p->x;

    if (ini->text) {
        p->available = (double)available();
        read_sections(p, ini);
    }
    x->text = ini->text;
    ini->text = NULL;
    ini_free(ini);
    int n = faults_tell(p, errors);
    if (n)
        plan_free(x);
    return n;
}

int plan_read(const char *file, struct experiment *x, FILE *errors)
{
    struct plan p = {.file = file, .x = x};
    struct ini ini;

    *x = (struct experiment){.device = -1, .file = file};
    name_after(x, file);
    ini_read(&ini, file, ini_fault, &p);
    return finish(&p, &ini, errors);
}

/* ---- words ---- */

/* Cut off the next word, up to a blank that no quotes enclose; NULL at the end. */
static char *next_word(char **at)
{
    char *c = *at, *word;
    int in_quotes = 0;

    while (isspace((unsigned char)*c))
        c++;
    for (word = c; *c && (in_quotes || !isspace((unsigned char)*c)); c++)
        in_quotes ^= *c == '"';
    *at = c + (*c != 0);
    *c = 0;
    return c > word ? word : NULL;
}

/* Deal the words out to two sections.  They are numbered, for the order of
 * the faults. */
static int read_words(struct plan *p, char *words, struct ini *ini)
{
    int e = ini_add_section(ini, "experiment", 1) || ini_add_section(ini, "trial", 1);
    struct ini_section *experiment = ini->section, *trial = experiment + 1;
    char *word;

    for (int n = 1; !e && (word = next_word(&words)); n++) {
        char *equals = strchr(word, '=');
        if (!equals && n == 1) {
            e = ini_add_entry(trial, "op", word, n);
        } else if (!equals || equals == word) {
            fault(p, n, "expected key=value at: %.60s", word);
        } else {
            *equals = 0;
            int other = key_find(experiment_keys, word) >= 0 && key_find(trial_keys, word) < 0;
            e = ini_add_entry(other ? experiment : trial, word, equals + 1, n);
        }
    }
    return e;
}

int plan_words(const char *words, struct experiment *x, FILE *errors)
{
    struct plan p = {.x = x};
    struct ini ini = {.text = strdup(words)};
    char *copy = strdup(words);

    *x = (struct experiment){.device = -1};
    strcpy(x->name, "trial");
    if (!ini.text || !copy || read_words(&p, copy, &ini))
        fault(&p, 0, "no memory for these words");
    free(copy);
    return finish(&p, &ini, errors);
}

void plan_free(struct experiment *x)
{
    free(x->text);
    free(x->trial);
    *x = (struct experiment){.device = -1};
}
