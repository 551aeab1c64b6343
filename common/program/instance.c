/* The instances of a program: made where a case is completed, and found again (instance.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/program/instance.h"

static struct program *program_of(const struct op *o)
{
    return ((const struct program_op *)(const void *)o)->program;
}

void instance_free(struct instance *m)
{
    for (int i = 0; m && i < m->n_args; i++)
        free((char *)m->arg[i].shape);
    if (m) {
        free(m->arg);
        free(m->tensor_at);
        free(m->step);
        free(m->tensor);
    }
    free(m);
}

static int same_sizes(const struct program *p, const struct call *f, const struct call *g)
{
    int same = 1;
    for (int i = 0; i < p->n_params; i++)
        same &= DIM(f, p->param[i].letter) == DIM(g, p->param[i].letter);
    return same;
}

/* One of these sizes; NULL: errors are counted, or err_set() was called. */
static struct instance *make(struct program *p, const struct call *sizes, FILE *errors, int *faults)
{
    struct instance *m = calloc(1, sizeof *m);

    *faults = 0;
    if (!m) {
        err_set("%s: no memory for its calls", p->name);
        return NULL;
    }
    m->program = p;
    m->sizes = *sizes;
    if ((*faults = instance_infer(m, errors)) || instance_contract(m)) {
        instance_free(m);
        return NULL;
    }
    m->next = p->made;
    p->made = m;
    return m;
}

/* The first line of a text, as the error. */
static int err_line(char *text)
{
    text[strcspn(text, "\n")] = 0;
    return err_set("%s", text);
}

/* The lock is held. */
static struct instance *find_or_make(struct program *p, const struct call *f)
{
    struct instance *m = p->made;
    char *text = NULL;
    size_t n;
    int faults;

    while (m && !same_sizes(p, &m->sizes, f))
        m = m->next;
    if (m)
        return m;
    FILE *errors = open_memstream(&text, &n);
    if (!errors) {
        err_set("%s: no memory for messages", p->name);
        return NULL;
    }
    m = make(p, f, errors, &faults);
    fclose(errors);
    if (!m && faults)
        err_line(text);
    free(text);
    return m;
}

int instance_set(struct call *f)
{
    struct program *p = program_of(f->op);

    pthread_mutex_lock(&p->lock);
    struct instance *m = find_or_make(p, f);
    pthread_mutex_unlock(&p->lock);
    if (!m)
        return -1;
    f->op = &m->own.op;
    for (int i = 0; i < m->n_axes; i++)
        DIM(f, m->axis[i].letter) = m->length[m->axis[i].letter - 'A'];
    return 0;
}

void instance_first(struct program *p, FILE *errors, int *faults)
{
    struct call f;

    p->all.program = p;
    p->all.op = (struct op){.name = "program",
                            .formula = "a program of calls",
                            .source = p->name,
                            .param = p->param,
                            .n_params = p->n_params,
                            .cases = RECOMPUTE "=0",
                            .derive = instance_set,
                            .kernels = &program_kernels};
    op_defaults(&p->all.op, &f);
    const struct instance *m = make(p, &f, errors, faults);
    if (m) {
        p->all.op.arg = m->own.op.arg;
        p->all.op.n_args = m->own.op.n_args;
        p->all.op.axis = m->own.op.axis;
    } else if (!*faults) {
        fprintf(errors, "%s\n", err_text());
        *faults = 1;
    }
}

const struct op *program_op(const struct program *p)
{
    return &p->all.op;
}

int is_program(const struct op *o)
{
    return o->derive == instance_set;
}

const char *program_name_of(const struct op *o)
{
    return is_program(o) ? program_of(o)->name : NULL;
}

const char *program_text_of(const struct op *o)
{
    return is_program(o) ? program_of(o)->text : NULL;
}

int program_size_line(const struct op *o, const char *size)
{
    const struct line *l = program_size(program_of(o), size);
    return l ? l->number : 0;
}

void program_free(struct program *p)
{
    while (p && p->made) {
        struct instance *next = p->made->next;
        instance_free(p->made);
        p->made = next;
    }
    if (p) {
        pthread_mutex_destroy(&p->lock);
        free(p->param);
        free(p->line);
        free(p->text);
    }
    free(p);
}

/* ---- those that are kept ---- */

const struct program *program_known(const char *name, const char *text, FILE *errors)
{
    static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;
    static struct program *programs;

    pthread_mutex_lock(&programs_lock);
    struct program *p = programs;
    while (p && (strcmp(p->name, name) || strcmp(p->text, text)))
        p = p->next;
    if (!p && (p = program_read(name, text, errors))) {
        p->next = programs;
        programs = p;
    }
    pthread_mutex_unlock(&programs_lock);
    return p;
}

/* ---- the calls, one by one ---- */

int program_calls(const struct op *o)
{
    return instance_of(o)->n_steps;
}

const struct call *program_call(const struct op *o, int i, char name[2 * MAX_NAME])
{
    const struct step *s = &instance_of(o)->step[i];

    snprintf(name, 2 * MAX_NAME, "%s%s", s->block, s->line->result[0].value);
    return &s->call;
}

int program_call_backs(const struct op *o, int i)
{
    return instance_of(o)->step[i].active;
}
