/* The operations, and what a contract says of all its calls (contract.h). */
#include "config.h"

#include <string.h>

#include "common/call/contract.h"
#include "common/call/machine.h"

const char *const pass_names[N_PASSES] = {"forward", "backward"};

const struct op *const ops[N_OPS] = {
#define OP(name) &op_##name,
#include "common/call/ops.def"
};

int op_same(const struct op *a, const struct op *b)
{
    return (a && a->family ? a->family : a) == (b && b->family ? b->family : b);
}

const struct op *op_find(const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (strcmp(ops[i]->name, name) == 0)
            return ops[i];
    return NULL;
}

const struct param *op_param(const struct op *o, const char *name, int *index)
{
    for (int i = 0; i < o->n_params; i++)
        if (strcmp(o->param[i].name, name) == 0) {
            if (index)
                *index = i;
            return &o->param[i];
        }
    return NULL;
}

int op_arg(const struct op *o, const char *name)
{
    for (int i = 0; i < o->n_args; i++)
        if (strcmp(o->arg[i].name, name) == 0)
            return i;
    return -1;
}

enum pass op_passes(const struct op *o)
{
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & DIFF)
            return N_PASSES;
    return BACKWARD;
}

char op_batch(const struct call *f)
{
    return !f->op->batch_when || f->op->batch_when(f) ? f->op->batch : 0;
}

char op_time(const struct call *f)
{
    return !f->op->time_when || f->op->time_when(f) ? f->op->time : 0;
}

struct arg_set op_gradients(const struct op *o)
{
    struct arg_set all = set_none();
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & IN && o->arg[i].flags & DIFF)
            set_add(&all, i);
    return all;
}

int op_has_gradients(const struct op *o)
{
    const struct arg_set all = op_gradients(o);
    return set_any(&all);
}

const char *op_axis(const struct op *o, char letter)
{
    for (int i = 0; i < o->n_params; i++)
        if (o->param[i].letter == letter)
            return o->param[i].name;
    for (const struct axis *a = o->axis; a && a->letter; a++)
        if (a->letter == letter)
            return a->name;
    return "axis";
}

/* The index of a word in a list of them, or -1. */
static int index_in(const char *list, const char *word, size_t n)
{
    int index = 0;

    for (const char *at = list; at && *at; index++) {
        const size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0)
            return index;
        at += length + strspn(at + length, " ");
    }
    return -1;
}

static int words_in(const char *list)
{
    int n = 0;

    for (const char *at = list; at && *at; n++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return n;
}

unsigned op_stored_sites(const struct op *o)
{
    return (1u << words_in(o->sites)) - 1;
}

/* Of either list, or -1. */
static int site_index(const struct op *o, const char *word, size_t n)
{
    const int stored = index_in(o->sites, word, n), declared = index_in(o->declared, word, n);
    return stored >= 0 ? stored : declared >= 0 ? declared + words_in(o->sites) : -1;
}

unsigned op_sites(const struct op *o, const char *words)
{
    unsigned found = 0;

    for (const char *at = words ? words : ""; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        const int index = site_index(o, at, n);
        found |= index < 0 ? 0 : 1u << index;
        at += n;
    }
    return found;
}
