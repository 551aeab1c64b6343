/* The operation that a run of training is a case of, and the model that it says (cell.h). */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/machine.h"
#include "common/ops/e74.h"
#include "common/ops/examples.h"
#include "common/program/program.h"
#include "common/train/cell.h"

/* ---- mixers ---- */

/* The lines of a block from n, the block's norm of x, to o, what is added to x; %s: the mixer's own parameters. */
struct mixer {
    const char *name;
    const struct op *op; /* NULL: none */
    const char *lines;
    const char *follow;  /* parameters that follow from the model, " dim " */
    const char *without; /* those that a model cannot have */
    int whole;           /* it is a block of its own: its line makes x of x */
};

static const struct mixer mixers[] = {
    {"e74", &op_e74, "    m = e74 n %s\n    o = linear m dim_out=width\n", " dim ", "", 0},
    {"e74_block", &op_e74_block, "    x = e74_block x %s\n", " dim ", "", 1},
    {"dual_memory", &op_dual_memory, "    m = dual_memory n %s\n    o = linear m dim_out=width\n",
     " dim_in ", "", 0},
    {"attention", &op_attention,
     "    b = transpose n batch=1 width=width\n"
     "    q = linear b dim_out=%lld\n"
     "    k = linear b dim_out=%lld\n"
     "    v = linear b dim_out=%lld\n"
     "    s, t = qk_norm q k heads=%lld kv_heads=%lld\n"
     "    u = rope s heads=%lld\n"
     "    w = rope t heads=%lld\n"
     "    a = attention u w v %s\n"
     "    m = transpose a batch=1 width=%lld\n"
     "    o = linear m dim_out=width\n",
     " keys ", " bias dropout dropout_seed ", 0},
    {"none", NULL, "    o = linear n dim_out=width\n", "", "", 0},
};

static const struct mixer *mixer_find(const char *name)
{
    for (int i = 0; i < (int)COUNT(mixers); i++)
        if (strcmp(mixers[i].name, name) == 0)
            return &mixers[i];
    return NULL;
}

/* ---- the parameters ---- */

/* Those of the model, of the task and of the optimiser, behind the mixer's. */
enum { CELL_MIXER, CELL_BLOCKS, CELL_WIDTH, CELL_MLP, CELL_HEAD, MODEL_PARAMS };
enum { HEAD_UNTIED, HEAD_TIED };
enum {
    CELL_UPDATES,
    CELL_BATCH,
    CELL_LR,
    CELL_SCHEDULE,
    CELL_WARMUP,
    CELL_DECAY,
    CELL_FINAL,
    CELL_WEIGHT_DECAY,
    CELL_BETA1,
    CELL_BETA2,
    CELL_EPS,
    CELL_CLIP,
    CELL_LOSS_SCALE,
    CELL_EVAL_EVERY,
    CELL_EVAL_ROWS,
    CELL_TARGET,
    CELL_PATIENCE,
    CELL_STOP,
    CELL_PARITY_EVERY,
    CELL_CHECKPOINT_EVERY,
    CELL_UNTIL,
    TRAIN_PARAMS
};

/* An operation, and where its parameters are. */
struct cell_op {
    struct op op;
    const struct mixer *mixer;
    struct param param[MAX_PARAMS];
    char own_name[MAX_PARAMS][32]; /* of those that no key may name */
    const char *mixer_name[2];
    int model, task, train; /* the first of each */
};

static const struct cell_op *cell_of(const struct op *o)
{
    return (const struct cell_op *)(const void *)o;
}

static const char *const heads[] = {"untied", "tied", NULL};
static const char *const schedules[] = {"cosine", "linear", "wsd", "constant", NULL};
/* none is 1; dynamic begins at 2^16. */
static const char *const scales[] = {
    "none",   "dynamic", "2",      "4",       "8",       "16",      "32",      "64",       "128",
    "256",    "512",     "1024",   "2048",    "4096",    "8192",    "16384",   "32768",    "65536",
    "131072", "262144",  "524288", "1048576", "2097152", "4194304", "8388608", "16777216", NULL};
enum { SCALE_NONE, SCALE_MOVES };

#define WHOLE_FROM(least, name_, initial_, help_)                                                  \
    {                                                                                              \
        .name = name_, .initial = initial_, .min = least, .max = 1 << 30, .help = help_            \
    }
#define REAL(name_, initial_, min_, max_, help_)                                                   \
    {                                                                                              \
        .name = name_, .real = &(const struct real_range){initial_, min_, max_, NULL},             \
        .help = help_                                                                              \
    }

static const struct param model_params[] = {
    [CELL_MIXER] = {.name = "mixer", .help = "what mixes the tokens of a sequence"},
    [CELL_BLOCKS] = {.name = "blocks", .initial = 1, .min = 1, .max = 256, .help = "blocks N"},
    [CELL_WIDTH] = WHOLE_FROM(1, "width", 64, "width d of the model"),
    [CELL_MLP] = WHOLE_FROM(0, "mlp", 0, "inner width of a block's MLP; 0: none"),
    [CELL_HEAD] = {.name = "head",
                   .choices = heads,
                   .help = "its own weights, or tied: the embedding's"},
};

static const struct param train_params[] = {
    [CELL_UPDATES] = WHOLE_FROM(1, "updates", 5000, "updates U of the run"),
    [CELL_BATCH] = WHOLE_FROM(1, "batch", 128, "sequences of an update"),
    [CELL_LR] = {.name = "lr",
                 .real = &(const struct real_range){1e-3, 1e-12, 1e3, BEST_RATE},
                 .help = "the highest learning rate; best: of a run that confirms, that which the "
                         "search found"},
    [CELL_SCHEDULE] = {.name = "schedule", .choices = schedules, .help = "how it falls"},
    [CELL_WARMUP] = WHOLE_FROM(-1, "warmup", -1, "updates in which it rises; -1: a tenth of all"),
    [CELL_DECAY] =
        WHOLE_FROM(-1, "decay", -1, "of wsd: updates in which it falls; -1: a fifth of all"),
    [CELL_FINAL] = REAL("final", 0.1, 0, 1, "the last rate, as a part of lr"),
    [CELL_WEIGHT_DECAY] =
        REAL("weight_decay", 0.01, 0, 1e3, "of matrices but embeddings, times the rate"),
    [CELL_BETA1] = REAL("beta1", 0.9, 0, 0.999999, "AdamW's decay rate of m"),
    [CELL_BETA2] = REAL("beta2", 0.95, 0, 0.999999, "AdamW's decay rate of v"),
    [CELL_EPS] = REAL("adam_eps", 1e-8, 1e-30, 1e3, "added to the root of v"),
    [CELL_CLIP] = REAL("clip", 1, 0, 1e6, "the largest norm of a gradient; 0: any"),
    [CELL_LOSS_SCALE] = {.name = "loss_scale",
                         .choices = scales,
                         .help =
                             "a factor of the loss in backward, or dynamic: as large as can be"},
    [CELL_EVAL_EVERY] = WHOLE_FROM(-1, "eval_every", -1,
                                   "updates between validations; -1: 20 in all; 0: one at the end"),
    [CELL_EVAL_ROWS] = WHOLE_FROM(1, "eval_rows", 1024, "sequences of a validation, at least"),
    [CELL_TARGET] = REAL("target", 0.999, 0, 1, "accuracy with which a run has learned"),
    [CELL_PATIENCE] = WHOLE_FROM(1, "patience", 2, "validations running that must have it"),
    [CELL_STOP] = {.name = "stop", .choices = no_yes, .help = "yes: end the run there"},
    [CELL_PARITY_EVERY] = WHOLE_FROM(
        -1, "parity_every", -1, "updates between those that are judged; -1: 10 in all; 0: none"),
    [CELL_CHECKPOINT_EVERY] =
        REAL("checkpoint_every", 60, 0, 1e9,
             "seconds between those that are kept of an unfinished run; 0: at its interruption"),
    [CELL_UNTIL] = WHOLE_FROM(0, "until", 0, "make this many of the updates; 0: all"),
};
_Static_assert(COUNT(model_params) == MODEL_PARAMS, "a parameter of the model has no place");
_Static_assert(COUNT(train_params) == TRAIN_PARAMS, "a parameter of the optimiser has no place");

static const char *follows(const struct call *f)
{
    (void)f;
    return "it follows from width, length and batch";
}

static const char *not_here(const struct call *f)
{
    (void)f;
    return "a run of training has none";
}

/* The choices of the task, where examples has them. */
static void task_choices(const struct call *f, struct call *to)
{
    const struct cell_op *c = cell_of(f->op);

    op_defaults(&op_examples, to);
    for (int i = 0; i < op_examples.n_params; i++) {
        to->choice[i] = f->choice[c->task + i];
        to->real[i] = f->real[c->task + i];
    }
}

/* Why parameter i of examples does not apply, by examples itself. */
#define UNLESS(i)                                                                                  \
    static const char *unless_##i(const struct call *f)                                            \
    {                                                                                              \
        struct call of;                                                                            \
        task_choices(f, &of);                                                                      \
        return op_examples.param[i].unless(&of);                                                   \
    }
UNLESS(0)
UNLESS(1)
UNLESS(2)
UNLESS(3)
UNLESS(4)
UNLESS(5)
UNLESS(6)
UNLESS(7)
UNLESS(8)
UNLESS(9)
UNLESS(10)
UNLESS(11)
UNLESS(12)
UNLESS(13)
UNLESS(14)
UNLESS(15)
UNLESS(16)
static const char *(*const task_unless[])(const struct call *f) = {
    unless_0, unless_1,  unless_2,  unless_3,  unless_4,  unless_5,  unless_6,  unless_7, unless_8,
    unless_9, unless_10, unless_11, unless_12, unless_13, unless_14, unless_15, unless_16};

static const char *unless_wsd(const struct call *f)
{
    const struct cell_op *c = cell_of(f->op);
    return f->choice[c->train + CELL_SCHEDULE] == SCHEDULE_WSD ? NULL
                                                               : "only schedule = wsd has one";
}

static const char *unless_falls(const struct call *f)
{
    const struct cell_op *c = cell_of(f->op);
    return f->choice[c->train + CELL_SCHEDULE] == SCHEDULE_CONSTANT
               ? "schedule = constant falls nowhere"
               : NULL;
}

/* ---- an operation ---- */

static int64_t dim_of(const struct call *f, int i)
{
    return DIM(f, f->op->param[i].letter);
}

/* Adds it under a letter that none has; where `hidden` says why it is no key, also under a name that none is. */
static void add_param(struct cell_op *c, const struct param *p,
                      const char *(*hidden)(const struct call *))
{
    const int i = c->op.n_params++;
    struct param *to = &c->param[i];
    int taken = 1;

    *to = *p;
    if (hidden) {
        to->unless = hidden;
        snprintf(c->own_name[i], sizeof c->own_name[i], "%s's %s", c->task ? "examples" : "mixer",
                 p->name);
        for (int j = 0; j < (int)COUNT(train_params); j++)
            if (strcmp(train_params[j].name, p->name) == 0)
                to->name = c->own_name[i];
    }
    if (p->choices || p->real || !strcmp(p->name, "mixer"))
        return;
    for (char letter = p->letter ? p->letter : 'A'; taken;
         letter = letter == LAST_AXIS ? 'A' : letter + 1) {
        taken = 0;
        for (int j = 0; j < i; j++)
            taken |= c->param[j].letter == letter;
        to->letter = letter;
    }
}

static int in_words(const char *words, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(words, word) != NULL;
}

static void add_mixer(struct cell_op *c)
{
    const struct op *o = c->mixer->op;

    for (int i = 0; o && i < o->n_params; i++) {
        const struct param *p = &o->param[i];
        const int from_model =
            in_words(" steps batch ", p->name) || in_words(c->mixer->follow, p->name);
        const int without = p->draw || in_words(c->mixer->without, p->name);
        struct param own = *p;
        if (strcmp(p->name, "V") == 0)
            own.initial = E74_V_SHARED; /* a sequence has none of its own */
        add_param(c, &own, from_model ? follows : without ? not_here : NULL);
    }
}

static void add_task(struct cell_op *c)
{
    c->task = c->op.n_params;
    for (int i = 0; i < op_examples.n_params; i++) {
        struct param p = op_examples.param[i];
        const int own = in_words(" split batch corpus task_seed update ", p.name);
        if (strcmp(p.name, "steps") == 0) {
            p.name = "length";
            p.initial = p.min = 0;
            p.help = "tokens of a sequence; 0: as many as the task is known by";
        }
        if (strcmp(p.name, "vocabulary") == 0) {
            p.initial = p.min = 0;
            p.help = "tokens that there are; 0: 16 of copy, 8192 of mqar";
        }
        if (strcmp(p.name, "pairs") == 0)
            p.initial = 8;
        if (p.unless)
            p.unless = task_unless[i];
        p.draw = p.aside = 0;
        add_param(c, &p, own ? not_here : NULL);
    }
}

static int derive(struct call *f);

/* Neither pass computes anything: there are no tensors. */
COST(no_flops, "", 0, 0)

static void fill_in(struct cell_op *c)
{
    add_mixer(c);
    c->model = c->op.n_params;
    for (int i = 0; i < MODEL_PARAMS; i++)
        add_param(c, &model_params[i], NULL);
    c->mixer_name[0] = c->mixer->name;
    c->param[c->model + CELL_MIXER].choices = c->mixer_name;
    add_task(c);
    c->train = c->op.n_params;
    for (int i = 0; i < TRAIN_PARAMS; i++)
        add_param(c, &train_params[i], NULL);
    c->param[c->train + CELL_DECAY].unless = unless_wsd;
    c->param[c->train + CELL_FINAL].unless = unless_falls;
    c->op.name = "train";
    c->op.formula = "one model, one task, one rate and one seed, trained to its end";
    c->op.source = "common/train/cell.h";
    c->op.param = c->param;
    c->op.cases = "";
    c->op.derive = derive;
    c->op.flops = no_flops;
}

const struct op *cell_op(const char *name)
{
    static struct cell_op cells[COUNT(mixers)];
    static pthread_mutex_t cells_lock = PTHREAD_MUTEX_INITIALIZER;
    const struct mixer *m = mixer_find(name);
    char known[200] = "";

    for (int i = 0; i < (int)COUNT(mixers); i++)
        append(known, sizeof known, " %s", mixers[i].name);
    if (!m)
        return err_null("mixer = %s: not one of%s", name, known);
    struct cell_op *c = &cells[m - mixers];
    pthread_mutex_lock(&cells_lock);
    if (!c->mixer) {
        c->mixer = m;
        fill_in(c);
    }
    pthread_mutex_unlock(&cells_lock);
    return &c->op;
}

int is_cell(const struct op *o)
{
    return o && o->derive == derive;
}

const char *cell_mixer(int i, const struct op **o)
{
    *o = i < (int)COUNT(mixers) ? mixers[i].op : NULL;
    return i < (int)COUNT(mixers) ? mixers[i].name : NULL;
}

const char *cell_mixer_of(const struct op *o)
{
    return cell_of(o)->mixer->name;
}

const char *cell_task_of(const struct call *f)
{
    const int task = cell_of(f->op)->task + EXAMPLES_TASK;
    return f->op->param[task].choices[f->choice[task]];
}

int cell_has_key(const struct op *o, int i)
{
    return o->param[i].unless != follows && o->param[i].unless != not_here;
}

int cell_part(const struct op *o, const char *key)
{
    const struct cell_op *c = cell_of(o);

    if (strcmp(key, "file") == 0 || strcmp(key, "eval") == 0)
        return CELL_OF_TASK;
    if (strcmp(key, "adjust") == 0)
        return CELL_OF_MODEL;
    if (strcmp(key, "dtype") == 0 || strcmp(key, "seed") == 0 || strcmp(key, "confirm") == 0)
        return CELL_OF_TRAIN;
    for (int i = 0; i < o->n_params; i++)
        if (cell_has_key(o, i) && strcmp(o->param[i].name, key) == 0)
            return i < c->task ? CELL_OF_MODEL : i < c->train ? CELL_OF_TASK : CELL_OF_TRAIN;
    return -1;
}

double cell_rate(const struct call *f)
{
    return f->real[cell_of(f->op)->train + CELL_LR];
}

int cell_waits(const struct call *f)
{
    return isinf(cell_rate(f));
}

void cell_set_rate(struct call *f, double lr)
{
    f->real[cell_of(f->op)->train + CELL_LR] = lr;
}

/* ---- a case: the batch ---- */

int64_t cell_corpus(const struct call *batch)
{
    return batch->choice[EXAMPLES_TASK] == TASK_BYTES ? DIM(batch, 'C') : 0;
}

int64_t cell_vocabulary(const struct call *batch)
{
    const struct example_task t = example_task_of(batch);
    return t.task == TASK_COPY    ? t.V + 2
           : t.task == TASK_MQAR  ? t.V
           : t.task == TASK_BYTES ? 256
                                  : example_tokens(&t);
}

int64_t cell_classes(const struct call *batch)
{
    const struct example_task t = example_task_of(batch);

    switch (t.task) {
    case TASK_PARITY: return 2;
    case TASK_COUNTER: return t.modulus;
    case TASK_WORD: return group_order(t.group);
    case TASK_BYTES: return 256;
    default: return t.V;
    }
}

/* The length by which a task is known. */
static int64_t usual_length(int task)
{
    switch (task) {
    case TASK_WORD: return 32;
    case TASK_COPY: return 33;
    case TASK_MQAR: return 128;
    case TASK_BYTES: return 256;
    default: return 40;
    }
}

static int read_batch(const struct call *f, uint64_t seed, struct call *to)
{
    const struct cell_op *c = cell_of(f->op);

    task_choices(f, to);
    for (int i = 0; i < op_examples.n_params; i++)
        if (op_examples.param[i].letter)
            DIM(to, op_examples.param[i].letter) = dim_of(f, c->task + i);
    DIM(to, 'X') = (int64_t)seed;
    DIM(to, 'U') = 0;
    DIM(to, 'B') = dim_of(f, c->train + CELL_BATCH);
    to->choice[EXAMPLES_SPLIT] = SPLIT_TRAIN;
    if (!DIM(to, 'T'))
        DIM(to, 'T') = usual_length(to->choice[EXAMPLES_TASK]);
    if (!DIM(to, 'V'))
        DIM(to, 'V') = to->choice[EXAMPLES_TASK] == TASK_MQAR ? 8192 : 16;
    return op_complete(to);
}

int cell_has_corpus(const struct call *f)
{
    return f->choice[cell_of(f->op)->task + EXAMPLES_TASK] == TASK_BYTES;
}

void cell_set_corpus(struct call *f, int64_t bytes)
{
    int i;
    op_param(&op_examples, "corpus", &i);
    DIM(f, f->op->param[cell_of(f->op)->task + i].letter) = bytes;
}

/* ---- the model ---- */

/* The mixer's parameters that apply, as words of its line. */
static void mixer_words(const struct call *f, char *to, size_t size)
{
    const struct cell_op *c = cell_of(f->op);
    char buffer[32];

    *to = 0;
    for (int i = 0; i < c->model; i++) {
        const char *value = op_value(f, i, buffer);
        if (*value)
            append(to, size, "%s%s=%s", *to ? " " : "", c->mixer->op->param[i].name, value);
    }
}

static int64_t own_dim(const struct call *f, const char *name)
{
    int i;
    op_param(f->op, name, &i);
    return dim_of(f, i);
}

/* Attention's projections, their norms and rotations. */
static void put_attention(FILE *to, const struct call *f, const char *lines, const char *words)
{
    const long long H = own_dim(f, "heads"), D = own_dim(f, "dim"), kv = own_dim(f, "kv_heads"),
                    K = kv ? kv : H, dim_v = own_dim(f, "dim_v"), V = dim_v ? dim_v : D;

    fprintf(to, lines, H * D, K * D, K * V, H, K, H, K, words, H * V);
}

static void put_block(FILE *to, const struct call *f)
{
    const struct cell_op *c = cell_of(f->op);
    const struct mixer *m = c->mixer;
    const int64_t mlp = dim_of(f, c->model + CELL_MLP);
    char words[MAX_TEXT];

    mixer_words(f, words, sizeof words);
    if (!m->whole)
        fputs("    n = rmsnorm x\n", to);
    if (m->op == &op_attention)
        put_attention(to, f, m->lines, words);
    else if (m->op)
        fprintf(to, m->lines, words);
    else
        fputs(m->lines, to);
    if (!m->whole)
        fputs("    x = add x o\n", to);
    if (mlp)
        fprintf(to,
                "    h = rmsnorm x\n    g = linear h dim_out=%lld\n    i = linear h dim_out=%lld\n"
                "    j = swiglu g i\n    d = linear j dim_out=width\n    x = add x d\n",
                (long long)mlp, (long long)mlp);
}

static void put_model(FILE *to, const struct call *f, const struct call *batch)
{
    const struct cell_op *c = cell_of(f->op);
    const int tied = f->choice[c->model + CELL_HEAD] == HEAD_TIED;

    fprintf(
        to,
        "width = %lld\nsteps = %lld\nbatch = %lld\ntoken [steps, batch]\ntarget [steps, batch]\n"
        "x = embedding token vocabulary=%lld width=width\nrepeat %lld\n",
        (long long)dim_of(f, c->model + CELL_WIDTH), (long long)DIM(batch, 'T'),
        (long long)DIM(batch, 'B'), (long long)cell_vocabulary(batch),
        (long long)dim_of(f, c->model + CELL_BLOCKS));
    put_block(to, f);
    fputs("f = rmsnorm x\n", to);
    if (tied)
        fputs("logits = linear f W=x.E\n", to);
    else
        fprintf(to, "logits = linear f dim_out=%lld\n", (long long)cell_classes(batch));
    fputs("loss = cross_entropy logits target ignore_index=-1\n"
          "hits, right = accuracy logits target ignore_index=-1\n",
          to);
}

static char *text_of(const struct call *f, const struct call *batch)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);

    if (!to)
        return err_null("no memory for the model's text");
    put_model(to, f, batch);
    fclose(to);
    return text ? text : err_null("no memory for the model's text");
}

int cell_batch(const struct call *f, struct call *to)
{
    return read_batch(f, 0, to);
}

char *cell_text(const struct call *f)
{
    struct call batch;
    return read_batch(f, 0, &batch) ? NULL : text_of(f, &batch);
}

static int read_model(const struct call *f, const struct call *batch, struct call *to)
{
    char *text = text_of(f, batch), *said = NULL;
    size_t n;
    FILE *errors = text ? open_memstream(&said, &n) : NULL;
    const struct program *p = errors ? program_known("model", text, errors) : NULL;

    if (errors)
        fclose(errors);
    if (said && !p) {
        said[strcspn(said, "\n")] = 0;
        err_set("%s", said);
    } else if (text && !p)
        err_set("no memory for the model");
    free(text);
    free(said);
    if (!p)
        return -1;
    op_defaults(program_op(p), to);
    return op_complete(to);
}

/* ---- a case ---- */

/* A share of the updates where a parameter is -1. */
static int64_t or_share(int64_t value, int64_t updates, int64_t of)
{
    const int64_t share = updates / of;
    return value >= 0 ? value : share ? share : 1;
}

static void read_train(const struct call *f, struct cell *to)
{
    const int at = cell_of(f->op)->train, scale = f->choice[at + CELL_LOSS_SCALE];

    to->updates = dim_of(f, at + CELL_UPDATES);
    to->blocks = dim_of(f, cell_of(f->op)->model + CELL_BLOCKS);
    to->schedule = (enum train_schedule)f->choice[at + CELL_SCHEDULE];
    to->warmup = dim_of(f, at + CELL_WARMUP);
    if (to->warmup < 0)
        to->warmup = to->updates / 10;
    to->decay =
        to->schedule == SCHEDULE_WSD ? or_share(dim_of(f, at + CELL_DECAY), to->updates, 5) : 0;
    to->lr = f->real[at + CELL_LR], to->final = f->real[at + CELL_FINAL];
    to->weight_decay = f->real[at + CELL_WEIGHT_DECAY];
    to->beta1 = f->real[at + CELL_BETA1], to->beta2 = f->real[at + CELL_BETA2];
    to->eps = f->real[at + CELL_EPS], to->clip = f->real[at + CELL_CLIP];
    to->dynamic = scale == SCALE_MOVES;
    to->loss_scale = scale == SCALE_NONE ? 1 : to->dynamic ? 65536 : strtod(scales[scale], NULL);
    to->eval_every = or_share(dim_of(f, at + CELL_EVAL_EVERY), to->updates, 20);
    to->eval_rows = dim_of(f, at + CELL_EVAL_ROWS);
    to->target = f->real[at + CELL_TARGET];
    to->patience = dim_of(f, at + CELL_PATIENCE);
    to->stop = f->choice[at + CELL_STOP];
    to->until = dim_of(f, at + CELL_UNTIL) ? dim_of(f, at + CELL_UNTIL) : to->updates;
    to->checkpoint_every = f->real[at + CELL_CHECKPOINT_EVERY];
    to->parity_every = or_share(dim_of(f, at + CELL_PARITY_EVERY), to->updates, 10);
}

/* A twentieth of the corpus has two sequences and the byte behind: the first is not used (examples.h). */
enum { HELD_OUT_LENGTHS = 41 };

/* Choices of mixers that no model of a run can have. */
static const struct {
    const char *key, *value, *why;
} refused[] = {
    {"V", "each", "V0 would be another for each sequence, and no weight; V = shared is one"},
    {"tape", "each", "M0 would be another for each sequence, and no weight; tape = shared is one"},
    {"checkpoint_dtype", "bf16", "a model keeps its states in fp32"}};

static int check_mixer(const struct call *f)
{
    for (int i = 0; i < cell_of(f->op)->model; i++)
        for (int k = 0; k < (int)COUNT(refused); k++) {
            const struct param *p = &f->op->param[i];
            if (strcmp(p->name, refused[k].key) == 0 && (!p->unless || !p->unless(f)) &&
                strcmp(p->choices[f->choice[i]], refused[k].value) == 0)
                return err_set("%s = %s: %s", refused[k].key, refused[k].value, refused[k].why);
        }
    return 0;
}

static int check(const struct call *f, const struct cell *c)
{
    const struct cell_op *o = cell_of(f->op);
    const long long length = (long long)DIM(&c->batch, 'T'),
                    corpus = (long long)DIM(&c->batch, 'C');

    if (c->warmup + c->decay > c->updates)
        return err_set("warmup = %lld and decay = %lld are more than updates = %lld",
                       (long long)c->warmup, (long long)c->decay, (long long)c->updates);
    if (c->until > c->updates)
        return err_set("until = %lld: there are %lld updates", (long long)c->until,
                       (long long)c->updates);
    if (cell_has_corpus(f) && corpus < HELD_OUT_LENGTHS * length)
        return err_set("the corpus has %lld bytes: length = %lld needs %d times as many, %lld, "
                       "since a twentieth is "
                       "for validation and another for the test",
                       corpus, length, HELD_OUT_LENGTHS, HELD_OUT_LENGTHS * length);
    if (f->choice[o->model + CELL_HEAD] == HEAD_TIED &&
        cell_classes(&c->batch) != cell_vocabulary(&c->batch))
        return err_set("head = tied: the task has %lld classes, and tokens of a vocabulary of %lld",
                       (long long)cell_classes(&c->batch), (long long)cell_vocabulary(&c->batch));
    if (cell_vocabulary(&c->batch) > 65536)
        return err_set("a vocabulary of %lld: 65536 is the most",
                       (long long)cell_vocabulary(&c->batch));
    return 0;
}

int cell_read(const struct call *f, uint64_t seed, struct cell *to)
{
    memset(to, 0, sizeof *to);
    read_train(f, to);
    return read_batch(f, seed, &to->batch) || check_mixer(f) || check(f, to) ||
           read_model(f, &to->batch, &to->model);
}

static int derive(struct call *f)
{
    struct cell c;
    return cell_read(f, 0, &c);
}

double cell_parameters(const struct call *f, enum dtype type, int64_t *bytes)
{
    struct cell c;

    *bytes = 0;
    if (cell_read(f, 0, &c))
        return 0;
    const struct call on = call_on(&c.model, reference_of(type), NULL, NULL);
    return op_parameters(&on, bytes);
}
