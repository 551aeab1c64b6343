/* result.h - the result of a trial: the kernels that ran, the verdicts on
 * them, and the kernels and checks that were skipped, with the reason.  trial.c
 * makes it, report.c prints it, store.c saves it. */
#ifndef RESULT_H
#define RESULT_H

#include "common/judge/passing.h"
#include "common/judge/sampled.h"
#include "common/plan/plan.h"
#include "common/run/ceilings.h"
#include "common/run/input.h"
#include "common/run/round_trip.h"
#include "common/train/run.h"

enum { MAX_RAN = 32 };

/* The run of one kernel of a backend in a trial. */
struct ran {
    struct call call;
    const char *name;  /* of the other program that it is from; NULL: the backend's */
    struct tensors *t; /* its outputs and gradients; NULL where they are not kept */
    struct outcome outcome;
    int64_t predicted;      /* bytes on the device */
    struct round_trip trip; /* where the operation has an inverse, of measure = check */
};

const char *ran_name(const struct ran *ran);

/* A kernel that does not take the case. */
struct declined {
    const struct backend *backend;
    const struct impl *kernel;
    char why[300];
};

struct result {
    const struct trial *trial;
    struct tensors *inputs; /* inputs, and gradients of outputs */
    struct origin from;     /* where the inputs came from */
    int inputs_set;         /* by the caller: they do not follow from the trial's words */
    struct ran ran[MAX_RAN];
    int n_ran;
    struct sampled *sampled; /* what it was judged by; the references have no tensors then.  NULL:
                              * all elements, or nothing, was judged */
    struct crossover *crossover; /* of measure = crossover */
    int n_crossovers;
    struct trained *trained;   /* of measure = train; else NULL */
    struct training *training; /* what it is of, and the cell of that */
    struct cell *cell;
    int on_device;     /* a judged backend ran there, whose device has this number: */
    int device_number; /* from 0 among those that the process sees */
    struct verdicts verdicts;
    struct verdicts seen; /* on the yardstick, for what they would see, where passing is there */
    char *passing;        /* what would pass, a line each (passing.h); NULL: it was not asked */
    int skipped;          /* checks that could not be made */
    int missing;          /* results that another program must give and did not */
    int unchecked;        /* what of its dump could not be compared with what was written */
    int failed;           /* verdicts that failed */
    char skips[1024];     /* what was skipped and why, one line each */
    struct declined declined[MAX_RAN];
    int n_declined;
    double copies; /* seconds of those to a device and back, */
    double hidden; /* and of them those that nobody waited for */
};

/* The places of the references in a result, and what is known of a trial once both have run. */
enum { ORACLE, YARDSTICK };
struct truth result_truth(const struct result *r);

/* In place of the references' runs, where a sample is judged: they have no tensors and no times. */
void result_no_references(struct result *r);

/* Draw the sample of a trial whose inputs are there, and find what it is judged by, r->sampled;
 * nonzero after err_set(). */
int result_sample(struct result *r);

/* Judged backends run on x->device, if it names one, in x->contexts.  Nonzero after err_set(): they cannot. */
int experiment_device(const struct experiment *x);
/* The device of the judged backends that ran, which x->contexts has: r->on_device and r->device_number. */
void result_find_device(struct result *r, const struct experiment *x);
/* A trial's call on a backend, in the experiment's context, and in place if it is to be and is judged;
 * the kernel may be NULL. */
struct call trial_on(const struct experiment *x, const struct trial *t, const struct backend *b,
                     const struct impl *k);
/* Memory for the results of a run on the inputs, that of another run unless `reused` is NULL; or
 * reserve memory, take some for the results and run.  Nonzero after err_set(); free ran->t in any
 * case. */
int ran_new(struct ran *ran, const struct run *c, const struct tensors *inputs,
            struct tensors *reused);
int ran_run(struct ran *ran, const struct run *c, const struct tensors *inputs);

/* Find the round trips of all results that are there, where the operation has an inverse, until
 * *stop is not 0.  Nonzero after err_set(). */
int result_round_trips(struct result *r, const struct tensors *inputs, const volatile int *stop);

/* The error to show for a backend, and its tensor: the oracle's against differences, any other's
 * against the oracle; by a sample, the largest that parity saw.  Negative: none is known. */
enum { TENSOR_TEXT = 32 };
double result_worst(const struct result *r, const struct ran *ran, char tensor[TENSOR_TEXT]);

/* Records a check that cannot be made, and why. */
void result_skip(struct result *r, const char *what, const char *why);
/* Records a result that is missing, and why, beside those. */
void result_miss(struct result *r, const char *what, const char *why);
/* Records what of a dump could not be checked, and why, beside those. */
void result_uncheck(struct result *r, const char *what, const char *why);
/* Records a kernel that declines the case, and why: once for all batches. */
void result_decline(struct result *r, const struct backend *b, const struct impl *k,
                    const char *why);
void result_free(struct result *r);

/* Called before each step of a trial: "ref64", "differences", ... */
typedef void trial_step(const char *what, void *data);
/* One that shows nothing. */
static inline void no_step(const char *what, void *data)
{
    (void)what;
    (void)data;
}

/* The result of a trial whose file does not hold what it should. */
enum { TRIAL_BAD_INPUT = 2 };

/* A trial while it is carried out. */
struct task {
    const struct experiment *x;
    const struct trial *t;
    const volatile int *stop; /* nonzero: it is to end early */
    trial_step *step;
    void *data; /* step()'s */
    struct result *r;
    struct ahead *ahead; /* its inputs, on the way to the device; or NULL */
};

#endif
