/* The contract of examples: sizes, tensors, cases. */
#include <math.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/examples.h"

static const char *const tasks[] = {"parity", "counter", "word", "copy", "mqar", "bytes", NULL};
static const char *const splits[] = {"train", "validation", "test", NULL};
static const char *const groups[] = {"s3", "a4", "a5", "s5", "z60", NULL};
static const char *const generators[] = {"all", "transpositions", NULL};
static const char *const supervised[] = {"every", "last", NULL};

OF_CALL(int, task, f->choice[EXAMPLES_TASK])
OF_CALL(const char *, no_word, task(f) == TASK_WORD ? NULL : "only task = word has a group")
OF_CALL(const char *, no_choice,
        task(f) == TASK_WORD &&
                (f->choice[EXAMPLES_GROUP] == GROUP_S3 || f->choice[EXAMPLES_GROUP] == GROUP_S5)
            ? NULL
            : "only elements = s3 and s5 of task = word have transpositions")
OF_CALL(const char *, no_counter, task(f) == TASK_COUNTER ? NULL : "only task = counter counts")
OF_CALL(const char *, no_state, task(f) <= TASK_WORD ? NULL : "it has its own targets")
OF_CALL(const char *, not_last,
        task(f) <= TASK_WORD && f->choice[EXAMPLES_SUPERVISE] == SUPERVISE_LAST
            ? NULL
            : "only supervise = last has rows of other lengths")
OF_CALL(const char *, no_vocabulary,
        task(f) == TASK_COPY || task(f) == TASK_MQAR ? NULL : "only copy and mqar have one")
OF_CALL(const char *, no_pairs, task(f) == TASK_MQAR ? NULL : "only task = mqar has pairs")
OF_CALL(const char *, no_corpus, task(f) == TASK_BYTES ? NULL : "only task = bytes has a corpus")

static const struct param params[] = {
    [EXAMPLES_TASK] = CHOICE_PARAM("task", tasks, TASK_PARITY, "what is asked"),
    [EXAMPLES_SPLIT] = CHOICE_PARAM("split", splits, SPLIT_TRAIN, "which data"),
    [EXAMPLES_GROUP] = {"elements", 0, groups, GROUP_S3, 0, 0, "of the elements", no_word},
    [EXAMPLES_GENERATORS] = {"generators", 0, generators, GENERATORS_ALL, 0, 0,
                             "which elements are tokens", no_choice},
    [EXAMPLES_MOVES] = {"moves", 0, no_yes, 0, 0, 0, "tokens are -1, 0 and +1", no_counter},
    [EXAMPLES_SUPERVISE] = {"supervise", 0, supervised, SUPERVISE_EVERY, 0, 0,
                            "which tokens have a target", no_state},
    SIZE_PARAM("steps", 'T', 40, "tokens of a row, T"),
    SIZE_PARAM("batch", 'B', 128, "rows"),
    {"modulus", 'M', NULL, 5, 2, 1 << 20, "of the sum", no_counter},
    {"min", 'N', NULL, 1, 1, 1 << 30, "tokens of the shortest row", not_last},
    {"vocabulary", 'V', NULL, 16, 2, 65536, "tokens that there are", no_vocabulary},
    {"pairs", 'P', NULL, 4, 1, 1 << 14, "of key and value", no_pairs},
    {"corpus", 'C', NULL, 8192, 1, 1 << 30, "bytes of the corpus", no_corpus},
    {"period", 'Q', NULL, 0, 0, 1 << 30, "batches that there are, over and over; 0: no end", NULL},
    {.name = "task_seed",
     .letter = 'X',
     .initial = 1,
     .max = INT64_MAX,
     .help = "key of the words that all is drawn by",
     .seed = 1},
    {.name = "update",
     .letter = 'U',
     .max = (int64_t)1 << 53,
     .help = "u, what the tensor counter has",
     .aside = 1,
     .draw = 1},
    {.name = "power",
     .help = "gap r is drawn with a weight of (r + 1)^(power - 1)",
     .real = &(const struct real_range){0.01, 0, 4, NULL},
     .unless = no_pairs,
     .aside = 1,
     .draw = 1},
};
enum { POWER = COUNT(params) - 1 };

static const struct axis axes[] = {{'G', "gaps"}, {'O', "one"}, {0, NULL}};

OF_CALL(int, has_gaps, task(f) == TASK_MQAR)
OF_CALL(int, has_corpus, task(f) == TASK_BYTES)
DRAW_ONE(draw_counter, (double)DIM(f, 'U'))

/* The sums of the weights, as whole numbers. */
static void draw_gaps(const struct call *f, int arg, uint64_t key, double *x)
{
    double sum = 0;

    (void)key;
    for (int64_t r = 0; r < op_count(f, arg); r++)
        x[r] = sum += 1 + floor(0x1p12 * pow((double)(r + 1), f->real[POWER] - 1));
}

static const struct arg args[] = {
    ARG(examples, counter, "O", IN | WHOLE, .draw = draw_counter, .settled = 1),
    ARG(examples, gaps, "G", IN | WHOLE, .when = has_gaps, .draw = draw_gaps),
    ARG(examples, corpus, "C", IN | BYTES, .when = has_corpus),
    ARG(examples, token, "TB", OUT | WHOLE),
    ARG(examples, target, "TB", OUT | WHOLE),
};

static int derive_states(const struct call *f)
{
    if (f->choice[EXAMPLES_SUPERVISE] == SUPERVISE_LAST && DIM(f, 'N') > DIM(f, 'T'))
        return err_set("min = %lld is more than steps = %lld", (long long)DIM(f, 'N'),
                       (long long)DIM(f, 'T'));
    return 0;
}

static int derive_mqar(const struct call *f)
{
    const long long T = DIM(f, 'T'), V = DIM(f, 'V'), P = DIM(f, 'P');

    if (T < 4 * P)
        return err_set("pairs = %lld and as many keys again need 4 steps each, steps = %lld", P, T);
    if (V % 2)
        return err_set("vocabulary = %lld is odd: half of it are keys, half values", V);
    if (P > V / 2)
        return err_set(
            "pairs = %lld of different keys, of which vocabulary = %lld has half as many", P, V);
    return 0;
}

static int derive(struct call *f)
{
    int64_t first, bytes;

    DIM(f, 'O') = 1;
    DIM(f, 'G') = has_gaps(f) ? (DIM(f, 'T') - 2 * DIM(f, 'P')) / 2 : 1;
    if (task(f) == TASK_COPY && (DIM(f, 'T') < 3 || DIM(f, 'T') % 2 == 0))
        return err_set("steps = %lld: n tokens, a mark and n blanks are an odd number from 3 on",
                       (long long)DIM(f, 'T'));
    example_split(f, &first, &bytes);
    if (has_corpus(f) && bytes <= DIM(f, 'T'))
        return err_set("corpus = %lld has too few bytes for steps = %lld of split = %s",
                       (long long)DIM(f, 'C'), (long long)DIM(f, 'T'),
                       splits[f->choice[EXAMPLES_SPLIT]]);
    return task(f) == TASK_MQAR ? derive_mqar(f) : derive_states(f);
}

/* No arithmetic on real numbers. */
COST(flops, "TB", 0, 0)

#define STATE "supervise=every,last "
static const struct refusal refused[] = {
    {"task=copy steps=4", "steps = 4"},
    {"task=copy steps=1", "steps = 1"},
    {"task=mqar steps=15", "steps = 15"},
    {"task=mqar vocabulary=17", "vocabulary = 17"},
    {"task=mqar steps=64 vocabulary=8 pairs=5", "pairs = 5"},
    {"supervise=last steps=4 min=5", "min = 5"},
    {"task=bytes corpus=40 steps=40", "corpus = 40"},
    {"task=bytes corpus=400 steps=20 split=test", "corpus = 400"},
    {.settings = NULL},
};

const struct op op_examples = {
    .name = "examples",
    .formula = "token, target = a batch of a task, by Philox from a seed and a counter",
    .source = "common/ops/examples.h",
    SIGNATURE(examples, params, args),
    .axis = axes,
    .refused = refused,
    .cases = "steps=1 batch=1 task=parity,counter,word; "
             "steps=9 batch=5 split=train,validation,test update=0,3,9007199254740991 "
             "task_seed=1,18446744073709551615; "
             "steps=5 batch=3 period=1,4 update=0,3,6; "
             "steps=12 batch=7 supervise=last min=1,5,12 task=parity,counter,word; "
             "steps=11 batch=3 task=counter modulus=2,3,64 moves=no,yes; "
             "steps=14 batch=6 task=word elements=s3,a4,a5,s5,z60; "
             "steps=14 batch=6 task=word elements=s3,s5 generators=transpositions " STATE "; "
             "steps=3,11 batch=5 task=copy vocabulary=2,16; "
             "steps=32,51 batch=9 task=mqar pairs=1,8 vocabulary=16,8192 power=0.01,1; "
             "steps=16 batch=40 task=mqar pairs=4 vocabulary=8 power=4; "
             "steps=6 batch=9 task=bytes corpus=300 split=train,validation,test",
    .shapes =
        "steps=3 batch=31,32,33,257 task=parity,copy; steps=257 batch=3 task=word elements=s5; "
        "steps=512 batch=2 task=mqar pairs=64 vocabulary=8192; "
        "steps=1024 batch=1 task=bytes corpus=100000",
    .derive = derive,
    .flops = flops,
};
