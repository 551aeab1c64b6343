/* A section [trial]: from its entries to the combinations of its lists, each a trial of its own. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/base/quote.h"
#include "common/call/cases.h"
#include "common/call/sample.h"
#include "common/plan/combinations.h"
#include "common/plan/keys.h"
#include "common/plan/match.h"
#include "common/plan/memory.h"
#include "common/plan/model.h"
#include "common/plan/programs.h"
#include "common/plan/quotient.h"
#include "common/plan/ranges.h"
#include "common/plan/section.h"
#include "common/plan/training.h"
#include "common/train/cell.h"

enum { MAX_REFUSED = 3 }; /* reported of the combinations of one section */

/* A section on its way to its trials. */
struct work {
    const struct ini_section *s;
    struct trial t;          /* the trial at hand */
    struct lists l;          /* the lists whose product is made */
    struct call base;        /* the sizes that are not listed */
    int every_op;            /* op = all */
    char applies[MAX_LISTS]; /* of each list: to a combination */
    unsigned wrong;          /* a bit for each of trial_keys whose value is */
    int refused;             /* combinations */
    char corpus[MAX_FILE];   /* of training: the key `file` */
    int has_corpus;          /* a trial's task takes it */
};

/* The list of that key, or NULL. */
static const struct list *list_of(const struct lists *l, const char *key)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->list[i].key, key) == 0)
            return &l->list[i];
    return NULL;
}

static int set_listed(struct trial *t, const char *key, const char *value)
{
    int k = key_find(trial_keys, key);
    return k < 0 ? op_set(&t->call, key, value) : trial_keys[k].set(&trial_keys[k], t, value);
}

/* Is a parameter's value N / KEY?  It is set when the other sizes are known. */
static int is_quotient(const char *key, const char *value)
{
    return key_find(trial_keys, key) < 0 && quotient_key(value);
}

/* Nonzero after err_set() if the key cannot have that value. */
static int check_listed(struct trial *t, const char *key, const char *value)
{
    return is_quotient(key, value) ? quotient_check(t->call.op, key, value)
                                   : set_listed(t, key, value);
}

/* A list, in which ranges may stand. */
static int add_list(const struct plan *p, struct work *w, const struct ini_entry *e,
                    const char *values)
{
    char *numbers = ranges_expand(e->key, values, p->x->seed);
    int failed = !numbers || lists_add(&w->l, e->key, numbers, e->line);

    free(numbers);
    return failed;
}

static void set_entry(struct plan *p, struct work *w, const struct ini_entry *e, int k,
                      const char *value)
{
    int before = w->l.n, many = k < 0 || trial_keys[k].many == LIST;

    if (many ? add_list(p, w, e, value) : set_listed(&w->t, e->key, value))
        plan_fault(p, e->line, "%s", err_text());
    for (int i = before; i < w->l.n; i++)
        for (int v = 0; v < w->l.list[i].n_values; v++)
            if ((k >= 0 || w->t.call.op) && check_listed(&w->t, e->key, w->l.list[i].value[v]))
                plan_fault(p, e->line, "%s", err_text());
}

/* A parameter of older files (struct retired). */
static int is_retired(struct plan *p, const struct work *w, const struct ini_entry *e)
{
    const struct op *o = w->t.call.op;
    const struct retired *r = o ? o->retired : NULL;

    while (r && r->key && strcmp(r->key, e->key) != 0)
        r++;
    if (!r || !r->key)
        return 0;
    if (strcmp(r->value, e->value) != 0)
        plan_fault(p, e->line, "%s = %s: %s has no %s any more: %s", e->key, e->value, o->name,
                   e->key, r->instead);
    else if (section_entry(w->s, r->successor))
        plan_fault(p, e->line, "%s = %s beside %s, which %s has in its place", e->key, e->value,
                   r->successor, o->name);
    return 1;
}

static void read_entry(struct plan *p, struct work *w, const struct ini_entry *e)
{
    const struct op *o = w->t.call.op;
    int k = key_find(trial_keys, e->key), faults = p->n_faults;

    if (k < 0 && is_retired(p, w, e))
        return;
    if (k < 0 && !(o ? op_param(o, e->key, NULL) != NULL : section_parameter(e->key))) {
        section_unknown(p, w->s, e, o);
        return;
    }
    char *value = section_value(p, w->s, e, k < 0 || trial_keys[k].many);
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

/* Make the file's name relative to the working directory, and see whether it can be read. */
static int find_file(struct plan *p, const char *key, char file[MAX_FILE], int line)
{
    const char *slash = p->file ? strrchr(p->file, '/') : NULL;
    char from_here[MAX_FILE];

    if (slash && file[0] != '/') {
        int folder = (int)(slash + 1 - p->file);
        int n = snprintf(from_here, sizeof from_here, "%.*s%s", folder, p->file, file);
        if (n >= (int)sizeof from_here) {
            plan_fault(p, line, "%s: with the folder of the ini file, longer than %zu characters",
                       key, sizeof from_here - 1);
            return -1;
        }
        strcpy(file, from_here);
    }
    const char *why =
        strcmp(key, "program") == 0 && program_texts_have(file) ? NULL : file_unreadable(file);
    if (why)
        plan_fault(p, line, "%s = %s: %s", key, file, why);
    return why ? -1 : 0;
}

/* The operation of a section that has op = program; the key belongs to no other.  Nonzero: that is not
 * known, nor which keys are its own. */
static int read_program(struct plan *p, struct work *w, const struct ini_entry *op)
{
    const struct ini_entry *e = section_entry(w->s, "program");
    const int is = op && strcmp(op->value, PROGRAM_OP) == 0, faults = p->n_faults;

    if (e && !is)
        plan_fault(p, e->line, "program: only op = program has one");
    if (is && !e)
        plan_fault(p, op->line, "op = program needs program = FILE");
    if (!e || !is)
        return is;
    read_entry(p, w, e);
    if (p->n_faults == faults && !find_file(p, "program", w->t.program, e->line))
        w->t.call.op = plan_program(p, w->t.program, e->line);
    return !w->t.call.op;
}

/* The operation of a section of measure = train.  Nonzero: it is one, and that is not known. */
static int read_training(struct plan *p, struct work *w, const struct ini_entry *op)
{
    int known;
    const struct op *o = training_op(p, w->s, op, &known);

    if (o)
        w->t.call.op = o;
    return !o && !known;
}

/* And its file, for the task bytes. */
static void read_corpus(struct plan *p, struct work *w)
{
    const struct ini_entry *file = section_entry(w->s, "file");

    training_refuse(p, w->s);
    if (file && !(w->wrong & 1u << key_find(trial_keys, "file")) &&
        !find_file(p, "file", w->t.file, file->line))
        strcpy(w->corpus, w->t.file);
}

static void read_input(struct plan *p, struct work *w)
{
    const struct ini_entry *input = section_entry(w->s, "input"),
                           *file = section_entry(w->s, "file"),
                           *group = section_entry(w->s, "group"),
                           *tensor = section_entry(w->s, "tensor");
    struct trial *t = &w->t;

    t->input_given = input != NULL;
    if (w->wrong & 1u << key_find(trial_keys, "input"))
        return;
    if (t->input != INPUT_HDF5 && group)
        plan_fault(p, group->line, "group: only input = hdf5 has one");
    if (t->input != INPUT_HDF5)
        t->group[0] = 0;
    if (t->input != INPUT_GGUF && tensor)
        plan_fault(p, tensor->line, "tensor: only input = gguf has one");
    int drawn = t->input == INPUT_NORMAL || t->input == INPUT_NONZERO;
    if (drawn && file)
        plan_fault(p, file->line, "file: only input = text, hdf5 and gguf have one");
    if (drawn)
        return;
    if (!file)
        plan_fault(p, input->line, "input = %s needs a file", input_names[t->input]);
    if (t->input == INPUT_GGUF && !tensor)
        plan_fault(p, input->line,
                   "input = gguf needs a tensor; run-ablation --list FILE names them");
    if (w->every_op)
        plan_fault(p, input->line,
                   "input = %s: op = all takes normal or nonzero; name one operation",
                   input_names[t->input]);
    if (t->input == INPUT_TEXT && t->call.op && !takes_text(t->call.op))
        plan_fault(p, input->line, "input = text: %s has no tensor that can hold a text",
                   t->call.op->name);
    if (t->file[0] && !(w->wrong & 1u << key_find(trial_keys, "file")))
        find_file(p, "file", t->file, file->line);
    t->input_line = tensor ? tensor->line : group ? group->line : file ? file->line : 0;
}

/* A choice of other parameters that, were it another, would make this one
 * apply; -1: none by itself. */
static int blame(const struct op *o, const struct call *f, const struct param *param)
{
    for (int i = 0; i < o->n_params; i++)
        for (int c = 0; o->param[i].choices && o->param[i].choices[c]; c++) {
            struct call other = *f;
            other.choice[i] = c;
            if (!param->unless(&other))
                return i;
        }
    return -1;
}

/* The values of a list, "full, diagonal". */
static void values_of(const struct list *l, char *to, size_t size)
{
    *to = 0;
    for (int v = 0; v < l->n_values; v++)
        append(to, size, "%s%s", v ? ", " : "", l->value[v]);
}

/* A list that applies to no combination: why not to that of all first values, which f is. */
static void applies_nowhere(struct plan *p, const struct work *w, const struct list *l,
                            const struct call *f)
{
    const struct op *o = f->op;
    const struct param *param = op_param(o, l->key, NULL);
    const char *section = p->file ? "this section" : "this line";
    int i = blame(o, f, param);
    char but[512] = "", values[256];

    if (i >= 0) {
        const char *name = o->param[i].name;
        const struct list *listed = list_of(&w->l, name);
        if (listed) {
            values_of(listed, values, sizeof values);
            snprintf(but, sizeof but, ", but %s has %s = %s", section, name, values);
        } else
            snprintf(but, sizeof but, ", but %s is %s unless set", name,
                     o->param[i].choices[f->choice[i]]);
    }
    plan_fault(p, l->line, "%s: %s%s", l->key, param->unless(f), but);
}

/* The first operation of op = all that has a parameter. */
static const struct op *first_with(const char *parameter)
{
    int i = 0;
    while (!op_param(ops[i], parameter, NULL))
        i++;
    return ops[i];
}

/* Each list must apply to a combination, of any operation. */
static void refuse_inapplicable(struct plan *p, const struct work *w)
{
    for (int i = 0; i < w->l.n; i++) {
        struct call base = w->base, first;
        if (w->applies[i])
            continue;
        if (w->every_op)
            op_defaults(first_with(w->l.list[i].key), &base);
        combinations_first(&w->l, &base, &first);
        applies_nowhere(p, w, &w->l.list[i], &first);
    }
}

/* Is it judged by a sample?  Nonzero after err_set() where it should be and cannot. */
static int choose_judged(const struct experiment *x, struct trial *t)
{
    t->sampled = plan_sampled(x, &t->call);
    return t->sampled && !sample_some(&t->call)
               ? err_set("judge = sampled: %s cannot be sampled: no result of it has a row that "
                         "depends on the same row of the inputs alone",
                         t->call.op->name)
               : 0;
}

static int add_trial(struct experiment *x, const struct trial *t)
{
    struct trial *more = grow(x->trial, x->n, sizeof *more);
    if (!more)
        return err_set("no memory for %d trials", x->n + 1);
    x->trial = more;
    x->trial[x->n++] = *t;
    return 0;
}

/* Is this list at its first value?  Faults that hold for all its values are reported then, once. */
static int at_first(const struct lists *l, const char *key)
{
    const struct list *listed = list_of(l, key);
    return !listed || listed->at == 0;
}

static void refuse(struct plan *p, struct work *w)
{
    if (w->refused++ < MAX_REFUSED)
        plan_fault(p, w->s->line, "%s", err_text());
}

/* Is the parameter set in this section, for the combination at hand? */
static int is_listed(const char *parameter, const void *data)
{
    const struct work *w = data;
    const struct list *l = list_of(&w->l, parameter);
    return w->t.cases != CASES_NONE || (l && l->at != LEFT_OUT);
}

/* The sizes that the tensors of a file have. */
static int take_sizes(struct plan *p, struct work *w)
{
    struct model m;
    const int e = model_open(&m, &w->t) || model_sizes(&m, &w->t.call, is_listed, w);

    model_close(&m);
    if (e && at_first(&w->l, "dtype") && at_first(&w->l, "seed"))
        plan_fault(p, w->t.input_line, "%s", err_text());
    return e;
}

/* Set the values of the combination at hand: quotients last, for they depend on the others. */
static int set_values(struct work *w)
{
    struct trial *t = &w->t;
    int failed = 0;

    t->call = w->base;
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < w->l.n; i++) {
            const struct list *l = &w->l.list[i];
            if (l->at == LEFT_OUT)
                continue;
            const char *value = l->value[l->at];
            if (is_quotient(l->key, value) != last)
                continue;
            if (last)
                failed = failed || quotient_set(&t->call, l->key, value);
            else
                set_listed(t, l->key, value);
        }
    return failed;
}

static void make_trial(struct plan *p, struct work *w)
{
    struct trial *t = &w->t;
    char need[NUMBER_TEXT], have[NUMBER_TEXT], text[MAX_TEXT];

    if (set_values(w)) {
        if (at_first(&w->l, "dtype") && at_first(&w->l, "seed"))
            refuse(p, w);
        return;
    }
    if (t->input == INPUT_GGUF && take_sizes(p, w))
        return;
    if (is_cell(t->call.op) && (training_backends(p->x, t) || training_file(p, t, w->corpus))) {
        refuse(p, w);
        return;
    }
    int64_t length[MAX_LENGTHS];
    if (is_cell(t->call.op) && training_lengths(t, length) < 0) {
        refuse(p, w);
        return;
    }
    w->has_corpus |= *t->file != 0;
    op_text(&t->call, text);
    if (op_complete(&t->call)) {
        char why[1024];
        snprintf(why, sizeof why, "%s", err_text());
        err_set("%s: %s (%s)", t->call.op->name, why, text);
        if (at_first(&w->l, "dtype") && at_first(&w->l, "seed"))
            refuse(p, w);
        return;
    }
    t->call.accumulate = t->accumulate ? op_gradients(t->call.op) : set_none();
    if (choose_judged(p->x, t)) {
        refuse(p, w);
        return;
    }
    double bytes = p->elsewhere ? 0 : memory_of_trial(p->x, t, p->available);
    if (bytes > p->available) {
        err_set("%s needs %s of memory, %s are available (%s dtype=%s)", t->call.op->name,
                number_bytes(bytes, need), number_bytes(p->available, have), text,
                types[t->type].name);
        if (at_first(&w->l, "seed"))
            refuse(p, w);
    } else if (plan_text(t) || add_trial(p->x, t)) {
        refuse(p, w);
    }
}

static int count_case(const struct call *f, void *data)
{
    (void)f;
    ++*(double *)data;
    return 0;
}

/* Where a case is being made. */
struct making {
    struct plan *p;
    struct work *w;
    struct combinations combinations;
};

/* The combinations of the lists, with these sizes; those that do not apply keep their default, as where
 * a trial's words are read. */
static int make_case(const struct call *f, void *data)
{
    const struct making *m = data;
    const struct op *o = f->op;

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
    for (int i = 0; i < m->combinations.n; i++) {
        combinations_choose(&m->combinations, i, &m->w->l);
        make_trial(m->p, m->w);
    }
    return 0;
}

/* The cases of the contract, or 1: the sizes of the section. */
static double count_cases(struct plan *p, const struct work *w, const char *cases)
{
    double n = 0;

    if (w->t.cases == CASES_NONE)
        return 1;
    if (cases && cases_each(w->t.call.op, cases, count_case, &n))
        plan_fault(p, w->s->line, "cases of %s: %s", w->t.call.op->name, err_text());
    return n;
}

/* What is not listed is a default, but that the tensors of a file have their format: which lists
 * apply follows from it.  Nonzero after a fault. */
static int begin_base(struct plan *p, struct work *w)
{
    struct model m;
    int e = 0;

    op_defaults(w->t.call.op, &w->base);
    if (w->t.input != INPUT_GGUF || is_listed("format", w))
        return 0;
    e = model_open(&m, &w->t) || model_format(&m, &w->base);
    model_close(&m);
    if (e)
        plan_fault(p, w->t.input_line, "%s", err_text());
    return e;
}

static void make_product(struct plan *p, struct work *w)
{
    const struct op *o = w->t.call.op;
    const char *cases = w->t.cases == CASES_SHAPES ? o->shapes : o->cases;
    struct making m = {p, w, {0}};
    int least;

    if (begin_base(p, w))
        return;
    const struct call base = w->base;
    const double n_cases = count_cases(p, w, cases);
    const double each = combinations_count(&w->l, &base, w->applies, &least), n = each * n_cases;
    if (!least && !w->every_op)
        refuse_inapplicable(p, w);
    if (p->x->n + n > MAX_TRIALS) {
        plan_fault(p, w->s->line, "this makes %s%.0f trials%s; an experiment has at most %d",
                   least ? "at least " : "", n, p->x->n ? " more" : "", MAX_TRIALS);
        return;
    }
    if (n > 0 && combinations_make(&m.combinations, &w->l, &base, (int)each))
        plan_fault(p, w->s->line, "%s", err_text());
    if (w->t.cases == CASES_NONE)
        make_case(&base, &m);
    else if (n > 0)
        cases_each(o, cases, make_case, &m);
    combinations_free(&m.combinations);
    if (w->refused > MAX_REFUSED)
        plan_fault(p, w->s->line, "and %d more", w->refused - MAX_REFUSED);
}

/* What the operation lacks to which this key refers, or NULL. */
static const char *lacks(const struct op *o, const char *key)
{
    int overwrites = 0;

    for (int i = 0; i < o->n_args; i++)
        overwrites |= o->arg[i].overwrites != NULL;
    return strcmp(key, "accumulate") == 0 && !op_has_gradients(o) ? "gradients"
           : strcmp(key, "in_place") == 0 && !overwrites
               ? "output that may be in the memory of an input"
               : NULL;
}

/* Is this list of op = all one of the operation's? */
static int is_own(const struct op *o, const struct list *l)
{
    if (lacks(o, l->key))
        return 0;
    return key_find(trial_keys, l->key) >= 0 || op_param(o, l->key, NULL);
}

/* The trials of one operation of op = all, by those of the section's lists that are its own. */
static void make_product_of(struct plan *p, struct work *every, const struct op *o)
{
    struct work *w = malloc(sizeof *w);
    int faults = p->n_faults;

    if (!w) {
        plan_fault(p, every->s->line, "no memory");
        return;
    }
    *w = *every;
    w->t.call.op = o;
    w->l.n = 0;
    w->t.accumulate = w->t.in_place = 0;
    for (enum pass q = op_passes(o); q < N_PASSES; q++)
        w->t.goal[q] = (struct goal){.kind = GOAL_NONE};
    for (int i = 0; i < every->l.n; i++) {
        const struct list *l = &every->l.list[i];
        if (!is_own(o, l))
            continue;
        w->l.list[w->l.n++] = *l;
        for (int v = 0; v < l->n_values; v++)
            if (check_listed(&w->t, l->key, l->value[v]))
                plan_fault(p, l->line, "%s: %s", o->name, err_text());
    }
    if (p->n_faults == faults)
        make_product(p, w);
    for (int i = 0; i < every->l.n; i++) {
        const struct list *own = list_of(&w->l, every->l.list[i].key);
        every->applies[i] |= own && w->applies[own - w->l.list];
    }
    free(w); /* its lists are the section's */
}

static int has_quotient(const struct list *l)
{
    for (int v = 0; v < l->n_values; v++)
        if (is_quotient(l->key, l->value[v]))
            return 1;
    return 0;
}

/* Refuse N / KEY where KEY has such a value, too. */
static void refuse_quotients(struct plan *p, const struct work *w)
{
    for (int i = 0; i < w->l.n; i++) {
        const struct list *l = &w->l.list[i];
        for (int v = 0; v < l->n_values; v++) {
            const char *key = quotient_key(l->value[v]);
            const struct list *by = key ? list_of(&w->l, key) : NULL;
            if (by && by != l && has_quotient(by))
                plan_fault(p, l->line, "%s = %s: %s has an N / KEY itself", l->key, l->value[v],
                           key);
        }
    }
}

/* Refuse keys that the operation, `op = all` or `cases` excludes. */
static void refuse_beside(struct plan *p, const struct work *w)
{
    const struct ini_entry *kernel = section_entry(w->s, "kernel");
    const struct op *o = w->t.call.op;

    for (int i = 0; o && i < w->l.n; i++)
        if (lacks(o, w->l.list[i].key))
            plan_fault(p, w->l.list[i].line, "%s: %s has no %s", w->l.list[i].key, o->name,
                       lacks(o, w->l.list[i].key));
    if (w->every_op && kernel)
        plan_fault(p, kernel->line, "kernel: op = all takes none; name one operation");
    for (int i = 0; w->t.cases != CASES_NONE && i < w->l.n; i++)
        if (key_find(trial_keys, w->l.list[i].key) < 0)
            plan_fault(p, w->l.list[i].line, "%s: cases = %s sets every parameter",
                       w->l.list[i].key, case_names[w->t.cases]);
    if (w->t.cases == CASES_SHAPES && w->t.call.op && !w->t.call.op->shapes)
        plan_fault(p, section_entry(w->s, "cases")->line, "cases = %s: %s has none",
                   case_names[w->t.cases], w->t.call.op->name);
}

void section_trials(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *op = section_entry(s, "op");
    struct work *w = calloc(1, sizeof *w);
    int faults = p->n_faults;

    if (!w) {
        plan_fault(p, s->line, "no memory");
        return;
    }
    w->s = s;
    w->t.line = w->t.model_line = p->file ? s->line : 0;
    w->t.adjust_line = section_entry(s, "adjust") ? section_entry(s, "adjust")->line : 0;
    w->t.seed = p->x->seed;
    for (int k = 0; trial_keys[k].name; k++)
        if (trial_keys[k].initial)
            set_listed(&w->t, trial_keys[k].name, trial_keys[k].initial);
    char *section = quote_controls(section_name(s));
    snprintf(w->t.section, sizeof w->t.section, "%.63s", section ? section : "");
    free(section);
    if (op)
        read_entry(p, w, op); /* the meaning of the others hangs on it */
    else if (p->file && p->x->measure != MEASURE_TRAIN)
        plan_fault(p, s->line, "[%s] has no op%s", s->name,
                   section_entry(s, "mixer")
                       ? "; a model is trained by measure = train in [experiment]"
                       : "");
    else if (!p->file)
        plan_fault(p, s->line, "no operation is named");
    const int unread = read_training(p, w, op) || read_program(p, w, op);
    w->every_op = p->n_faults == faults && !w->t.call.op;
    for (int i = 0; i < s->n; i++)
        if (&s->entry[i] != op && strcmp(s->entry[i].key, "program") != 0 &&
            !(unread && key_find(trial_keys, s->entry[i].key) < 0))
            read_entry(p, w, &s->entry[i]);
    if (is_cell(w->t.call.op))
        read_corpus(p, w);
    else
        read_input(p, w);
    if (*w->t.eval && w->t.call.op && !is_cell(w->t.call.op))
        plan_fault(p, section_entry(s, "eval")->line,
                   "eval: only measure = train tests at lengths");
    refuse_beside(p, w);
    match_refuse(p, s, &w->l, &w->t);
    if (p->n_faults == faults)
        refuse_quotients(p, w);
    goals_refuse(p, s, &w->t);
    for (int i = 0; p->n_faults == faults && w->every_op && i < N_OPS; i++)
        make_product_of(p, w, ops[i]);
    if (p->n_faults == faults && w->every_op)
        refuse_inapplicable(p, w);
    if (p->n_faults == faults && !w->every_op)
        make_product(p, w);
    if (p->n_faults == faults && w->corpus[0] && !w->has_corpus)
        plan_fault(p, section_entry(s, "file")->line, "file: only task = bytes has one");
    lists_free(&w->l);
    free(w);
}
