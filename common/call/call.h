/* call.h - one call of an operation, and its kernels: all that a reference or a kernel sees.
 *
 * What an operation is (struct op) stands in contract.h, and where it runs (struct backend) in machine.h;
 * neither is needed to compute one. */
#ifndef CALL_H
#define CALL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call holds its arrays by value, so that layers copy it on the stack.  SIGNATURE() refuses a
 * contract that has more parameters or tensors; op_complete() a case whose text is longer. */
/* Axes have letters: operations that are written by hand, capital ones; those of programs, others, too. */
#define LAST_AXIS '~'
enum { MAX_AXES = LAST_AXIS - 'A' + 1 };
enum { MAX_PARAMS = 64, MAX_ARGS = 256, MAX_RANK = 6, MAX_TEXT = 2048 };

enum pass { FORWARD, BACKWARD, N_PASSES };
extern const char *const pass_names[N_PASSES];

struct op;
struct impl;
struct backend;
struct context;
/* Every operation, by the name of its contract. */
#define OP(name) extern const struct op op_##name;
#include "common/call/ops.def"

/* Some of a call's arguments: a bit each. */
struct arg_set {
    uint64_t bits[MAX_ARGS / 64];
};
static inline int set_has(const struct arg_set *s, int arg)
{
    return (int)(s->bits[arg / 64] >> arg % 64 & 1);
}
static inline void set_add(struct arg_set *s, int arg)
{
    s->bits[arg / 64] |= (uint64_t)1 << arg % 64;
}
static inline void set_remove(struct arg_set *s, int arg)
{
    s->bits[arg / 64] &= ~((uint64_t)1 << arg % 64);
}
static inline int set_any(const struct arg_set *s)
{
    uint64_t any = 0;
    for (int i = 0; i < MAX_ARGS / 64; i++)
        any |= s->bits[i];
    return any != 0;
}

static inline int set_same(const struct arg_set *s, const struct arg_set *t)
{
    uint64_t other = 0;
    for (int i = 0; i < MAX_ARGS / 64; i++)
        other |= s->bits[i] ^ t->bits[i];
    return !other;
}
/* No arguments. */
static inline struct arg_set set_none(void)
{
    const struct arg_set none = {{0}};
    return none;
}

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
    int64_t dim[MAX_AXES];
    int choice[MAX_PARAMS];
    double real[MAX_PARAMS];
    unsigned char type[MAX_ARGS], grad_type[MAX_ARGS]; /* enum dtype */
    void *arg[MAX_ARGS];
    void *grad[MAX_ARGS];
    void *work;
    struct arg_set accumulate; /* backward adds to these gradients, and does not overwrite them */
    int in_place;              /* outputs are in the memory of the inputs that the contract says */
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

/* Defines the function `name`, what an expression says of the call f. */
#define OF_CALL(type, name, expression)                                                            \
    static type name(const struct call *f)                                                         \
    {                                                                                              \
        return expression;                                                                         \
    }

/* The place of a tensor, by its member of the argument struct. */
#define PLACE(op, member) (offsetof(struct op, member) / sizeof(void *))
#define COUNT(array) (sizeof(array) / sizeof *(array))
/* The value of a member that an initialiser leaves out, for C++ compilers that warn of that. */
#ifdef __cplusplus
#define OR_NONE = {}
#else
#define OR_NONE
#endif

/* One kernel of an operation on one machine, for tensors stored in one type.  A pass returns 0, or an
 * error code for the machine's strerror. */
struct impl {
    const char *name;
    enum dtype type;  /* it takes calls on backends of this type */
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
    /* The same of one that runs many: what they declare together, in memory that stays; or NULL. */
    const struct impl *(*declares)(const struct call *f)OR_NONE;
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
    /* Of sums of products on tensor cores, which cut off what they add: the part of the sum until then that is lost
     * at each term.  It shows in results of float. */
    double cut OR_NONE;
    double stored_unit OR_NONE; /* of the type in which it `stores`; 0: the storage type */
    /* NULL; or of a wrong kernel the storage type in which no case can show it, and why: "bf16: eps is
     * less than a rounding of the mean square". */
    const char *unseen OR_NONE;
};

/* The kernels of an operation on a machine, of all types: they end with NULL.  The default of a type is
 * its first that does not decline, without those that yield; or, if there is none, the first of
 * these.  A reference has wrong kernels besides, what a judge must see: nothing else ever runs
 * them. */
struct kernels {
    const struct op *op;
    const struct impl *const *impl;
    const struct impl *const *const *wrong
        OR_NONE; /* such lists, each of one type; or NULL: none */
};

/* ---- tensors.c: the tensors of a call ---- */

int op_has(const struct call *f, int arg);
/* Does backward add to the gradient of this input, which is there? */
int call_accumulates(const struct call *f, int arg);
/* The input in whose memory this output is, if the call is in place; or -1.  And may it be? */
int call_overwrites(const struct call *f, int arg);
int op_overwrites(const struct call *f, int arg);
/* Is this input where an output is to be? */
int call_overwritten(const struct call *f, int arg);
int64_t op_count(const struct call *f, int arg);
const char *op_shape(const struct call *f, int arg);
/* The type of a tensor, or of its gradient. */
static inline enum dtype call_type(const struct call *f, int arg, int grad)
{
    return (enum dtype)(grad ? f->grad_type : f->type)[arg];
}
/* Is the gradient of a tensor wide, by the contract? */
int grad_is_wide(const struct op *o, int arg);
/* Set the types of all tensors, as the call's backend and choices say. */
void call_types(struct call *f);
/* The same call on a backend, with its types, by a kernel or NULL, in a context of the backend's machine, or
 * NULL where that has none, as the references'.  Nothing is placed, and it is not in place. */
struct call call_on(const struct call *f, const struct backend *b, const struct impl *k,
                    struct context *x);
/* Make it a call of another operation with the same sizes and choices, on the same backend, of no
 * kernel as yet; its tensors and gradients are those of o's argument structs, and it adds to
 * none. */
void call_as(struct call *f, const struct op *o, const void *args, const void *grads, void *work);

/* ---- backend.c: the kernels of an operation ---- */

/* The kernel that declares the approximations and the unit of the call's. */
const struct impl *impl_declares(const struct call *f);
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
/* The i-th kernel of o on b, from 0: of those of b's machine that have b's type; NULL behind the
 * last. */
const struct impl *op_kernel(const struct op *o, const struct backend *b, int i);
/* The same of the wrong ones, which only references have. */
const struct impl *op_wrong(const struct op *o, const struct backend *b, int i);

/* ---- pass.c ---- */

/* Bytes of workspace of a pass: the kernel's own, and for the gradients that are added later. */
size_t op_work(const struct call *f, enum pass p);
/* Run a pass of the call's kernel.  Where call.accumulate names gradients and the kernel does not
 * add to them itself, it writes them into the workspace, and they are added when it has ended. */
int call_pass(const struct call *f, enum pass p);

#ifdef __cplusplus
}
#endif
#endif
