/* The contract of embedding: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/embedding.h"

enum { UNIFORM, ZIPF, SAME };
static const char *const tokens[] = {"uniform", "zipf", "same", NULL};

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 8192, "tokens, and rows of y"),
    SIZE_PARAM("vocabulary", 'V', 32000, "rows of E"),
    SIZE_PARAM("width", 'D', 1024, "columns of E"),
    [EMBEDDING_TOKENS] =
        DRAW_PARAM("tokens", tokens, UNIFORM,
                   "how they are drawn: all alike, by Zipf's law, or one for all rows"),
    [EMBEDDING_OUTSIDE] =
        DRAW_PARAM("outside", no_yes, 0, "an eighth of the tokens are -1 or the vocabulary"),
};

static const double OUTSIDE_SHARE = 0.125;

/* The rank, from 0, whose probability is as 1 / (rank + 1).  What is tried has the density 1 / x from 1 to
 * V + 1, of which rank k - 1 has log(1 + 1 / k), and is taken so often that 1 / k is left. */
static double draw_zipf(uint64_t key, int64_t i, double V)
{
    static const double LOG_2 = 0.69314718055994530942;
    const uint64_t accepted = draw_key(key, "accepted");

    for (uint64_t n = 0;; n++) {
        const double k = fmin(floor(exp(log(V + 1) * draw_uniform(key + n, i))), V);
        if (draw_uniform(accepted + n, i) * k * log1p(1 / k) < LOG_2)
            return k - 1;
    }
}

static double draw_token(const struct call *f, uint64_t key, int64_t i)
{
    const double V = (double)DIM(f, 'V');

    switch (f->choice[EMBEDDING_TOKENS]) {
    case ZIPF: return draw_zipf(key, i, V);
    case SAME: return floor(draw_uniform(key, 0) * V);
    default: return floor(draw_uniform(key, i) * V);
    }
}

static void draw_tokens(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t n = op_count(f, arg);
    const double share = f->choice[EMBEDDING_OUTSIDE] ? OUTSIDE_SHARE : 0;
    const uint64_t outside = draw_key(key, "outside");

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        const double u = draw_uniform(outside, i);
        x[i] = u < share / 2 ? -1 : u < share ? (double)DIM(f, 'V') : draw_token(f, key, i);
    }
}

/* Of R tokens how many are not -1 or V, about. */
OF_CALL(double, inside,
        (double)DIM(f, 'R') * (f->choice[EMBEDDING_OUTSIDE] ? 1 - OUTSIDE_SHARE : 1))

/* The rows of E that n tokens of probability p each have are n p at most; so many are expected. */
static double expected(double p, double n)
{
    return p < 1 ? -expm1(n * log1p(-p)) : 1;
}

/* The rows of E that some token names, about; those of Zipf's law in classes of about the same rank. */
static double rows_named(const struct call *f)
{
    const double V = (double)DIM(f, 'V'), n = inside(f);
    double sum = 0, harmonic = 0;

    if (f->choice[EMBEDDING_TOKENS] == SAME)
        return 1;
    if (f->choice[EMBEDDING_TOKENS] == UNIFORM)
        return V * expected(1 / V, n);
    for (int pass = 0; pass < 2; pass++)
        for (double first = 1, behind; first <= V; first = behind) {
            behind = fmin(first + 1 + floor(first / 16), V + 1);
            const double p = 2 / (first + behind - 1);
            if (pass == 0)
                harmonic += (behind - first) * p;
            else
                sum += (behind - first) * expected(p / harmonic, n);
        }
    return sum;
}

OF_CALL(double, elements_read, rows_named(f) * (double)DIM(f, 'D'))

OF_CALL(const char *, each, ((void)f, "RD"))

static const struct arg args[] = {
    ARG(embedding, token, "R", IN | WHOLE, .draw = draw_tokens),
    ARG(embedding, E, "VD", IN | DIFF | WIDE_GRAD | PARAMETER | NOT_BACK, NORMAL, .sample = each,
        .read = elements_read),
    ARG(embedding, y, "RD", OUT | DIFF, .sample = each),
};

/* Forward copies. */
COST(flops, "RD", 0, 1)

static const struct cost costs[] = {
    {"rows=5 vocabulary=3 width=7", BACKWARD, 35, 0, 0, {0, 0, 0}},
    {.settings = NULL},
};

/* One token of a table of 2 x 2. */
#define SMALL "vocabulary=2 width=2"
static const struct known known[] = {
    {SMALL, {1, 2, 3, 4}, 0, "y", {1, 2}},
    {SMALL, {1, 2, 3, 4}, 1, "y", {3, 4}},
    {SMALL, {1, 2, 3, 4}, 1, "d_E", {0, 0, 1, 2}},
    {SMALL, {INFINITY, NAN, -INFINITY, 4}, 0, "y", {INFINITY, NAN}},
    {SMALL, {INFINITY, NAN, -INFINITY, 4}, 1, "y", {-INFINITY, 4}},
    {SMALL, {INFINITY, NAN, -INFINITY, 4}, 0, "d_E", {1, 2, 0, 0}},
    {SMALL, {1, 2, 3, 4}, 2, "y", {NAN, NAN}},
    {SMALL, {1, 2, 3, 4}, 2, "d_E", {0, 0, 0, 0}},
    {SMALL, {1, 2, 3, 4}, -1, "y", {NAN, NAN}},
    {SMALL, {1, 2, 3, 4}, -1, "d_E", {0, 0, 0, 0}},
    {"vocabulary=1 width=4", {1, 2, 3, 4}, 1 << 30, "y", KNOWN_ALL(NAN)},
    {"vocabulary=1 width=4", {1, 2, 3, 4}, -(1 << 30), "d_E", KNOWN_ALL(0)},
    {"vocabulary=4 width=1", {1, 2, 3, 4}, 3, "d_E", {0, 0, 0, 1}},
    {.settings = NULL},
};

/* Of 74 rows 64 are inside, of 151 128, by the seed 1: whole groups of K. */
#define EACH_TOKENS " tokens=uniform,zipf,same outside=no,yes; "

const struct op op_embedding = {
    .name = "embedding",
    .formula = "y[r,:] = E[token[r],:]",
    .source = "common/ops/embedding.h",
    SIGNATURE(embedding, params, args),
    .cases =
        "rows=1 vocabulary=1 width=1; rows=1 vocabulary=5 width=3; rows=3 vocabulary=1 width=2; "
        "rows=40 vocabulary=7 width=5" EACH_TOKENS "rows=33 vocabulary=300 width=8" EACH_TOKENS
        "rows=200 vocabulary=9 width=16" EACH_TOKENS "rows=150 vocabulary=3 width=33" EACH_TOKENS
        "rows=50 vocabulary=256 width=2 outside=yes; rows=74,151 vocabulary=3 width=4 tokens=same "
        "outside=yes; rows=9 vocabulary=70000 width=1; rows=13 vocabulary=4 width=520; "
        "rows=4200 vocabulary=300 width=1 tokens=uniform,zipf,same; "
        "rows=16500 vocabulary=2 width=1 tokens=same",
    .shapes = "rows=63,64,65,128,129 vocabulary=2 width=4 tokens=same; "
              "rows=127,193,320 vocabulary=2 width=9 tokens=uniform,zipf; "
              "rows=257 vocabulary=255,256,257 width=1,2" EACH_TOKENS
              "rows=40 vocabulary=65535,65536,65537 width=1 outside=yes; "
              "rows=2047,2048,2049,6151 vocabulary=40 width=2 tokens=uniform,zipf outside=yes; "
              "rows=131 vocabulary=17 width=7,24,31,32,127,128,129,256,257,264; "
              "rows=5 vocabulary=3 width=1024,2056,4099,8200 outside=yes; "
              "rows=9000 vocabulary=5 width=1; rows=1 vocabulary=1000 width=40; "
              "rows=700 vocabulary=1 width=12; rows=2048,2049,2111,2112,2113 vocabulary=1 width=4; "
              "rows=17000,36000 vocabulary=2 width=17,20 tokens=zipf",
    .known = known,
    .cost = costs,
    .flops = flops,
    .batch = 'R',
};
