/* Sizes, tensors, cases and costs of an operation, from its contract (op.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/call/op.h"

const char *const pass_names[N_PASSES] = {"forward", "backward"};

const struct op *const ops[N_OPS] = {
#define OP(name) &op_##name,
#include "common/call/ops.def"
#undef OP
};

/* ---- finding things by name ---- */

const struct op *op_find(const char *name)
{
    for (int i = 0; i < N_OPS; i++)
        if (strcmp(ops[i]->name, name) == 0)
            return ops[i];
    return NULL;
}

const struct param *op_param(const struct op *o, const char *name, int *place)
{
    for (int i = 0; i < o->n_params; i++)
        if (strcmp(o->param[i].name, name) == 0) {
            if (place)
                *place = i;
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

const struct backend *const *backends(void)
{
    static const struct backend *const all[] = {&ref64, &ref32, &ref_bf16, &gpu32, &gpu_bf16, NULL};
    return all;
}

int is_gpu(const struct backend *b)
{
    for (int i = 0; b && gpu_backends[i]; i++)
        if (gpu_backends[i] == b)
            return 1;
    return 0;
}

const struct backend *reference_of(enum dtype t)
{
    for (const struct backend *const *b = backends(); *b; b++)
        if ((*b)->type == t && !is_gpu(*b))
            return *b;
    return NULL;
}

const struct backend *backend_find(const char *name)
{
    for (const struct backend *const *b = backends(); *b; b++)
        if (strcmp((*b)->name, name) == 0 || ((*b)->was && strcmp((*b)->was, name) == 0))
            return *b;
    return NULL;
}

const struct impl *impl_declares(const struct call *f)
{
    static const struct impl none = {.name = "none"};
    struct call c = *f;
    while (c.kernel && c.kernel->link)
        c = c.kernel->link(&c);
    return c.kernel ? c.kernel : &none;
}

int64_t impl_chunk(const struct call *f)
{
    struct call c = *f;
    int64_t chunk = c.kernel->chunk;

    while (c.kernel && c.kernel->link) {
        c = c.kernel->link(&c);
        chunk = c.kernel && c.kernel->chunk > chunk ? c.kernel->chunk : chunk;
    }
    return chunk;
}

const char *impl_declines(const struct call *f)
{
    return f->kernel->declines ? f->kernel->declines(f) : NULL;
}

struct chosen impl_choose(const struct call *f, const char *name)
{
    struct chosen c = {NULL, NULL, NULL};
    struct call each = *f;

    for (const struct impl *const *k = op_kernels(f->op, f->backend); *k && !c.kernel; k++) {
        if (name && strcmp((*k)->name, name) != 0)
            continue;
        each.kernel = *k;
        c.why = impl_declines(&each);
        *(c.why ? &c.last : &c.kernel) = *k;
    }
    return c;
}

const struct impl *const *op_kernels(const struct op *o, const struct backend *b)
{
    static const struct impl *const none[] = {NULL};
    for (const struct kernels *k = b->kernels; k->op; k++)
        if (k->op == o)
            return k->impl;
    return none;
}

int additions(int64_t n)
{
    int depth = 0;
    while ((int64_t)1 << depth < n)
        depth++;
    return depth;
}

/* ---- parameters ---- */

int choice_set(const char *key, const char *value, const char *const *names, int *choice)
{
    char known[200] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], value) == 0) {
            *choice = i;
            return 0;
        }
        append(known, sizeof known, " %s", names[i]);
    }
    return err_set("%s = %s: not one of%s", key, value, known);
}

int op_set(struct call *f, const char *key, const char *value)
{
    int place;
    const struct param *p = op_param(f->op, key, &place);

    if (!p)
        return err_set("%s has no parameter %s", f->op->name, key);
    if (p->choices)
        return choice_set(p->name, value, p->choices, &f->choice[place]);
    if (p->real ? number_real(value, p->real->min, p->real->max, &f->real[place])
                : number_whole(value, p->min, p->max, &DIM(f, p->letter)))
        return err_at("%s = %s", key, value);
    return 0;
}

void op_defaults(const struct op *o, struct call *f)
{
    memset(f, 0, sizeof *f);
    f->op = o;
    for (int i = 0; i < o->n_params; i++) {
        if (o->param[i].choices)
            f->choice[i] = (int)o->param[i].initial;
        else if (o->param[i].real)
            f->real[i] = o->param[i].real->initial;
        else
            DIM(f, o->param[i].letter) = o->param[i].initial;
    }
}

static void put_text(const struct call *f, char *text, size_t size)
{
    *text = 0;
    for (int i = 0; i < f->op->n_params; i++) {
        char buffer[32];
        const char *value = op_value(f, i, buffer);
        if (*value)
            append(text, size, "%s%s=%s", *text ? " " : "", f->op->param[i].name, value);
    }
}

int op_complete(struct call *f)
{
    const struct op *o = f->op;
    int64_t bytes = 0;
    char text[MAX_TEXT + 1];

    put_text(f, text, sizeof text);
    if (strlen(text) >= MAX_TEXT)
        return err_set("the parameters are longer than %d characters", MAX_TEXT - 1);
    if (o->derive && o->derive(f))
        return -1;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = 16; /* value and gradient, in double */
        int over = 0;
        if (!op_has(f, i))
            continue;
        for (const char *c = op_shape(f, i); *c; c++)
            over |= __builtin_mul_overflow(n, DIM(f, *c), &n);
        if (over || __builtin_add_overflow(bytes, n, &bytes) || bytes > INT64_MAX / 64)
            return err_set("%s has more elements than a 64-bit size can count", o->arg[i].name);
    }
    if (f->backend)
        call_types(f);
    return 0;
}

const char *op_value(const struct call *f, int i, char buffer[32])
{
    const struct op *o = f->op;
    const struct param *p = &o->param[i];
    if (p->unless && p->unless(f))
        return "";
    if (p->choices)
        return p->choices[f->choice[i]];
    if (p->real) {
        snprintf(buffer, 32, "%.15g", f->real[i]);
        if (strtod(buffer, NULL) != f->real[i])
            snprintf(buffer, 32, "%.17g", f->real[i]);
    } else
        snprintf(buffer, 32, "%" PRId64, DIM(f, p->letter));
    return buffer;
}

void op_text(const struct call *f, char *text)
{
    put_text(f, text, MAX_TEXT);
}

/* ---- tensors ---- */

int op_has(const struct call *f, int arg)
{
    const struct op *o = f->op;
    return !o->arg[arg].when || o->arg[arg].when(f);
}

enum pass op_passes(const struct op *o)
{
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & DIFF)
            return N_PASSES;
    return BACKWARD;
}

uint64_t op_gradients(const struct op *o)
{
    uint64_t bits = 0;
    for (int i = 0; i < o->n_args; i++)
        if (o->arg[i].flags & IN && o->arg[i].flags & DIFF)
            bits |= UINT64_C(1) << i;
    return bits;
}

int call_accumulates(const struct call *f, int arg)
{
    return (f->accumulate >> arg & 1) && op_has(f, arg);
}

const char *op_shape(const struct call *f, int arg)
{
    const struct op *o = f->op;
    return o->arg[arg].shape_of ? o->arg[arg].shape_of(f) : o->arg[arg].shape;
}

double op_product(const struct call *f, const char *letters)
{
    double product = 1;
    for (; *letters; letters++)
        product *= DIM(f, *letters);
    return product;
}

int64_t op_count(const struct call *f, int arg)
{
    int64_t n = 1;
    if (!op_has(f, arg))
        return 0;
    for (const char *c = op_shape(f, arg); *c; c++)
        n *= DIM(f, *c);
    return n;
}

void tensor_name(const struct op *o, int arg, int grad, char name[32])
{
    snprintf(name, 32, "%s%s", grad ? "d_" : "", o->arg[arg].name);
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

/* A whole number is one on every backend, and the oracle stores all others as double. */
static enum dtype tensor_type(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    int place;
    if (a->flags & WHOLE)
        return I64;
    if (f->backend->wide == F64)
        return F64;
    if (a->type_choice && op_param(f->op, a->type_choice, &place))
        return (enum dtype)(F32 + f->choice[place]);
    return a->flags & WIDE ? f->backend->wide : f->backend->type;
}

void call_types(struct call *f)
{
    for (int i = 0; i < f->op->n_args; i++) {
        int wide = f->op->arg[i].flags & (WIDE | WIDE_GRAD);
        f->type[i] = tensor_type(f, i);
        f->grad_type[i] = wide ? f->backend->wide : f->backend->type;
    }
}

struct call call_on(const struct call *f, const struct backend *b, const struct impl *k)
{
    struct call c = *f;
    if (!f->backend || f->backend->open != b->open)
        c.context = context_of(b);
    c.backend = b;
    c.kernel = k;
    call_types(&c);
    return c;
}

void call_place(struct call *f, const struct op *o, const void *args, const void *grads, void *work)
{
    memset(f->arg, 0, sizeof f->arg);
    memset(f->grad, 0, sizeof f->grad);
    memcpy(f->arg, args, o->n_args * sizeof *f->arg);
    memcpy(f->grad, grads, o->n_args * sizeof *f->grad);
    f->op = o;
    f->work = work;
    f->accumulate = 0;
    f->kernel = NULL;
    call_types(f);
}

/* ---- passes ---- */

/* Are gradients written into the workspace, and added to what is there after the pass? */
OF_CALL(int, adds_later, f->accumulate && !(f->kernel && f->kernel->accumulates))

static size_t kernel_work(const struct call *f, enum pass p)
{
    return f->kernel && f->kernel->work ? f->kernel->work(f, p) : 0;
}

/* Backward's workspace: the kernel's own, then the gradients that it writes, to which those of `to`
 * are set unless it is NULL.  Returns its bytes. */
static size_t place_written(const struct call *f, struct call *to)
{
    struct work_arena a = {(char *)f->work, 0};

    work_take(&a, kernel_work(f, BACKWARD));
    for (int i = 0; i < f->op->n_args; i++) {
        if (!call_accumulates(f, i))
            continue;
        void *written = work_take(&a, op_count(f, i) * types[f->grad_type[i]].bytes);
        if (to)
            to->grad[i] = written;
    }
    return a.bytes;
}

size_t op_work(const struct call *f, enum pass p)
{
    return p == BACKWARD && adds_later(f) ? place_written(f, NULL) : kernel_work(f, p);
}

/* Backward into the workspace; then what it wrote is added, each in the gradient's type. */
static int pass_and_add(const struct call *f)
{
    struct call c = *f;
    int e;

    c.accumulate = 0;
    place_written(f, &c);
    e = f->kernel->pass[BACKWARD](&c);
    for (int i = 0; !e && i < f->op->n_args; i++)
        if (call_accumulates(f, i))
            e = f->backend->add(f, (enum dtype)f->grad_type[i], f->grad[i], f->grad[i], c.grad[i],
                                op_count(f, i));
    return e;
}

int call_pass(const struct call *f, enum pass p)
{
    if (f->backend->enter)
        f->backend->enter(f->context);
    return p == BACKWARD && adds_later(f) ? pass_and_add(f) : f->kernel->pass[p](f);
}

/* ---- costs ---- */

/* Does backward read it? */
static int read_back(const struct arg *a, const struct call *f)
{
    return a->flags & (IN | SAVED) && !(a->flags & NOT_BACK) && (!a->back || a->back(f));
}

double op_bytes(const struct call *f, enum pass p)
{
    double sum = 0;
    for (int i = 0; i < f->op->n_args; i++) {
        const struct arg *a = &f->op->arg[i];
        double n = (double)op_count(f, i);
        if (p == FORWARD || read_back(a, f))
            sum += n * types[f->type[i]].bytes;
        if (p == BACKWARD && a->flags & DIFF)
            sum += (call_accumulates(f, i) ? 2 : 1) * n * types[f->grad_type[i]].bytes;
    }
    return sum;
}

int64_t op_saved(const struct call *f)
{
    int64_t sum = 0;
    for (int i = 0; i < f->op->n_args; i++)
        if (f->op->arg[i].flags & SAVED && read_back(&f->op->arg[i], f))
            sum += op_count(f, i) * types[f->type[i]].bytes;
    return sum;
}

int64_t op_memory(const struct call *f)
{
    size_t forward = op_work(f, FORWARD), backward = op_work(f, BACKWARD);
    int64_t sum = forward > backward ? forward : backward;

    for (int i = 0; i < f->op->n_args; i++) {
        int64_t n = op_count(f, i);
        sum += n * types[f->type[i]].bytes;
        if (f->op->arg[i].flags & DIFF)
            sum += n * types[f->grad_type[i]].bytes;
    }
    return sum;
}

/* ---- inputs ---- */

/* A number that depends on nothing but its arguments, so that any element
 * of any input can be drawn by any thread in any order (splitmix64). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t draw_key(uint64_t seed, const char *name)
{
    for (const char *c = name; *c; c++)
        seed = mix(seed ^ (uint64_t)*c);
    return mix(seed);
}

double draw_uniform(uint64_t key, uint64_t i)
{
    return (double)(mix(key ^ mix(i)) >> 11) * 0x1p-53;
}

double draw_normal(uint64_t key, uint64_t i)
{
    double u = draw_uniform(key, 2 * i), w = draw_uniform(key, 2 * i + 1);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * w);
}

const char *const no_yes[] = {"no", "yes", NULL};
const char *const fill_names[] = {"normal", "masked", "shifted", "outliers", NULL};

enum fill op_fill(const struct call *f, int arg)
{
    const struct op *o = f->op;
    static const enum fill chosen[] = {NORMAL, MASKED, SHIFTED, OUTLIERS};
    const struct arg *a = &o->arg[arg];
    int place;

    if (a->fill_choice && op_param(o, a->fill_choice, &place))
        return chosen[f->choice[place]];
    return a->fill_of ? a->fill_of(f) : a->fill;
}

/* Where an element of a hard fill is: its row, counted from one that the seed says, and its
 * column; a column of the row that the seed says, and a value within 0 ... 1. */
struct hard {
    int64_t row, column, chosen;
    double u;
};

static struct hard hard_at(uint64_t key, int64_t i, int64_t columns)
{
    uint64_t rows = draw_key(key, "rows");
    int64_t row = i / columns;
    return (struct hard){
        .row = row + (int64_t)(draw_uniform(key, UINT64_MAX) * 1000),
        .column = i % columns,
        .chosen = (int64_t)(draw_uniform(rows, row) * columns),
        .u = draw_uniform(draw_key(key, "elements"), i),
    };
}

static double draw_masked(uint64_t key, int64_t i, int64_t columns)
{
    struct hard h = hard_at(key, i, columns);
    double x = draw_normal(key, i);

    switch (h.row % 7) {
    case 0: return h.column != h.chosen && h.u < 0.5 ? -INFINITY : x;
    case 1: return -INFINITY;
    case 2: return h.column == h.chosen ? NAN : x;
    case 3: return h.column == h.chosen ? INFINITY : x;
    case 4: return h.u < 0.2 ? NAN : h.u < 0.4 ? INFINITY : h.u < 0.7 ? -INFINITY : x;
    case 5: return floor(3 * h.u) - 1;
    default: return h.u < 0.5 ? -0.0 : 0.0;
    }
}

static double draw_outliers(uint64_t key, int64_t i, int64_t columns)
{
    struct hard h = hard_at(key, i, columns);
    double x = draw_normal(key, i), large = h.row % 2 ? 1e30 : 1e4;

    switch (h.row / 2 % 3) {
    case 0: return h.column == h.chosen ? large : x;
    case 1: return h.column != h.chosen && h.u < 0.5 ? -large : x;
    default: return h.column == h.chosen || h.u < 0.5 ? large : x;
    }
}

void op_draw(const struct call *f, int arg, enum fill fill, uint64_t seed, double *x)
{
    const struct op *o = f->op;
    const char *shape = op_shape(f, arg);
    int64_t columns = DIM(f, shape[strlen(shape) - 1]);
    double fan = 1 / sqrt((double)columns);
    uint64_t key = draw_key(seed, o->arg[arg].name);
    int64_t n = op_count(f, arg), range = fill == INDEX ? o->index_range(f) : 0;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        switch (fill) {
        case ZERO: x[i] = 0; break;
        case NORMAL: x[i] = draw_normal(key, i); break;
        case FAN: x[i] = fan * draw_normal(key, i); break;
        case UNIT: x[i] = 2 * draw_uniform(key, i) - 1; break;
        case GATE: x[i] = draw_uniform(key, i); break;
        case INDEX: x[i] = floor(draw_uniform(key, i) * range); break;
        case MASKED: x[i] = draw_masked(key, i, columns); break;
        case SHIFTED: x[i] = 1e4 + draw_normal(key, i); break;
        case OUTLIERS: x[i] = draw_outliers(key, i, columns); break;
        }
    }
}

double seconds_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + 1e-9 * ts.tv_nsec;
}
