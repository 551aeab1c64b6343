/* plan.h - from an ini file, or a line of words, to a list of trials.
 *
 *     [experiment]                    ; once, and optional
 *     name = e74_diag                 ; default: the file's name less .ini
 *     seed = 1
 *     backends = gpu32, gpu_bf16      ; default: all that are there; named ones are required
 *                                     ; (the oracle and the yardstick run in any case)
 *     device = 1                      ; the GPU, from 0 among those visible; named, it is required; or several: a
 *                                     ; list, or all, to which trials are dealt out
 *     checks = differences, parity, properties    ; or none; default: all three
 *     measure = check                 ; or time, crossover: parity, and then times of every kernel; or train:
 *                                     ; a run of training for each trial, whose keys are cell.h's
 *     judge = auto                    ; or full, sampled: parity of all elements, or of a sample
 *     directions = 2                  ; of the differences, for each tensor
 *     repeats = 5                     ; timed runs; 0: no times
 *     output = e74_diag.h5            ; in the working directory; default: the name that is set,
 *                                     ; or else the ini file's however long, and .h5
 *     save = all                      ; or outputs, none; of measure = train final, or none
 *     compress = 1                    ; gzip level 0 to 9
 *     baseline = z_tanh               ; of measure = train: what the others are compared with; or
 *     compare = z_tanh : no_z_tanh    ; these pairs (ablation.h)
 *     margin = 0.01                   ; and they are equal within it
 *     match = parameters              ; of measure = train: models are made equal (match.h); or state, flops; none
 *     reference = z_tanh              ; to this variant, or [model] of one; default: baseline
 *
 *     [trial]                         ; or [trial NAME]; any number of them
 *     op = e74                        ; or all: a set of trials for each operation
 *     cases = contract                ; in place of parameters: the tested cases, or shapes
 *     state = diagonal                ; every parameter of the operation
 *     nonlin = tanh, linear           ; lists: the section is their product, last key fastest
 *     steps = 7, 64:4096 x2           ; with ranges: 64, 128, 256, ... 4096
 *     batch = 11 .. 26                ; every whole number
 *     dim = 1000:60000 random 20      ; 20 different numbers, uniform in the logarithm (ranges.h)
 *     rows = 50331648 / dim           ; by another size of the trial, rounded down (quotient.h)
 *     dtype = fp32, bf16              ; storage
 *     input = text                    ; or normal, nonzero (initial states are drawn, too), hdf5,
 *                                     ; which takes a group, too
 *     file = ../data/sample.txt       ; from the folder that the ini file is in
 *     program = lm.model              ; of op = program: its calls, and the sizes are keys, too
 *     model = z, no_z                 ; of measure = train: sections [model NAME], [task NAME], [train NAME], of which the
 *                                     ; trial is composed (cells.h)
 *     adjust = n_state                ; of measure = train: what match may change
 *     eval = 40, 64, 256              ; of measure = train: lengths of the test
 *     confirm = 11 .. 26              ; and seeds of further runs at the best rate
 *     kernel = plain                  ; default: the first that accepts the case
 *     goal = 90 % memory              ; forward must reach it, with measure = time (goal.h); and
 *                                     ; goal_backward
 *     accumulate = yes                ; backward adds to gradients; default: no, it overwrites them
 *     in_place = yes                  ; outputs in the memory of inputs, as the contract says; default: no
 *
 * Each key once in a section, each value once in a list, each NAME of [trial NAME] once; lists
 * where they make sense: op, input, file, group, kernel, goals and all of [experiment] but backends and
 * checks take one value.  A range in a list of a [trial] is replaced by its numbers before the plan
 * is made; random ones depend on the experiment's seed, the key and the range alone.  A parameter
 * that is set must apply to a trial of its section; to others it need not, and keeps its default
 * there (combinations.h).  A trial must fit into memory.
 *
 * The same words, "e74 state=diagonal nonlin=tanh seed=3 repeats=0", are a
 * plan of one section: keys of [experiment] differ from those of a trial
 * by their names; seed is the trial's, and the experiment's is 1; a file is
 * seen from the working directory.  In both, a value can be put in double
 * quotes ("" is one quote), for blanks or commas in the name of a file and
 * for the blanks of a range: rows="7, 64:4096 x2". */
#ifndef PLAN_H
#define PLAN_H

#include <stdio.h>
#include <sys/types.h>

#include "common/base/file.h"
#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/plan/goal.h"

/* CHECK_POWER: by all samples, and what would pass (passing.h). */
enum { CHECK_DIFFERENCES = 1, CHECK_PARITY = 2, CHECK_PROPERTIES = 4, CHECK_POWER = 16 };
/* Where the sizes of trials come from: keys; the contract's cases or shapes. */
enum case_kind { CASES_NONE, CASES_CONTRACT, CASES_SHAPES };
/* The times that are taken: one as a by-product of checks; times of every kernel;
 * those as the batch grows; or, in place of all that, what a model learns. */
enum measure { MEASURE_CHECK, MEASURE_TIME, MEASURE_CROSSOVER, MEASURE_TRAIN };
/* Which elements parity looks at: all; a sample; or a sample where there is nothing but parity to
 * check, and the oracle's work is much, and every result can be sampled (call/sample.h). */
enum judged { JUDGE_AUTO, JUDGE_FULL, JUDGE_SAMPLED };
/* SAVE_FINAL: of training, the weights and first batches, besides the curves. */
enum save { SAVE_ALL, SAVE_OUTPUTS, SAVE_NONE, SAVE_FINAL };
enum input_kind { INPUT_NORMAL, INPUT_NONZERO, INPUT_TEXT, INPUT_HDF5, INPUT_GGUF };

enum {
    MAX_FILE = 512,
    MAX_LINE = 4096,
    MAX_TRIALS = 9999
}; /* trials have four digits in the HDF5 file */

struct trial {
    int number;       /* not of the plan: from 0, where x->states is set */
    struct call call; /* complete: op_complete() has passed; on no backend */
    int sampled;      /* it is judged by a sample */
    int accumulate;   /* backward adds to the gradients of all inputs, as the call says */
    int in_place;     /* on judged backends outputs take the memory of inputs (call.in_place) */
    enum dtype type;  /* F32 or BF16 */
    uint64_t seed;
    enum input_kind input;
    int input_given;                 /* its section has the key `input` */
    enum case_kind cases;            /* of its section; the sizes are a case's */
    char file[MAX_FILE], group[128]; /* of the input; the file as seen from the working directory */
    char contents
        [MAX_CONTENTS];     /* of training: what `file`, its corpus, held when the plan was made */
    char tensor[512];       /* of input = gguf: names, see model.h */
    char program[MAX_FILE]; /* of op = program: its file, as `file` */
    char kernel[32];        /* of the GPU backends; "": the first that accepts the case */
    struct goal goal[N_PASSES]; /* of each pass, where times are measured */
    char section[64];           /* NAME of [trial NAME], control characters as \xHH; or "" */
    char eval[160];             /* of training: lengths of the test, "40, 64"; or "" */
    /* Of training from an ini: the name of its [model] or its mixer; the same, with what differs within it or within its
     * [train]; of its [task], or the task itself, likewise; or "". */
    char model[64], variant[64], task[64];
    int confirms; /* of training: its rate is the best of a search, which its words do not have */
    char adjust[32];     /* of training: the key by which it may be made equal (match.h); or "" */
    int adjust_line;     /* of that key in the ini file */
    int model_line;      /* of its [model] there, or else of the [trial] */
    int line;            /* of the section in the ini file */
    int input_line;      /* of `group` or `tensor` there or, if there is none, of `file` */
    char text[MAX_LINE]; /* the words that make this trial again, with -t */
};

/* A file, whichever of its names leads to it. */
struct file_id {
    dev_t dev;
    ino_t ino;
};

struct contexts;
struct states;

enum { ALL_DEVICES = -1 };

struct experiment {
    char name[64];
    uint64_t seed;
    const struct backend *backend[16]; /* those requested by name; none: all that are there */
    int n_backends;
    int device;                   /* the GPU's number; -1: none named, the first if there is one */
    int device_of[64], n_devices; /* several, or ALL_DEVICES; 0: no more than one is named */
    int checks;                   /* CHECK_ flags; CHECK_PARITY where times are measured */
    enum measure measure;
    enum judged judge;
    /* Not of the plan: what the GPU can do, where times are compared with that,
     * or NULL and why it is not known. */
    const struct ceilings *ceilings;
    const char *no_ceilings;
    struct contexts *contexts;   /* nor this: where its judged backends run */
    const struct states *states; /* nor this: where unfinished runs of training are kept, or NULL */
    /* Nor this: the processes to which its trials are dealt out, and those of them on this node, which share its memory;
     * 0: this process runs them. */
    int workers, workers_here;
    int goals_reported; /* nor this: a goal that is missed does not fail */
    int directions, repeats;
    int inputs_only;  /* nothing runs: the inputs and the gradients of the outputs are all */
    int every_kernel; /* of a GPU backend that accepts the case is judged, not the first alone */
    char output[512];
    const char *file; /* the ini, as plan_read() was given it; NULL: from words */
    /* Files that it was read from besides `file` and those of its trials; they are not freed. */
    const struct file_id *source;
    int n_sources;
    int scratch; /* the output is the default of words, which the next words may replace */
    enum save save;
    int compress;
    char baseline[64],
        compare[512]; /* of training: names of variants, as variants.h has it; or "" */
    double margin;    /* equal within it */
    int overlap;      /* inputs are copied to the device while the references run */
    int per_device;   /* runs of training, or checks, at once on a GPU; 0: as many as pay, or one */
    int match;        /* of training: an enum match, match.h */
    char reference[64]; /* what the others are made equal to; "": the baseline */
    char *text;         /* the ini file, or the words */
    int n;
    struct trial *trial;
};

/* Read a plan.  All errors are found before it gives up: each goes to
 * `errors` as a line "file:line: message" (or "-t: message"), and the
 * function then returns how many there were; 0: x is complete and
 * plan_free() frees it. */
int plan_read(const char *file, struct experiment *x, FILE *errors);
int plan_words(const char *words, struct experiment *x, FILE *errors);
/* The same of a call whose tensors are the caller's: it may need more memory than there is here. */
int plan_call(const char *words, struct experiment *x, FILE *errors);
/* As plan_words(), of the words of another option, which errors name. */
int plan_words_of(const char *words, const char *option, struct experiment *x, FILE *errors);
/* As plan_read(), of the text that the file of that name had, which need not be there. */
int plan_read_text(const char *text, const char *file, struct experiment *x, FILE *errors);
void plan_free(struct experiment *x);
/* Makes it one that runs nothing and writes the inputs for other programs.  Their initial states are
 * drawn, unless the plan says `input`: a program that ignores a state of 0 would be right.  Nonzero
 * after err_set(). */
int plan_inputs_only(struct experiment *x);
/* Which backends a trial of x is meant to run on: the oracle, the yardstick of
 * its storage type, and the GPU backends of that type which were requested by
 * name, or all of them; returns how many. */
int plan_backends(const struct experiment *x, const struct trial *t,
                  const struct backend *list[16]);
/* Is a case judged by a sample in this experiment? */
int plan_sampled(const struct experiment *x, const struct call *f);
/* Write t->text from the rest of t; nonzero after err_set() where it is too long. */
int plan_text(struct trial *t);

/* A key of a section; set() gives the struct experiment or struct trial a value, or one more of a
 * list, and returns nonzero after err_set(). */
struct plan_key {
    const char *name;
    enum { ONE, LIST, TEXT_OF_MANY } many; /* the last: one value, in which commas may stand */
    const char *initial, *help; /* initial: NULL where the help says what holds without it */
    int (*set)(const struct plan_key *k, void *to, const char *value);
    size_t offset, size;      /* of the member that is set */
    int min, max;             /* of a whole number */
    const char *const *names; /* of a choice, NULL at the end */
};
extern const struct plan_key experiment_keys[], trial_keys[]; /* end with a NULL name */

#endif
