/* A program's operation: what its contract says follows from its calls (instance.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/machine.h"
#include "common/program/instance.h"

/* "d_" and a zero stand beside it in 32 characters (tensor_name()). */
enum { MAX_TENSOR = 29 };

/* ---- what a tensor's own contract says, in its own call ---- */

/* The call that reads or writes the tensor of an argument; *arg becomes which of its arguments that is. */
static const struct call *own(const struct call *f, int *arg)
{
    const struct instance *m = instance_of(f->op);
    const struct tensor *t = &m->tensor[m->tensor_at[*arg]];

    *arg = t->arg;
    return &m->step[t->step].call;
}

static void draw(const struct call *f, int arg, uint64_t key, double *x)
{
    const struct call *c = own(f, &arg);
    c->op->arg[arg].draw(c, arg, key, x);
}

static void draw_bytes(const struct call *f, int arg, uint64_t key, unsigned char *b)
{
    const struct call *c = own(f, &arg);
    c->op->arg[arg].draw_bytes(c, arg, key, b);
}

static int values_check(const struct call *f, int arg, const char *place, const double *x)
{
    const struct call *c = own(f, &arg);
    return c->op->arg[arg].values_check(c, arg, place, x);
}

static int bytes_check(const struct call *f, int arg, const char *place, const unsigned char *b)
{
    const struct call *c = own(f, &arg);
    return c->op->arg[arg].bytes_check(c, arg, place, b);
}

/* ---- costs ---- */

static double sum_of(const struct call *f, enum pass p, size_t which)
{
    const struct instance *m = instance_of(f->op);
    double sum = 0;

    for (int s = 0; s < m->n_steps; s++) {
        const struct call *c = &m->step[s].call;
        double (*cost)(const struct call *, enum pass) =
            *(double (*const *)(const struct call *, enum pass))((const char *)c->op + which);
        if (cost && (p == FORWARD || m->step[s].active))
            sum += cost(c, p);
    }
    return sum;
}

static double flops(const struct call *f, enum pass p)
{
    return sum_of(f, p, offsetof(struct op, flops));
}

static double products(const struct call *f, enum pass p)
{
    return sum_of(f, p, offsetof(struct op, products));
}

static double specials(const struct call *f, enum pass p)
{
    return sum_of(f, p, offsetof(struct op, specials));
}

/* ---- axes ---- */

/* The letter of an axis: that of the program's size, or a derived one; 0 after err_set(). */
static char letter_of(struct instance *m, const struct length *a)
{
    const struct program *p = m->program;
    int alike = 0;

    for (int i = 0; i < p->n_params; i++)
        if (strcmp(p->param[i].name, a->name) == 0) {
            if (DIM(&m->sizes, p->param[i].letter) == a->n)
                return p->param[i].letter;
            alike++;
        }
    for (int i = 0; i < m->n_axes; i++) {
        const size_t n = strlen(a->name);
        const char *name = m->axis_name[i];
        const int same = strncmp(name, a->name, n) == 0 && (!name[n] || name[n] == '_');
        if (same && m->length[m->axis[i].letter - 'A'] == a->n)
            return m->axis[i].letter;
        alike += same;
    }
    if (p->n_params + m->n_axes >= MAX_AXES)
        return (char)(err_set("%s: its tensors have more than %d axes", p->name, MAX_AXES), 0);
    struct axis *new = &m->axis[m->n_axes];
    snprintf(m->axis_name[m->n_axes], MAX_NAME, alike ? "%.50s_%d" : "%.50s", a->name, alike + 1);
    *new = (struct axis){(char)('A' + p->n_params + m->n_axes), m->axis_name[m->n_axes]};
    m->length[new->letter - 'A'] = a->n;
    m->n_axes++;
    return new->letter;
}

/* The shape; what is saved for backward alone has one axis of all its elements. */
static char *shape_of(struct instance *m, const struct tensor *t, int saved)
{
    char *shape = calloc(1, MAX_RANK + 1);
    const struct length all = {tensor_elements(t), "elements"};

    for (int i = 0; shape && i < (saved ? 1 : t->rank); i++)
        if (!(shape[i] = letter_of(m, saved ? &all : &t->axis[i]))) {
            free(shape);
            return NULL;
        }
    return shape;
}

/* ---- tensors ---- */

/* The flags of its type: those that lead to the types that its own call has. */
static int type_flags(const struct call *c, int arg, unsigned *flags)
{
    const struct call in16 = call_on(c, &ref_bf16, NULL, NULL),
                      in32 = call_on(c, &ref32, NULL, NULL);
    const unsigned own = c->op->arg[arg].flags;

    *flags |= own & (WHOLE | BYTES);
    if (own & (WHOLE | BYTES))
        return 0;
    if (call_type(&in32, arg, 0) != F32)
        return err_set("%s: its %s is %s whatever the storage type, which a program does not have",
                       c->op->name, c->op->arg[arg].name, types[call_type(&in32, arg, 0)].name);
    if (call_type(&in16, arg, 0) == F32)
        *flags |= WIDE;
    else if (own & DIFF && call_type(&in16, arg, 1) == F32)
        *flags |= WIDE_GRAD;
    return 0;
}

/* Does a call's argument read a tensor in backward: its own pass, or its forward pass that is made again? */
static int reads_back(const struct step *s, int arg)
{
    const int again = s->rerun && s->call.op->arg[arg].flags & IN;
    return again || (s->active && op_read_back(&s->call, arg));
}

static int read_back(const struct instance *m, int tensor)
{
    for (int s = 0; s < m->n_steps; s++)
        for (int i = 0; i < m->step[s].call.op->n_args; i++)
            if (m->step[s].tensor[i] == tensor && reads_back(&m->step[s], i))
                return 1;
    return 0;
}

/* How an input is drawn, and what it may be: as its own contract says. */
static void drawn_as(struct arg *to, const struct call *c, int arg)
{
    const struct arg *a = &c->op->arg[arg];

    to->fill = op_fill(c, arg);
    to->draw = a->draw ? draw : NULL;
    to->draw_bytes = a->draw_bytes ? draw_bytes : NULL;
    to->values_check = a->values_check ? values_check : NULL;
    to->bytes_check = a->bytes_check ? bytes_check : NULL;
    to->settled = a->settled;
    to->own = own;
}

/* Has another argument that name?  (A dump has the gradients as "d" beside outputs.) */
static int is_taken(const struct instance *m, const char *name, unsigned flags)
{
    for (int i = 0; i < m->n_args; i++)
        if (strcmp(m->arg[i].name, name) == 0)
            return 1;
    return !(flags & IN) && strcmp(name, "d") == 0;
}

/* An input or an output has a name of its own; of what is saved besides, the second of a name is "1.x.2". */
static int name_arg(struct instance *m, struct tensor *t, unsigned flags)
{
    const size_t length = strlen(t->name);

    if (is_taken(m, t->name, flags) && flags & (IN | OUT))
        return err_set("%s:%d: %s cannot be the name of an output, too: give the result another",
                       m->program->name, m->step[t->step].line->number, t->name);
    for (int i = 2; is_taken(m, t->name, flags); i++)
        snprintf(t->name + length, sizeof t->name - length, ".%d", i);
    if (strlen(t->name) > MAX_TENSOR)
        return err_set("%s:%d: the name %s has more than %d characters", m->program->name,
                       m->step[t->step].line->number, t->name, MAX_TENSOR);
    return 0;
}

static int add_arg(struct instance *m, int tensor, unsigned flags)
{
    struct tensor *t = &m->tensor[tensor];
    const struct call *c = &m->step[t->step].call;
    struct arg *a = &m->arg[m->n_args];

    if (m->n_args == MAX_ARGS)
        return err_set(
            "%s: more than %d tensors: inputs, parameters, outputs, and what backward reads",
            m->program->name, MAX_ARGS);
    if (name_arg(m, t, flags))
        return -1;
    if (type_flags(c, t->arg, &flags))
        return err_at("%s:%d", m->program->name, m->step[t->step].line->number);
    if (t->needs && c->op->arg[t->arg].flags & DIFF && flags & (IN | OUT))
        flags |= DIFF;
    if (flags & IN && !read_back(m, tensor))
        flags |= NOT_BACK;
    *a = (struct arg){.name = t->name, .flags = flags};
    if (!(a->shape = shape_of(m, t, !(flags & (IN | OUT)))))
        return -1;
    if (flags & IN)
        drawn_as(a, c, t->arg);
    t->place = m->n_args;
    m->tensor_at[m->n_args++] = tensor;
    return 0;
}

/* Inputs, parameters, outputs, and what backward reads besides. */
static int add_args(struct instance *m)
{
    static const unsigned flags[] = {IN, IN | PARAMETER};
    int e = 0;

    for (int origin = GIVEN; origin <= PARAMETERS; origin++)
        for (int i = 0; !e && i < m->n_tensors; i++)
            if ((int)m->tensor[i].origin == origin)
                e = add_arg(m, i, flags[origin]);
    for (int i = 0; !e && i < m->n_tensors; i++)
        if (m->tensor[i].output)
            e = add_arg(m, i, OUT | (m->tensor[i].kept ? SAVED : 0));
    for (int i = 0; !e && i < m->n_tensors; i++)
        if (m->tensor[i].kept && !m->tensor[i].output)
            e = add_arg(m, i, SAVED);
    return e;
}

int instance_contract(struct instance *m)
{
    const struct program *p = m->program;

    m->arg = calloc(MAX_ARGS, sizeof *m->arg);
    m->tensor_at = calloc(MAX_ARGS, sizeof *m->tensor_at);
    if (!m->arg || !m->tensor_at)
        return err_set("%s: no memory for its tensors", p->name);
    if (add_args(m))
        return -1;
    m->own.op = p->all.op;
    m->own.op.family = &p->all.op;
    m->own.program = m->program;
    m->own.op.arg = m->arg;
    m->own.op.n_args = m->n_args;
    m->own.op.axis = m->axis;
    m->own.op.flops = flops;
    m->own.op.products = products;
    m->own.op.specials = specials;
    return 0;
}
