/* contract.h - operations.
 *
 * An operation (struct op) is a contract: its parameters, its tensors and their shapes, its cost, and the
 * properties that must hold.  The four files of an operation contain all that is specific to it.
 * Therefore drawing inputs, running, judging, timing, storing and the ini keys are each written once, as
 * loops over the contract. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "common/call/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The range of a parameter that is a real number. */
struct real_range {
    double initial, min, max;
    const char *word; /* NULL, or what may stand in its place and is INFINITY: known only later */
};

/* One parameter of an operation: a size, another whole number, a named
 * choice, or a real number.  Its name is its ini key. */
struct param {
    const char *name;
    char letter;                /* of a whole number: the argument of DIM(); else 0 */
    const char *const *choices; /* of a choice: its names, NULL at the end */
    int64_t initial;            /* default: the number, or the choice's index */
    int64_t min, max;           /* of a whole number */
    const char *help;
    /* NULL, or the reason it does not apply.  It follows from the choices and real numbers that stand
     * before it in the table, and from no size. */
    const char *(*unless)(const struct call *f);
    int (*multiple)(const struct call *f); /* NULL, or what a size is a multiple of */
    const struct real_range *real;         /* of a real number */
    /* No result depends on it, but on how inputs are drawn, or in what type something is kept on the
     * way. */
    int aside;
    int draw; /* it says how inputs are drawn; then it is aside, too */
    int seed; /* a whole number of 64 bits without a sign, in the bits of DIM(); it has no range */
};

/* SIZE_PARAM("rows", 'M', 4096, "rows of x"): the length of an axis.
 * WHOLE_PARAM("radius", 'R', 4, 0, 1 << 28, "neighbours on each side"): initial, min, max.
 * CHOICE_PARAM("form", forms, FORM_HALF, "which columns are a pair").
 * REAL_PARAM("beta", 0, -1e6, 1e6, "factor of what is added"). */
#define SIZE_PARAM(name_, letter_, initial_, help_)                                                \
    WHOLE_PARAM(name_, letter_, initial_, 1, 1 << 30, help_)
#define WHOLE_PARAM(name_, letter_, initial_, min_, max_, help_)                                   \
    {                                                                                              \
        .name = name_, .letter = letter_, .initial = initial_, .min = min_, .max = max_,           \
        .help = help_                                                                              \
    }
#define CHOICE_PARAM(name_, choices_, initial_, help_)                                             \
    {                                                                                              \
        .name = name_, .choices = choices_, .initial = initial_, .help = help_                     \
    }
#define REAL_PARAM(name_, initial_, min_, max_, help_)                                             \
    {                                                                                              \
        .name = name_, .help = help_, .real = &(const struct real_range)                           \
        {                                                                                          \
            initial_, min_, max_, NULL                                                             \
        }                                                                                          \
    }

/* FILL_PARAM(fill_names, "x"): the parameter `fill`, which fill an input has: by its name, or where it
 * has no such name, as "normal", the argument's own. */
#define FILL_PARAM(names_, tensor_)                                                                \
    DRAW_PARAM("fill", names_, 0, "how " tensor_ " is drawn: N(0, 1), or hard")
#define DRAW_PARAM(name_, choices_, initial_, help_)                                               \
    {                                                                                              \
        .name = name_, .choices = choices_, .initial = initial_, .help = help_, .aside = 1,        \
        .draw = 1                                                                                  \
    }
/* The same of a whole number and of a real one, as WHOLE_PARAM and REAL_PARAM. */
#define DRAWN_WHOLE_PARAM(name_, letter_, initial_, min_, max_, help_)                             \
    {                                                                                              \
        .name = name_, .letter = letter_, .initial = initial_, .min = min_, .max = max_,           \
        .help = help_, .aside = 1, .draw = 1                                                       \
    }
#define DRAWN_REAL_PARAM(name_, initial_, min_, max_, help_)                                       \
    {                                                                                              \
        .name = name_, .help = help_, .aside = 1, .draw = 1, .real = &(const struct real_range)    \
        {                                                                                          \
            initial_, min_, max_, NULL                                                             \
        }                                                                                          \
    }
#define ASIDE_PARAM(name_, choices_, initial_, help_)                                              \
    {                                                                                              \
        .name = name_, .choices = choices_, .initial = initial_, .help = help_, .aside = 1         \
    }

/* An axis whose length follows from the parameters. */
struct axis {
    char letter;
    const char *name;
};

/* The flags of a tensor. */
enum {
    IN = 1,         /* read by the forward pass */
    OUT = 2,        /* written by the forward pass */
    SAVED = 4,      /* written by forward only so that backward can read it */
    DIFF = 8,       /* has a gradient: backward writes an IN's, reads an OUT's */
    WIDE = 16,      /* kept, like its gradient, in the backend's wide type */
    WIDE_GRAD = 32, /* only its gradient is */
    TEXT = 64,      /* can be the embedding of a text: axes time, batch, width */
    WHOLE = 128,    /* whole numbers, int64_t in every backend, and judged by equality */
    NOT_BACK = 256, /* an input that backward does not read */
    BELOW = 512,    /* only the differences of elements from the maximum of their row matter */
    /* Bytes, uint8 in every backend, and unsigned char on the host: never rounded, and judged by
     * equality.  They have no gradient: not together with DIFF. */
    BYTES = 1024,
    /* A real output that has one right value in each storage type: judged by equality with the
     * yardstick, in which 0 is -0. */
    BIT_EXACT = 2048,
    /* An input that is a model's, learned or frozen: its elements, or of bytes in a file's format the
     * weights that they stand for, are parameters. */
    PARAMETER = 4096,
    SCALES = 8192 /* an input that belongs to such bytes: it takes memory, and is no parameter */
};

/* How an input is drawn.  FAN is N(0, 1 / length of the last axis), UNIT within -1 ... 1, GATE
 * within 0 ... 1; INDEX whole numbers from 0 to below the range of the contract's index_range().
 * Other inputs are drawn by their contract (struct arg, draw).
 *
 * Three are hard inputs, for operations that compute the maximum of a row or accept masked
 * inputs. The rows of MASKED are, in this order: N(0, 1) with some -inf; only -inf; with one
 * NaN; with one inf; with all of these; of -1, 0 and 1 (ties); and zeros of both signs.  SHIFTED
 * is 1e4 + N(0, 1). A row of OUTLIERS has one element that is 1e4, or some that are -1e4, or
 * some that are 1e4; in the next row these are 1e30.
 *
 * Two show what is added to a row's mean square, or subtracted from it: OFFSET is 1e3 + N(0, 1), and
 * the rows of TINY_ROWS are N(0, 1) times 1e-8, 1, 1e-3 and 1e-15.  WIDE_RANGE is N(0, 1), but
 * half of its elements are 100 |N(0, 1)|: of many exp() is no float.  Of 32 elements of SPIKES one is 30 times as large as N(0, 1), which
 * shows a scale for all 32. */
enum fill {
    ZERO,
    NORMAL,
    FAN,
    UNIT,
    GATE,
    INDEX,
    MASKED,
    SHIFTED,
    OUTLIERS,
    OFFSET,
    TINY_ROWS,
    WIDE_RANGE,
    SPIKES
};

/* One tensor of an operation.  The shape is one capital letter for each
 * axis, slowest first: "TBD" is [time][batch][width], always dense. */
struct arg {
    const char *name;
    const char *shape;
    unsigned flags;
    enum fill fill;
    int (*when)(const struct call *f);             /* NULL: always there */
    const char *(*shape_of)(const struct call *f); /* NULL: shape */
    const char *type_choice; /* the choice, one of storage_types, that is its storage type */
    int (*wide_when)(const struct call *f); /* NULL, or is it WIDE? */
    const char *fill_choice;                /* the parameter, a FILL_PARAM, that chooses its fill */
    const char *continues; /* of a final state: the initial state it hands over to */
    /* NULL: fill, or as fill_choice says.  Of an output: how its gradient is drawn; NULL: NORMAL. */
    enum fill (*fill_of)(const struct call *f);
    int (*back)(const struct call *f); /* does backward read it? NULL: as the flags say */
    const char *was;                   /* its name in older dumps, if another; or NULL */
    /* NULL: as the fill says.  Or draws all elements into x, one after the other: each depends only
     * on the key, which is the seed's and the tensor's name's, and on the sizes and choices, not on
     * the number of threads (draw_uniform(), draw_normal()). */
    void (*draw)(const struct call *f, int arg, uint64_t key, double *x);
    /* The same of an input of bytes; NULL: any byte, all alike. */
    void (*draw_bytes)(const struct call *f, int arg, uint64_t key, unsigned char *b);
    const char *stands_for; /* of bytes in a file's format: the shape of the weights */
    /* NULL, or refuses some values of an input of numbers, in words that begin with `place`: nonzero
     * after err_set(). */
    int (*values_check)(const struct call *f, int arg, const char *place, const double *x);
    /* NULL: an input of bytes may have any.  Or refuses some: nonzero after err_set() with `place`,
     * which says in words where b comes from ("W: block 812 has an infinite scale"). */
    int (*bytes_check)(const struct call *f, int arg, const char *place, const unsigned char *b);
    /* The axes along which its result, the gradient of an input or else itself, may be sampled: an
     * element depends only on the same rows of the inputs, and of what the cut forward pass saves
     * (sample.h).  NULL: along the batch.  Letters that its shape has not are left out. */
    const char *(*sample)(const struct call *f);
    /* NULL: all.  Of an input of which forward reads a part that other inputs name: how many elements,
     * at least, about. */
    double (*read)(const struct call *f);
    /* NULL, or of an output: the input of its shape whose memory it may take (call.in_place).  Each kernel
     * then reads an element of that for the last time before it writes the output's, and backward
     * reads it not at all. */
    const char *overwrites;
    /* An input of one element that the settings draw, whatever the seed: a caller may leave it out. */
    int settled;
    /* NULL, or of an input of an operation that is calls of others: one that reads it, *arg becomes as what;
     * its indices are as there. */
    const struct call *(*own)(const struct call *f, int *arg);
    /* NULL, or of an input that has not the flag PARAMETER: is it a model's in this call? */
    int (*parameter_when)(const struct call *f);
    /* NULL, or of a buffer of parts: is element i between them?  It is 0 in drawn inputs, and 0 in
     * results. */
    int (*gap)(const struct call *f, int arg, int64_t i);
};

/* For contract files: ARG(diag_delta, k, "BTN", IN | DIFF, UNIT) describes
 * the member k of struct diag_delta, at that member's place. */
#define ARG(op, member, ...) [PLACE(op, member)] = {.name = #member, .shape = __VA_ARGS__}
/* Defines how the element of a tensor of one is drawn, from the settings alone. */
#define DRAW_ONE(name, value)                                                                      \
    static void name(const struct call *f, int arg, uint64_t key, double *x)                       \
    {                                                                                              \
        (void)arg;                                                                                 \
        (void)key;                                                                                 \
        *x = value;                                                                                \
    }
#define N_ARGS(op) (sizeof(struct op) / sizeof(void *))
/* The constant n, which does not compile where it is more than max. */
#ifdef __cplusplus
#define AT_MOST(n, max, what) ((n) + 0 * sizeof(char[(n) <= (max) ? 1 : -1]))
#else
#define AT_MOST(n, max, what)                                                                      \
    ((n) + 0 * sizeof(struct {                                                                     \
               _Static_assert((n) <= (max), what);                                                 \
               int any;                                                                            \
           }))
#endif
/* SIGNATURE(gemv, params, args): an operation's parameters, and the tensors of struct gemv. */
#define SIGNATURE(op, params_, args_)                                                              \
    .param = params_,                                                                              \
    .n_params = AT_MOST(COUNT(params_), MAX_PARAMS, "more than MAX_PARAMS parameters"),            \
    .arg = args_, .n_args = AT_MOST(N_ARGS(op), MAX_ARGS, "more than MAX_ARGS tensors")

/* Its members of that name. */
#define IDENTITIES(list) .identity = list, .n_identities = COUNT(list)

/* Defines the function `name`, a cost: the product of these sizes, times a factor for each pass,
 * which may depend on the call f. */
#define COST(name, letters, forward, backward)                                                     \
    static double name(const struct call *f, enum pass p)                                          \
    {                                                                                              \
        return op_product(f, letters) * (p == FORWARD ? (forward) : (backward));                   \
    }
double op_product(const struct call *f, const char *letters);

/* Two settings of an operation that must agree: a test that does not rely on
 * the formulas of one reference.  The inputs of the left case are drawn, and
 * `left_given` changes some.  The right case has the inputs of the same names,
 * and `right_given` sets the others.  In both, words like "V0=eye b_z=ones W_q=W_k"
 * mean a tensor that is 1 on its last two axes' diagonal, all ones, all
 * zeros, all another number, or a copy (from the left, on the right).  `same` lists what must
 * agree, each word TENSOR, or LEFT:RIGHT, or LEFT:RIGHT+RIGHT for a sum.
 * With `shrink`, these inputs of both go to 0 and the difference must vanish
 * with their square. */
struct identity {
    const char *name;
    const char *left, *right; /* parameters, "state=blockdiag block_size=5" */
    const char *left_given, *right_given;
    const char *same;
    const char *shrink;
};

/* A parameter that may not change any bit of a result, if all tensors are
 * stored in full precision. */
struct neutral {
    const char *name;
    const char *values; /* "1,7,40" */
    const char *cases;  /* as struct op's */
};

/* The critical path of a recurrence: `steps` sequential steps, and in each step the number of FP32
 * operations and of evaluations of special functions of which each depends on the one before. */
struct chain {
    double steps, flops, specials;
};

/* A result that is a product of matrices, for a check that reads each of its elements (products.c):
 * over the axis that both factors have and the result has not, the sum of left * right, times a
 * scale; and a tensor that is added to it.  Gradients are "d_C".  An axis of all three counts
 * products. */
struct product {
    const char *result, *left, *right;
    double (*scale)(const struct call *f); /* NULL: 1 */
    const char *added;                     /* of the result's shape, or its last axis; or NULL */
    double (*added_scale)(const struct call *f); /* NULL: 1 */
    int (*when)(const struct call *f);           /* NULL: always */
    /* NULL, or what element i of the left factor is multiplied by, from the values of all tensors
     * as they were judged, NULL for those of bytes. */
    double (*slope)(const struct call *f, double *const *x, int64_t i);
};

/* Settings that must be refused, or declined, and a word that the message must contain. */
struct refusal {
    const char *settings, *names;
};

/* A parameter that older inis and dumps have: with this value it said what is so without it, and without
 * `successor`, which says such things now; `instead` says in words what to write for others. */
struct retired {
    const char *key, *value, *successor, *instead;
};

/* The cost of a pass in a case, counted by hand; flops 0: not counted. */
struct cost {
    const char *settings;
    enum pass pass;
    double flops, products, specials;
    struct chain chain;
};

/* One row x with NaN, infinities or ties, the target, if there is one, the name of a result, and
 * its correct values.  The gradient of the first output is 1, 2, 3, ...; the gradients of others
 * are 0. */
enum { KNOWN_ROW = 16 };
#define KNOWN_ALL(x)                                                                               \
    {                                                                                              \
        x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x                                             \
    }
struct known {
    const char *settings; /* beside rows=1, where there are rows */
    double x[KNOWN_ROW];
    int target;
    const char *result;
    double want[KNOWN_ROW];
};

/* Results of a call: arguments, and gradients of arguments. */
struct results {
    struct arg_set x, g;
};
static inline void results_add(struct results *to, int arg, int grad)
{
    set_add(grad ? &to->g : &to->x, arg);
}
static inline void results_remove(struct results *from, int arg, int grad)
{
    set_remove(grad ? &from->g : &from->x, arg);
}
/* Is it among these?  NULL: all are. */
static inline int results_have(const struct results *some, int arg, int grad)
{
    return !some || set_has(grad ? &some->g : &some->x, arg);
}

/* A call that another one, a layer's, makes within, by the layer's tensors: what it reads and writes is there, but for
 * gradients of what the layer saves, which it makes itself. */
enum { MOST_WITHIN = 4 };
struct layer_part {
    struct call call; /* on the layer's backend, of the kernel that the layer runs, or NULL */
    /* The layer's tensors that a tensor of it is: one below the other; or, of `beside`, side by side along the last
     * axis. */
    struct within {
        int n, arg[MOST_WITHIN];
    } of[MAX_ARGS];
    struct arg_set beside;
    struct results own; /* those of its results that are the layer's, or that it makes */
    int makes; /* it is to run: others read the gradients that it makes of what the layer saves */
};

struct op {
    const char *name;
    const char *formula;
    const char *source; /* where the mathematics is written down */
    /* NULL, or the operation whose case of certain sizes this is: a program's. */
    const struct op *family;
    /* NULL, or its kernels on every machine: of an operation that is calls of others. */
    const struct kernels *kernels;
    const struct param *param;
    int n_params;
    const struct axis *axis; /* the derived ones, a 0 letter at the end; or NULL */
    const struct arg *arg;
    int n_args;
    /* The cases that the suites run, as text: "steps=5 state=full,diagonal;
     * ...": the product of the lists, like a section of an ini file. */
    const char *cases;
    /* More of them, in the same grammar, or NULL. */
    const char *shapes; /* sizes at the limits of kernels (tests/shapes) */
    const char *memory; /* large cases: the size of a GPU's pages has no effect (tests/memory) */
    /* Cases whose tensors have more than 2^31 elements (tests/large), ends with NULL; or NULL. */
    const char *const *large;
    /* Lists that end with NULL settings; or NULL. */
    const struct refusal *refused;  /* beside values that are out of a parameter's range */
    const struct refusal *declined; /* by every kernel for a GPU */
    const struct retired *retired;  /* ends with a NULL key; or NULL */
    const struct known *known;      /* answers for rows that are hard (tests/hard) */
    const struct cost *cost;        /* what flops() to chain() must say (tests/bench) */
    const struct identity *identity;
    int n_identities;
    const struct neutral *neutral; /* or NULL */
    const struct product *product; /* ends with a NULL result; or NULL */
    /* Sets the derived sizes; nonzero after err_set() if the sizes contradict each other. */
    int (*derive)(struct call *f);
    /* For the fill INDEX: the number of indices; or NULL. */
    int64_t (*index_range)(const struct call *f);
    const char *no_index; /* the whole parameter whose value stands for no index; or NULL */
    /* NULL, or what these choices lead to; or is NULL. */
    const char *(*warning)(const struct call *f);
    double (*flops)(const struct call *f, enum pass p);
    /* The part of flops() in matrix products, which tensor cores can compute. */
    double (*products)(const struct call *f, enum pass p);
    /* Evaluations of special functions: tanh, 2^x, 1/x and sqrt are one each. */
    double (*specials)(const struct call *f, enum pass p);
    /* NULL, or no steps: no recurrence, or one that can be computed in parallel. */
    struct chain (*chain)(const struct call *f, enum pass p);
    const char *rows; /* axes whose recurrences are independent, "BH"; NULL: only batch */
    char batch;       /* axis whose rows are independent, or 0 */
    char time;        /* axis along which the operation is causal, or 0 */
    /* Are they so in this call?  NULL: always.  (op_batch(), op_time()) */
    int (*batch_when)(const struct call *f), (*time_when)(const struct call *f);
    /* NULL, or the operation, of the same sizes and choices, that makes this one's first input of its
     * results, about: what is lost on the way is reported (round_trip.h). */
    const struct op *inverse;
    /* NULL, or of a layer: part i of a call; 0: there are no more.  Those that make what others read come first. */
    int (*part)(const struct call *f, int i, struct layer_part *to);
    int blas; /* the bits of a row of a matrix product may depend on its index */
    /* NULL, or what a composition of operators stores on the way, "z dz", which a kernel may store in
     * the storage type: noise has a bit for each (sites.h), and the reference says where. */
    const char *sites;
    const char
        *declared; /* the same of what counts only where a kernel declares it: bits behind those */
};

/* The list of operations, in ops.def's order.  A program may make more: where the functions below
 * take an operation, it need not be one of these. */
enum {
#define OP(name) +1
    N_OPS = 0
#include "common/call/ops.def"
};
extern const struct op *const ops[N_OPS];
/* ---- op.c: the operations, and what a contract says of all its calls ---- */

const struct op *op_find(const char *name);
/* Is it the same operation, of whatever sizes? */
int op_same(const struct op *a, const struct op *b);
const struct param *op_param(const struct op *o, const char *name, int *place);
int op_arg(const struct op *o, const char *name);     /* its place, or -1 */
const char *op_axis(const struct op *o, char letter); /* its name */
/* The number of passes: forward, and backward if one of the tensors is differentiable. */
enum pass op_passes(const struct op *o);
/* The axis whose rows are independent in this call, and that along which it is causal; or 0. */
char op_batch(const struct call *f);
char op_time(const struct call *f);
/* The inputs that have a gradient, as in call.accumulate. */
struct arg_set op_gradients(const struct op *o);
int op_has_gradients(const struct op *o); /* is there one? */

/* A bit for each of these words that is one of the operation's sites, or may be declared; of those that
 * count undeclared. */
unsigned op_stored_sites(const struct op *o);
unsigned op_sites(const struct op *o, const char *words);
/* ---- params.c: the parameters of a call ---- */

/* Sets *choice to the index of value in names, which end with NULL; nonzero after err_set(). */
int choice_set(const char *key, const char *value, const char *const *names, int *choice);
/* Sets a parameter from text; nonzero after err_set() if the text is no value of it. */
int op_set(struct call *f, const char *key, const char *value);
void op_defaults(const struct op *o, struct call *f);
/* Called after all parameters are set: derives sizes, and refuses impossible ones. */
int op_complete(struct call *f);
/* "state=diagonal steps=512 ...": every parameter that applies, in MAX_TEXT bytes; all of them
 * if op_complete() has passed. */
void op_text(const struct call *f, char *text);
/* The value of parameter i as text, "" where it does not apply. */
const char *op_value(const struct call *f, int i, char buffer[32]);

/* ---- tensors.c: the tensors of a call ---- */

/* Is the input a model's, learned or frozen? */
static inline int op_is_parameter(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    return a->flags & PARAMETER || (a->parameter_when && a->parameter_when(f));
}
/* Is it a tensor of bytes? */
static inline int op_is_bytes(const struct call *f, int arg)
{
    return (f->op->arg[arg].flags & BYTES) != 0;
}
/* "x", or "d_x" for its gradient. */
void tensor_name(const struct op *o, int arg, int grad, char name[32]);
/* The argument of that name, or whose gradient it is: "d_x"; -1: neither. */
int tensor_find(const struct op *o, const char *name, int *grad);
/* ---- cost.c: costs from a contract ---- */

/* The depth of a tree of additions over n values: ceil(log2 n). */
int additions(int64_t n);
/* Both passes on a reference, in FLOPs of products: one whose steps are loops takes 30 times as long. */
double op_reference_work(const struct call *f);
/* Does backward read the tensor, an input or one that forward saved? */
int op_read_back(const struct call *f, int arg);
/* The minimum memory traffic of the pass: each tensor that it accesses, once; but a gradient to
 * which it adds is read and written. */
double op_bytes(const struct call *f, enum pass p);
/* Bytes that forward saves for backward. */
int64_t op_saved(const struct call *f);
/* The number of a model's parameters among the inputs; *bytes becomes the memory that they take. */
double op_parameters(const struct call *f, int64_t *bytes);
/* All tensors, gradients and workspace of a call, in bytes on the backend. */
int64_t op_memory(const struct call *f);

/* ---- draw.c: inputs ---- */

/* The choices of a FILL_PARAM, and those of a parameter that is no or yes. */
extern const char *const fill_names[], *const no_yes[];
/* The fill of an input in this case; it means nothing where the contract draws the input. */
enum fill op_fill(const struct call *f, int arg);

/* Inputs: an element depends only on (seed, name, index).  tensors_draw() draws those that have a
 * draw or draw_bytes of their own by that. */
void op_draw(const struct call *f, int arg, enum fill fill, uint64_t seed, double *x);
void op_draw_bytes(const struct call *f, int arg, uint64_t seed, unsigned char *b);
double draw_normal(uint64_t seed, uint64_t i);
double draw_uniform(uint64_t seed, uint64_t i);
uint64_t draw_key(uint64_t seed, const char *name);

#ifdef __cplusplus
}
#endif
#endif
