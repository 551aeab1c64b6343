/* The keys of [experiment], and those of [trial] that are no parameter of its
 * operation.  Two tables at the end say the values that each takes, the member
 * that it sets and its meaning; the functions before them read the values. */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/base/number.h"
#include "common/base/quote.h"
#include "common/call/cases.h"
#include "common/plan/keys.h"
#include "common/plan/match.h"
#include "common/plan/programs.h"
#include "common/plan/training.h"

/* ---- values ---- */

static void *member(const struct plan_key *k, void *to)
{
    return (char *)to + k->offset;
}

static int set_seed(const struct plan_key *k, void *to, const char *value)
{
    return number_seed(value, UINT64_MAX, member(k, to)) ? err_at("seed = %s", value) : 0;
}

static int set_whole(const struct plan_key *k, void *to, const char *value)
{
    int64_t x;
    if (number_whole(value, k->min, k->max, &x))
        return err_at("%s = %s", k->name, value);
    *(int *)member(k, to) = (int)x;
    return 0;
}

static int set_choice(const struct plan_key *k, void *to, const char *value)
{
    return choice_set(k->name, value, k->names, member(k, to));
}

/* Any text without control characters, of k->size - 1 bytes at most. */
static int set_text(const struct plan_key *k, void *to, const char *value)
{
    for (const char *c = value; *c; c++)
        if (iscntrl((unsigned char)*c))
            return err_set("%s: a control character (%d) stands in it", k->name, *c);
    if (strlen(value) >= k->size)
        return err_set("%s: longer than %zu characters", k->name, k->size - 1);
    strcpy(member(k, to), value);
    return 0;
}

/* May it stand in the name of an experiment? */
int key_is_name(char c)
{
    return strchr("_-.", c) || (isascii((unsigned char)c) && isalnum((unsigned char)c));
}

/* ---- the keys of [experiment] ---- */

const char *const measure_names[] = {"check", "time", "crossover", "train", NULL};

const char *const judge_names[] = {"auto", "full", "sampled", NULL};

/* "regime" is what crossover was called. */
static int set_measure(const struct plan_key *k, void *to, const char *value)
{
    return set_choice(k, to, strcmp(value, "regime") == 0 ? "crossover" : value);
}

static int set_name(const struct plan_key *k, void *to, const char *value)
{
    for (const char *c = value; *c; c++)
        if (!key_is_name(*c))
            return err_set("name = %s: may have letters, digits, '_', '-' and '.' only", value);
    return set_text(k, to, value);
}

static int add_backend(const struct plan_key *k, void *to, const char *value)
{
    (void)k;
    struct experiment *x = to;
    const struct backend *b = backend_find(value);
    char known[200] = "";

    for (const struct backend *const *all = backends(); !b && *all; all++)
        append(known, sizeof known, " %s", (*all)->name);
    if (!b)
        return err_set("backends = %s: not one of those in this build:%s", value, known);
    if (x->n_backends == (int)COUNT(x->backend))
        return err_set("backends: more than %zu", COUNT(x->backend));
    x->backend[x->n_backends++] = b;
    return 0;
}

const char *const check_names[] = {"differences", "parity", "properties", "power", "none", NULL};
const int check_flags[] = {CHECK_DIFFERENCES, CHECK_PARITY, CHECK_PROPERTIES, CHECK_POWER,
                           CHECK_NONE};

static int add_check(const struct plan_key *k, void *to, const char *value)
{
    struct experiment *x = to;
    int i;

    if (choice_set(k->name, value, check_names, &i))
        return -1;
    if (x->checks & CHECK_NONE || (check_flags[i] == CHECK_NONE && x->checks))
        return err_set("checks: nothing can stand beside none");
    x->checks |= check_flags[i];
    return 0;
}

/* One is the experiment's; with a second one they are those that trials are dealt out to. */
static int set_device(const struct plan_key *k, void *to, const char *value)
{
    struct experiment *x = to;
    int64_t number;

    if (x->n_devices == ALL_DEVICES || (strcmp(value, "all") == 0 && x->device >= 0))
        return err_set("device: nothing can stand beside all");
    if (strcmp(value, "all") == 0) {
        x->n_devices = ALL_DEVICES;
        return 0;
    }
    if (number_whole(value, k->min, k->max, &number))
        return err_at("device = %s", value);
    if (x->device < 0) {
        x->device = x->device_of[0] = (int)number;
        return 0;
    }
    if (!x->n_devices)
        x->n_devices = 1;
    if (x->n_devices == (int)COUNT(x->device_of))
        return err_set("device: more than %d", (int)COUNT(x->device_of));
    x->device_of[x->n_devices++] = (int)number;
    return 0;
}

static int set_margin(const struct plan_key *k, void *to, const char *value)
{
    return number_real(value, 0, 1e3, member(k, to)) ? err_at("margin = %s", value) : 0;
}

const char *const save_names[] = {[SAVE_ALL] = "all",
                                  [SAVE_OUTPUTS] = "outputs",
                                  [SAVE_NONE] = "none",
                                  [SAVE_FINAL] = "final",
                                  NULL};

/* ---- the keys of [trial] that are no parameter of its operation ---- */

const char *const input_names[] = {"normal", "nonzero", "text", "hdf5", "gguf", NULL};

/* In place of a name: a set of trials for each operation, and none is set. */
static const char EVERY_OP[] = "all";

static int set_op(const struct plan_key *k, void *to, const char *value)
{
    (void)k;
    struct trial *t = to;
    struct guess g = {value, NULL, 0};
    char known[1024] = "";

    t->call.op = op_find(value);
    if (t->call.op || strcmp(value, EVERY_OP) == 0 || strcmp(value, PROGRAM_OP) == 0 ||
        strcmp(value, TRAIN_OP) == 0)
        return 0;
    for (int i = 0; i < N_OPS; i++) {
        guess_among(&g, ops[i]->name);
        append(known, sizeof known, " %s", ops[i]->name);
    }
    guess_among(&g, EVERY_OP);
    guess_among(&g, PROGRAM_OP);
    return g.best ? err_set("op = %s: no such operation; did you mean '%s'?", value, g.best)
                  : err_set("op = %.*s: not one of %s%s", quote_fit(value, 100), value, EVERY_OP,
                            known);
}

static int set_dtype(const struct plan_key *k, void *to, const char *value)
{
    const char *names[N_DTYPES + 1] = {NULL};
    enum dtype stored[N_DTYPES];
    int n = 0, i;

    for (enum dtype t = F64 + 1; t < N_DTYPES; t++)
        if (reference_of(t)) {
            names[n] = types[t].name;
            stored[n++] = t;
        }
    if (choice_set(k->name, value, names, &i))
        return -1;
    ((struct trial *)to)->type = stored[i];
    return 0;
}

const char *const case_names[] = {
    [CASES_NONE] = "none", [CASES_CONTRACT] = "contract", [CASES_SHAPES] = "shapes", NULL};

/* It must be one that some backend has for the operation. */
static int set_kernel(const struct plan_key *key, void *to, const char *value)
{
    const struct op *o = ((const struct trial *)to)->call.op;
    char known[MAX_KNOWN];

    if (!o)
        return 0;
    return kernel_known(o, 0, value, known)
               ? set_text(key, to, value)
               : err_set("kernel = %.*s: not one of those of %s in this build:%s",
                         quote_fit(value, 100), value, o->name, known);
}

/* A section's own are taken out before its trials are made (cells.c). */
static int set_confirm(const struct plan_key *k, void *to, const char *value)
{
    (void)to;
    (void)value;
    return err_set("%s: only a [trial], or its [train], of an ini has seeds to confirm", k->name);
}

static int set_goal(const struct plan_key *k, void *to, const char *value)
{
    return goal_read(((const struct trial *)to)->call.op, k->name, value, member(k, to));
}

/* ---- the tables ---- */

#define INTO(section, member, how)                                                                 \
    .set = how, .offset = offsetof(struct section, member),                                        \
    .size = sizeof((struct section *)NULL)->member

const struct plan_key experiment_keys[] = {
    {"name", ONE, NULL, "its name; default: the file's, less .ini",
     INTO(experiment, name, set_name)},
    {"seed", ONE, "1", "seed of the trials that set none", INTO(experiment, seed, set_seed)},
    {"backends", LIST, NULL, "what to judge; default: all that are there, named ones are required",
     .set = add_backend},
    {"device", LIST, NULL,
     "number of the GPU, from 0 among CUDA_VISIBLE_DEVICES; named, it is required; default: 0. "
     "Several, or all: trials are dealt out to them",
     .set = set_device, .min = 0, .max = 1023},
    {"checks", LIST, "differences, parity, properties",
     "what to check, and power: what would pass; or none", .set = add_check},
    {"measure", ONE, "check",
     "check; time: each kernel, against ceilings; crossover: as the batch grows; train: what "
     "models learn",
     INTO(experiment, measure, set_measure), .names = measure_names},
    {"judge", ONE, "auto",
     "what parity looks at: full, all elements; sampled, some rows and random sums; auto: a sample "
     "of large cases where parity is all that is checked",
     INTO(experiment, judge, set_choice), .names = judge_names},
    {"directions", ONE, "2", "of the central differences, for each tensor: 1 to 64",
     INTO(experiment, directions, set_whole), .min = 1, .max = 64},
    {"repeats", ONE, "5", "timed runs at most, 0 to 1000; 0: no times",
     INTO(experiment, repeats, set_whole), .min = 0, .max = 1000},
    {"output", ONE, NULL, "HDF5 file to write, from the working directory; default: NAME.h5",
     INTO(experiment, output, set_text)},
    {"save", ONE, "all",
     "tensors to keep in it: all, outputs or none; of measure = train final, the weights and first "
     "batches, or none",
     INTO(experiment, save, set_choice), .names = save_names},
    {"match", ONE, "none",
     "of measure = train: what models are made equal by: parameters, state, flops; or none",
     INTO(experiment, match, set_choice), .names = match_names},
    {"reference", ONE, NULL,
     "of measure = train: of match, the variant, or the [model] of one, that others are made equal "
     "to; default: "
     "baseline",
     INTO(experiment, reference, set_text)},
    {"compress", ONE, "1", "gzip level of its tensors, 0 to 9",
     INTO(experiment, compress, set_whole), .min = 0, .max = 9},
    {"baseline", ONE, NULL, "of measure = train: the variant that the others are compared with",
     INTO(experiment, baseline, set_text)},
    {"compare", TEXT_OF_MANY, NULL,
     "of measure = train: pairs A : B, C : D of variants, in place of a baseline",
     INTO(experiment, compare, set_text)},
    {"margin", ONE, "0.01",
     "of measure = train: variants whose interval of differences lies within it are equal; "
     "accuracy, or bits",
     INTO(experiment, margin, set_margin)},
    {"overlap", ONE, "yes",
     "inputs are copied to the device while the references run, never while something is timed: "
     "no, yes",
     INTO(experiment, overlap, set_choice), .names = no_yes},
    {"per_device", ONE, "0",
     "trials at once on a GPU, 1 to 64: runs of training, 0: as many as pay; or checks with "
     "repeats = 0, a process each, 0: one",
     INTO(experiment, per_device, set_whole), .min = 0, .max = 64},
    {.name = NULL},
};

const struct plan_key trial_keys[] = {
    {"op", ONE, NULL, "the operation, or all; its parameters are keys, too, and may be lists",
     .set = set_op},
    {"cases", ONE, "none",
     "in place of parameters: the operation's cases that are tested (contract, shapes)",
     INTO(trial, cases, set_choice), .names = case_names},
    {"dtype", LIST, "fp32", "storage: fp32, bf16", .set = set_dtype},
    {"seed", LIST, NULL, "of the inputs; default: the experiment's", INTO(trial, seed, set_seed)},
    {"input", ONE, "normal",
     "what the inputs are made of: normal (drawn), nonzero (drawn, initial states too), text, "
     "hdf5 or gguf",
     INTO(trial, input, set_choice), .names = input_names},
    {"file", ONE, NULL, "of input = text, hdf5 or gguf, from the folder of the ini file",
     INTO(trial, file, set_text)},
    {"group", ONE, "/", "of input = hdf5: the group that has the inputs",
     INTO(trial, group, set_text)},
    {"tensor", LIST, NULL, "of input = gguf: the name of a tensor of the file, or INPUT:NAME",
     INTO(trial, tensor, set_text)},
    {"program", ONE, NULL,
     "of op = program: the file of its calls, from the folder of the ini file",
     INTO(trial, program, set_text)},
    {"eval", TEXT_OF_MANY, NULL,
     "of measure = train: lengths on which the last weights are tested; default: the training "
     "length",
     INTO(trial, eval, set_text)},
    {"confirm", LIST, NULL,
     "of measure = train: seeds of further runs, at the best rate of the search alone; results are "
     "theirs",
     .set = set_confirm},
    {"adjust", ONE, NULL,
     "of measure = train: the whole-number key by which match may make the model equal",
     INTO(trial, adjust, set_text)},
    {"kernel", ONE, NULL, "name of a kernel; default: the first that accepts the case",
     INTO(trial, kernel, set_kernel)},
    {"goal", ONE, NULL,
     "of forward, with measure = time: 90 % memory (or another ceiling), 12 us, 95 % best, "
     "95 % KERNEL",
     INTO(trial, goal[FORWARD], set_goal)},
    {"goal_backward", ONE, NULL, "the same of backward", INTO(trial, goal[BACKWARD], set_goal)},
    {"accumulate", LIST, "no",
     "yes: backward adds to gradients, which are drawn; no: it overwrites them",
     INTO(trial, accumulate, set_choice), .names = no_yes},
    {"in_place", LIST, "no",
     "yes: on a GPU outputs are in the memory of inputs, as adamw's p_next in that of p",
     INTO(trial, in_place, set_choice), .names = no_yes},
    {.name = NULL},
};

int key_list(const char *key, const char *values, struct experiment *x)
{
    const struct plan_key *k = &experiment_keys[key_find(experiment_keys, key)];
    struct lists *l = calloc(1, sizeof *l);
    int e = l ? lists_add(l, key, values, 0) : err_set("no memory for a list");

    for (int i = 0; !e && i < l->list[0].n_values; i++)
        e = k->set(k, x, l->list[0].value[i]);
    if (l)
        lists_free(l);
    free(l);
    x->checks &= ~CHECK_NONE;
    return e;
}

int key_find(const struct plan_key *keys, const char *name)
{
    for (int i = 0; keys[i].name; i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}
