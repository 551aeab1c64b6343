/* The calls of a program for its sizes: which tensors they read and write, and the lengths of all axes
 * (instance.h). */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/base/number.h"
#include "common/call/machine.h"
#include "common/program/instance.h"

/* A call has at least one tensor that backward reads or that is an output, in nearly every program. */
enum { MAX_STEPS = 4 * MAX_ARGS };

/* What is made, and the line that is read. */
struct making {
    struct instance *m;
    FILE *errors;
    int faults;
    const struct line *line;
    const char *block;
};

/* What is known of the axes of the call that is made: by letter the tensor's axes that it is the product of;
 * 0: not known from an input. */
struct bound {
    struct {
        int64_t n;
        int parts;
        int split;    /* it and the next letter were one axis of a tensor */
        int left_out; /* it is 1, and a tensor does not have it */
        struct length part[MAX_RANK];
    } of[MAX_AXES];
    uint64_t behind; /* bits of those next letters */
};

static int fault(struct making *k, const char *format, ...)
{
    va_list list;

    fprintf(k->errors, "%s:%d: ", k->m->program->name, k->line->number);
    va_start(list, format);
    vfprintf(k->errors, format, list);
    va_end(list);
    fputc('\n', k->errors);
    k->faults++;
    return -1;
}

/* ---- tensors ---- */

int64_t tensor_elements(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->axis[i].n;
    return n;
}

/* "[256,128,64]" */
static const char *shape_text(const struct tensor *t, char text[200])
{
    strcpy(text, "[");
    for (int i = 0; i < t->rank; i++)
        append(text, 200, "%s%lld", i ? "," : "", (long long)t->axis[i].n);
    append(text, 200, "]");
    return text;
}

/* "[rows,dim_in]" */
static const char *contract_text(const struct call *f, int arg, char text[400])
{
    strcpy(text, "[");
    for (const char *c = op_shape(f, arg), *first = c; *c; c++)
        append(text, 400, "%s%s", c > first ? "," : "", op_axis(f->op, *c));
    append(text, 400, "]");
    return text;
}

/* The newest of that name, in the block where there is one; -1: none.  "x.E" is a parameter's. */
static int find_tensor(const struct making *k, const char *name)
{
    char inside[3 * MAX_NAME];

    snprintf(inside, sizeof inside, "%s%s", k->block, name);
    for (int i = k->m->n_tensors - 1; i >= 0; i--) {
        const struct tensor *t = &k->m->tensor[i];
        if (strcmp(t->plain, name) == 0 || strcmp(t->name, inside) == 0 ||
            strcmp(t->name, name) == 0)
            return i;
    }
    return -1;
}

static int add_tensor(struct making *k, enum origin_of origin, const char *name, const char *plain)
{
    struct instance *m = k->m;
    struct tensor *more = grow(m->tensor, m->n_tensors, sizeof *more);

    if (!more)
        return fault(k, "no memory for another tensor");
    m->tensor = more;
    more[m->n_tensors] = (struct tensor){.origin = origin, .step = -1, .arg = -1, .place = -1};
    snprintf(more[m->n_tensors].name, sizeof more->name, "%s", name);
    snprintf(more[m->n_tensors].plain, sizeof more->plain, "%s", plain);
    return m->n_tensors++;
}

/* ---- settings ---- */

static int64_t size_of(const struct making *k, const char *name)
{
    int place;
    return DIM(&k->m->sizes, op_param(&k->m->program->all.op, name, &place)->letter);
}

/* Sets a parameter of the call: a word, or the number of a size of the program. */
static int set_key(struct making *k, struct call *f, const char *key, const char *value)
{
    char number[MAX_NAME];

    if (!op_param(f->op, key, NULL)) {
        struct guess g = {.word = key};
        for (int i = 0; i < f->op->n_params; i++)
            guess_among(&g, f->op->param[i].name);
        for (int i = 0; i < f->op->n_args; i++)
            if (f->op->arg[i].flags & IN)
                guess_among(&g, f->op->arg[i].name);
        return g.best ? fault(k, "%s has no %s; %s is one of its words", f->op->name, key, g.best)
                      : fault(k, "%s has no %s", f->op->name, key);
    }
    snprintf(number, sizeof number, "%s", value);
    if (program_size(k->m->program, value))
        snprintf(number, sizeof number, "%lld", (long long)size_of(k, value));
    return op_set(f, key, number) ? fault(k, "%s", err_text()) : 0;
}

/* Where the letter is that of a parameter, or NULL. */
static const struct param *param_of(const struct op *o, char letter)
{
    for (int i = 0; i < o->n_params; i++)
        if (o->param[i].letter == letter)
            return &o->param[i];
    return NULL;
}

static int is_set(const struct making *k, const char *key)
{
    return line_has_key(k->line, key);
}

/* ---- axes ---- */

/* Letter c is the product of these axes of a tensor. */
static int bind(struct making *k, struct call *f, struct bound *b, char c,
                const struct length *part, int parts)
{
    const struct param *p = param_of(f->op, c);
    const int i = c - 'A';
    int64_t n = 1;
    char number[32];

    for (int j = 0; j < parts; j++)
        if (__builtin_mul_overflow(n, part[j].n, &n))
            return -1;
    if (b->of[i].parts && b->of[i].n == n)
        return 0;
    if (b->of[i].parts || (p && is_set(k, p->name) && DIM(f, c) != n))
        return -1;
    b->of[i].n = n;
    b->of[i].parts = parts;
    memcpy(b->of[i].part, part, parts * sizeof *part);
    snprintf(number, sizeof number, "%lld", (long long)n);
    return p && p->min <= n && op_set(f, p->name, number) ? fault(k, "%s", err_text()) : 0;
}

/* The length of letter c, if it is known before the rest: from an input, a key or a size; or 0. */
static int64_t known(struct making *k, struct call *f, const struct bound *b, char c)
{
    const struct param *p = param_of(f->op, c);

    if (b->of[c - 'A'].parts)
        return b->of[c - 'A'].n;
    if (p && !is_set(k, p->name) && program_size(k->m->program, p->name))
        return size_of(k, p->name);
    return p && is_set(k, p->name) ? DIM(f, c) : 0;
}

/* The first letter of a contract's shape has the length 1, as a key says, and the tensor does not have it. */
static int leave_out(struct making *k, const struct call *f, struct bound *b, const char *shape,
                     int rank)
{
    const struct param *p = param_of(f->op, *shape);

    if (rank != (int)strlen(shape) - 1 || !p || !is_set(k, p->name) || DIM(f, *shape) != 1)
        return 0;
    return b->of[*shape - 'A'].left_out = 1;
}

/* The last axis of a tensor is the last two of the contract's: c[0] and c[1]. */
static int split(struct making *k, struct call *f, struct bound *b, const char *c,
                 const struct length *last)
{
    int64_t n[] = {known(k, f, b, c[0]), known(k, f, b, c[1])};
    struct length part[2];

    if (!n[0] && !n[1])
        return -1;
    n[0] = n[0] ? n[0] : last->n / n[1];
    n[1] = n[1] ? n[1] : last->n / n[0];
    if (n[0] * n[1] != last->n)
        return -1;
    for (int i = 0; i < 2; i++) {
        part[i].n = n[i];
        snprintf(part[i].name, MAX_NAME, "%s", op_axis(f->op, c[i]));
        if (bind(k, f, b, c[i], &part[i], 1))
            return -1;
    }
    b->of[c[0] - 'A'].split = 1;
    b->behind |= (uint64_t)1 << (c[1] - 'A');
    return 0;
}

static int bind_input(struct making *k, struct call *f, struct bound *b, int arg,
                      const struct tensor *t)
{
    const char *all = op_shape(f, arg), *shape = all + leave_out(k, f, b, all, t->rank);
    const int n = (int)strlen(shape), merged = t->rank - n + 1;
    char own[200], contract[400];
    int e = n == 0 || t->rank < n - 1 || t->rank == 0;
    const int faults = k->faults;

    for (int i = 0; !e && i < n; i++) {
        if (merged >= 1)
            e = bind(k, f, b, shape[i], &t->axis[i ? i + merged - 1 : 0], i ? 1 : merged);
        else if (i == n - 2)
            e = split(k, f, b, shape + i, &t->axis[i]), i++;
        else
            e = bind(k, f, b, shape[i], &t->axis[i], 1);
    }
    return e && k->faults == faults
               ? fault(k, "%s is %s, %s's %s %s", t->name, shape_text(t, own), f->op->name,
                       f->op->arg[arg].name, contract_text(f, arg, contract))
               : -(e != 0);
}

/* After all sizes are known: has the input the elements that the contract says? */
static int check_input(struct making *k, const struct call *f, const struct bound *b, int arg,
                       const struct tensor *t)
{
    char own[200], contract[400], wants[400] = "";
    int good = op_count(f, arg) == tensor_elements(t);

    for (const char *c = op_shape(f, arg); *c; c++) {
        good &= !b->of[*c - 'A'].parts || b->of[*c - 'A'].n == DIM(f, *c);
        append(wants, sizeof wants, "%s%lld", *wants ? "," : "", (long long)DIM(f, *c));
    }
    return good ? 0
                : fault(k, "%s is %s, %s's %s %s would be [%s]", t->name, shape_text(t, own),
                        f->op->name, f->op->arg[arg].name, contract_text(f, arg, contract), wants);
}

/* The name of an axis that comes from no tensor: of the program's size that its key or itself names, or else the
 * contract's. */
static const char *name_of(const struct making *k, const struct call *f, char letter)
{
    const struct param *p = param_of(f->op, letter);

    for (int i = 0; p && i < k->line->n_words; i++)
        if (strcmp(k->line->word[i].key, p->name) == 0 &&
            program_size(k->m->program, k->line->word[i].value))
            return k->line->word[i].value;
    return op_axis(f->op, letter);
}

/* The axes of a tensor of the contract, where what was merged comes back, and what was split is one. */
static void axes_of(const struct making *k, const struct call *f, const struct bound *b, int arg,
                    struct tensor *t)
{
    const char *shape = op_shape(f, arg);

    t->rank = 0;
    for (const char *c = shape; *c; c++) {
        const int i = *c - 'A', parts = b->of[i].parts;
        if (b->of[i].left_out && c == shape)
            continue;
        if (parts && t->rank + parts + (int)strlen(c) - 1 <= MAX_RANK) {
            memcpy(&t->axis[t->rank], b->of[i].part, parts * sizeof *t->axis);
            t->rank += parts;
        } else {
            struct length *a = &t->axis[t->rank++];
            a->n = DIM(f, *c);
            snprintf(a->name, MAX_NAME, "%s", name_of(k, f, *c));
        }
        if (b->of[i].split && c[1] && !c[2] && b->behind >> (c[1] - 'A') & 1) {
            t->axis[t->rank - 1].n *= DIM(f, c[1]);
            snprintf(t->axis[t->rank - 1].name, MAX_NAME, "%s*%s", op_axis(f->op, *c),
                     op_axis(f->op, c[1]));
            break;
        }
    }
}

/* ---- a call ---- */

/* Is it a state, which is 0 where it is not given? */
static int is_state(const struct arg *a)
{
    return a->flags & IN && a->fill == ZERO && !a->draw && !a->fill_of &&
           !(a->flags & (WHOLE | BYTES));
}

/* Its tensors that are given; nonzero: one is wrong, and where nothing was said its own line was. */
static int take_inputs(struct making *k, struct step *s)
{
    const struct op *o = s->call.op;
    int at = 0, e = 0;

    for (int i = 0; i < k->line->n_words; i++) {
        const struct word *w = &k->line->word[i];
        int arg = *w->key ? op_arg(o, w->key) : at;
        if (*w->key && (arg < 0 || !(o->arg[arg].flags & IN)))
            continue; /* a parameter */
        while (!*w->key && arg < o->n_args &&
               (!(o->arg[arg].flags & IN) || op_is_parameter(&s->call, arg) ||
                !op_has(&s->call, arg) || s->tensor[arg] >= 0))
            arg++;
        at = *w->key ? at : arg + 1;
        if (arg >= o->n_args)
            return fault(k, "%s has no input left for %s", o->name, w->value);
        if (!op_has(&s->call, arg))
            return fault(k, "%s has no %s here", o->name, o->arg[arg].name);
        if (s->tensor[arg] >= 0)
            return fault(k, "%s's %s is given twice", o->name, o->arg[arg].name);
        const int t = find_tensor(k, w->value);
        if (t < 0)
            return fault(k, "there is no tensor %s", w->value);
        s->tensor[arg] = t;
        e |= k->m->tensor[t].bad;
    }
    return e ? -1 : 0;
}

/* A parameter, or a state of 0, that the line does not give. */
static int add_own(struct making *k, struct step *s, int index, const struct bound *b, int arg)
{
    const struct arg *a = &s->call.op->arg[arg];
    char name[3 * MAX_NAME];

    const int own = op_is_parameter(&s->call, arg);

    if (!own && !is_state(a))
        return fault(k, "%s needs its %s, which the line does not give", s->call.op->name, a->name);
    snprintf(name, sizeof name, "%s%s.%s", k->block, k->line->result[0].value, a->name);
    for (int i = 0; i < k->m->n_tensors; i++)
        if (strcmp(k->m->tensor[i].name, name) == 0)
            return fault(k, "%s is there already: give the result another name", name);
    const int t = add_tensor(k, own ? PARAMETERS : ZEROS, name, "");
    if (t < 0)
        return -1;
    k->m->tensor[t].step = index;
    k->m->tensor[t].arg = arg;
    axes_of(k, &s->call, b, arg, &k->m->tensor[t]);
    s->tensor[arg] = t;
    return 0;
}

static int add_results(struct making *k, struct step *s, int index, const struct bound *b)
{
    const struct op *o = s->call.op;
    int named = 0;

    for (int arg = 0; arg < o->n_args; arg++) {
        const int out = (o->arg[arg].flags & OUT) != 0,
                  has_name = out && named < k->line->n_results;
        char name[3 * MAX_NAME];
        if (o->arg[arg].flags & IN || !op_has(&s->call, arg))
            continue;
        const char *plain = has_name ? k->line->result[named].value : "";
        snprintf(name, sizeof name, "%s%s", k->block, has_name ? plain : k->line->result[0].value);
        if (!has_name)
            append(name, sizeof name, ".%s", o->arg[arg].name);
        const int t = add_tensor(k, RESULT, name, plain);
        if (t < 0)
            return -1;
        named += has_name;
        k->m->tensor[t].step = index;
        k->m->tensor[t].arg = arg;
        axes_of(k, &s->call, b, arg, &k->m->tensor[t]);
        s->tensor[arg] = t;
    }
    if (named == k->line->n_results)
        return 0;
    return fault(k, "%s has %d result%s, %s is one more", o->name, named, named == 1 ? "" : "s",
                 k->line->result[named].value);
}

/* The results of a line that is wrong, so that others do not miss them. */
static void add_bad(struct making *k)
{
    for (int i = 0; i < k->line->n_results; i++) {
        const int t = add_tensor(k, RESULT, k->line->result[i].value, k->line->result[i].value);
        if (t >= 0)
            k->m->tensor[t].bad = 1;
    }
}

/* Sizes that no input and no key says: the program's of the same name. */
static int set_sizes(struct making *k, struct call *f, const struct bound *b)
{
    for (int i = 0; i < f->op->n_params; i++) {
        const struct param *p = &f->op->param[i];
        if (p->letter && !p->seed && !b->of[p->letter - 'A'].parts && !is_set(k, p->name) &&
            program_size(k->m->program, p->name) && set_key(k, f, p->name, p->name))
            return -1;
    }
    return 0;
}

/* Each parameter that the line sets must apply. */
static int check_keys(struct making *k, const struct call *f)
{
    for (int i = 0; i < f->op->n_params; i++) {
        const struct param *p = &f->op->param[i];
        const char *why = is_set(k, p->name) && p->unless ? p->unless(f) : NULL;
        if (why)
            return fault(k, "%s of %s does not apply: %s", p->name, f->op->name, why);
    }
    return 0;
}

static int fill_step(struct making *k, struct step *s, int index)
{
    const struct op *o = k->line->op;
    struct bound b = {0};
    struct call *f = &s->call;

    op_defaults(o, f);
    for (int i = 0; i < o->n_args; i++)
        s->tensor[i] = -1;
    for (int i = 0; i < k->line->n_words; i++) {
        const struct word *w = &k->line->word[i];
        const int arg = *w->key ? op_arg(o, w->key) : 0;
        if (*w->key && !(arg >= 0 && o->arg[arg].flags & IN) && set_key(k, f, w->key, w->value))
            return -1;
    }
    if (take_inputs(k, s))
        return -1;
    for (int i = 0; i < o->n_args; i++)
        if (s->tensor[i] >= 0 && bind_input(k, f, &b, i, &k->m->tensor[s->tensor[i]]))
            return -1;
    if (set_sizes(k, f, &b))
        return -1;
    if (op_complete(f))
        return fault(k, "%s: %s", o->name, err_text());
    if (check_keys(k, f))
        return -1;
    for (int i = 0; i < o->n_args; i++)
        if (s->tensor[i] >= 0 && check_input(k, f, &b, i, &k->m->tensor[s->tensor[i]]))
            return -1;
    for (int i = 0; i < o->n_args; i++)
        if (s->tensor[i] < 0 && o->arg[i].flags & IN && op_has(f, i) && add_own(k, s, index, &b, i))
            return -1;
    return add_results(k, s, index, &b);
}

static void make_call(struct making *k)
{
    struct instance *m = k->m;
    struct step *more = m->n_steps < MAX_STEPS ? grow(m->step, m->n_steps, sizeof *more) : NULL;

    if (!more) {
        fault(k, m->n_steps < MAX_STEPS ? "no memory for another call" : "more than %d calls",
              MAX_STEPS);
        return;
    }
    m->step = more;
    memset(&more[m->n_steps], 0, sizeof *more);
    more[m->n_steps].line = k->line;
    snprintf(more[m->n_steps].block, sizeof more->block, "%s", k->block);
    const int64_t together = size_of(k, RECOMPUTE);
    if (*k->block && together)
        more[m->n_steps].group = (int)((strtoll(k->block, NULL, 10) - 1) / together) + 1;
    if (fill_step(k, &more[m->n_steps], m->n_steps))
        add_bad(k);
    else
        m->n_steps++;
}

/* ---- inputs and outputs ---- */

static void make_input(struct making *k)
{
    const int before = find_tensor(k, k->line->name);
    const int t = add_tensor(k, GIVEN, k->line->name, k->line->name);
    int64_t all = 1;

    for (int i = 0; t >= 0 && i < k->line->n_words; i++) {
        struct length *a = &k->m->tensor[t].axis[k->m->tensor[t].rank++];
        const char *word = k->line->word[i].value;
        snprintf(a->name, MAX_NAME, "%s", word);
        a->n = program_size(k->m->program, word) ? size_of(k, word) : 0;
        if (!a->n && number_whole(word, 1, 1 << 30, &a->n))
            k->m->tensor[t].bad =
                fault(k, "%s: %s is no size of the program, and no number from 1 to %d",
                      k->line->name, word, 1 << 30);
        else if (__builtin_mul_overflow(all, a->n, &all))
            k->m->tensor[t].bad = fault(k, "%s has too many elements", k->line->name);
    }
    if (t >= 0 && before >= 0)
        fault(k, "%s is there already", k->line->name);
}

static void make_outputs(struct making *k)
{
    for (int i = 0; i < k->line->n_words; i++) {
        const int t = find_tensor(k, k->line->word[i].value);
        if (t < 0)
            fault(k, "there is no tensor %s", k->line->word[i].value);
        else if (k->m->tensor[t].origin != RESULT)
            fault(k, "%s is no result", k->line->word[i].value);
        else
            k->m->tensor[t].output = 1;
    }
}

/* The lines below a repeat, once for each block; returns the line behind them. */
static int make_blocks(struct making *k, int at)
{
    const struct program *p = k->m->program;
    const char *count = p->line[at].name;
    const int64_t n = program_size(p, count) ? size_of(k, count) : strtoll(count, NULL, 10);
    int end = at + 1;
    char block[16];

    while (end < p->n && p->line[end].inside == at)
        end++;
    k->block = block;
    for (int64_t i = 1; i <= n && !k->faults; i++) {
        snprintf(block, sizeof block, "%d.", (int)i);
        for (int l = at + 1; l < end; l++) {
            k->line = &p->line[l];
            if (k->line->kind == LINE_CALL)
                make_call(k);
        }
    }
    k->block = "";
    return end;
}

/* ---- what is needed ---- */

/* Readers; the class of each tensor is the same wherever it is read. */
static void check_readers(struct making *k)
{
    struct instance *m = k->m;

    for (int s = 0; s < m->n_steps; s++) {
        const struct step *step = &m->step[s];
        const struct op *o = step->call.op;
        const struct call mine = call_on(&step->call, &ref_bf16, NULL, NULL);
        k->line = step->line;
        for (int i = 0; i < o->n_args; i++) {
            struct tensor *t = step->tensor[i] >= 0 ? &m->tensor[step->tensor[i]] : NULL;
            if (!t || !(o->arg[i].flags & IN))
                continue;
            t->readers++;
            t->backs += (o->arg[i].flags & DIFF) != 0;
            if (t->step < 0) {
                t->step = s;
                t->arg = i;
            }
            const struct call first = call_on(&m->step[t->step].call, &ref_bf16, NULL, NULL);
            if (call_type(&mine, i, 0) != call_type(&first, t->arg, 0))
                fault(k, "%s is %s, %s's %s %s", t->name, types[call_type(&first, t->arg, 0)].name,
                      o->name, o->arg[i].name, types[call_type(&mine, i, 0)].name);
            else if (o->arg[i].flags & DIFF && first.op->arg[t->arg].flags & DIFF &&
                     call_type(&mine, i, 1) != call_type(&first, t->arg, 1))
                fault(k, "the gradient of %s is %s, that of %s's %s %s", t->name,
                      types[call_type(&first, t->arg, 1)].name, o->name, o->arg[i].name,
                      types[call_type(&mine, i, 1)].name);
        }
    }
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensor[i].origin == GIVEN && !m->tensor[i].readers) {
            for (int l = 0; l < m->program->n; l++)
                if (strcmp(m->program->line[l].name, m->tensor[i].name) == 0)
                    k->line = &m->program->line[l];
            fault(k, "no call reads %s", m->tensor[i].name);
        }
}

/* Whose gradients are computed, which calls have a backward pass, and what that reads. */
static void find_needed(struct instance *m)
{
    for (int s = 0; s < m->n_steps; s++) {
        struct step *step = &m->step[s];
        const struct arg *a = step->call.op->arg;
        for (int i = 0; i < step->call.op->n_args; i++) {
            struct tensor *t = step->tensor[i] >= 0 ? &m->tensor[step->tensor[i]] : NULL;
            if (!t || !(a[i].flags & IN) || !(a[i].flags & DIFF))
                continue;
            if (t->origin == GIVEN || t->origin == PARAMETERS)
                t->needs = 1;
            step->active |= t->needs;
        }
        for (int i = 0; i < step->call.op->n_args; i++)
            if (step->tensor[i] >= 0 && a[i].flags & OUT && a[i].flags & DIFF)
                m->tensor[step->tensor[i]].needs = step->active;
        for (int i = 0; step->active && i < step->call.op->n_args; i++)
            if (step->tensor[i] >= 0 && op_read_back(&step->call, i) &&
                m->tensor[step->tensor[i]].origin == RESULT)
                m->tensor[step->tensor[i]].kept = 1;
    }
    for (int i = 0; i < m->n_tensors; i++) {
        struct tensor *t = &m->tensor[i];
        t->output |= t->origin == RESULT && *t->plain && !t->readers;
    }
}

/* ---- what is made again ---- */

/* Is a result read by calls of its group alone? */
static int is_inside(const struct instance *m, int tensor)
{
    const struct tensor *t = &m->tensor[tensor];
    const int group = t->origin == RESULT ? m->step[t->step].group : 0;

    for (int s = 0; group && s < m->n_steps; s++)
        for (int i = 0; i < m->step[s].call.op->n_args; i++)
            if (m->step[s].tensor[i] == tensor && m->step[s].group != group)
                return 0;
    return group && !t->output;
}

/* Does the call make a tensor of its group that is read again: by a backward pass, or by calls that are made again? */
static int makes(const struct instance *m, const struct step *step)
{
    for (int i = 0; i < step->call.op->n_args; i++) {
        const int t = step->tensor[i];
        if (t < 0 || step->call.op->arg[i].flags & IN)
            continue;
        if (m->tensor[t].remade)
            return 1;
        for (int s = 0; s < m->n_steps; s++)
            for (int j = 0; m->step[s].rerun && m->step[s].group == step->group &&
                            j < m->step[s].call.op->n_args;
                 j++)
                if (m->step[s].tensor[j] == t && m->step[s].call.op->arg[j].flags & IN)
                    return 1;
    }
    return 0;
}

/* What blocks drop, which calls make it again, and what these read from elsewhere. */
static void find_remade(struct instance *m)
{
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensor[i].kept && is_inside(m, i)) {
            m->tensor[i].kept = 0;
            m->tensor[i].remade = 1;
        }
    for (int s = m->n_steps - 1; s >= 0; s--)
        m->step[s].rerun = m->step[s].group && makes(m, &m->step[s]);
    for (int s = 0; s < m->n_steps; s++)
        for (int i = 0; m->step[s].rerun && i < m->step[s].call.op->n_args; i++) {
            struct tensor *t = m->step[s].tensor[i] >= 0 ? &m->tensor[m->step[s].tensor[i]] : NULL;
            if (t && t->origin == RESULT && m->step[s].call.op->arg[i].flags & IN &&
                m->step[t->step].group != m->step[s].group)
                t->kept = 1;
        }
}

int instance_infer(struct instance *m, FILE *errors)
{
    struct program *p = m->program;
    struct making k = {m, errors, 0, NULL, ""};

    for (int i = 0; i < p->n;) {
        k.line = &p->line[i];
        if (k.line->kind == LINE_REPEAT) {
            i = make_blocks(&k, i);
            continue;
        }
        if (k.line->kind == LINE_INPUT)
            make_input(&k);
        else if (k.line->kind == LINE_CALL)
            make_call(&k);
        else if (k.line->kind == LINE_OUTPUT)
            make_outputs(&k);
        i++;
    }
    if (!k.faults)
        check_readers(&k);
    if (!k.faults) {
        find_needed(m);
        find_remade(m);
    }
    return k.faults;
}
