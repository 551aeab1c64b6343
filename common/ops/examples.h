/* examples: a batch of a task, tokens and targets [T,B], -1 where nothing is asked.
 *
 *     parity    bits                          -> the sum so far, modulo 2
 *     counter   0 ... m-1; or, moves = yes, 0, 1, 2 for -1, 0, +1
 *                                             -> the sum so far, modulo m
 *     word      elements of a group           -> their product so far, x_1 first: (p x)[i] = x[p[i]]
 *     copy      n tokens, a mark, n blanks    -> at the blanks the n tokens; T = 2 n + 1
 *     mqar      pairs of key and value, then keys again among random tokens
 *                                             -> at each key its value
 *     bytes     of a corpus                   -> the next byte
 *
 * A batch is a function of its key: row r of the batch u is the example u B + r, whose i-th word is word 0 of
 * Philox-4x32-10 with the counter (i, that number's two halves, h) and the seed's two halves as the key.  h is made of the
 * task, the split and the parameters that apply, by h <- 1000003 h + value modulo 2^32 in the order of
 * example_numbers(): training, validation and test data, and tasks with other parameters, have other words.  A number
 * below n is the high half of word x n.  Integers alone, so that all backends have equal bits.
 *
 * With a period of n there are n batches, over and over: u is taken modulo n.
 *
 * With supervise = last a row has a length of its own, min ... T, by word 2^31: its last token alone has a target, and the
 * tokens behind are 0.
 *
 * Elements of S_n are in lexicographic order, those of A_n among the even ones, so that 0 is the identity; of Z60 they
 * add.  With generators = transpositions the tokens are these alone, (0 1), (0 2), ... (n-2 n-1).
 *
 * mqar: V/2 keys and V/2 values behind them; P distinct ones of each, key i by the words 2^16 i + a, a = 0, 1, ... until
 * it is no earlier one (after 2^16 - 1 of them the least that is none), value i by these + 2^30; then at places 2 P and on
 * tokens below V by the words 2^29 + place, and key i again at place 2 P + 2 g, where g is the first with gaps[g] > x, x a
 * number below the last of gaps by the words 2^28 + 2^12 i + a, a = 0, 1, ... until no key is there (after 2^12 - 1 of them
 * the next free one from g on, around).
 *
 * bytes: training has the first 90 % of the corpus, validation and test 5 % each of the rest, each of these T bytes later;
 * an example begins anywhere where it ends within, by word 0. */
#ifndef COMMON_OPS_EXAMPLES_H
#define COMMON_OPS_EXAMPLES_H

#include "common/base/philox.h"
#include "common/call/call.h"

struct examples {
    void *counter;        /* [1]: u */
    void *gaps;           /* [G], G = (T - 2 P) / 2, of mqar: whole numbers that grow */
    void *corpus;         /* [C], of bytes */
    void *token, *target; /* [T,B] */
};

enum {
    EXAMPLES_TASK,
    EXAMPLES_SPLIT,
    EXAMPLES_GROUP,
    EXAMPLES_GENERATORS,
    EXAMPLES_MOVES,
    EXAMPLES_SUPERVISE
};
enum { TASK_PARITY, TASK_COUNTER, TASK_WORD, TASK_COPY, TASK_MQAR, TASK_BYTES };
enum { SPLIT_TRAIN, SPLIT_VALIDATION, SPLIT_TEST };
enum { GROUP_S3, GROUP_A4, GROUP_A5, GROUP_S5, GROUP_Z60 };
enum { GENERATORS_ALL, GENERATORS_TRANSPOSITIONS };
enum { SUPERVISE_EVERY, SUPERVISE_LAST };

/* A task with its parameters; then a row of a batch of it. */
struct example_task {
    int task, group, generators, moves, last;
    int64_t T, B, modulus, min, V, P, period, first,
        bytes; /* first byte of the split, and how many it has */
    uint32_t key[2], tag;
    const int64_t *gaps;
    const unsigned char *corpus;
};
struct example_row {
    const struct example_task *of;
    uint64_t number;
    int64_t *token, *target; /* of step t at t B */
};

/* Word i of the row, and the number below n that it gives. */
static inline ON_HOST_AND_DEVICE uint32_t example_word(const struct example_row *r, uint32_t i)
{
    const struct philox counter = {
        {i, (uint32_t)r->number, (uint32_t)(r->number >> 32), r->of->tag}};
    return philox4x32(counter, r->of->key[0], r->of->key[1]).word[0];
}

static inline ON_HOST_AND_DEVICE int64_t example_below(const struct example_row *r, uint32_t i,
                                                       int64_t n)
{
    return (int64_t)((uint64_t)example_word(r, i) * (uint64_t)n >> 32);
}

/* ---- groups ---- */

/* A permutation of at most 5: p[i] in the four bits from 4 i on. */
static inline ON_HOST_AND_DEVICE int permuted(uint32_t p, int i)
{
    return p >> 4 * i & 15;
}

/* Those of a group of permutations, and whether they are the even ones alone. */
static inline ON_HOST_AND_DEVICE int group_degree(int group)
{
    return group == GROUP_S3 ? 3 : group == GROUP_A4 ? 4 : 5;
}
static inline ON_HOST_AND_DEVICE int group_is_even(int group)
{
    return group == GROUP_A4 || group == GROUP_A5;
}

/* The permutation of n in that place of the lexicographic order.  Of each two neighbours, places 2 k and 2 k + 1, which
 * exchange the last two, one is even. */
static inline ON_HOST_AND_DEVICE uint32_t permutation_at(int n, int place)
{
    uint32_t p = 0, left = 0x43210;
    int size = 1;

    for (int i = 2; i < n; i++)
        size *= i;
    for (int i = 0; i < n; i++) {
        const int k = place / size;
        const uint32_t low = left & ((1u << 4 * k) - 1);
        p |= (left >> 4 * k & 15) << 4 * i;
        left = low | left >> (4 * k + 4) << 4 * k;
        place %= size;
        size /= i < n - 1 ? n - 1 - i : 1;
    }
    return p;
}

static inline ON_HOST_AND_DEVICE int permutation_place(int n, uint32_t p)
{
    int place = 0;

    for (int i = 0; i < n; i++) {
        int smaller = 0;
        for (int j = i + 1; j < n; j++)
            smaller += permuted(p, j) < permuted(p, i);
        place = place * (n - i) + smaller;
    }
    return place;
}

static inline ON_HOST_AND_DEVICE int permutation_is_odd(int n, uint32_t p)
{
    int inversions = 0;

    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            inversions += permuted(p, j) < permuted(p, i);
    return inversions % 2;
}

static inline ON_HOST_AND_DEVICE uint32_t group_element(int group, int64_t e)
{
    const int n = group_degree(group);
    uint32_t p = permutation_at(n, (int)(group_is_even(group) ? 2 * e : e));

    if (group_is_even(group) && permutation_is_odd(n, p))
        p = permutation_at(n, (int)(2 * e + 1));
    return p;
}

/* Transposition number e of n. */
static inline ON_HOST_AND_DEVICE uint32_t transposition(int n, int64_t e)
{
    uint32_t p = 0x43210;

    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (e-- == 0)
                p = (p & ~(15u << 4 * a) & ~(15u << 4 * b)) | (uint32_t)b << 4 * a |
                    (uint32_t)a << 4 * b;
    return p;
}

static inline ON_HOST_AND_DEVICE int64_t group_order(int group)
{
    return group == GROUP_S3 ? 6 : group == GROUP_A4 ? 12 : group == GROUP_S5 ? 120 : 60;
}

/* The product of element e and a token. */
static inline ON_HOST_AND_DEVICE int64_t group_times(const struct example_task *t, int64_t e,
                                                     int64_t token)
{
    if (t->group == GROUP_Z60)
        return (e + token) % 60;
    const int n = group_degree(t->group);
    const uint32_t p = group_element(t->group, e);
    const uint32_t x = t->generators == GENERATORS_TRANSPOSITIONS ? transposition(n, token)
                                                                  : group_element(t->group, token);
    uint32_t y = 0;
    for (int i = 0; i < n; i++)
        y |= (uint32_t)permuted(x, permuted(p, i)) << 4 * i;
    return permutation_place(n, y) / (group_is_even(t->group) ? 2 : 1);
}

/* ---- tasks ---- */

/* How many tokens a step has in parity, counter and word, and how the state goes on. */
static inline ON_HOST_AND_DEVICE int64_t example_tokens(const struct example_task *t)
{
    const int64_t n = group_degree(t->group);

    if (t->task == TASK_COUNTER)
        return t->moves ? 3 : t->modulus;
    if (t->task == TASK_WORD)
        return t->generators == GENERATORS_ALL ? group_order(t->group) : n * (n - 1) / 2;
    return 2;
}
static inline ON_HOST_AND_DEVICE int64_t example_next(const struct example_task *t, int64_t state,
                                                      int64_t token)
{
    if (t->task == TASK_COUNTER)
        return (state + token + (t->moves ? t->modulus - 1 : 0)) % t->modulus;
    return t->task == TASK_WORD ? group_times(t, state, token) : state ^ token;
}

static inline ON_HOST_AND_DEVICE void example_states(const struct example_row *r)
{
    const struct example_task *t = r->of;
    const int64_t n = example_tokens(t);
    const int64_t last =
        t->last ? t->min + example_below(r, 1u << 31, t->T - t->min + 1) - 1 : t->T - 1;
    int64_t state = 0;

    for (int64_t i = 0; i < t->T; i++) {
        const int64_t token = i <= last ? example_below(r, (uint32_t)i, n) : 0;
        state = example_next(t, state, token);
        r->token[i * t->B] = token;
        r->target[i * t->B] = i <= last && (!t->last || i == last) ? state : -1;
    }
}

static inline ON_HOST_AND_DEVICE void example_copy(const struct example_row *r)
{
    const struct example_task *t = r->of;
    const int64_t n = t->T / 2;

    for (int64_t i = 0; i < n; i++) {
        const int64_t token = example_below(r, (uint32_t)i, t->V);
        r->token[i * t->B] = r->target[(n + 1 + i) * t->B] = token;
        r->token[(n + 1 + i) * t->B] = t->V + 1;
        r->target[i * t->B] = -1;
    }
    r->token[n * t->B] = t->V;
    r->target[n * t->B] = -1;
}

/* Is that the token of an earlier pair, `which` of it? */
static inline ON_HOST_AND_DEVICE int is_taken(const struct example_row *r, int64_t i, int which,
                                              int64_t token)
{
    int taken = 0;
    for (int64_t j = 0; j < i; j++)
        taken |= r->token[(2 * j + which) * r->of->B] == token;
    return taken;
}

/* Key or value i, which is no earlier one. */
static inline ON_HOST_AND_DEVICE int64_t example_distinct(const struct example_row *r, int64_t i,
                                                          int which)
{
    const int64_t half = r->of->V / 2, from = which ? half : 0;
    const uint32_t first = ((uint32_t)which << 30) + ((uint32_t)i << 16);
    int64_t token = from;

    for (uint32_t a = 0; a < 0xffff; a++) {
        token = from + example_below(r, first + a, half);
        if (!is_taken(r, i, which, token))
            return token;
    }
    for (token = from; is_taken(r, i, which, token); token++)
        ;
    return token;
}

/* The gap that a number chooses. */
static inline ON_HOST_AND_DEVICE int64_t gap_of(const int64_t *gaps, int64_t n, int64_t x)
{
    int64_t low = 0, high = n - 1; /* it is within these */

    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (gaps[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Where key i stands again. */
static inline ON_HOST_AND_DEVICE int64_t example_gap(const struct example_row *r, int64_t i)
{
    const struct example_task *t = r->of;
    const int64_t n = (t->T - 2 * t->P) / 2;
    int64_t g = 0;

    for (uint32_t a = 0; a < 0xfff; a++) {
        const uint32_t word = (1u << 28) + ((uint32_t)i << 12) + a;
        g = gap_of(t->gaps, n, example_below(r, word, t->gaps[n - 1]));
        if (r->target[(2 * t->P + 2 * g) * t->B] < 0)
            return g;
    }
    while (r->target[(2 * t->P + 2 * g) * t->B] >= 0)
        g = (g + 1) % n;
    return g;
}

static inline ON_HOST_AND_DEVICE void example_mqar(const struct example_row *r)
{
    const struct example_task *t = r->of;

    for (int64_t i = 0; i < t->T; i++) {
        if (i < 2 * t->P)
            r->token[i * t->B] = example_distinct(r, i / 2, (int)(i % 2));
        else
            r->token[i * t->B] = example_below(r, (1u << 29) + (uint32_t)i, t->V);
        r->target[i * t->B] = -1;
    }
    for (int64_t i = 0; i < t->P; i++) {
        const int64_t at = 2 * t->P + 2 * example_gap(r, i);
        r->token[at * t->B] = r->token[2 * i * t->B];
        r->target[at * t->B] = r->token[(2 * i + 1) * t->B];
    }
}

static inline ON_HOST_AND_DEVICE void example_bytes(const struct example_row *r)
{
    const struct example_task *t = r->of;
    const int64_t start = t->first + example_below(r, 0, t->bytes - t->T);

    for (int64_t i = 0; i < t->T; i++) {
        r->token[i * t->B] = t->corpus[start + i];
        r->target[i * t->B] = t->corpus[start + i + 1];
    }
}

static inline ON_HOST_AND_DEVICE void example_make(const struct example_row *r)
{
    switch (r->of->task) {
    case TASK_COPY: example_copy(r); break;
    case TASK_MQAR: example_mqar(r); break;
    case TASK_BYTES: example_bytes(r); break;
    default: example_states(r);
    }
}

/* ---- of a call ---- */

enum { EXAMPLE_NUMBERS = 11 };

/* What a batch's words depend on besides the seed: 0 where a parameter does not apply. */
static inline void example_numbers(const struct call *f, int64_t to[EXAMPLE_NUMBERS])
{
    const int task = f->choice[EXAMPLES_TASK];
    const int states = task <= TASK_WORD, counts = task == TASK_COUNTER, words = task == TASK_WORD;
    const int last = states && f->choice[EXAMPLES_SUPERVISE] == SUPERVISE_LAST;
    const int tokens = task == TASK_COPY || task == TASK_MQAR;
    const int64_t all[EXAMPLE_NUMBERS] = {task,
                                          f->choice[EXAMPLES_SPLIT],
                                          DIM(f, 'T'),
                                          counts ? DIM(f, 'M') : 0,
                                          counts ? f->choice[EXAMPLES_MOVES] : 0,
                                          words ? f->choice[EXAMPLES_GROUP] : 0,
                                          words ? f->choice[EXAMPLES_GENERATORS] : 0,
                                          last,
                                          last ? DIM(f, 'N') : 0,
                                          tokens ? DIM(f, 'V') : 0,
                                          task == TASK_MQAR ? DIM(f, 'P') : 0};

    for (int i = 0; i < EXAMPLE_NUMBERS; i++)
        to[i] = all[i];
}

/* The split's first byte of a corpus of C, and how many it has: less than one if there are too few. */
static inline void example_split(const struct call *f, int64_t *first, int64_t *bytes)
{
    const int64_t C = DIM(f, 'C'), T = DIM(f, 'T');
    const int64_t end[] = {C * 18 / 20, C * 19 / 20, C};
    const int split = f->choice[EXAMPLES_SPLIT];

    *first = split ? end[split - 1] + T : 0;
    *bytes = end[split] - *first;
}

static inline struct example_task example_task_of(const struct call *f)
{
    const struct examples *a = ARGS(f, examples);
    const uint64_t seed = (uint64_t)DIM(f, 'X');
    struct example_task t;
    int64_t number[EXAMPLE_NUMBERS];

    example_numbers(f, number);
    t.tag = 0;
    for (int i = 0; i < EXAMPLE_NUMBERS; i++)
        t.tag = 1000003 * t.tag + (uint32_t)number[i];
    t.task = f->choice[EXAMPLES_TASK], t.group = f->choice[EXAMPLES_GROUP];
    t.generators = f->choice[EXAMPLES_GENERATORS], t.moves = f->choice[EXAMPLES_MOVES];
    t.last = f->choice[EXAMPLES_SUPERVISE] == SUPERVISE_LAST;
    t.T = DIM(f, 'T'), t.B = DIM(f, 'B'), t.modulus = DIM(f, 'M'), t.min = DIM(f, 'N');
    t.V = DIM(f, 'V'), t.P = DIM(f, 'P'), t.period = DIM(f, 'Q');
    t.key[0] = (uint32_t)seed, t.key[1] = (uint32_t)(seed >> 32);
    t.gaps = (const int64_t *)a->gaps, t.corpus = (const unsigned char *)a->corpus;
    example_split(f, &t.first, &t.bytes);
    return t;
}

/* Makes row r of the batch that the counter says. */
static inline ON_HOST_AND_DEVICE void example_row_make(const struct example_task *t,
                                                       const int64_t *counter, int64_t *token,
                                                       int64_t *target, int64_t r)
{
    const uint64_t u = t->period ? (uint64_t)*counter % (uint64_t)t->period : (uint64_t)*counter;
    const uint64_t number = u * (uint64_t)t->B + (uint64_t)r;
    const struct example_row row = {t, number, token + r, target + r};

    example_make(&row);
}

#endif
