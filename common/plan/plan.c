/* From an ini file or a line of words to a list of trials.  Everything that
 * is wrong is collected, each fault with its line, and reported in the order of
 * the lines; a section's product is made only if each of its values is good. */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/quote.h"
#include "common/call/cases.h"
#include "common/call/sample.h"
#include "common/plan/cells.h"
#include "common/plan/keys.h"
#include "common/plan/match.h"
#include "common/plan/memory.h"
#include "common/plan/programs.h"
#include "common/plan/section.h"
#include "common/plan/variants.h"
#include "common/plan/training.h"

enum { MAX_KEYS = 200 }; /* of a section */

/* ---- [experiment] ---- */

/* The file's name less .ini, and its length. */
static const char *file_name(const char *file, size_t *n)
{
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    *n = strlen(base);
    if (*n > 4 && strcmp(base + *n - 4, ".ini") == 0)
        *n -= 4;
    return base;
}

/* That, of characters that a name may have, cut to fit. */
static void name_after(struct experiment *x, const char *file)
{
    size_t n;
    const char *base = file_name(file, &n);

    if (n >= sizeof x->name)
        n = sizeof x->name - 1;
    for (size_t i = 0; i < n; i++)
        x->name[i] = key_is_name(base[i]) ? base[i] : '_';
    x->name[n] = 0;
}

/* The default.  Without a name of its own the experiment's is the file's as
 * it is, so that two files never meet at one output. */
static void output_after(struct plan *p, int named)
{
    struct experiment *x = p->x;
    size_t n;
    const char *base = p->file && !named ? file_name(p->file, &n) : x->name;

    if (base == x->name)
        n = strlen(base);
    for (size_t i = 0; i < n; i++)
        if (iscntrl((unsigned char)base[i])) {
            plan_fault(p, 0, "its name has a control character: set output");
            return;
        }
    if (n + sizeof ".h5" > sizeof x->output)
        plan_fault(p, 0, "its name is longer than %zu characters: set output",
                   sizeof x->output - sizeof ".h5");
    else
        snprintf(x->output, sizeof x->output, "%.*s.h5", (int)n, base);
    x->scratch = !p->file && !named;
}

static void set_experiment(struct plan *p, int k, const char *value, int line)
{
    const struct plan_key *key = &experiment_keys[k];
    const int many = key->many == LIST;
    struct lists *l = many ? calloc(1, sizeof *l) : NULL;

    if (many && !l)
        plan_fault(p, line, "no memory");
    else if (many ? lists_add(l, key->name, value, line) : key->set(key, p->x, value))
        plan_fault(p, line, "%s", err_text());
    else
        for (int i = 0; l && i < l->list[0].n_values; i++)
            if (key->set(key, p->x, l->list[0].value[i]))
                plan_fault(p, line, "%s", err_text());
    if (l)
        lists_free(l);
    free(l);
}

/* Where times are measured, every kernel is judged by parity, and by nothing else. */
static void only_times(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *checks = s ? section_entry(s, "checks") : NULL;
    const struct ini_entry *repeats = s ? section_entry(s, "repeats") : NULL;
    const char *name = measure_names[p->x->measure];

    if (checks && p->x->checks != CHECK_PARITY)
        plan_fault(p, checks->line, "checks: measure = %s makes none but parity", name);
    if (repeats && strcmp(repeats->value, "0") == 0)
        plan_fault(p, repeats->line, "repeats = 0: measure = %s needs timed runs", name);
    p->x->checks = CHECK_PARITY;
}

/* The oracle goes along by parity, or not at all. */
static void only_along(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *checks = s ? section_entry(s, "checks") : NULL;
    const struct ini_entry *save = s ? section_entry(s, "save") : NULL;

    if (checks && p->x->checks & ~CHECK_PARITY)
        plan_fault(p, checks->line, "checks: measure = train makes none but parity");
    if (!checks)
        p->x->checks = CHECK_PARITY;
    if (save && p->x->save != SAVE_FINAL && p->x->save != SAVE_NONE &&
        strcmp(save->value, save_names[p->x->save]) == 0)
        plan_fault(p, save->line,
                   "save = %s: measure = train keeps the curves, and with final weights "
                   "and first batches; final or none",
                   save_names[p->x->save]);
    if (!save)
        p->x->save = SAVE_NONE;
}

/* A sample has nothing that differences and properties could be checked on, and nothing would be changed. */
static void only_parity(struct plan *p, const struct ini_section *s)
{
    const struct ini_entry *checks = section_entry(s, "checks");

    if (checks && p->x->checks & ~CHECK_PARITY)
        plan_fault(p, checks->line,
                   "checks: differences, properties and power need all elements; judge = sampled "
                   "takes parity or none");
    p->x->checks = checks ? p->x->checks & CHECK_PARITY : CHECK_PARITY;
}

/* Nothing else runs on a device while something is timed there. */
static void only_untimed(struct plan *p, const struct ini_section *s)
{
    const struct experiment *x = p->x;
    const struct ini_entry *e = s ? section_entry(s, "per_device") : NULL;

    if (!e || x->per_device < 2 || x->measure == MEASURE_TRAIN)
        return;
    if (x->measure != MEASURE_CHECK)
        plan_fault(p, e->line,
                   "per_device = %d: measure = %s times one trial at a time on a device",
                   x->per_device, measure_names[x->measure]);
    else if (x->repeats)
        plan_fault(p, e->line,
                   "per_device = %d: repeats = %d times one trial at a time on a device; set "
                   "repeats = 0",
                   x->per_device, x->repeats);
}

/* s may be NULL: there is none. */
static void read_experiment(struct plan *p, const struct ini_section *s)
{
    for (int i = 0; s && i < s->n; i++) {
        const struct ini_entry *e = &s->entry[i];
        int k = key_find(experiment_keys, e->key);
        if (k < 0) {
            section_unknown(p, s, e, NULL);
            continue;
        }
        char *value = section_value(p, s, e, experiment_keys[k].many);
        if (value)
            set_experiment(p, k, value, e->line);
        free(value);
    }
    for (int k = 0; experiment_keys[k].name; k++)
        if (experiment_keys[k].initial && !(s && section_entry(s, experiment_keys[k].name)))
            set_experiment(p, k, experiment_keys[k].initial, 0);
    p->x->checks &= ~CHECK_NONE;
    if (p->x->save == SAVE_FINAL && p->x->measure != MEASURE_TRAIN)
        plan_fault(p, section_entry(s, "save")->line,
                   "save = final: only measure = train has weights to keep");
    if (p->x->measure == MEASURE_TRAIN)
        only_along(p, s);
    else if (p->x->measure != MEASURE_CHECK)
        only_times(p, s);
    if (p->x->judge == JUDGE_SAMPLED)
        only_parity(p, s);
    only_untimed(p, s);
    if (!p->x->output[0])
        output_after(p, s && section_entry(s, "name") != NULL);
}

/* ---- sections ---- */

/* First [experiment], wherever it stands, for trials go by it. */
static void read_experiments(struct plan *p, const struct ini *ini)
{
    const struct ini_section *first = NULL;
    for (int i = 0; i < ini->n; i++) {
        const struct ini_section *s = &ini->section[i];
        if (!s->name || strcmp(s->name, "experiment") != 0)
            continue;
        if (first)
            plan_fault(p, s->line, "a second [experiment]; the first is in line %d", first->line);
        else
            first = s;
    }
    read_experiment(p, first);
}

/* A name can be given once; any number of sections have none. */
static void refuse_second(struct plan *p, const struct ini *ini, const struct ini_section *s)
{
    for (const struct ini_section *first = ini->section; *section_name(s) && first < s; first++)
        if (section_is(first->name, "trial") && strcmp(section_name(first), section_name(s)) == 0) {
            plan_fault(p, s->line, "a second [%s]; the first is in line %d", s->name, first->line);
            return;
        }
}

/* A file too large for any plan is not read any further. */
static int too_large(struct plan *p, const struct ini *ini)
{
    int faults = p->n_faults;

    if (ini->n > MAX_TRIALS + 1)
        plan_fault(p, 0, "it has %d sections; an experiment has at most %d trials", ini->n,
                   MAX_TRIALS);
    for (int i = 0; i < ini->n; i++)
        if (ini->section[i].n > MAX_KEYS)
            plan_fault(p, ini->section[i].line, "%s has %d keys, more than any operation",
                       p->file ? "this section" : "this line", ini->section[i].n);
    return p->n_faults > faults;
}

static void read_sections(struct plan *p, const struct ini *ini)
{
    int others = p->n_faults, trials = 0;

    if (too_large(p, ini))
        return;
    read_experiments(p, ini);
    for (int i = 0; i < ini->n; i++) {
        const struct ini_section *s = &ini->section[i];
        if (!s->name) {
            others++;
        } else if (section_is(s->name, "trial")) {
            trials++;
            refuse_second(p, ini, s);
            if (p->x->measure == MEASURE_TRAIN && p->file)
                cells_trials(p, ini, s);
            else
                section_trials(p, s);
        } else if (is_cell_section(s->name)) {
            others++; /* cells_refuse() */
        } else if (strcmp(s->name, "experiment") != 0 && !s->line) {
            plan_fault(p, s->entry[0].line, "%s = %s stands before any section", s->entry[0].key,
                       s->entry[0].value);
        } else if (strcmp(s->name, "experiment") != 0) {
            others++;
            plan_fault(p, s->line, "unknown section [%s]", s->name);
        }
    }
    cells_refuse(p, ini);
    variants_check(p, ini);
    match_models(p, ini);
    if (!trials && !others)
        plan_fault(p, 0, "it has no [trial]");
}

static void ini_fault(void *data, int line, const char *message)
{
    plan_fault(data, line, "%s", message);
}

static int finish(struct plan *p, struct ini *ini, FILE *errors)
{
    struct experiment *x = p->x;

    if (ini->text) {
        p->available = memory_available();
        read_sections(p, ini);
    }
    x->text = ini->text;
    ini->text = NULL;
    ini_free(ini);
    int n = plan_faults_print(p, errors);
    if (n)
        plan_free(x);
    return n;
}

int plan_read(const char *file, struct experiment *x, FILE *errors)
{
    struct plan p = {.file = file, .x = x};
    struct ini ini;

    *x = (struct experiment){.device = -1, .file = file};
    name_after(x, file);
    ini_read(&ini, file, ini_fault, &p);
    return finish(&p, &ini, errors);
}

int plan_read_text(const char *text, const char *file, struct experiment *x, FILE *errors)
{
    struct plan p = {.file = file, .x = x};
    struct ini ini;

    *x = (struct experiment){.device = -1, .file = file};
    name_after(x, file);
    ini_read_text(&ini, text, ini_fault, &p);
    return finish(&p, &ini, errors);
}

/* ---- words ---- */

/* Cut off the next word, up to a blank that no quotes enclose; NULL at the end. */
static char *next_word(char **at)
{
    char *c = *at, *word;
    int in_quotes = 0;

    while (isspace((unsigned char)*c))
        c++;
    for (word = c; *c && (in_quotes || !isspace((unsigned char)*c)); c++)
        in_quotes ^= *c == '"';
    *at = c + (*c != 0);
    *c = 0;
    return c > word ? word : NULL;
}

/* Deal the words out to two sections.  They are numbered, for the order of
 * the faults. */
static int read_words(struct plan *p, char *words, struct ini *ini)
{
    int e = ini_add_section(ini, "experiment", 1) || ini_add_section(ini, "trial", 1);
    struct ini_section *experiment = ini->section, *trial = experiment + 1;
    char *word;

    for (int n = 1; !e && (word = next_word(&words)); n++) {
        char *equals = strchr(word, '=');
        if (!equals && n == 1) {
            e = ini_add_entry(trial, "op", word, n);
        } else if (!equals || equals == word) {
            plan_fault(p, n, "expected key=value at: %.*s", quote_fit(word, 60), word);
        } else {
            *equals = 0;
            if (n == 1 && strcmp(word, PROGRAM_OP) == 0)
                e = ini_add_entry(trial, "op", PROGRAM_OP, n);
            int other = key_find(experiment_keys, word) >= 0 && key_find(trial_keys, word) < 0;
            e = e || ini_add_entry(other ? experiment : trial, word, equals + 1, n);
        }
    }
    if (!e && trial->n && strcmp(trial->entry[0].value, TRAIN_OP) == 0 &&
        !section_entry(experiment, "measure"))
        e = ini_add_entry(experiment, "measure", TRAIN_OP, 0);
    return e;
}

static int read_these(struct plan *p, const char *words, FILE *errors)
{
    struct ini ini = {.text = strdup(words)};
    char *copy = strdup(words);

    *p->x = (struct experiment){.device = -1};
    strcpy(p->x->name, "trial");
    if (!ini.text || !copy || read_words(p, copy, &ini))
        plan_fault(p, 0, "no memory for these words");
    free(copy);
    return finish(p, &ini, errors);
}

int plan_words(const char *words, struct experiment *x, FILE *errors)
{
    return plan_words_of(words, NULL, x, errors);
}

int plan_call(const char *words, struct experiment *x, FILE *errors)
{
    struct plan p = {.x = x, .elsewhere = 1};

    return read_these(&p, words, errors);
}

int plan_words_of(const char *words, const char *option, struct experiment *x, FILE *errors)
{
    struct plan p = {.option = option, .x = x};

    return read_these(&p, words, errors);
}

void plan_free(struct experiment *x)
{
    free(x->text);
    free(x->trial);
    *x = (struct experiment){.device = -1};
}

int plan_inputs_only(struct experiment *x)
{
    if (x->measure == MEASURE_TRAIN)
        return err_set("a run of training has no inputs: it draws its batches");
    x->inputs_only = 1;
    x->checks = x->repeats = 0;
    x->measure = MEASURE_CHECK;
    x->save = SAVE_ALL;
    for (int i = 0; i < x->n; i++) {
        struct trial *t = &x->trial[i];
        if (t->input_given)
            continue;
        t->input = INPUT_NONZERO;
        if (plan_text(t))
            return -1;
    }
    return 0;
}

int plan_sampled(const struct experiment *x, const struct call *f)
{
    return x->judge == JUDGE_SAMPLED ||
           (x->judge == JUDGE_AUTO && x->checks == CHECK_PARITY && sample_worthwhile(f));
}

int plan_backends(const struct experiment *x, const struct trial *t, const struct backend *list[16])
{
    int n = 0;

    list[n++] = &ref64;
    list[n++] = reference_of(t->type);
    for (int g = 0; judged_backend(g); g++) {
        int wanted = !x->n_backends;
        for (int i = 0; i < x->n_backends; i++)
            wanted |= x->backend[i] == judged_backend(g);
        if (wanted && judged_backend(g)->type == t->type)
            list[n++] = judged_backend(g);
    }
    return n;
}
