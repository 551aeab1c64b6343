/* op.h - operations, backends and kernels.
 *
 * An operation (struct op) is a contract: its parameters, its tensors and
 * their shapes, its cost, and the properties that must hold.  A backend
 * (struct backend) executes operations: it has memory for tensors and a list
 * of kernels (struct impl) for each operation.  The four files of an operation
 * contain all that is specific to it.  Therefore drawing inputs, running,
 * judging, timing, storing and the ini keys are each written once, as loops
 * over the contract.
 */
#ifndef OP_H
#define OP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/types.h"
#include "common/call/sites.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call holds its arrays by value, so that layers copy it on the stack.  SIGNATURE() refuses a
 * contract that has more parameters or tensors; op_complete() a case whose text is longer. */
enum { MAX_PARAMS = 64, MAX_ARGS = 64, MAX_RANK = 6, MAX_TEXT = 2048 };

enum pass { FORWARD, BACKWARD, N_PASSES };
extern const char *const pass_names[N_PASSES];

struct call;

/* The range of a parameter that is a real number. */
struct real_range {
    double initial, min, max;
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
    /* Of a choice: no result depends on it, but on how inputs are drawn, or in what type something is
     * kept on the way. */
    int aside;
    int draw; /* of such a choice: it says how inputs are drawn */
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
            initial_, min_, max_                                                                   \
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
    const char *fill_choice; /* the parameter, a FILL_PARAM, that chooses its fill */
    const char *continues;   /* of a final state: the initial state it hands over to */
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
};

struct op;
struct impl;
struct backend;
struct context;

/* One call, all of it: the operation; the backend, the kernel and the context that run it; sizes by
 * letter, choices and real numbers by the index of the parameter; then, in the order of the
 * operation's argument struct, the type of each tensor and of its gradient, the tensors and their
 * gradients, NULL where one is absent.  op_defaults() and op_set() fill the sizes and choices,
 * call_on() what depends on the backend, and run_op() places the tensors. */
struct call {
    const struct op *op;
    const struct backend *backend; /* NULL: sizes alone, for no backend */
    const struct impl *kernel;
    struct context *context;
    int64_t dim[26];
    int choice[MAX_PARAMS];
    double real[MAX_PARAMS];
    unsigned char type[MAX_ARGS], grad_type[MAX_ARGS]; /* enum dtype */
    void *arg[MAX_ARGS];
    void *grad[MAX_ARGS];
    void *work;
    /* Bit i: backward adds the gradient of argument i to grad[i], and does not overwrite it. */
    uint64_t accumulate;
};

/* Lays out a workspace, part after part.  Without memory (`at` is NULL) it counts the bytes alone:
 * one function says where the parts are and how large the workspace must be. */
struct work_arena {
    char *at;
    size_t bytes;
};

/* A part, on a multiple of 256 bytes, as memory of its own would be; NULL where it has no bytes, or
 * there is no memory. */
static inline void *work_take(struct work_arena *a, size_t bytes)
{
    char *part = a->at && bytes ? a->at + a->bytes : NULL;
    a->bytes += (bytes + 255) / 256 * 256;
    return part;
}

/* What follows all parts, for a call within this one. */
static inline void *work_rest(const struct work_arena *a)
{
    return a->at ? a->at + a->bytes : NULL;
}

#define DIM(f, letter) ((f)->dim[(letter) - 'A'])
#define ARGS(f, op) ((const struct op *)(const void *)(f)->arg)
#define GRADS(f, op) ((const struct op *)(const void *)(f)->grad)

/* For contract files: ARG(diag_delta, k, "BTN", IN | DIFF, UNIT) describes
 * the member k of struct diag_delta, at that member's place. */
#define ARG(op, member, ...) [PLACE(op, member)] = {.name = #member, .shape = __VA_ARGS__}
#define PLACE(op, member) (offsetof(struct op, member) / sizeof(void *))
#define N_ARGS(op) (sizeof(struct op) / sizeof(void *))
#define COUNT(array) (sizeof(array) / sizeof *(array))
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

/* Defines the function `name`, what an expression says of the call f. */
#define OF_CALL(type, name, expression)                                                            \
    static type name(const struct call *f)                                                         \
    {                                                                                              \
        return expression;                                                                         \
    }

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

/* The cost of a pass in a case, counted by hand; flops 0: not counted. */
struct cost {
    const char *settings;
    enum pass pass;
    double flops, products, specials;
    struct chain chain;
};

/* One row x with NaN, infinities or ties, the target, if there is one, the name of a result, and
 * its correct values.  The gradient of the first output is 1, 2, 3, 4; the gradients of others
 * are 0. */
enum { KNOWN_ROW = 4 };
#define KNOWN_ALL(x)                                                                               \
    {                                                                                              \
        x, x, x, x                                                                                 \
    }
struct known {
    const char *settings; /* beside rows=1 */
    double x[KNOWN_ROW];
    int target;
    const char *result;
    double want[KNOWN_ROW];
};

struct op {
    const char *name;
    const char *formula;
    const char *source; /* where the mathematics is written down */
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
    int blas; /* the bits of a row of a matrix product may depend on its index */
    /* NULL, or what a composition of operators stores on the way, "z dz", which a kernel may store in
     * the storage type: noise has a bit for each (sites.h), and the reference says where. */
    const char *sites;
    const char
        *declared; /* the same of what counts only where a kernel declares it: bits behind those */
};

/* The value of a member that an initialiser leaves out, for C++ compilers that warn of that. */
#ifdef __cplusplus
#define OR_NONE = {}
#else
#define OR_NONE
#endif

/* One kernel of an operation on one backend.  A pass returns 0, or an error
 * code for the backend's strerror. */
struct impl {
    const char *name;
    const char *idea; /* one line, for --list */
    int (*pass[N_PASSES])(const struct call *f);
    size_t (*work)(const struct call *f, enum pass p) OR_NONE; /* bytes, or NULL: none */
    const char *(*declines)(const struct call *f)OR_NONE;      /* NULL, or why not this case */
    /* The approximate instructions that it uses, and their relative error; or NULL, 0. */
    const char *approximates OR_NONE;
    double unit OR_NONE;
    /* The steps of a chunk that it computes together; 0: step by step.  Sequences that are split
     * within a chunk then agree with the whole within their bounds, not bit by bit. */
    int64_t chunk OR_NONE;
    /* NULL, or of a kernel that runs others: the call of that one whose approximations and unit it
     * has. */
    struct call (*link)(const struct call *f) OR_NONE;
    const void *data OR_NONE; /* the kernel's own */
    /* Backward itself adds to the gradients that call.accumulate names; else call_pass() does. */
    int accumulates OR_NONE;
    /* Its passes use cuBLAS, or may: a call on the caller's memory has a workspace for that. */
    int products OR_NONE;
    /* Where the contract says `blas`: the bits of a row still do not depend on its index, nor on the
     * other rows. */
    int rows_alone OR_NONE;
    /* NULL, or rounds the values of an input as the kernel does before it computes: `approximates`
     * says how in words.  Its bounds then allow for what that alone changes in this case. */
    void (*rounds)(const struct call *f, int arg, double *x) OR_NONE;
    /* NULL, or the measured rule: is a kernel behind it in the list faster in this call?  Then it is the
     * default only where those decline. */
    int (*yields)(const struct call *f) OR_NONE;
    /* NULL, or those of the contract's sites that it stores in the storage type where a result is of
     * float, too: "dz".  Those of results in the storage type need not be named. */
    const char *stores OR_NONE;
    /* Of sums of products on tensor cores, which cut off what they add: the part of a sum that is lost
     * for each term, at most.  It shows in results of float. */
    double cut OR_NONE;
    double stored_unit OR_NONE; /* of the type in which it `stores`; 0: the storage type */
    /* NULL; or of a wrong kernel the storage type in which no case can show it, and why: "bf16: eps is
     * less than a rounding of the mean square". */
    const char *unseen OR_NONE;
};

/* The kernels of an operation on a backend: they end with NULL.  The default is the first that does
 * not decline, without those that yield; or, if there is none, the first of these.  A reference has
 * wrong kernels besides, what a judge must see: nothing else ever runs them. */
struct kernels {
    const struct op *op;
    const struct impl *const *impl;
    const struct impl *const *wrong OR_NONE; /* the same, or NULL: none */
};

/* The rates and latencies of a machine, measured on it. */
struct ceilings {
    double memory;                  /* bytes per second, read and written, of a copy */
    double tensor;                  /* FLOP/s of a bf16 matrix product */
    double fp32;                    /* FLOP/s of independent multiply-adds */
    double special;                 /* evaluations per second of independent tanh */
    double flop_time, special_time; /* latency in seconds of one in a dependency chain */
    double launch;                  /* seconds per launch in a sequence of launches */
    double clock;                   /* Hz, during the measurement */
};

/* The launches of a pass, and the one of them that has the most threads: its grid, and what it takes
 * of an SM.  n is 0 where nothing is known, registers -1 where nothing of that one is. */
struct launches {
    int64_t n, blocks, threads; /* threads per block */
    int registers;              /* per thread */
    int spills;                 /* bytes of local memory per thread: spilled registers, arrays */
    int smem;                   /* bytes of shared memory per block */
    int blocks_per_sm;          /* that fit */
    int sms, threads_per_sm;    /* of the device: its SMs, and the threads that one can hold */
};

/* What a backend keeps between calls on one device: streams, handles, memory.  There may be any
 * number, several on one device; a context is used by one host thread at a time. */
struct context;

struct backend {
    const char *name;
    enum dtype type, wide; /* in which it stores tensors; and those that the contract calls wide */
    const char *(*unavailable)(void); /* NULL, or why it cannot run in this process */
    /* A context on device number `device`, from 0; NULL after err_set().  Backends that have the
     * same functions take each other's.  The first three are NULL where there is nothing to keep. */
    struct context *(*open)(int device);
    void (*close)(struct context *x);
    void (*enter)(struct context *x);       /* it is the calling thread's from now on */
    const char *(*lost)(struct context *x); /* NULL, or why it can no longer be used; or is NULL */
    const char *(*device)(struct context *x);         /* the name of its device */
    int64_t (*memory)(struct context *x);             /* bytes free for tensors */
    int (*reserve)(struct context *x, int64_t bytes); /* allocate them now, for alloc(); or NULL */
    void *(*alloc)(struct context *x, size_t bytes);
    void (*free)(struct context *x, void *p);
    int (*put)(struct context *x, void *there, const void *here, size_t bytes);
    int (*get)(struct context *x, void *here, const void *there, size_t bytes);
    int (*fill)(struct context *x, void *there, int byte, size_t bytes);
    /* to = a + b, n elements of a type in which the backend stores tensors or gradients */
    int (*add)(const struct call *f, enum dtype type, void *to, const void *a, const void *b,
               int64_t n);
    /* Begin timing, caches as stated; wait until all is done.  NULL: a pass is done when it
     * returns, and is timed by the clock of the host. */
    int (*start)(struct context *x);
    int (*stop)(struct context *x, double *seconds);
    /* Records the launches of a pass that has run before (on a GPU as a CUDA graph), without
     * running them.  replay() starts them all at once, so that the time has no gaps between
     * launches.  If all three are NULL, a pass is timed without a recording. */
    int (*record)(const struct call *f, enum pass p, void **recorded);
    int (*replay)(struct context *x, void *recorded);
    void (*forget)(void *recorded);
    struct launches (*launches)(const void *recorded); /* or is NULL */
    const char *method; /* how times are measured, in words: the state of caches, and the replay */
    double warm_up;     /* seconds of runs before the timed ones, in which the clock rises */
    const char *(*strerror)(int code);
    const struct kernels *kernels; /* of each operation that it has; ends with a NULL operation */
    int (*probe)(struct context *x, struct ceilings *to); /* measure them now; or is NULL */
    /* A reference's passes have this noise from now on (sites.h), if the calling thread starts them; of
     * those in float only the order counts.  NULL: it cannot have any. */
    void (*disturb)(struct noise noise);
    const char *was; /* its name in older files, which are still read; or NULL */
    /* Calls on memory of the caller (ablate_call.c).  NULL, all: that is any memory of the
     * process, there are no streams, and a pass is done when it returns.  lend(): a context for
     * such calls on x's device, of kernels with impl.products or without, which any number of
     * threads may use at once; NULL after err_set().  It is closed like others.  foreign(): NULL, or why it is no memory of that device;
     * foreign_stream() likewise. */
    struct context *(*lend)(struct context *x, int products);
    const char *(*foreign)(const struct context *lent, const void *p);
    const char *(*foreign_stream)(const struct context *lent, void *stream);
    /* A pass of the call, whose context is lent, on that stream of the caller's; `products` is the
     * workspace of impl.products, backend.products bytes. */
    int (*pass_on)(const struct call *f, enum pass p, void *stream, void *products);
    size_t products;
    /* Waits until that stream has done all; an error code. */
    int (*wait_on)(const struct context *lent, void *stream);
};

/* The list of operations, in ops.def's order.  A program may make more: where the functions below
 * take an operation, it need not be one of these. */
enum {
#define OP(name) +1
    N_OPS = 0
#include "common/call/ops.def"
#undef OP
};
extern const struct op *const ops[N_OPS];
#define OP(name) extern const struct op op_##name;
#include "common/call/ops.def"
#undef OP
extern const struct backend ref64, ref32, ref_bf16, gpu32, gpu_bf16;
extern const struct backend *const gpu_backends[]; /* those two; ends with NULL */

/* ---- op.c: the operations, and what a contract says of all its calls ---- */

const struct op *op_find(const char *name);
const struct param *op_param(const struct op *o, const char *name, int *place);
int op_arg(const struct op *o, const char *name);     /* its place, or -1 */
const char *op_axis(const struct op *o, char letter); /* its name */
/* The number of passes: forward, and backward if one of the tensors is differentiable. */
enum pass op_passes(const struct op *o);
/* The axis whose rows are independent in this call, and that along which it is causal; or 0. */
char op_batch(const struct call *f);
char op_time(const struct call *f);
/* A bit for the gradient of each input, as in call.accumulate. */
uint64_t op_gradients(const struct op *o);

/* ---- backend.c, context.c: the backends, and the kernels of an operation ---- */

/* Every backend, oracle first; ends with NULL. */
const struct backend *const *backends(void);
/* By its name, or by the one it had. */
const struct backend *backend_find(const char *name);

/* The context of b that the process itself opened, on device 0 unless backend_use() came first;
 * NULL after err_set(), or where a backend has none. */
struct context *context_of(const struct backend *b);
/* One on that device, the process's own as well; NULL after err_set(). */
struct context *context_on(const struct backend *b, int device);
/* Open the first on that device.  NULL, or why not. */
const char *backend_use(const struct backend *b, int device);
/* NULL, or why b cannot run in this process, or no longer. */
const char *backend_unavailable(const struct backend *b);
/* The name of the device of the process's own context. */
const char *backend_device(const struct backend *b);

/* Is it one of gpu_backends?  NULL is not. */
int is_gpu(const struct backend *b);

/* The reference that stores tensors of type t in that type, or NULL. */
const struct backend *reference_of(enum dtype t);

/* The kernel that declares the approximations and the unit of the call's. */
const struct impl *impl_declares(const struct call *f);
/* A bit for each of these words that is one of the operation's sites, or may be declared; of those that
 * count undeclared. */
unsigned op_stored_sites(const struct op *o);
unsigned op_sites(const struct op *o, const char *words);
/* The chunk of the call's kernel, or of one that it runs, if that is longer. */
int64_t impl_chunk(const struct call *f);
/* Why the call's kernel does not take it; NULL: it does. */
const char *impl_declines(const struct call *f);
/* The call's default on its backend (struct kernels), or the kernel of that name if it takes it.  Where
 * there is none, kernel is NULL, and `last` is the last one that was asked, with its reason, or NULL
 * if there is no such kernel. */
struct chosen {
    const struct impl *kernel, *last;
    const char *why;
};
struct chosen impl_choose(const struct call *f, const char *name);
/* The kernels of the call's backend, the default in this call first, the others as listed; ends with
 * NULL. */
enum { MAX_KERNELS = 32 };
void impl_order(const struct call *f, const struct impl *to[MAX_KERNELS + 1]);
/* The kernels of o on b; the list may be empty. */
const struct impl *const *op_kernels(const struct op *o, const struct backend *b);
/* The wrong ones, which only references have. */
const struct impl *const *op_wrong(const struct op *o, const struct backend *b);
/* Has one of these backends, whose list ends with NULL, a kernel of o of that name?  `known` becomes
 * the names that there are, " mma tiled"; "" where there is none. */
enum { MAX_KNOWN = 512 };
int kernel_known(const struct op *o, const struct backend *const *b, const char *name,
                 char known[MAX_KNOWN]);

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

int op_has(const struct call *f, int arg);
/* Does backward add to the gradient of this input, which is there? */
int call_accumulates(const struct call *f, int arg);
int64_t op_count(const struct call *f, int arg);
/* Is it a tensor of bytes? */
static inline int op_is_bytes(const struct call *f, int arg)
{
    return (f->op->arg[arg].flags & BYTES) != 0;
}
const char *op_shape(const struct call *f, int arg);
/* The type of a tensor, or of its gradient. */
static inline enum dtype call_type(const struct call *f, int arg, int grad)
{
    return (enum dtype)(grad ? f->grad_type : f->type)[arg];
}
/* "x", or "d_x" for its gradient. */
void tensor_name(const struct op *o, int arg, int grad, char name[32]);
/* The argument of that name, or whose gradient it is: "d_x"; -1: neither. */
int tensor_find(const struct op *o, const char *name, int *grad);
/* Set the types of all tensors, as the call's backend and choices say. */
void call_types(struct call *f);
/* The same call on a backend, with its types, in the process's own context unless it is in another
 * of that backend's; the kernel may be NULL.  Nothing is placed. */
struct call call_on(const struct call *f, const struct backend *b, const struct impl *k);
/* Make it a call of another operation with the same sizes and choices, on the same backend, of no
 * kernel as yet; its tensors and gradients are those of o's argument structs, and it adds to
 * none. */
void call_place(struct call *f, const struct op *o, const void *args, const void *grads,
                void *work);

/* ---- pass.c ---- */

/* Bytes of workspace of a pass: the kernel's own, and for the gradients that are added later. */
size_t op_work(const struct call *f, enum pass p);
/* Run a pass of the call's kernel.  Where call.accumulate names gradients and the kernel does not
 * add to them itself, it writes them into the workspace, and they are added when it has ended. */
int call_pass(const struct call *f, enum pass p);

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
