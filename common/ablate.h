/* ablate.h - the library: operations that exist twice, as plain C that is
 * right and as CUDA that is fast, and the judgement of one by the other.
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
 * Arrays are dense doubles on the host, slowest axis first, as abl_tensor()
 * says; times are in seconds, sizes in elements where nothing else is said.
 * A tensor's gradient has its name with "d_" before it: "x" and "d_x".
 *
 * Errors: a function that returns a pointer returns NULL, one that returns
 * an int -1, and abl_error() then says why.  Nothing prints or exits.
 * Ownership: what abl_..._new(), abl_run() and abl_judge() return is the
 * caller's, to be given to its abl_..._free() (which take NULL, too); it
 * stands alone, so the case that it came from may be freed first.  Texts are
 * the library's and stay, but for abl_error()'s and a case's.
 * Threads: one call at a time. */
#ifndef ABLATE_H
#define ABLATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the last call in this thread failed: one sentence, good until the next
 * failure. */
const char *abl_error(void);
const char *abl_version(void);

/* ---- what there is ---- */

/* The name of operation i, from 0; NULL past the last. */
const char *abl_op(int i);
/* Its formula, in one line; NULL: no such operation. */
const char *abl_formula(const char *op);

/* A parameter: a whole number from min to max, one of the choices, or a real
 * number.  `initial` is its default, of a choice the index. */
struct abl_param {
    const char *name, *help;
    const char *const *choices; /* NULL at the end; NULL for a number */
    int64_t initial, min, max;
    int real; /* 1: its default and range are these, and those above 0 */
    double real_initial, real_min, real_max;
};
/* Parameter i of the operation, from 0.  1: past the last; -1: no such operation. */
int abl_param(const char *op, int i, struct abl_param *to);

enum abl_role {
    ABL_INPUT,
    ABL_OUTPUT,
    ABL_SAVED /* written by forward so that backward can read it */
};
enum { ABL_MAX_RANK = 6 };

struct abl_tensor {
    const char *name;
    enum abl_role role;
    int has_gradient; /* backward writes an input's and reads an output's */
    int rank;
    const char *axis[ABL_MAX_RANK]; /* their names, slowest first */
    int64_t size[ABL_MAX_RANK];
    int64_t count; /* their product */
};
/* Every tensor that the operation may have, place i from 0; sizes and count
 * are 0, and axes those of the default parameters.  1: past the last; -1: no
 * such operation. */
int abl_op_tensor(const char *op, int i, struct abl_tensor *to);

/* Backend i's name, from 0, NULL past the last: ref64 is the oracle; ref32
 * and ref16 are the same C in float and in float with bf16 storage; gpu32
 * and gpu16, where CUDA was built in, are judged. */
const char *abl_backend(int i);
/* NULL if it can run here and now; else why not, also if there is none of
 * that name, or if an error of the device has lost it for this process. */
const char *abl_unavailable(const char *backend);
/* Have gpu32 and gpu16 (either name sets both) run on this device, from 0
 * among those that CUDA_VISIBLE_DEVICES leaves; default 0.  Call it before any
 * other use of them.  0, or -1. */
int abl_use(const char *backend, int number);
/* The device that it runs on, in words; NULL: no such backend. */
const char *abl_device(const char *backend);
/* The name of the operation's kernel i on a backend, best first; NULL past
 * the last, or where there is no such operation or backend. */
const char *abl_kernel(const char *op, const char *backend, int i);

/* ---- a case: an operation, its sizes, its inputs ---- */

typedef struct abl_case abl_case;

/* The words that `run-ablation -t` takes: the operation, then key=value:
 * parameters, dtype=fp32 or bf16 (storage), seed, input, file, group.  What
 * is not said has its default.  Inputs and the gradients of outputs are
 * drawn from the seed.  NULL: a word is wrong, or there is no memory. */
abl_case *abl_case_new(const char *words);
/* The same from a trial that a dump holds, e.g. "e74.h5", "/trial/0003":
 * its words, its inputs and its output gradients. */
abl_case *abl_case_read(const char *file, const char *group);
void abl_case_free(abl_case *c);
/* The words that make it again (except inputs that were set); the case's. */
const char *abl_text(const abl_case *c);
/* Tensor i of those that this case has; 1: past the last. */
int abl_tensor(const abl_case *c, int i, struct abl_tensor *to);

/* Draw every input and output gradient again: N(0,1) and the like, as the
 * contract says; any element depends on the seed, the tensor's name and its
 * place alone.  With `nonzero_state`, initial states are no longer 0. */
void abl_draw(abl_case *c, uint64_t seed, int nonzero_state);
/* An input, or the gradient of an output ("d_out"): n elements in or out.
 * They are rounded to the case's storage type when it runs.  -1: no such
 * tensor, not an input, or n is not its size. */
int abl_set(abl_case *c, const char *name, const double *values, int64_t n);
int abl_get(const abl_case *c, const char *name, double *values, int64_t n);

/* ---- a result: outputs, saved tensors and gradients of inputs ---- */

typedef struct abl_result abl_result;

/* Run forward and backward on a backend, with one of its kernels, or with
 * the first that accepts the case (NULL); `repeats` times, timed, after a
 * run that is not; 0: once, untimed.  NULL: it cannot run here, does not
 * store the case's dtype, declines (the sentence says why), fails, or needs
 * more memory than there is. */
abl_result *abl_run(const abl_case *c, const char *backend, const char *kernel, int repeats);
/* One to be filled from elsewhere, by somebody of that name (say, "torch"). */
abl_result *abl_result_new(const abl_case *c, const char *name);
void abl_result_free(abl_result *r);
/* "out", "S_T", "d_x" ...; -1: no such result, n is not its size, or (get)
 * it was not set. */
int abl_result_set(abl_result *r, const char *name, const double *values, int64_t n);
int abl_result_get(const abl_result *r, const char *name, double *values, int64_t n);

enum abl_pass { ABL_FORWARD, ABL_BACKWARD };
struct abl_time {
    double median, min, max; /* seconds */
    double flops, bytes;     /* of the pass: operations, and the least traffic it can do */
};
/* -1: it was not timed. */
int abl_time(const abl_result *r, enum abl_pass pass, struct abl_time *to);
/* Most bytes on the backend at once; 0: not run by us. */
int64_t abl_peak(const abl_result *r);

/* ---- judgement ---- */

typedef struct abl_verdicts abl_verdicts;

enum {
    ABL_PARITY = 1,     /* every result against the oracle's */
    ABL_PROPERTIES = 2, /* all written, within bounds, repeatable, causal, ... */
    ABL_DIFFERENCES = 4 /* the oracle's gradients against central differences */
};

/* One check of one tensor.  A backend may be off by 8 times what the plain C
 * in the same storage type is itself off, but at least by 4 of that type's
 * units; a bound of 0 requires equal bits. */
struct abl_verdict {
    const char *check, *backend, *kernel;
    char tensor[32];
    double error;      /* max |a - b| / max |b|; infinite where anything is NaN */
    double norm;       /* |a - b| / |b|, Euclidean */
    double bound;      /* passes if error <= bound */
    char worst[64];    /* index of the worst element, "[3,0,17]" */
    int64_t first_bad; /* first time step over the bound; -1: none, or no time axis */
    int pass;          /* 0: it failed */
    int unjudged;      /* it did not fail, but its bound is too coarse to judge it */
};

/* Run the case on the backend (see abl_run()), the oracle and the plain C of
 * the case's storage type, and judge the backend.  `checks` is a sum of the
 * above.  Differences check each gradient in 2 random directions. */
abl_verdicts *abl_judge(const abl_case *c, const char *backend, const char *kernel, int checks);
/* Judge what was set of a result by the oracle: parity. */
abl_verdicts *abl_judge_result(const abl_case *c, const abl_result *r);
void abl_verdicts_free(abl_verdicts *v);
int abl_count(const abl_verdicts *v);
int abl_failed(const abl_verdicts *v);
/* How many cannot be judged: not failed, but nothing that anyone should rely on. */
int abl_unjudged(const abl_verdicts *v);
/* Verdict i, from 0; 1: past the last.  Its `backend` lives as long as v. */
int abl_verdict(const abl_verdicts *v, int i, struct abl_verdict *to);

/* ---- dumps, in run-ablation's HDF5 layout ---- */

/* Write the case as /trial/0001 of a new file, with n results, each in a
 * group of its backend's or its own name, and the verdicts (NULL: none).  A
 * dump that is there is replaced; -1 where anything else is, or what the case
 * was read from. */
int abl_write(const char *file, const abl_case *c, const abl_result *const *results, int n,
              const abl_verdicts *v);
/* The inputs and output gradients of a trial's group that are there, by name.
 * -1: not readable, of another shape, or none is there. */
int abl_read(abl_case *c, const char *file, const char *group);
/* The results that are there of one backend or program: "/trial/0003/torch". */
int abl_result_read(abl_result *r, const char *file, const char *group);

#ifdef __cplusplus
}
#endif
#endif
