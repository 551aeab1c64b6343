/* Keys that apply to some values of another key (combinations.h): which trials a section makes, and
 * keys that apply to none. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/call/cases.h"
#include "tests/plans.h"

static char source[PATH_MAX]; /* the folder of the sources */

/* ---- exact trials ---- */

/* A plan of these words has these n lines, each of which makes itself again. */
static void makes(const char *what, const char *words, const char *const *line, int n)
{
    struct experiment x;

    if (!good(what, NULL, words, &x))
        return;
    int same = x.n == n;
    for (int i = 0; i < n && i < x.n; i++) {
        same &= strcmp(x.trial[i].text, line[i]) == 0;
        if (strcmp(x.trial[i].text, line[i]) != 0)
            printf("# %d: %s\n# not: %s\n", i + 1, x.trial[i].text, line[i]);
    }
    ok(same, "%s: %d trials of %d", what, x.n, n);
    plan_free(&x);
}

#define MAKES(what, words, ...)                                                                    \
    makes(what, words, (const char *const[]){__VA_ARGS__},                                         \
          (int)COUNT(((const char *const[]){__VA_ARGS__})))

#define DEFAULTS " dtype=fp32 seed=1 input=normal"
#define CELL_OF(state, V, after)                                                                   \
    "e74_cell state=" state                                                                        \
    " proj=no_z nonlin=tanh trajectory=checkpoint checkpoint_dtype=fp32 " V                        \
    "steps=2 batch=1 heads=1 n_state=8" after " checkpoint_interval=32 fill=normal" DEFAULTS
#define CELL(state, after) CELL_OF(state, "", after)
#define LOWRANK(V, after) CELL_OF("lowrank", "V=" V " ", after)
#define STEPS "e74_cell steps=2 batch=1 n_state=8 "
#define QUANTISE(format, search)                                                                   \
    "quantise dim_out=2 dim_in=256 format=" format " data=weights" search DEFAULTS
#define ROWS "quantise dim_out=2 dim_in=256 "

static void to_some(void)
{
    MAKES("a value", STEPS "state=full,lowrank rank=4", CELL("full", ""),
          LOWRANK("each", " rank=4"));
    MAKES("a list", STEPS "state=full,lowrank rank=4,8", CELL("full", ""),
          LOWRANK("each", " rank=4"), LOWRANK("each", " rank=8"));
    MAKES("a choice that the text has before the sizes", STEPS "state=full,lowrank V=each,shared",
          CELL("full", ""), LOWRANK("each", " rank=8"), LOWRANK("shared", " rank=8"));
    MAKES("a list before the one that it depends on", STEPS "rank=4,8 state=lowrank,full",
          LOWRANK("each", " rank=4"), CELL("full", ""), LOWRANK("each", " rank=8"));
    MAKES("two keys, neither of which applies with the other",
          STEPS "state=full,lowrank,blockdiag rank=4,5 block_size=2,4", CELL("full", ""),
          LOWRANK("each", " rank=4"), LOWRANK("each", " rank=5"),
          CELL("blockdiag", " block_size=2"), CELL("blockdiag", " block_size=4"));
    MAKES("around the one that they depend on",
          STEPS "block_size=2,4 state=lowrank,blockdiag rank=4,5", LOWRANK("each", " rank=4"),
          LOWRANK("each", " rank=5"), CELL("blockdiag", " block_size=2"),
          CELL("blockdiag", " block_size=4"));
    MAKES("a value that would be wrong where it does not apply",
          STEPS "state=full,diagonal,blockdiag block_size=2", CELL("full", ""),
          CELL("diagonal", ""), CELL("blockdiag", " block_size=2"));
    MAKES("choices that apply to some", ROWS "format=q4_k,nf4 search=plain,wide double_quant=no",
          QUANTISE("q4_k", " search=plain importance=no"),
          QUANTISE("q4_k", " search=wide importance=no"),
          QUANTISE("nf4 double_quant=no block=64", ""));
    MAKES("three keys, the last the fastest",
          ROWS "search=plain,wide block=32,64 format=q8_0,nf4,q4_k", QUANTISE("q8_0", ""),
          QUANTISE("nf4 double_quant=yes block=32", ""),
          QUANTISE("q4_k", " search=plain importance=no"),
          QUANTISE("nf4 double_quant=yes block=64", ""),
          QUANTISE("q4_k", " search=wide importance=no"));
}

/* A plan that makes n trials, each of which makes itself again. */
static void counts(const char *words, int n)
{
    struct experiment x;

    if (!good(words, NULL, words, &x))
        return;
    ok(x.n == n, "%d trials of %d", x.n, n);
    plan_free(&x);
}

static void numbers(void)
{
    counts(STEPS "state=full,lowrank rank=4,8 seed=1,2 dtype=fp32,bf16", 12);
    counts(STEPS "proj=full,no_z,tied_kq z_mod=row,full", 4);
    counts(STEPS "state=full,lowrank,blockdiag rank=1,2,3 block_size=2,4 proj=full,no_z "
                 "z_mod=row,full trajectory=store,checkpoint checkpoint_interval=1,2,3",
           (1 + 3 + 2) * (2 + 1) * (1 + 3));
    counts("attention steps=2 mask=full,window left=1,2 right=0,1 dropout=0,0.5 dropout_seed=1,2",
           (1 + 4) * (1 + 2));
    counts("dual_memory steps=2 batch=1 dim=4 preset=e23,e29c,parts gate=sum,scaled clamp=5,6",
           1 + 2 + (1 + 2));
    counts("dual_memory steps=2 batch=1 dim=4 clamp=5,6 gate=sum,scaled preset=parts,e29c,e23",
           1 + 2 + (1 + 2));
}

static void files(void)
{
    struct experiment x;

    if (good_ini("a file", "[trial]\nop = e74\nsteps = 2\nstate = full, lowrank\nrank = 4 .. 6\n",
                 &x)) {
        ok(x.n == 4 && DIM(&x.trial[0].call, 'R') == 8 && DIM(&x.trial[1].call, 'R') == 4 &&
               DIM(&x.trial[3].call, 'R') == 6,
           "makes the same, of ranges too");
        plan_free(&x);
    }
}

/* ---- to none ---- */

static void to_none(void)
{
    refused("a key that applies to no trial", E74 "rank = 4, 8\nstate = full, diagonal\n",
            "t.ini:3: rank: only state = lowrank has a rank, but this section has state = full, "
            "diagonal\n");
    refused("to none of one section, but to some of another",
            E74 "state = full, lowrank\nrank = 4\n" E74 "state = full\nrank = 4\n",
            "t.ini:8: rank: only state = lowrank has a rank, but this section has state = full\n");
    refused("two of them, beside one that applies",
            E74 "state = full, lowrank\nrank = 3\nz_mod = row\nblock_size = 5, 6\n",
            "t.ini:5: z_mod: only proj = full has a z, but proj is no_z unless set\n"
            "t.ini:6: block_size: only state = blockdiag has blocks, but this section has state = "
            "full, lowrank\n");
    refused("one that depends on another that does not apply",
            "[trial]\nop = dual_memory\npreset = e23, e25\ngate = scaled\nclamp = 5\n",
            "t.ini:4: gate: only preset = parts leaves it open, but this section has preset = e23, "
            "e25\n"
            "t.ini:5: clamp: only a scaled gate (e29c) is clamped, but *\n");
    refused("beside a fault of a combination", E74 "state = blockdiag\nblock_size = 5\nrank = 4\n",
            "t.ini:1: e74: block_size = 5 does not divide n_state = 64 *\n"
            "t.ini:5: rank: only state = lowrank has a rank, but this section has state = "
            "blockdiag\n");
    words_refused("a word that applies to no trial", "e74 state=full,diagonal rank=4,8",
                  "-t: rank: only state = lowrank has a rank, but this line has state = full, "
                  "diagonal\n");
    words_refused("one that depends on a real number", "attention dropout=0 dropout_seed=3",
                  "-t: dropout_seed: nothing is dropped\n");
}

/* Whether a key applies follows from the format of a file's tensor where none is listed. */
static void of_a_file(void)
{
    char words[PATH_MAX + 100];

    snprintf(words, sizeof words,
             "dequantise input=gguf file=\"%s/tests/small.gguf\" tensor=blk.0.q8_0 block=32",
             source);
    words_refused("a format of a file", words,
                  "-t: block: only nf4 has it, but format is q8_0 unless set\n");
}

/* With op = all a key counts for the section. */
static void every_operation(void)
{
    struct experiment x;
    int cells = 0;

    for (int i = 0; i < N_OPS; i++)
        cells += op_param(ops[i], "z_mod", NULL) != NULL;
    if (good("of every operation", NULL, "all proj=no_z,full z_mod=row,full", &x)) {
        ok(cells && x.n == N_OPS + 2 * cells, "a key applies to some trials of some operations");
        plan_free(&x);
    }
    if (good("rank of every operation", NULL, "all rank=4,5", &x)) {
        int ranks = 0;
        for (int i = 0; i < x.n; i++)
            ranks += strstr(x.trial[i].text, " rank=") != NULL;
        ok(x.n == N_OPS + 1 && ranks == 2, "applies to lora, and not to a full state");
        plan_free(&x);
    }
    refused("a key that applies to no operation's trial",
            "[trial]\nop = all\nz_mod = row\nrank = 4\n",
            "t.ini:3: z_mod: only proj = full has a z, but proj is no_z unless set\n");
    words_refused("a word of that kind", "all z_mod=row proj=no_z,tied_kq",
                  "-t: z_mod: only proj = full has a z, but this line has proj = no_z, tied_kq\n");
}

/* ---- the limit ---- */

/* It is held against the trials that are made, not against the product. */
static void limit(void)
{
    struct experiment x;
    const char *most = STEPS "state=full,lowrank rank=1..4998 seed=1,2 block_size=2";
    struct messages messages =
        read_plan(NULL, STEPS "state=full,lowrank rank=1..4998 seed=1,2", &x);

    ok(!messages.n && x.n == 2 * (1 + 4998), "a product of 19992 combinations is 9998 trials");
    if (messages.n)
        printf("# %s", messages.text);
    else
        plan_free(&x);
    words_refused("and a key that applies to none of them", most,
                  "-t: block_size: only state = blockdiag has blocks, but this line has state = "
                  "full, lowrank\n");
    refused("trials that are too many",
            LINEAR E74 "state = full, lowrank\nrank = 1 .. 4999\nseed = 1, 2\n",
            "t.ini:3: this makes 10000 trials more; an experiment has at most 9999\n");
    words_refused("lists that do not apply are not tried",
                  "e74 state=full rank=1..9999 block_size=1..9999 trajectory=store "
                  "checkpoint_interval=1..9999",
                  "-t: rank: *\n-t: block_size: *\n-t: checkpoint_interval: *\n");
    words_refused("nor are all of those that do",
                  "attention dropout=0,0.5 scale=1..9999 softcap=1..9999 dropout_seed=1..9999 "
                  "steps=1..9999",
                  "-t: this makes at least * trials; an experiment has at most 9999\n");
}

/* ---- every operation that has such keys ---- */

static int is_conditional(const struct op *o)
{
    int is = 0;
    for (int i = 0; i < o->n_params; i++)
        is |= o->param[i].unless != NULL;
    return is;
}

static int n_choices(const struct param *p)
{
    int n = 0;
    while (p->choices && p->choices[n])
        n++;
    return n;
}

/* Step to the next combination of choices, and of a real number's least and greatest; 0 after the
 * last. */
static int next_choices(struct call *f)
{
    for (int i = f->op->n_params - 1; i >= 0; i--) {
        const struct param *p = &f->op->param[i];
        if (p->choices && ++f->choice[i] < n_choices(p))
            return 1;
        f->choice[i] = 0;
        if (p->real && f->real[i] != p->real->max) {
            f->real[i] = p->real->max;
            return 1;
        }
        f->real[i] = p->real ? p->real->min : 0;
    }
    return 0;
}

/* Set parameter i to its greatest, or else to its least. */
static void set_end(struct call *f, int i, int greatest)
{
    const struct param *p = &f->op->param[i];

    if (p->choices)
        f->choice[i] = greatest ? n_choices(p) - 1 : 0;
    else if (p->real)
        f->real[i] = greatest ? p->real->max : p->real->min;
    else
        DIM(f, p->letter) = greatest ? p->max : p->min;
}

/* Whether parameter k applies depends neither on sizes nor on parameters from k on. */
static int follows_from_earlier(const struct call *f, int k)
{
    const struct op *o = f->op;
    const int applies = !o->param[k].unless(f);
    int same = 1;

    for (int i = 0; i < o->n_params; i++)
        for (int end = 0; end < 2 && (i >= k || o->param[i].letter); end++) {
            struct call other = *f;
            set_end(&other, i, end);
            same &= applies == !o->param[k].unless(&other);
        }
    return same;
}

static void order_of_parameters(const struct op *o)
{
    struct call f;
    int same = 1, n = 0;

    op_defaults(o, &f);
    for (int i = 0; i < o->n_params; i++)
        if (!o->param[i].letter)
            set_end(&f, i, 0);
    do {
        for (int k = 0; k < o->n_params; k++)
            same &= !o->param[k].unless || follows_from_earlier(&f, k);
        n++;
    } while (next_choices(&f));
    ok(same, "%s: in %d combinations a parameter applies by the choices before it", o->name, n);
}

/* Does any parameter apply by the value of the real number i? */
static int decides(const struct op *o, int i)
{
    struct call least, most;
    int is = 0;

    op_defaults(o, &least);
    op_defaults(o, &most);
    set_end(&least, i, 0);
    set_end(&most, i, 1);
    for (int k = 0; k < o->n_params; k++)
        is |= o->param[k].unless && !o->param[k].unless(&least) != !o->param[k].unless(&most);
    return is;
}

/* All choices, two values of numbers that apply to some, and small sizes: the word for one. */
static void word_of(const struct op *o, int i, char *to, size_t size)
{
    const struct param *p = &o->param[i];
    const long long value = p->initial, half = value / 2,
                    second = half >= p->min ? half : value + 1;

    *to = 0;
    if (p->choices) {
        append(to, size, " %s=", p->name);
        for (int c = 0; c < n_choices(p); c++)
            append(to, size, "%s%s", c ? "," : "", p->choices[c]);
    } else if (p->real && decides(o, i))
        append(to, size, " %s=%g,%g", p->name, p->real->min, p->real->max);
    else if (p->letter && p->unless)
        append(to, size, " %s=%lld,%lld", p->name, value, second == value ? value + 1 : second);
    else if (strcmp(p->name, "steps") == 0 || strcmp(p->name, "dim_out") == 0)
        append(to, size, " %s=%d", p->name, o == &op_examples ? 63 : 2);
    else if (strcmp(p->name, "dim_in") == 0)
        append(to, size, " %s=256", p->name);
}

static void words_of(const struct op *o, int backwards, char *words, size_t size)
{
    snprintf(words, size, "%s", o->name);
    for (int k = 0; k < o->n_params; k++) {
        char word[512];
        word_of(o, backwards ? o->n_params - 1 - k : k, word, sizeof word);
        append(words, size, "%s", word);
    }
}

/* The product, combination after combination, as texts; of those that are alike, the first. */
struct texts {
    char **text;
    int n, all;
};

static int add_text(const struct call *f, void *data)
{
    struct texts *t = data;
    char text[MAX_TEXT];

    op_text(f, text);
    t->all++;
    for (int i = t->n - 1; i >= 0; i--)
        if (strcmp(t->text[i], text) == 0)
            return 0;
    char **more = grow(t->text, t->n, sizeof *more);
    if (!more)
        return -1;
    t->text = more;
    t->text[t->n++] = strdup(text);
    return 0;
}

static void are_product(const struct op *o, const struct experiment *x, const char *words)
{
    struct texts t = {NULL, 0, 0};
    int same = !cases_each(o, words + strlen(o->name), add_text, &t) && x->n == t.n && t.n < t.all;

    for (int i = 0; i < x->n && i < t.n; i++) {
        char text[MAX_TEXT];
        op_text(&x->trial[i].call, text);
        same &= strcmp(text, t.text[i]) == 0;
    }
    ok(same, "%s: %d trials are the %d different ones of a product of %d", o->name, x->n, t.n,
       t.all);
    for (int i = 0; i < t.n; i++)
        free(t.text[i]);
    free(t.text);
}

/* All lines differ, make themselves again, and are those of the product in its order. */
static void all_choices(const struct op *o, int backwards)
{
    char words[2048], what[128];
    struct experiment x;

    words_of(o, backwards, words, sizeof words);
    printf("# %s\n", words);
    snprintf(what, sizeof what, "%s: all choices, %s", o->name,
             backwards ? "the last parameter first" : "in the order of its parameters");
    if (!good(what, NULL, words, &x))
        return;
    are_product(o, &x, words);
    plan_free(&x);
}

int main(void)
{
    const char *srcdir = getenv("srcdir");
    if (!realpath(srcdir ? srcdir : ".", source)) {
        puts("Bail out! no $srcdir");
        return EXIT_FAILURE;
    }
    enter();
    to_some();
    numbers();
    files();
    to_none();
    of_a_file();
    every_operation();
    limit();
    for (int i = 0; i < N_OPS; i++)
        if (is_conditional(ops[i])) {
            order_of_parameters(ops[i]);
            all_choices(ops[i], 0);
            all_choices(ops[i], 1);
        }
    leave();
    return done();
}
