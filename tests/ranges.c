/* Ranges in lists: the numbers that they stand for, and the messages for wrong ones. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/plan.h"
#include "common/plan/settings.h"
#include "tests/plans.h"

/* The trials of a plan have these values of a key. */
static void has_values(const struct experiment *x, const char *key, const char *expected)
{
    char have[4096] = "", value[MAX_SETTING];

    for (int i = 0; i < x->n; i++) {
        size_t n = strlen(have);
        setting_value(&x->trial[i], key, value);
        snprintf(have + n, sizeof have - n, "%s%s", i ? " " : "", value);
    }
    if (!ok(strcmp(have, expected) == 0, "%s are %s", key, expected))
        printf("# they are: %s\n", have);
}

static void makes(const char *ini, const char *key, const char *expected)
{
    struct experiment x;

    if (good_ini(expected, ini, &x)) {
        has_values(&x, key, expected);
        plan_free(&x);
    }
}

/* A key that takes 64 bits without a sign takes a range of them. */
static void seeds(const char *section, const char *key)
{
    static const char *const of[][2] = {
        {"18446744073709551613 .. 18446744073709551615",
         "18446744073709551613 18446744073709551614 18446744073709551615"},
        {"9223372036854775807 .. 9223372036854775809",
         "9223372036854775807 9223372036854775808 9223372036854775809"},
        {"18446744073709551614:18446744073709551615 random 2",
         "18446744073709551614 18446744073709551615"},
        {"4611686018427387904:18446744073709551615 x2", "4611686018427387904 9223372036854775808"},
        {"18446744073709551615, 0 .. 1, 7:7 x2", "18446744073709551615 0 1 7"}};
    char ini[300];

    for (size_t i = 0; i < COUNT(of); i++) {
        snprintf(ini, sizeof ini, "%s%s = %s\n", section, key, of[i][0]);
        makes(ini, key, of[i][1]);
    }
}

#define SMALL LINEAR "dim_in = 1\ndim_out = 1\n"

static void forms(void)
{
    struct experiment x;

    makes(SMALL "rows = 11 .. 16\n", "rows", "11 12 13 14 15 16");
    makes(SMALL "rows = 11..13\n", "rows", "11 12 13");
    makes(SMALL "rows = +5  ..\t07\n", "rows", "5 6 7");
    makes(SMALL "rows = 3 .. 3\n", "rows", "3");
    makes("[trial]\nop = gemm\nalpha = -2 .. 1, 1.5\n", "alpha", "-2 -1 0 1 1.5");
    makes(SMALL "rows = 64:4096 x2\n", "rows", "64 128 256 512 1024 2048 4096");
    makes(SMALL "rows = 64:4095 x2\n", "rows", "64 128 256 512 1024 2048");
    makes(SMALL "rows = 3:4 x2\n", "rows", "3");
    makes(SMALL "rows = 7 : 7000  x10\n", "rows", "7 70 700 7000");
    makes(SMALL "rows = 1:12 random 12\n", "rows", "1 2 3 4 5 6 7 8 9 10 11 12");
    makes(SMALL "rows = 9:9 random 1\n", "rows", "9");
    makes(SMALL "rows = 1, 7, 64:256 x2, 1000:2000 random 3 ; drawn\n", "rows",
          "1 7 64 128 256 1025 1811 1916");
    makes(SMALL "rows: 64:256 x2\n", "rows", "64 128 256");
    makes(SMALL "rows = \"64:256 x2\"\n", "rows", "64 128 256");
    makes(SMALL "rows =\n 64:256 x2\n  1000:2000 random 3\n  7 .. 8, 9\n", "rows",
          "64 128 256 1025 1811 1916 7 8 9");
    makes(LINEAR "seed = 1 .. 5\n", "seed", "1 2 3 4 5");
    makes(LINEAR "seed = 9223372036854775806:9223372036854775807 random 2\n", "seed",
          "9223372036854775806 9223372036854775807");
    makes(LINEAR "seed = 4611686018427387904:9223372036854775807 x2\n", "seed",
          "4611686018427387904");
    makes(LINEAR "seed = 9223372036854775806 .. 9223372036854775807\n", "seed",
          "9223372036854775806 9223372036854775807");
    seeds(LINEAR, "seed");
    seeds("[trial]\nop = attention\ndropout = 0.5\n", "dropout_seed");
    if (good("ranges in words", NULL, "linear rows=\"64:128 x2, 7\" dim_in=11..12", &x)) {
        has_values(&x, "rows", "64 64 128 128 7 7");
        has_values(&x, "dim_in", "11 12 11 12 11 12");
        plan_free(&x);
    }
    if (good("ranges of every operation", NULL, "all rows=\"2:4 x2\"", &x)) {
        int with_rows = 0;
        for (int i = 0; i < N_OPS; i++) {
            const struct param *p = op_param(ops[i], "rows", NULL);
            struct call f;
            op_defaults(ops[i], &f);
            with_rows += p && !(p->unless && p->unless(&f));
        }
        ok(x.n == N_OPS + with_rows, "are those of each that has the key");
        plan_free(&x);
    }
}

/* These numbers follow from the formula in ranges.h, computed with 40 digits. */
#define DRAWN_1                                                                                    \
    "1104 1159 1726 1998 2059 3083 3091 3815 3874 4359 4814 5705 7895 9794 11710 15300 17196 "     \
    "33336 36450 46444"
#define DRAWN_2                                                                                    \
    "1005 1039 1060 2293 2425 2486 2535 2763 3442 3512 3633 5160 9733 11098 15456 15554 19284 "    \
    "39669 48985 58549"
#define DRAWN_DIM_IN                                                                               \
    "1028 2891 3100 3641 3868 6340 6950 8155 8653 10343 16735 19519 21145 35117 42065 45126 "      \
    "47163 49325 52725 53591"

static void draws(void)
{
    struct experiment x;

    makes(SMALL "rows = 1000:60000 random 20\n", "rows", DRAWN_1);
    makes(SMALL "rows = 1000:60000 random 5\n", "rows", "1159 11710 33336 36450 46444");
    makes("[experiment]\nseed = 2\n" SMALL "rows = 1000:60000 random 20\n", "rows", DRAWN_2);
    makes("\n\n[trial]\nrows = 1000:60000 random 20\nop = linear\nseed = 7\ndim_out = 1\n"
          "dim_in = 1\n[experiment]\nrepeats = 0\nseed = 2\n",
          "rows", DRAWN_2);
    makes(LINEAR "rows = 1\ndim_in = 1000:60000 random 20\ndim_out = 1\n", "dim_in", DRAWN_DIM_IN);
    makes("[trial a]\nop = linear\ndim_in = 1\nrows = 3\n[trial b]\nop = softmax\ncolumns = 1\n"
          "rows = 1000:60000 random 5\n",
          "rows", "3 1159 11710 33336 36450 46444");
    if (good("a seed of words, which is the trial's", NULL,
             "linear rows=\"1000:60000 random 5\" seed=2", &x)) {
        has_values(&x, "rows", "1159 11710 33336 36450 46444");
        plan_free(&x);
    }
}

/* The first value of a plan's key seed. */
static uint64_t first_seed(const char *format, int seed)
{
    struct experiment x;
    char ini[200];

    snprintf(ini, sizeof ini, format, seed);
    put("t.ini", ini, strlen(ini));
    struct messages messages = read_plan("t.ini", NULL, &x);
    if (messages.n)
        return 0;
    uint64_t first = x.trial[0].seed;
    plan_free(&x);
    return first;
}

static void distribution(void)
{
    struct experiment x;
    struct messages messages;
    int count[4] = {0}, strays = 0, below = 0, ascending = 1;

    for (int seed = 1; seed <= 100; seed++) {
        uint64_t value =
            first_seed("[experiment]\nseed = %d\n" LINEAR "seed = 1000:1003 random 1\n", seed);
        if (value >= 1000 && value <= 1003)
            count[value - 1000]++;
        else
            strays++;
    }
    ok(!strays && count[0] && count[1] && count[2] && count[3],
       "1000:1003 has both ends and what lies between: %d, %d, %d and %d of 100", count[0],
       count[1], count[2], count[3]);
    messages = read_plan(NULL, "linear seed=\"1000000:1000000000000 random 9999\"", &x);
    if (!ok(!messages.n && x.n == 9999, "9999 of a wide range"))
        return;
    for (int i = 0; i < x.n; i++) {
        below += x.trial[i].seed < 1000000000;
        ascending &= !i || x.trial[i - 1].seed < x.trial[i].seed;
    }
    ok(ascending, "ascend");
    ok(abs(below - 5000) < 250, "%d are below the geometric mean of the ends: half, within 5 sigma",
       below);
    plan_free(&x);
    messages = read_plan(NULL, "linear seed=\"1:9999 random 9999\"", &x);
    ok(!messages.n && x.n == 9999 && x.trial[0].seed == 1 && x.trial[9998].seed == 9999,
       "all of a range can be drawn");
    if (!messages.n)
        plan_free(&x);
}

#define FORMS "a range is A .. B, A:B random N or A:B xN, in whole numbers\n"

static void faults(void)
{
    refused("the first is larger",
            LINEAR "rows = 9:3 random 2\ndim_in = 1, 9:3 x2\ndim_out = 9 .. 3\n",
            "t.ini:3: rows = 9:3 random 2: 9:3: the first is larger\n"
            "t.ini:4: dim_in = 9:3 x2: 9:3: the first is larger\n"
            "t.ini:5: dim_out = 9 .. 3: the first is larger\n");
    refused("no rule, and an unknown one", LINEAR "rows = 10:20\ndim_in = 10:20 randm 3\n",
            "t.ini:3: rows = 10:20: random N or xN must follow 10:20, or write 10 .. 20 for every "
            "number\n"
            "t.ini:4: dim_in = 10:20 randm 3: random N or xN must follow 10:20, or write 10 .. 20 "
            "for every number\n");
    refused("how many",
            LINEAR "rows = 10:20 random\ndim_in = 10:20 random 0\ndim_out = 10:20 random 2 3\n"
                   "seed = 1:99999 random 10000\n",
            "t.ini:3: rows = 10:20 random: N of random N must be a whole number, 1 to 9999\n"
            "t.ini:4: dim_in = 10:20 random 0: N of random N must be a whole number, 1 to 9999\n"
            "t.ini:5: dim_out = 10:20 random 2 3: N of random N must be a whole number, 1 to 9999\n"
            "t.ini:6: seed = 1:99999 random 10000: N of random N must be a whole number, 1 to "
            "9999\n");
    refused("the factor",
            LINEAR "rows = 10:20 x1\ndim_in = 10:20 x\ndim_out = 10:20 x2.5\nseed = 1:9 x 2\n",
            "t.ini:3: rows = 10:20 x1: N of xN must be a whole number, 2 or more\n"
            "t.ini:4: dim_in = 10:20 x: N of xN must be a whole number, 2 or more\n"
            "t.ini:5: dim_out = 10:20 x2.5: N of xN must be a whole number, 2 or more\n"
            "t.ini:6: seed = 1:9 x 2: N of xN must be a whole number, 2 or more\n");
    refused("fewer numbers than are drawn",
            LINEAR "rows = 10:20 random 12\ndim_in = 7:7 random 2\n",
            "t.ini:3: rows = 10:20 random 12: 10:20 has 11 numbers, fewer than 12\n"
            "t.ini:4: dim_in = 7:7 random 2: 7:7 has 1 number, fewer than 2\n");
    refused("from 0 or below", LINEAR "rows = 0:20 random 2\ndim_in = -3:5 x2\ndim_out = -1 .. 1\n",
            "t.ini:3: rows = 0:20 random 2: 0:20: random and xN need a first number of 1 or more\n"
            "t.ini:4: dim_in = -3:5 x2: -3:5: random and xN need a first number of 1 or more\n"
            "t.ini:5: dim_out = -1: must be 1 to 1073741824\n"
            "t.ini:5: dim_out = 0: must be 1 to 1073741824\n");
    words_refused("in words", "linear rows=9:3 dim_in=\"1, 4:2 x2\"",
                  "-t: rows = 9:3: random N or xN must follow 9:3, or write 9 .. 3 for every "
                  "number\n-t: dim_in = 4:2 x2: 4:2: the first is larger\n");
}

static void malformed(void)
{
    refused("no last number", LINEAR "rows = 1 ..\ndim_in = 1: x2\ndim_out = 5...6\n",
            "t.ini:3: rows = 1 ..: " FORMS "t.ini:4: dim_in = 1: x2: " FORMS
            "t.ini:5: dim_out = 5...6: " FORMS);
    refused("something else behind it",
            LINEAR "rows = 64:256x2\ndim_in = 1 .. 4 x2\ndim_out = 1:b random 3\n",
            "t.ini:3: rows = 64:256x2: " FORMS "t.ini:4: dim_in = 1 .. 4 x2: " FORMS
            "t.ini:5: dim_out = 1:b random 3: " FORMS);
    refused("what is no range",
            LINEAR "rows = a:b random 3\ndim_in = .. 4\nact = relu .. none\n[trial]\nop = "
                   "cross_entropy\nlabel_smoothing = 0.1:0.5 random 3\n[experiment]\n"
                   "directions = 1 .. 2\nchecks = 1 .. 2\n",
            "t.ini:3: rows = a:b random 3: not a whole number in decimal digits\n"
            "t.ini:4: dim_in = .. 4: not a whole number in decimal digits\n"
            "t.ini:5: act = relu .. none: not one of none silu relu\n"
            "t.ini:8: label_smoothing = 0.1:0.5 random 3: not a decimal number\n"
            "t.ini:10: directions = 1 .. 2: not a whole number in decimal digits\n"
            "t.ini:11: checks = 1 .. 2: not one of differences parity properties power none\n");
    refused("values missing beside ranges", LINEAR "rows = 2:4 x2,, 7\ndim_in = 1 .. 2,\n",
            "t.ini:3: rows: a value is missing\nt.ini:4: dim_in: a value is missing\n");
    refused("values twice with ranges",
            LINEAR "rows = 64:256 x2, 128\ndim_in = 1 .. 3, 3:6 x2\nseed = 8, 007 .. 9\n",
            "t.ini:3: rows: 128 is listed twice in the list, as values 2 and 4\n"
            "t.ini:4: dim_in: 3 is listed twice in the list, as values 3 and 4\n"
            "t.ini:5: seed: 8 is listed twice in the list, as values 1 and 3\n");
}

static void limits(void)
{
    struct experiment x;
    struct messages messages = read_plan(NULL, "linear seed=1..9999", &x);

    ok(!messages.n && x.n == 9999 && x.trial[9998].seed == 9999, "a range of 9999 values");
    if (!messages.n)
        plan_free(&x);
    refused("too many values",
            LINEAR "seed = 1 .. 10000\nrows = 1 .. 9000, 10001 .. 11000\n"
                   "dim_in = -9223372036854775807 .. 9223372036854775807\n",
            "t.ini:3: seed = 1 .. 10000: it makes 10000 values; the ranges of a list make at most "
            "9999\n"
            "t.ini:4: rows = 10001 .. 11000: it makes 1000 values; the ranges of a list make at "
            "most 9999\n"
            "t.ini:5: dim_in = -9223372036854775807 .. 9223372036854775807: it makes "
            "18446744073709551615 values; the ranges of a list make at most 9999\n");
    refused("more values than 64 bits count",
            LINEAR "dim_in = -9223372036854775807 .. 18446744073709551615\n"
                   "seed = 0 .. 18446744073709551615\n",
            "t.ini:3: dim_in = -9223372036854775807 .. 18446744073709551615: it makes more than "
            "18446744073709551615 values; the ranges of a list make at most 9999\n"
            "t.ini:4: seed = 0 .. 18446744073709551615: it makes more than 18446744073709551615 "
            "values; the ranges of a list make at most 9999\n");
    refused("too large numbers",
            LINEAR "rows = 1:18446744073709551616 x2\ndim_in = -9223372036854775808 .. 1\n"
                   "dim_out = 1 .. 99999999999999999999\n",
            "t.ini:3: rows = 1:18446744073709551616 x2: 18446744073709551616: must be "
            "-9223372036854775807 to 18446744073709551615\n"
            "t.ini:4: dim_in = -9223372036854775808 .. 1: -9223372036854775808: must be "
            "-9223372036854775807 to 18446744073709551615\n"
            "t.ini:5: dim_out = 1 .. 99999999999999999999: 99999999999999999999: must be "
            "-9223372036854775807 to 18446744073709551615\n");
    refused("numbers that a size cannot be",
            LINEAR "rows = 9223372036854775808 .. 9223372036854775808\n",
            "t.ini:3: rows = 9223372036854775808: must be 1 to 1073741824\n");
    refused("too many trials of ranges", LINEAR "rows = 1 .. 100\ndim_in = 1 .. 100\n",
            "t.ini:1: this makes 10000 trials; an experiment has at most 9999\n");
}

/* N / KEY: as much work at each length. */
static void quotients(void)
{
    struct experiment x;

    makes(SMALL "rows = 12, 100 / dim_out, 99/dim_out\n", "rows", "12 100 99");
    if (good("quotients of a list", NULL, "softmax rows=\"64 / columns, 3\" columns=\"5, 8:32 x2\"",
             &x)) {
        has_values(&x, "rows", "12 8 4 2 3 3 3 3");
        has_values(&x, "columns", "5 8 16 32 5 8 16 32");
        plan_free(&x);
    }
    if (good("quotients by a default, of each type", NULL,
             "softmax rows=4096/columns dtype=fp32,bf16", &x)) {
        has_values(&x, "rows", "4 4");
        plan_free(&x);
    }
    refused("quotients by what is no size",
            LINEAR "rows = 5 / dim\ndim_in = 5 / act\ndim_out = 5/\nact = 5 / rows\n",
            "t.ini:3: rows = 5 / dim: linear has no size 'dim'\n"
            "t.ini:4: dim_in = 5 / act: linear has no size 'act'\n"
            "t.ini:5: dim_out = 5/: linear has no size ''\n"
            "t.ini:6: act = 5 / rows: it is not a size, and has no N / KEY\n");
    refused("quotients by a quotient", LINEAR "rows = 5 / dim_in\ndim_in = 7, 5 / rows\n",
            "t.ini:3: rows = 5 / dim_in: dim_in has an N / KEY itself\n"
            "t.ini:4: dim_in = 5 / rows: rows has an N / KEY itself\n");
    refused("a quotient by itself, of 0, of too large a number",
            LINEAR "rows = 5 / rows\ndim_in = 0 / rows\ndim_out = 9223372036854775808 / rows\n",
            "t.ini:3: rows = 5 / rows: a size cannot depend on itself\n"
            "t.ini:4: dim_in = 0 / rows: must be 1 to 9223372036854775807\n"
            "t.ini:5: dim_out = 9223372036854775808 / rows: must be 1 to 9223372036854775807\n");
    refused("quotients that the size cannot be",
            "[trial]\nop = softmax\nrows = 5 / columns\ncolumns = 5, 6, 7\ndtype = fp32, bf16\n",
            "t.ini:1: rows = 5 / columns, where columns is 6: rows = 0: must be 1 to 1073741824\n"
            "t.ini:1: rows = 5 / columns, where columns is 7: rows = 0: must be 1 to 1073741824\n");
}

int main(void)
{
    enter();
    forms();
    draws();
    distribution();
    faults();
    malformed();
    limits();
    quotients();
    leave();
    return done();
}
