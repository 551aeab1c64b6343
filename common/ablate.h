/* ablate.h - the library.  Every operation exists twice: as plain C, which is
 * the oracle, and as CUDA.  The library runs both and judges one by the other.
 *
 *     abl_case *c = abl_case_new("e74_cell state=diagonal steps=64");
 *     abl_verdicts *v = c ? abl_judge(c, "gpu32", NULL, ABL_PARITY) : NULL;
 *     if (!v)
 *         puts(abl_error());
 *     else
 *         printf("%d of %d checks failed\n", abl_failed(v), abl_count(v));
 *     abl_verdicts_free(v);
 *     abl_case_free(c);
 *
 * Arrays are dense doubles on the host, and of a tensor of bytes (packed weights) bytes, slowest
 * axis first, as abl_tensor() says; times are in seconds, sizes in elements where nothing else is said.
 * A tensor's gradient has its name with "d_" before it: "x" and "d_x".
 *
 * Errors: a function that returns a pointer returns NULL, one that returns
 * an int returns -1, and abl_error() then says why.  Nothing prints or exits.
 * NULL: a pointer that is NULL is such an error, "abl_run: the case is NULL",
 * in every place but those where the function says what NULL means.  So the
 * object that a failing call did not make can be given to the next call, which
 * fails as well.  abl_draw(), which returns nothing, then draws nothing, and
 * abl_unavailable() returns the sentence.
 * Ownership: the caller frees the objects that abl_..._new(), abl_run() and
 * abl_judge() return, with their abl_..._free(), which accept NULL.  They do
 * not depend on each other, so a case may be freed before its results.
 * Strings belong to the library and stay valid, except those of abl_error()
 * and of a case.
 * Threads: any number.  Calls that draw, run, judge, or read or write files wait for each other; an
 * object is used by one thread at a time.
 * fork(): it waits for such a call of another thread.  A child of a process that has made a case
 * may use the library, and has the same results.  It uses one thread, since it lacks the other
 * threads of OpenMP: do not raise their number there.  A GPU that its parent has used is
 * unavailable to it, as abl_unavailable() says; a program started by exec has neither limit. */
#ifndef ABLATE_H
#define ABLATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The reason why the last call in this thread failed: one sentence, valid
 * until the next failure. */
const char *abl_error(void);
const char *abl_version(void);
/* From now on calls of this thread that run, judge, draw, or read or write files fail with
 * "interrupted" once *stop is not 0.  Another thread or a signal handler may set it, and it must stay
 * until it is replaced.  Such a call ends after the pass that runs, and the library and the objects can
 * be used as before when *stop is 0 again.  NULL: none does, as in the beginning. */
void abl_stop_when(const volatile int *stop);

/* ---- operations, parameters, tensors, backends ---- */

/* Where a name of an operation is asked for, "program=lm.model" is the program of calls in that file, whose
 * parameters are its sizes; words begin so, too. */

/* The name of operation i, counted from 0; NULL after the last. */
const char *abl_op(int i);
/* The formula of an operation, in one line; NULL: no such operation. */
const char *abl_formula(const char *op);

/* Where its mathematics is written down; NULL: no such operation. */
const char *abl_source(const char *op);

/* A parameter: a whole number from min to max, one of the choices, or a real
 * number.  `initial` is its default; for a choice it is the index. */
struct abl_param {
    const char *name, *help;
    const char *const *choices; /* NULL at the end; NULL for a number */
    int64_t initial, min, max;  /* a seed takes more than max in words: up to 2^64 - 1 */
    int real;                   /* 1: its default and range are these, and those above 0 */
    double real_initial, real_min, real_max;
};
/* Parameter i of the operation, counted from 0.  Returns 1 after the last, -1 if there is no such
 * operation. */
int abl_param(const char *op, int i, struct abl_param *to);

enum abl_role {
    ABL_INPUT,
    ABL_OUTPUT,
    ABL_SAVED /* written by forward so that backward can read it */
};
enum { ABL_MAX_RANK = 6 };

/* In which a call's tensors are stored. */
enum abl_dtype { ABL_NO_DTYPE, ABL_FP64, ABL_FP32, ABL_BF16, ABL_FP16, ABL_INT64, ABL_UINT8 };
/* The name of a type, counted from 0: "" of ABL_NO_DTYPE, "fp64" of ABL_FP64; NULL after the last. */
const char *abl_dtype_name(int i);

struct abl_tensor {
    const char *name;
    enum abl_role role;
    int has_gradient; /* backward writes an input's and reads an output's */
    int rank;
    const char *axis[ABL_MAX_RANK]; /* their names, slowest first */
    int64_t size[ABL_MAX_RANK];
    int64_t count; /* their product */
    int whole;     /* of whole numbers, such as indices */
    int state;     /* an initial state, which is 0 unless it is said to be another */
    int bytes;     /* of bytes, which the functions abl_..._bytes() set and get */
    /* From abl_tensor(), as its dtype's backends store it, and abl_call_tensor(); elsewhere 0. */
    enum abl_dtype dtype, grad_dtype;
    int in_backward; /* backward reads it; from abl_call_tensor() alone */
    /* An input of one element that the settings say (adamw's rate is lr): it may be left out. */
    int settled;
    const char *
        overwrites; /* of an output: the input in whose memory abl_call_run() may write it, or NULL */
};
/* Tensor i, counted from 0, of all that the operation may have.  Sizes and
 * count are 0; axes are those of the default parameters.  Returns 1 after the
 * last, -1 if there is no such operation. */
int abl_op_tensor(const char *op, int i, struct abl_tensor *to);

/* The name of backend i, counted from 0; NULL after the last.  ref64 is the
 * oracle; ref32 and ref_bf16 are the same C in float, and in float with bf16
 * storage; gpu32 and gpu_bf16 exist if the library was built with CUDA. */
const char *abl_backend(int i);
/* The type in which a backend stores tensors, "bf16", and the machine that it runs on, "cpu" or
 * "cuda".  NULL: no such backend. */
const char *abl_backend_dtype(const char *backend);
const char *abl_backend_machine(const char *backend);
/* NULL if the backend can run now, else the reason why not: no such backend,
 * no device, or an earlier error of the device in this process. */
const char *abl_unavailable(const char *backend);
/* Selects the device of gpu32 and gpu_bf16 (either name sets both), counted from
 * 0 among those in CUDA_VISIBLE_DEVICES; default 0.  Call it before any other
 * use of these backends.  Returns 0, or -1. */
int abl_use(const char *backend, int number);
/* The name of the device of a backend; NULL: no such backend. */
const char *abl_device(const char *backend);
/* The name of the operation's kernel i on a backend, the preferred one first;
 * NULL after the last, or if there is no such operation or backend. */
const char *abl_kernel(const char *op, const char *backend, int i);
/* The idea of that kernel, in one line; NULL as abl_kernel(). */
const char *abl_kernel_idea(const char *op, const char *backend, int i);

/* ---- a case: an operation, its sizes, its inputs ---- */

typedef struct abl_case abl_case;

/* A case from the words of `run-ablation -t`: the operation, then key=value:
 * parameters, dtype=fp32 or bf16 (storage), seed, input, file, group.  Keys
 * that are not given have their defaults.  Inputs and the gradients of outputs
 * are drawn from the seed.  NULL: a word is wrong, or there is no memory.
 * dtype=fp64, which run-ablation does not know, rounds nothing; such a case runs
 * on ref64 alone. */
abl_case *abl_case_new(const char *words);
/* Tensor i of the case that these words would make, which takes no memory for
 * tensors; returns 1 after the last, -1 if a word is wrong. */
int abl_words_tensor(const char *words, int i, struct abl_tensor *to);
/* The words of the i-th case, from 0, that a seed draws from an operation's contract (NULL: from
 * those of all): sizes around 1, primes, powers of two and their neighbours, any choice, any
 * storage type.  They are small enough to be run by the thousand.  Returns -1 if the operation is
 * not there, or `size` bytes are too few. */
int abl_random(const char *op, uint64_t seed, int64_t i, char *words, int64_t size);

/* The cases by which a function is judged that words name.  Where the words leave the length of an input's
 * axis open ("softmax", "attention mask=causal dtype=bf16") these are the cases of the operation's contract
 * that agree with them and have at most 10^8 FLOP, hard inputs among them, each such size at 2053, then
 * drawn ones, without an end; other parameters are as in the words, or their defaults.  Else they are that size, as its inputs
 * are drawn and in up to two other ways.  Case i has the words' seed plus i.  NULL as abl_case_new(). */
typedef struct abl_campaign abl_campaign;
abl_campaign *abl_campaign_new(const char *words);
void abl_campaign_free(abl_campaign *campaign);
/* How many of its cases are not drawn; and whether the words leave a size open: 1, or 0. */
int64_t abl_campaign_listed(const abl_campaign *campaign);
int abl_campaign_is_open(const abl_campaign *campaign);
/* The words of case i, from 0; the string is the campaign's, until it is asked again.  NULL after an
 * error: the operation refuses all cases that are drawn. */
const char *abl_campaign_words(abl_campaign *campaign, int64_t i);
/* The words of a case that is smaller than that of these words, in the k-th way, from 0, in what the
 * campaign's words leave open.  Returns 1 after the last way, -1 as abl_random(). */
int abl_campaign_smaller(abl_campaign *campaign, const char *words, int k, char *to, int64_t size);

/* A case from a trial in a dump, e.g. "e74.h5", "/trial/0003": its words, its
 * inputs and its output gradients. */
abl_case *abl_case_read(const char *file, const char *group);
void abl_case_free(abl_case *c);
/* The words from which abl_case_new() makes this case again, except inputs that
 * were set.  The string is freed with the case. */
const char *abl_text(const abl_case *c);
/* Tensor i of those that this case has; returns 1 after the last. */
int abl_tensor(const abl_case *c, int i, struct abl_tensor *to);

/* Draws every input and output gradient from the distribution that the
 * contract names; and of a case with accumulate=yes the initial gradients,
 * which are 0 before.  An element depends only on the seed, the name of the tensor
 * and its index.  With `nonzero_state`, initial states are drawn, too; else
 * they are 0. */
void abl_draw(abl_case *c, uint64_t seed, int nonzero_state);
/* Sets or gets the n elements of an input, or of the gradient of an output
 * ("d_out").  A run rounds them to the case's storage type.  Returns -1, and
 * sets nothing, if there is no such tensor, it is not an input, n is not its
 * size, or a value is not allowed there: whole numbers have no fraction and are
 * at most 2^53, indices are in the range that the message names, and a finite
 * value may not be infinite in the storage type (1e39 in fp32); inf and NaN are
 * allowed. */
int abl_set(abl_case *c, const char *name, const double *values, int64_t n);
int abl_get(const abl_case *c, const char *name, double *values, int64_t n);
/* The same of an input of bytes, which are never rounded.  A value that is not allowed there is one
 * that the operation refuses. */
int abl_set_bytes(abl_case *c, const char *name, const unsigned char *values, int64_t n);
int abl_get_bytes(const abl_case *c, const char *name, unsigned char *values, int64_t n);

/* ---- a result: outputs, saved tensors and gradients of inputs ---- */

typedef struct abl_result abl_result;

/* Runs forward and backward on a backend, with the kernel of this name, or, if
 * it is NULL, with the first kernel that accepts the case.  After one run that
 * is not timed, `repeats` runs are timed; 0: one run, without times.  Returns
 * NULL if the backend cannot run here or does not store the case's dtype, if
 * the kernel declines the case or fails, or if there is not enough memory. */
abl_result *abl_run(const abl_case *c, const char *backend, const char *kernel, int repeats);
/* The same without backward: the result has outputs and saved tensors alone. */
abl_result *abl_forward(const abl_case *c, const char *backend, const char *kernel, int repeats);
/* An empty result for tensors that another program computed; `name` is that
 * program's, for example "torch". */
abl_result *abl_result_new(const abl_case *c, const char *name);
void abl_result_free(abl_result *r);
/* Sets or gets the n elements of "out", "S_T", "d_x" ...  Returns -1 if there
 * is no such result, if n is not its size, or, for get, if it was not set, or,
 * for set, if a finite value is infinite in the type that stores the result. */
int abl_result_set(abl_result *r, const char *name, const double *values, int64_t n);
int abl_result_get(const abl_result *r, const char *name, double *values, int64_t n);
/* What the program of an abl_result_new() rounds on the way, or gives in a coarser type than the
 * contract has, NAME:TYPE and blanks: "P:bf16 d_w:bf16".  NAME is a site of the operation
 * (`run-ablation --list OP`), or a result; TYPE is fp32, bf16 or fp16.  The judgement allows for it,
 * and its verdicts' `kernel` says so.  It replaces what was said before; "" says nothing.
 * Returns -1 if there is no such site, result or type, or if the contract has the result in a type as
 * coarse. */
int abl_result_rounds(abl_result *r, const char *words);
/* The same of a result of bytes, which may be any. */
int abl_result_set_bytes(abl_result *r, const char *name, const unsigned char *values, int64_t n);
int abl_result_get_bytes(const abl_result *r, const char *name, unsigned char *values, int64_t n);

enum abl_pass { ABL_FORWARD, ABL_BACKWARD };
struct abl_time {
    double median, min, max; /* seconds */
    double flops, bytes;     /* of the pass: operations, and the minimum memory traffic */
};
/* The times of a pass.  Returns -1 if it was not timed. */
int abl_time(const abl_result *r, enum abl_pass pass, struct abl_time *to);
/* The maximum bytes in use on the backend; 0 for a result of another program,
 * -1 after an error. */
int64_t abl_peak(const abl_result *r);

/* ---- judgement ---- */

typedef struct abl_verdicts abl_verdicts;

enum {
    ABL_PARITY = 1,     /* every result against the oracle's */
    ABL_PROPERTIES = 2, /* all written, within bounds, repeatable, causal, ... */
    ABL_DIFFERENCES = 4 /* the oracle's gradients against central differences */
};

/* One check of one tensor, by six measures of e = a - b, b the correct values: of all elements
 *
 *     "max"         max |e| / max |b|
 *     "rms"         (sum e^2 / sum b^2)^1/2
 *     "gain"        |sum e b| / sum b^2
 *     "offset"      |mean e| / (mean b^2)^1/2
 *
 * and of each row of the last axis and each index of an axis, as fractions of its root mean square,
 * "slice", its rms, and "slice gain".  Each has a bound, from the errors of the plain C with the
 * same storage type, and of the oracle where what is rounded is off by a rounding: 4 times the
 * largest, and at least 2 units of the result's type for max, 1 for rms and slices, and 1/4 for the
 * others.  The verdict has the measure that is the largest part of its bound.  A bound of 0 requires
 * equal bits. */
struct abl_verdict {
    const char *check, *backend, *kernel;
    char tensor[32];
    double error;   /* infinite where a NaN or an infinity is on one side alone; of bytes the share
                        * of those that differ */
    double norm;    /* |a - b| / |b|, Euclidean; of bytes the same as error */
    double bound;   /* passes if error <= bound */
    char worst[64]; /* index of the worst element, "[3,0,17]", or the slice, "[3,:,:]"; of bytes the
                        * first that differs */
    int64_t first_bad;      /* first time step over the bound; -1: none, or no time axis */
    int pass;               /* 0: it failed */
    int unjudged;           /* it did not fail, but its bounds are too coarse to judge it */
    const char *distance;   /* the measure; "" where bits were compared */
    int64_t slices, coarse; /* how many slices the result has; those whose bounds are too coarse */
    /* The smallest errors that would have failed: of all elements alike and of one row of the last axis,
     * as fractions of each element, and of one element, as a fraction of the largest; the last two in
     * the median row.  0: any bit; NaN: not known, or there is none. */
    double sees, sees_row, sees_element;
};

/* Runs the case on the backend (see abl_run()), on the oracle and on the plain
 * C with the case's storage type, and judges the backend.  `checks` is a sum of
 * ABL_PARITY, ABL_PROPERTIES and ABL_DIFFERENCES, which checks each gradient in
 * 2 random directions. */
abl_verdicts *abl_judge(const abl_case *c, const char *backend, const char *kernel, int checks);
/* Judges the tensors that were set in a result: parity with the oracle.  The case keeps what the
 * oracle and the plain C computed, until its inputs change, so that further results of it cost
 * little more than their comparison. */
abl_verdicts *abl_judge_result(abl_case *c, const abl_result *r);
/* Would these n values of a result pass, by the bounds that are known so far: 1, or 0.  For null
 * answers, by which a case shows what it can see; -1 as abl_result_set() does. */
int abl_would_pass(abl_case *c, const char *name, const double *values, int64_t n);
/* What would pass as `results` of the case, "y d_x", blanks between them (NULL: all outputs and
 * gradients): changes of it that none of them shows by the bounds that they are judged by, where
 * `as` is given with what that result declares (abl_result_rounds()), a line each, such as "eps = 0", "S0 drawn anew", "x = 0 at the last
 * of steps", or a wrong kernel of those that ablate has, "the variance is E x^2 - (E x)^2"; "" where
 * nothing would.  It takes some 100 passes of the oracle, however long these are; results of the case are then judged by as many
 * samples as a result that fails, and what their verdicts see is exact.  The text is the case's own,
 * until its inputs change or it is asked again.  NULL after an error. */
const char *abl_passing(abl_case *c, const char *results, const abl_result *as);
/* Of what abl_passing() asked last, what was refused, a line each, or with `hidden` what would pass since it
 * changes no bit of these results, as a scale that is left out where it is 1; the text is the case's own,
 * as that is.  NULL: it was not asked. */
const char *abl_refused(const abl_case *c, int hidden);
/* max |a - b| / max |b| of n values a and b, those that are wanted; NaN after an error. */
double abl_distance(const double *values, const double *wanted, int64_t n);
/* Gets the n elements of the result that the oracle has for the case: "out", "d_x".  It, too, is
 * computed once.  Returns -1 as abl_result_get() does. */
int abl_expected(abl_case *c, const char *name, double *values, int64_t n);
int abl_expected_bytes(abl_case *c, const char *name, unsigned char *values, int64_t n);
void abl_verdicts_free(abl_verdicts *v);
/* The number of verdicts, and of those that failed. */
int abl_count(const abl_verdicts *v);
int abl_failed(const abl_verdicts *v);
/* The number of checks that cannot be judged: they did not fail, but their bounds are too
 * coarse. */
int abl_unjudged(const abl_verdicts *v);
/* Verdict i, counted from 0; returns 1 after the last.  Its `backend` is valid as long as v. */
int abl_verdict(const abl_verdicts *v, int i, struct abl_verdict *to);

/* ---- calls on the caller's own tensors ---- */

typedef struct abl_call abl_call;

/* A call of an operation on tensors that the caller has on device `device` of a backend: the words
 * as for abl_case_new(), of which the sizes, the choices and accumulate count, and dtype, if it is
 * there, must be the backend's; kernel as for abl_run().  On ref64, ref32 and ref_bf16 the tensors
 * are any memory of the process, the device is 0, and a pass is done when it returns.  What is slow
 * happens here: no pass allocates, compiles or tunes.  Other than the library's other objects, one
 * call may be used by any number of threads at the same time, and those on a GPU do not wait for
 * each other.  NULL as abl_run(), or if there is no such device. */
abl_call *abl_call_new(const char *words, const char *backend, int device, const char *kernel);
/* Of a GPU call: not before the passes that it began are done. */
void abl_call_free(abl_call *call);
/* Its words, all of them; and the name of its kernel.  They are freed with it. */
const char *abl_call_text(const abl_call *call);
const char *abl_call_kernel(const abl_call *call);
/* Tensor i of those that it has, with the types in which it and its gradient are stored; returns 1
 * after the last. */
int abl_call_tensor(const abl_call *call, int i, struct abl_tensor *to);
/* The bytes of workspace that a pass needs; 0: none. */
int64_t abl_call_workspace(const abl_call *call, enum abl_pass pass);
/* Runs a pass.  tensors[i] and gradients[i] belong to tensor i of abl_call_tensor(): dense, slowest
 * axis first, in its types, at multiples of 16 bytes.  Forward reads the inputs and writes the
 * outputs and saved tensors; `gradients` may be NULL.  Backward reads the gradients of the outputs
 * and the tensors that are in_backward, and writes the gradients of the inputs, or with
 * accumulate=yes adds to them; what it does not read may be NULL, and so may what is settled.  The workspace, of `bytes` bytes
 * at a multiple of 256, holds nothing from one pass to the next; what it contains does not matter.
 *
 * On a GPU the pass is put on `stream`, a cudaStream_t (NULL: the default stream), and the function
 * returns; a stream that captures a graph records it.  What the caller put on another stream, such as
 * a cudaMemcpy(), the caller waits for.  It allocates nothing and waits for nothing.
 * The thread's device stays as it is.
 *
 * Returns -1, and nothing has run, if a tensor is missing or misaligned, is memory of the host or of
 * another device, or is written and overlaps another one (but for an output that lies where the input
 * does that it `overwrites`, of its type); if the workspace is missing, too small or
 * misaligned; if the stream is another device's; or if the operation has no backward pass.  -1 as
 * well if the kernel cannot be started. */
int abl_call_run(const abl_call *call, enum abl_pass pass, void *const *tensors,
                 void *const *gradients, void *workspace, int64_t bytes, void *stream);
/* Waits until all that was put on the stream is done, if the call is on a GPU.  Returns -1 if
 * something on it failed. */
int abl_call_wait(const abl_call *call, void *stream);
/* The same as abl_call_run() for a binding, with one argument that it packs: this, then the pointers
 * of the tensors, then those of the gradients, as above.  What a binding knows is not checked again:
 * that nothing overlaps, and that all is on the call's device. */
struct abl_block {
    int64_t pass;
    void *stream, *workspace;
    int64_t bytes;
};
int abl_call_run_trusted(const abl_call *call, const struct abl_block *block);

/* ---- dumps, in run-ablation's HDF5 layout ---- */

/* Writes the case as /trial/0001 of a new file, with n results, each in a group
 * with the name of its backend or program (the list may be NULL if n is 0), and
 * the verdicts (NULL: none).  An existing dump is replaced.  Returns -1 if the
 * file is called "-", or exists and is no dump, or if inputs of the case were read from it, by
 * whatever name, or if a file called FILE.part holds results that a run of
 * run-ablation has not completed.  A write that fails leaves the existing dump as
 * it was, and no other file. */
int abl_write(const char *file, const abl_case *c, const abl_result *const *results, int n,
              const abl_verdicts *v);
/* Sets the inputs and output gradients that a trial's group has, by name.
 * Returns -1 if none is there, or if one cannot be read, has another shape, or
 * has a value that abl_set() refuses; those before it in the group are then set. */
int abl_read(abl_case *c, const char *file, const char *group);
/* Reads the results of one backend or program, and its attribute `rounds`, if it has one, as
 * abl_result_rounds() takes it: "/trial/0003/torch".  Returns -1
 * as abl_read() does; a value that abl_result_set() refuses is an error. */
int abl_result_read(abl_result *r, const char *file, const char *group);

/* ---- what is in a dump: groups, attributes, tensors, tables ---- */

typedef struct abl_dump abl_dump;

/* Opens a dump for reading; NULL if the file cannot be read or is no dump.  Paths in it are those
 * of doc/dump.md: "/trial/0003/in/x". */
abl_dump *abl_dump_open(const char *file);
void abl_dump_free(abl_dump *d);

enum abl_kind { ABL_GROUP, ABL_DATASET, ABL_TABLE };
struct abl_member {
    char name[128];
    enum abl_kind kind;
    int rank; /* of a dataset */
    int64_t size[ABL_MAX_RANK];
    char axis[ABL_MAX_RANK][64]; /* "" for one without a name */
    int64_t count;               /* a dataset's elements, a table's rows */
    int columns;                 /* a table's */
};
/* Member i of a group, counted from 0, in the file's order; axes that other datasets have as their
 * dimensions are not among them.  Returns 1 after the last, -1 if there is no such group. */
int abl_dump_member(const abl_dump *d, const char *group, int i, struct abl_member *to);

/* What an attribute or a cell of a table holds: a text, a whole number, a real number; or, of an
 * attribute, a whole number above 2^63 - 1, such as a seed, whose bits are in `whole`. */
enum abl_type { ABL_TEXT, ABL_WHOLE, ABL_REAL, ABL_LARGE };
/* Attribute i of a group or dataset, by the names' order.  A whole number is in `whole`, and it or
 * a real number in `real`; a text, which is longer or not, is as much of it as `size` bytes take.
 * Returns the length of the text (0 for a number), -2 after the last, -1 after an error. */
struct abl_attribute {
    char name[128];
    enum abl_type type;
    int64_t whole;
    double real;
};
int64_t abl_dump_attribute(const abl_dump *d, const char *path, int i, struct abl_attribute *to,
                           char *text, int64_t size);
/* Reads the n elements of a dataset.  Returns -1 if it is not there, is not of numbers, or n is not
 * its size. */
int abl_dump_read(const abl_dump *d, const char *dataset, double *values, int64_t n);
/* Reads a table, as texts that each end with a zero byte, one after the other, as many bytes as
 * `size` takes: the number of its columns; for each the letter of its type and its name, "sbackend"
 * (s: text, i: whole, d: real); then the cells, row by row, numbers in as many decimal digits as
 * make them again, or nan, inf.  Returns the bytes that all of them take, or -1: it is no table. */
int64_t abl_dump_table(const abl_dump *d, const char *table, char *text, int64_t size);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
