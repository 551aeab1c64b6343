/* Plans: the meaning of ini files and words. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "common/call/cases.h"
#include "tests/plans.h"

static void everything(void)
{
    struct experiment x;
    if (!good_ini("every key of an experiment",
                  "[trial early]\nop = linear\n"
                  "[experiment]\nname = my-first_1.0\nseed = 18446744073709551615\n"
                  "backends = ref32, ref64\nchecks = parity, properties\ndirections = 64\n"
                  "repeats = 0\noutput = out/x.h5\nsave = outputs\ncompress = 9\ndevice = 3\n"
                  "[trial]\nop = linear\nseed = 7\ndtype = bf16\n",
                  &x))
        return;
    ok(strcmp(x.name, "my-first_1.0") == 0 && x.seed == UINT64_MAX && x.n_backends == 2 &&
           x.backend[0] == &ref32 && x.backend[1] == &ref64 &&
           x.checks == (CHECK_PARITY | CHECK_PROPERTIES) && x.directions == 64 && x.repeats == 0 &&
           strcmp(x.output, "out/x.h5") == 0 && x.save == SAVE_OUTPUTS && x.compress == 9 &&
           x.device == 3,
       "they have the given values");
    ok(strncmp(x.text, "[trial early]\n", 14) == 0, "the text is the file's");
    ok(x.n == 2 && x.trial[0].seed == UINT64_MAX && x.trial[0].type == F32 &&
           strcmp(x.trial[0].section, "early") == 0 && x.trial[0].line == 1,
       "the first trial");
    ok(x.n == 2 && x.trial[1].seed == 7 && x.trial[1].type == BF16 && !x.trial[1].section[0] &&
           x.trial[1].line == 14,
       "the second");
    plan_free(&x);
}

/* Two files whose names are alike once they are cut to letters. */
static void outputs(void)
{
    static const char ini[] = "[trial]\nop = linear\n";
    static const char named[] = "[experiment]\nname = n\n[trial]\nop = linear\n";
    static const struct {
        const char *file, *name, *output;
    } plan[] = {
        {"m\xc3\xa4rz.ini", "m__rz", "m\xc3\xa4rz.h5"},
        {"m\xc3\xb6rz.ini", "m__rz", "m\xc3\xb6rz.h5"},
        {"a23456789b23456789c23456789d23456789e23456789f23456789g23456789.ini",
         "a23456789b23456789c23456789d23456789e23456789f23456789g23456789",
         "a23456789b23456789c23456789d23456789e23456789f23456789g23456789.h5"},
        {"a23456789b23456789c23456789d23456789e23456789f23456789g23456789h.ini",
         "a23456789b23456789c23456789d23456789e23456789f23456789g23456789",
         "a23456789b23456789c23456789d23456789e23456789f23456789g23456789h.h5"},
    };
    struct experiment x;

    for (size_t i = 0; i < COUNT(plan); i++) {
        put(plan[i].file, ini, strlen(ini));
        if (good("a file that names no output", plan[i].file, NULL, &x)) {
            ok(strncmp(x.name, plan[i].name, sizeof x.name - 1) == 0 &&
                   strcmp(x.output, plan[i].output) == 0 && !x.scratch,
               "its output has its whole name: %s", plan[i].output);
            plan_free(&x);
        }
        unlink(plan[i].file);
    }
    put("t\x01.ini", ini, strlen(ini));
    struct messages messages = read_plan("t\x01.ini", NULL, &x);
    expect(&messages, "t\\x01.ini: its name has a control character: set output\n",
           "a control character in a name");
    unlink("t\x01.ini");
    put("named.ini", named, strlen(named));
    if (good("a file that names itself", "named.ini", NULL, &x)) {
        ok(strcmp(x.output, "n.h5") == 0 && !x.scratch, "its output has that name");
        plan_free(&x);
    }
    unlink("named.ini");
    if (good("words", NULL, "linear", &x)) {
        ok(strcmp(x.output, "trial.h5") == 0 && x.scratch, "the output of words is scratch");
        plan_free(&x);
    }
    if (good("words with an output", NULL, "linear output=l.h5", &x)) {
        ok(strcmp(x.output, "l.h5") == 0 && !x.scratch, "one that is named is not");
        plan_free(&x);
    }
}

static void defaults(void)
{
    struct experiment x;
    const char *ini = "[trial]\nop = linear";
    put("sub/my plan.ini", ini, strlen(ini));
    if (!good("a file of two lines, the last without its end", "sub/my plan.ini", NULL, &x))
        return;
    ok(strcmp(x.name, "my_plan") == 0 && strcmp(x.output, "my plan.h5") == 0 && x.seed == 1 &&
           x.n_backends == 0 && x.device == -1 && x.directions == 2 && x.repeats == 5 &&
           x.save == SAVE_ALL && x.compress == 1 && x.measure == MEASURE_CHECK && !x.ceilings &&
           x.checks == (CHECK_DIFFERENCES | CHECK_PARITY | CHECK_PROPERTIES),
       "defaults of the experiment");
    ok(x.n == 1 && x.trial[0].seed == 1 && x.trial[0].type == F32 &&
           x.trial[0].input == INPUT_NORMAL && !x.trial[0].file[0] && !x.trial[0].group[0] &&
           !x.trial[0].kernel[0],
       "defaults of a trial");
    plan_free(&x);
    if (good_ini("checks = none", "[experiment]\nchecks = none\n[trial]\nop = linear\n", &x)) {
        ok(x.checks == 0, "means no checks");
        plan_free(&x);
    }
    if (good("measure in words", NULL, "linear measure=time", &x)) {
        ok(x.measure == MEASURE_TIME && x.checks == CHECK_PARITY && x.repeats == 5,
           "means parity and no other check");
        plan_free(&x);
    }
    if (good_ini("a crossover",
                 "[experiment]\nmeasure = crossover\nchecks = parity\n[trial]\nop = linear\n",
                 &x)) {
        ok(x.measure == MEASURE_CROSSOVER && x.checks == CHECK_PARITY, "may name parity");
        plan_free(&x);
    }
    if (good("its name in earlier versions", NULL, "linear measure=regime", &x)) {
        ok(x.measure == MEASURE_CROSSOVER, "means the same");
        plan_free(&x);
    }
}

/* Which trials of a plan are judged by a sample, "101" for the first and the third. */
static void sampled(const char *what, const char *words, const char *want)
{
    struct experiment x;
    char got[8] = "";

    if (!good(what, NULL, words, &x))
        return;
    for (int i = 0; i < x.n && i < (int)sizeof got - 1; i++)
        got[i] = x.trial[i].sampled ? '1' : '0';
    if (!ok(strcmp(got, want) == 0, "%s: by a sample are %s", what, want))
        printf("# not %s\n", got);
    plan_free(&x);
}

/* 7.7 GFLOP forward, 15.3 GFLOP backward; and a small product. */
#define PRODUCTS "gemm M=1500 N=1500 K=1700,17 "
/* 13.7 GFLOP forward and 28.2 backward, and gradients of weights that are sums over all steps and
 * sequences. */
#define WEIGHTS "e74 steps=64 batch=64 heads=8 n_state=64 dim=1024 "

static void judging(void)
{
    struct experiment x;

    sampled("judge = auto with times", PRODUCTS "measure=time", "10");
    sampled("with parity alone", PRODUCTS "checks=parity", "10");
    sampled("with the default checks", PRODUCTS, "00");
    sampled("with parity and properties", PRODUCTS "checks=parity,properties", "00");
    sampled("judge = full", PRODUCTS "measure=time judge=full", "00");
    sampled("judge = sampled", PRODUCTS "judge=sampled", "11");
    sampled("judge = auto where a result cannot be sampled", WEIGHTS "measure=time", "0");
    sampled("judge = sampled there", WEIGHTS "judge=sampled", "1");
    if (good_ini("the default of judge", LINEAR, &x)) {
        ok(x.judge == JUDGE_AUTO, "is auto");
        plan_free(&x);
    }
    if (good_ini("judge = sampled without checks", "[experiment]\njudge = sampled\n" LINEAR, &x)) {
        ok(x.judge == JUDGE_SAMPLED && x.checks == CHECK_PARITY, "checks parity");
        plan_free(&x);
    }
    if (good("judge = sampled with checks = none", NULL, "linear judge=sampled checks=none", &x)) {
        ok(x.checks == 0, "checks nothing");
        plan_free(&x);
    }
}

static void order(void)
{
    static const int64_t rows[] = {1, 1, 1, 1, 2, 2, 2, 2};
    static const enum dtype type[] = {F32, F32, BF16, BF16, F32, F32, BF16, BF16};
    static const uint64_t seed[] = {3, 4, 3, 4, 3, 4, 3, 4};
    struct experiment x;
    int right = 1;

    if (!good_ini("a product of lists",
                  "[trial]\nrows = 1, 2\ndtype = fp32, bf16\nop = linear\n"
                  "seed = 3, 4\n",
                  &x))
        return;
    for (int i = 0; i < 8 && i < x.n; i++)
        right &= DIM(&x.trial[i].call, 'M') == rows[i] && x.trial[i].type == type[i] &&
                 x.trial[i].seed == seed[i];
    ok(x.n == 8 && right, "its last key is the fastest");
    plan_free(&x);
}

static void layout(void)
{
    struct experiment x;
    if (good_ini("BOM, CRLF, comments, indentation, lists that go on",
                 "\xef\xbb\xbf; a comment\r\n# another\r\n\r\n  [ trial ] ; a third\r\n"
                 "  op = linear ; a fourth\r\n  rows = 1, ; 1\r\n   2\r\n\t3, 4\r\n\r\n"
                 "  ; between\r\n    , 5\r\n\tdim_in: 7\r\ndim_out=6\r\n",
                 &x)) {
        ok(x.n == 5 && DIM(&x.trial[4].call, 'M') == 5 && DIM(&x.trial[0].call, 'C') == 7 &&
               DIM(&x.trial[0].call, 'D') == 6 && x.trial[0].line == 4,
           "have the right meaning");
        plan_free(&x);
    }
    if (good_ini("two [trial] in a row",
                 "[trial]\nop = linear\nrows = 1\n[trial]\nop = linear\n"
                 "rows = 2\n",
                 &x)) {
        ok(x.n == 2 && DIM(&x.trial[0].call, 'M') == 1 && DIM(&x.trial[1].call, 'M') == 2 &&
               x.trial[1].line == 4,
           "are two sections");
        plan_free(&x);
    }
}

/* Lists and lines of any length: 300 values in a line of 2000 characters, with
 * a comment; and a name of 400 in quotes, of characters that a cut must spare. */
static void long_lines(void)
{
    char ini[4096] = "[trial]\nop = linear\nrows = ", name[401] = "", pattern[600];
    struct experiment x;
    int right = 1;

    for (int i = 1; i <= 300; i++)
        snprintf(ini + strlen(ini), sizeof ini - strlen(ini), "%s%d", i > 1 ? ",    " : "", i);
    strcat(ini, " ; and not , 301\n 400, 500\ndim_in = 3\n");
    if (good_ini("a list of 302 values", ini, &x)) {
        for (int i = 0; i < x.n; i++)
            right &= DIM(&x.trial[i].call, 'M') == (i < 300 ? i + 1 : 100 * (i - 296));
        ok(right && x.n == 302 && DIM(&x.trial[0].call, 'C') == 3, "are all there");
        plan_free(&x);
    }
    for (int i = 0; i < 80; i++)
        strcat(name, i % 3 ? "a;#;b" : "c  d#");
    snprintf(ini, sizeof ini, E74 "input = text\nfile = \"%s\"\n", name);
    snprintf(pattern, sizeof pattern, "t.ini:4: file = %s: *\n", name);
    refused("a long name", ini, pattern);
    snprintf(ini, sizeof ini, LINEAR "rows = 1,%300s2\ndim_in = x\n", "");
    refused("a line of blanks", ini,
            "t.ini:3: too long a key, or too many blanks or ';' in a row\n"
            "t.ini:4: dim_in = x: not a whole number in decimal digits\n");
}

static void inputs(void)
{
    const char *ini = "[trial]\nop = e74\ninput = text\nfile = b.txt\n"
                      "[trial]\nop = e74\ninput = hdf5\nfile = \"../a b,\"\"c\"\".txt\"\n"
                      "[trial]\nop = e74\ninput = hdf5\nfile = ../a.txt\ngroup = /my trial\n";
    struct experiment x;

    put("sub/my plan.ini", ini, strlen(ini));
    if (good("texts and HDF5 files", "sub/my plan.ini", NULL, &x)) {
        ok(x.trial[0].input == INPUT_TEXT && strcmp(x.trial[0].file, "sub/b.txt") == 0 &&
               !x.trial[0].group[0],
           "a file in the ini file's folder");
        ok(x.trial[1].input == INPUT_HDF5 && strcmp(x.trial[1].group, "/") == 0 &&
               strcmp(x.trial[1].file, "sub/../a b,\"c\".txt") == 0,
           "a file with an odd name");
        ok(like(x.trial[1].text, "* input=hdf5 file=\"sub/../a b,\"\"c\"\".txt\" group=/"),
           "its words");
        ok(strcmp(x.trial[2].group, "/my trial") == 0, "a group");
        plan_free(&x);
    }
    char *here = realpath("a.txt", NULL), words[600];
    snprintf(words, sizeof words, "e74 input=text file=\"%s\"", here);
    if (good("an absolute name", NULL, words, &x)) {
        ok(strcmp(x.trial[0].file, here) == 0, "stays");
        plan_free(&x);
    }
    free(here);
}

static void words(void)
{
    struct experiment x;
    if (good("words", NULL,
             " e74  state=full,diagonal nonlin=\"tanh, linear\"\trepeats=0 seed=3 "
             "output=\"a b.h5\" input=text file=\"a b,\"\"c\"\".txt\" kernel=blas\n",
             &x)) {
        ok(x.n == 4 && x.repeats == 0 && strcmp(x.output, "a b.h5") == 0 &&
               strcmp(x.name, "trial") == 0 && x.trial[0].seed == 3 && x.trial[0].line == 0 &&
               strcmp(x.trial[0].file, "a b,\"c\".txt") == 0 &&
               strcmp(x.trial[0].kernel, "blas") == 0,
           "have the right meaning");
        plan_free(&x);
    }
    if (good("op=NAME", NULL, "rows=3 op=linear", &x)) {
        ok(x.n == 1 && DIM(&x.trial[0].call, 'M') == 3 && strcmp(x.output, "trial.h5") == 0,
           "may stand anywhere");
        plan_free(&x);
    }
}

/* All that a contract lists as a case is a section of a plan. */
static void contracts(void)
{
    for (int i = 0; i < N_OPS; i++) {
        const struct op *o = ops[i];
        int clash = 0, plans = 0, same = 1;
        for (int j = 0; j < o->n_params; j++) {
            for (int k = 0; experiment_keys[k].name; k++)
                clash |= strcmp(experiment_keys[k].name, o->param[j].name) == 0;
            for (int k = 0; trial_keys[k].name; k++)
                clash |= strcmp(trial_keys[k].name, o->param[j].name) == 0;
        }
        ok(!clash, "%s: no parameter is called like a key", o->name);
        for (const char *c = o->cases; *(c += strspn(c, "; ")); c += strcspn(c, ";")) {
            char line[4096];
            struct experiment x;
            snprintf(line, sizeof line, "%s ", o->name);
            strncat(line, c, strcspn(c, ";"));
            if (good(line, NULL, line, &x))
                plan_free(&x);
            else
                same = 0;
            plans++;
        }
        ok(same && plans, "%s: its %d cases are sections of plans", o->name, plans);
    }
}

static int add_one(const struct call *f, void *data)
{
    (void)f;
    ++*(int *)data;
    return 0;
}

static void accumulation(void)
{
    struct experiment x;

    if (good_ini("accumulate", "[trial]\nop = linear\naccumulate = no, yes\nbias = yes\n", &x)) {
        const struct trial *no = &x.trial[0], *yes = &x.trial[1];
        ok(x.n == 2 && !no->accumulate && !set_any(&no->call.accumulate) &&
               !strstr(no->text, "accumulate"),
           "no is the default, and is not written");
        ok(x.n == 2 && yes->accumulate && yes->call.accumulate.bits[0] == 7 &&
               strstr(yes->text, " accumulate=yes input=normal"),
           "yes means every gradient: %s", yes->text);
        plan_free(&x);
    }
    if (good("accumulate of every operation", NULL, "all accumulate=no,yes", &x)) {
        int with = 0, right = 1;
        for (int i = 0; i < N_OPS; i++)
            with += op_has_gradients(ops[i]);
        for (int i = 0; i < x.n; i++) {
            const struct trial *t = &x.trial[i];
            const struct arg_set all = op_gradients(t->call.op), none = set_none();
            right &= set_same(&t->call.accumulate, t->accumulate ? &all : &none);
        }
        ok(x.n == N_OPS + with && with < N_OPS && right, "is set for those that have gradients");
        plan_free(&x);
    }
    words_refused("accumulate without gradients", "histogram accumulate=yes",
                  "-t: accumulate: histogram has no gradients\n");
    words_refused("accumulate that is neither", "linear accumulate=1",
                  "-t: accumulate = 1: not one of no yes\n");
}

static void in_place(void)
{
    struct experiment x;

    if (good_ini("in_place", "[trial]\nop = adamw\nin_place = no, yes\n", &x)) {
        const struct trial *no = &x.trial[0], *yes = &x.trial[1];
        ok(x.n == 2 && !no->in_place && !strstr(no->text, "in_place") && yes->in_place &&
               strstr(yes->text, " in_place=yes input=normal"),
           "no is the default, and is not written: %s", yes->text);
        plan_free(&x);
    }
    words_refused("in place, without such an output", "softmax in_place=yes",
                  "-t: in_place: softmax has no output that may be in the memory of an input\n");
}

/* Parameters that an operation no longer has. */
static void older(void)
{
    struct experiment x;

    if (good_ini("older",
                 "[trial]\nop = adamw\nparameters = 5\ntensors = 1\nstep = 3\ndecay = all\n"
                 "master = no\nlr = 0.02\nbeta1 = 0.9\nfill = normal\n",
                 &x)) {
        ok(x.n == 1 && strstr(x.trial[0].text, "step=3") && strstr(x.trial[0].text, "lr=0.02") &&
               !strstr(x.trial[0].text, " decay="),
           "an older ini is read: %s", x.trial[0].text);
        plan_free(&x);
    }
    words_refused(
        "an older value that is no more", "adamw decay=alternate",
        "-t: decay = alternate: adamw has no decay any more: decayed = N lets the first N "
        "parameters decay\n");
    words_refused("an older value beside the new one", "adamw decay=all decayed=1",
                  "-t: decay = all beside decayed, which adamw has in its place\n");
}

/* `op = all` is a set of trials for each operation, and `cases` are those of its contract. */
static void every_operation(void)
{
    struct experiment x;
    int in_order = 1, n = 0, shapes = 0, with_steps = 0;

    for (int i = 0; i < N_OPS; i++) {
        cases_each(ops[i], ops[i]->cases, add_one, &n);
        if (ops[i]->shapes)
            cases_each(ops[i], ops[i]->shapes, add_one, &shapes);
        with_steps += op_param(ops[i], "steps", NULL) != NULL;
    }
    if (good_ini("every operation", "[trial]\nop = \"all\"\n", &x)) {
        for (int i = 0; i < x.n && i < N_OPS; i++)
            in_order &= x.trial[i].call.op == ops[i];
        ok(x.n == N_OPS && in_order, "is each of them once, by default");
        plan_free(&x);
    }
    if (good("every operation's cases", NULL, "all cases=contract dtype=fp32,bf16", &x)) {
        ok(x.n == 2 * n && x.trial[0].type == F32 && x.trial[1].type == BF16 &&
               memcmp(&x.trial[0].call, &x.trial[1].call, sizeof x.trial[0].call) == 0,
           "are those of the contracts, %d of each type", n);
        plan_free(&x);
    }
    if (good("every operation's shapes", NULL, "all cases=shapes", &x)) {
        ok(x.n == shapes, "are the %d of those that have some", shapes);
        plan_free(&x);
    }
    if (good("a parameter of some operations", NULL, "all steps=3,5 batch=2", &x)) {
        ok(x.n == N_OPS + with_steps, "is set for those that have it");
        plan_free(&x);
    }
    if (good_ini("the cases of one operation", "[trial]\ncases = contract\nop = diag_delta\n",
                 &x)) {
        ok(x.n == 3 && DIM(&x.trial[1].call, 'T') == 17, "are its contract's");
        plan_free(&x);
    }
}

static void tables(void)
{
    int described = 1;
    for (int i = 0; experiment_keys[i].name; i++)
        described &= *experiment_keys[i].help != 0;
    for (int i = 0; trial_keys[i].name; i++)
        described &= *trial_keys[i].help != 0;
    ok(described, "every key is described");
}

int main(void)
{
    enter();
    everything();
    outputs();
    defaults();
    judging();
    order();
    layout();
    long_lines();
    inputs();
    words();
    contracts();
    every_operation();
    accumulation();
    in_place();
    older();
    tables();
    leave();
    return done();
}
