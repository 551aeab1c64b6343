/* A [trial] that is composed of sections (cells.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/plan/cells.h"
#include "common/train/cell.h"

enum { KINDS = CELL_PARTS };

static const char *const kinds[KINDS] = {
    [CELL_OF_MODEL] = "model", [CELL_OF_TASK] = "task", [CELL_OF_TRAIN] = "train"};

/* ---- names ---- */

/* The kind of a section, "model z"; -1: another section. */
static int kind_of(const char *name)
{
    for (int k = 0; k < KINDS; k++)
        if (section_is(name, kinds[k]))
            return k;
    return -1;
}

int is_cell_section(const char *name)
{
    return kind_of(name) >= 0;
}

static const struct ini_section *find(const struct ini *ini, int kind, const char *name)
{
    for (int i = 0; i < ini->n; i++)
        if (kind_of(ini->section[i].name) == kind &&
            strcmp(section_name(&ini->section[i]), name) == 0)
            return &ini->section[i];
    return NULL;
}

/* Has a section of that kind a name? */
static int any_named(const struct ini *ini, int kind)
{
    int any = 0;
    for (int i = 0; i < ini->n; i++)
        any |= kind_of(ini->section[i].name) == kind && *section_name(&ini->section[i]);
    return any;
}

/* ---- faults ---- */

/* The next name of a list, of *n characters, from *at on; NULL: none. */
static const char *next_name(const char **at, size_t *n)
{
    const char *name = *at + strspn(*at, ", \t\n");

    *n = strcspn(name, ",\n");
    *at = name + *n;
    while (*n && strchr(" \t", name[*n - 1]))
        --*n;
    return *n ? name : NULL;
}

static int names_it(const struct ini_section *trial, int kind, const char *name)
{
    const struct ini_entry *e = section_entry(trial, kinds[kind]);
    const char *at = e ? e->value : "", *next;
    size_t n;

    while ((next = next_name(&at, &n)))
        if (n == strlen(name) && strncmp(next, name, n) == 0)
            return 1;
    return 0;
}

static int is_used(const struct ini *ini, const struct ini_section *s, int kind)
{
    int used = 0;
    for (int i = 0; i < ini->n; i++)
        used |= section_is(ini->section[i].name, "trial") &&
                (*section_name(s)
                     ? names_it(&ini->section[i], kind, section_name(s))
                     : !section_entry(&ini->section[i], kinds[kind]) || !any_named(ini, kind));
    return used;
}

void cells_refuse(struct plan *p, const struct ini *ini)
{
    for (int i = 0; i < ini->n; i++) {
        const struct ini_section *s = &ini->section[i], *first;
        const int kind = kind_of(s->name);
        if (kind < 0)
            continue;
        first = find(ini, kind, section_name(s));
        if (p->x->measure != MEASURE_TRAIN)
            plan_fault(p, s->line, "[%s]: only measure = train has such a section", s->name);
        else if (first != s)
            plan_fault(p, s->line, "a second [%s]; the first is in line %d", s->name, first->line);
        else if (!is_used(ini, s, kind))
            plan_fault(p, s->line, "[%s]: no [trial] names it", s->name);
    }
}

/* ---- a section composed ---- */

struct composing {
    struct plan *p;
    const struct ini *ini;
    const struct ini_section *trial, *part[KINDS]; /* NULL: none */
    struct ini_section s;                          /* the entries are those of the others */
};

/* Does `task` of the trial name sections, and so on? */
static int is_choice(const struct composing *c, const char *key)
{
    for (int k = 0; k < KINDS; k++)
        if (strcmp(key, kinds[k]) == 0)
            return k != CELL_OF_TASK || any_named(c->ini, k);
    return 0;
}

/* Nonzero: no memory. */
static int take(struct composing *c, const struct ini_entry *e)
{
    struct ini_entry *more = grow(c->s.entry, c->s.n, sizeof *more);

    if (!more) {
        plan_fault(c->p, e->line, "no memory");
        return -1;
    }
    c->s.entry = more;
    more[c->s.n++] = *e;
    return 0;
}

/* A key that belongs into a section of another kind, or into none.  Nonzero: it is unknown. */
static int refuse_elsewhere(struct composing *c, const struct op *o, int kind,
                            const struct ini_entry *e)
{
    const int own = cell_part(o, e->key);
    struct guess g = {e->key, NULL, 0};

    if (own >= 0 && own != kind)
        plan_fault(c->p, e->line, "%s in [%s]: it belongs in [%s]", e->key, c->part[kind]->name,
                   kinds[own]);
    if (own >= 0)
        return 0;
    for (int i = 0; i < o->n_params; i++)
        if (cell_has_key(o, i))
            guess_among(&g, o->param[i].name);
    plan_fault(c->p, e->line, "unknown key '%s' in [%s]; %s%s%s", e->key, c->part[kind]->name,
               g.best ? "did you mean '" : "run-ablation --list train names the keys",
               g.best ? g.best : "", g.best ? "'?" : "");
    return 1;
}

/* The entry of that key, if there is one, becomes *to. */
static void take_out(struct ini_section *s, const char *key, struct ini_entry *to)
{
    const struct ini_entry *e = section_entry(s, key);

    if (!e)
        return;
    const int at = (int)(e - s->entry);
    *to = *e;
    memmove(&s->entry[at], &s->entry[at + 1], (size_t)(--s->n - at) * sizeof *s->entry);
}

/* The last to vary is the one that comes last. */
static void move_last(struct ini_section *s, const char *key)
{
    struct ini_entry e = {.key = NULL};

    take_out(s, key, &e);
    if (e.key)
        s->entry[s->n++] = e;
}

static const struct op *op_of(const struct composing *c)
{
    const struct ini_entry *own = section_entry(c->trial, "mixer");
    const struct ini_entry *e = own ? own
                                : c->part[CELL_OF_MODEL]
                                    ? section_entry(c->part[CELL_OF_MODEL], "mixer")
                                    : NULL;

    return e ? cell_op(e->value) : NULL;
}

/* Adds the value of parameter i, which differs within these trials, to their names. */
static void name_by(const struct composing *c, int from, int i)
{
    struct experiment *x = c->p->x;
    const struct op *o = x->trial[from].call.op;
    const int of_task = cell_part(o, o->param[i].name) == CELL_OF_TASK;
    char value[32];

    for (int t = from; t < x->n; t++) {
        char *name = of_task ? x->trial[t].task : x->trial[t].variant;
        const char *own = op_value(&x->trial[t].call, i, value);
        if (*own)
            append(name, sizeof x->trial->variant, "%s%s", *name ? "_" : "", own);
    }
}

static int differs(const struct experiment *x, int from, int i)
{
    char first[32], other[32];
    int differ = 0;

    for (int t = from; t < x->n; t++)
        differ |= strcmp(op_value(&x->trial[from].call, i, first),
                         op_value(&x->trial[t].call, i, other)) != 0;
    return differ;
}

/* In place of a [model]'s name: NAME of [trial NAME]; or the mixer's, numbered where another section has it. */
static void own_name(const struct composing *c, int from, char to[64])
{
    const struct experiment *x = c->p->x;
    const char *named = section_name(c->trial), *mixer = cell_mixer_of(x->trial[from].call.op);
    int taken = 1;

    snprintf(to, 64, "%s", *named ? named : mixer);
    for (int n = 2; taken && !*named; n++) {
        taken = 0;
        for (int t = 0; t < from; t++)
            taken |= strcmp(x->trial[t].model, to) == 0 && x->trial[t].line != c->trial->line;
        if (taken)
            snprintf(to, 64, "%s_%d", mixer, n);
    }
}

/* Whatever differs within these trials is in the names of their variants and tasks, but rates and seeds. */
static void name_variants(const struct composing *c, int from)
{
    struct experiment *x = c->p->x;
    const char *model = c->part[CELL_OF_MODEL] ? section_name(c->part[CELL_OF_MODEL]) : "";
    const char *task = c->part[CELL_OF_TASK] ? section_name(c->part[CELL_OF_TASK]) : "";
    const struct op *o = from < x->n ? x->trial[from].call.op : NULL;
    char own[64] = "";
    int stored = 0;

    if (o)
        own_name(c, from, own);
    for (int t = from; t < x->n; t++) {
        struct trial *to = &x->trial[t];
        snprintf(to->model, sizeof to->model, "%s", *model ? model : own);
        snprintf(to->variant, sizeof to->variant, "%s", to->model);
        snprintf(to->task, sizeof to->task, "%s", *task ? task : cell_task_of(&to->call));
        to->confirms = cell_waits(&to->call);
        stored |= to->type != x->trial[from].type;
    }
    for (int i = 0; o && i < o->n_params; i++)
        if (cell_part(o, o->param[i].name) >= 0 && strcmp(o->param[i].name, "lr") != 0 &&
            !(strcmp(o->param[i].name, "task") == 0 && !*task) && differs(x, from, i))
            name_by(c, from, i);
    for (int t = from; stored && t < x->n; t++)
        append(x->trial[t].variant, sizeof x->trial->variant, "_%s", types[x->trial[t].type].name);
}

/* Their confirming runs: the same once more, at the best rate, with other seeds. */
static void add_confirming(struct composing *c, const struct ini_entry *confirm)
{
    char best[] = BEST_RATE;
    const struct ini_entry *const was[] = {section_entry(&c->s, "lr"),
                                           section_entry(&c->s, "seed")};
    const struct ini_entry now[] = {{"lr", best, was[0] ? was[0]->line : confirm->line},
                                    {"seed", confirm->value, confirm->line}};

    for (int i = 0; i < 2; i++)
        if (was[i])
            c->s.entry[was[i] - c->s.entry] = now[i];
        else if (take(c, &now[i]))
            return;
    section_trials(c->p, &c->s);
}

/* A file names rates; the best of them is for confirming runs. */
static void refuse_best(struct composing *c, int from)
{
    const struct ini_entry *lr = section_entry(&c->s, "lr");
    int waits = 0;

    for (int t = from; t < c->p->x->n; t++)
        waits |= cell_waits(&c->p->x->trial[t].call);
    if (waits)
        plan_fault(c->p, lr->line,
                   "lr = " BEST_RATE ": confirm = SEEDS makes such runs; here rates are searched");
}

/* Where the plan says what may be made equal. */
static void note_model(const struct composing *c, int from)
{
    for (int t = from; c->part[CELL_OF_MODEL] && t < c->p->x->n; t++)
        c->p->x->trial[t].model_line = c->part[CELL_OF_MODEL]->line;
}

static void compose(struct composing *c)
{
    const struct op *o = op_of(c);
    const int from = c->p->x->n;
    int e = 0;

    c->s = (struct ini_section){.name = c->trial->name, .line = c->trial->line};
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; c->part[k] && !e && i < c->part[k]->n; i++) {
            const struct ini_entry *entry = &c->part[k]->entry[i];
            if (o && refuse_elsewhere(c, o, k, entry))
                continue;
            if (!section_entry(c->trial, entry->key) || is_choice(c, entry->key))
                e = take(c, entry);
        }
    for (int i = 0; !e && i < c->trial->n; i++)
        if (!is_choice(c, c->trial->entry[i].key))
            e = take(c, &c->trial->entry[i]);
    move_last(&c->s, "lr");
    move_last(&c->s, "seed");
    struct ini_entry confirm = {.key = NULL};
    take_out(&c->s, "confirm", &confirm);
    const int faults = c->p->n_faults;
    if (!e)
        section_trials(c->p, &c->s);
    refuse_best(c, from);
    if (!e && confirm.key && c->p->n_faults == faults)
        add_confirming(c, &confirm);
    name_variants(c, from);
    note_model(c, from);
    free(c->s.entry);
}

/* ---- the product of the names ---- */

static void each_of(struct composing *c, int kind);

/* With the section that has this name; a list's word, of n characters. */
static void with_named(struct composing *c, int kind, const struct ini_entry *e, const char *word,
                       size_t n)
{
    char name[128];

    snprintf(name, sizeof name, "%.*s", (int)n, word);
    c->part[kind] = find(c->ini, kind, name);
    if (c->part[kind])
        each_of(c, kind + 1);
    else
        plan_fault(c->p, e->line, "%s = %s: there is no [%s %s]", kinds[kind], name, kinds[kind],
                   name);
}

static void each_of(struct composing *c, int kind)
{
    if (kind == KINDS) {
        compose(c);
        return;
    }
    const struct ini_entry *e =
        is_choice(c, kinds[kind]) ? section_entry(c->trial, kinds[kind]) : NULL;
    if (!e) {
        c->part[kind] = find(c->ini, kind, "");
        each_of(c, kind + 1);
    }
    const char *at = e ? e->value : "", *name;
    size_t n;
    while ((name = next_name(&at, &n)))
        with_named(c, kind, e, name, n);
}

void cells_trials(struct plan *p, const struct ini *ini, const struct ini_section *trial)
{
    struct composing c = {.p = p, .ini = ini, .trial = trial};

    each_of(&c, 0);
}
