/* The goals of a trial, from the values of its keys (goal.h). */
#include "config.h"

#include <float.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/base/quote.h"
#include "common/plan/goal.h"
#include "common/plan/section.h"

const char *const goal_keys[N_PASSES] = {[FORWARD] = "goal", [BACKWARD] = "goal_backward"};

static const char best[] = "best", blanks[] = " \t";
enum { MAX_PERCENT = 1000 };

/* ---- what a percentage is of ---- */

static int ceiling_find(const char *name)
{
    for (int i = 0; i < N_CEILINGS; i++)
        if (strcmp(ceiling_names[i], name) == 0)
            return i;
    return -1;
}

static int no_such_target(const struct op *o, const char *key, const char *value, const char *known)
{
    char names[128] = "";

    for (int i = 0; i < N_CEILINGS; i++)
        append(names, sizeof names, " %s", ceiling_names[i]);
    return err_set("%s = %.*s: not one of%s %s, nor a kernel of %s on a GPU in this build:%s", key,
                   quote_fit(value, 100), value, names, best, o->name,
                   *known ? known : " it has none");
}

/* The word behind the %; without an operation any other than those is taken for a kernel's name. */
static int read_target(const struct op *o, const char *key, const char *value, const char *word,
                       struct goal *to)
{
    const int ceiling = ceiling_find(word);
    char known[MAX_KNOWN];

    to->kind = ceiling >= 0 ? GOAL_CEILING : strcmp(word, best) == 0 ? GOAL_BEST : GOAL_KERNEL;
    if (ceiling >= 0)
        to->ceiling = (enum ceiling)ceiling;
    if (to->kind != GOAL_KERNEL)
        return 0;
    if (o && !kernel_known(o, 1, word, known))
        return no_such_target(o, key, value, known);
    if (strlen(word) >= sizeof to->kernel)
        return err_set("%s: a kernel's name is shorter than %zu characters", key,
                       sizeof to->kernel);
    strcpy(to->kernel, word);
    return 0;
}

/* ---- a value ---- */

static const struct {
    const char *name;
    double seconds;
} units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/* The number before a unit or %, which is more than 0. */
static int read_number(const char *key, const char *value, const char *text, double max, double *x)
{
    if (number_real(text, 0, max, x))
        return err_at("%s = %.*s", key, quote_fit(value, 100), value);
    return *x > 0 ? 0
                  : err_set("%s = %.*s: must be more than 0", key, quote_fit(value, 100), value);
}

static int read_time(const char *key, const char *value, const char *number, const char *unit,
                     struct goal *to)
{
    for (size_t i = 0; i < COUNT(units); i++)
        if (strcmp(units[i].name, unit) == 0) {
            to->kind = GOAL_TIME;
            if (read_number(key, value, number, 1e9, &to->value))
                return -1;
            to->value *= units[i].seconds;
            return to->value > 0 ? 0
                                 : err_set("%s = %.*s: must be more than 0", key,
                                           quote_fit(value, 100), value);
        }
    return err_set("%s = %.*s: neither a time (12 us; or ns, ms, s) nor a fraction (90 %% memory)",
                   key, quote_fit(value, 100), value);
}

/* A number in the fewest digits that read back as the same. */
static void shortest(const char *number, char text[NUMBER_TEXT])
{
    double x = 0, same = -1;

    *text = 0;
    for (int digits = 6; digits <= 17 && same != x; digits++)
        if (!number_real(number, 0, DBL_MAX, &x) && snprintf(text, NUMBER_TEXT, "%.*g", digits, x))
            number_real(text, 0, DBL_MAX, &same);
}

int goal_read(const struct op *o, const char *key, const char *value, struct goal *to)
{
    char number[NUMBER_TEXT], plain[NUMBER_TEXT], word[64];
    const size_t digits = strspn(value, "0123456789.+-eE");
    const char *rest = value + digits + strspn(value + digits, blanks);
    const int percent = *rest == '%';
    int e;

    *to = (struct goal){.kind = GOAL_NONE};
    if (percent)
        rest += 1 + strspn(rest + 1, blanks);
    const size_t n = strcspn(rest, blanks);
    if (digits >= sizeof number || n >= sizeof word || rest[n + strspn(rest + n, blanks)])
        return err_set("%s = %.100s: not a number and a word, as in 12 us or 90 %% memory", key,
                       value);
    snprintf(number, sizeof number, "%.*s", (int)digits, value);
    snprintf(word, sizeof word, "%.*s", (int)n, rest);
    if (percent)
        e = read_number(key, value, number, MAX_PERCENT, &to->value) ||
            read_target(o, key, value, word, to);
    else
        e = read_time(key, value, number, word, to);
    if (percent)
        to->value /= 100;
    if (e) {
        *to = (struct goal){.kind = GOAL_NONE};
        return -1;
    }
    shortest(number, plain);
    snprintf(to->text, sizeof to->text, percent ? "%s %% %s" : "%s %s", plain, word);
    return 0;
}

/* ---- the words and the section that it stands in ---- */

/* The first words; without measure=time they would be refused. */
static const char begin[] = " measure=time goal";

void goals_words(const struct goal goal[N_PASSES], char *to, size_t size)
{
    *to = 0;
    for (enum pass q = FORWARD; q < N_PASSES; q++)
        if (goal[q].kind != GOAL_NONE)
            append(to, size, "%s%s=\"%s\"", *to ? " " : " measure=time ", goal_keys[q],
                   goal[q].text);
}

size_t goals_begin(const char *words)
{
    int in_quotes = 0;

    for (const char *c = words; *c; c++) {
        in_quotes ^= *c == '"';
        if (!in_quotes && strncmp(c, begin, strlen(begin)) == 0)
            return (size_t)(c - words);
    }
    return strlen(words);
}

void goals_refuse(struct plan *p, const struct ini_section *s, const struct trial *t)
{
    const struct op *o = t->call.op;

    for (enum pass q = FORWARD; q < N_PASSES; q++) {
        const struct ini_entry *e = section_entry(s, goal_keys[q]);
        const struct goal *g = &t->goal[q];
        if (!e)
            continue;
        if (p->x->measure != MEASURE_TIME)
            plan_fault(p, e->line, "%s: only with measure = time", goal_keys[q]);
        if (o && q >= op_passes(o))
            plan_fault(p, e->line, "%s: %s has no backward pass", goal_keys[q], o->name);
        if (!o && g->kind == GOAL_KERNEL)
            plan_fault(p, e->line,
                       "%s = %s: op = all takes a time, or a fraction of a ceiling or of best; for "
                       "a kernel's name one operation",
                       goal_keys[q], g->text);
    }
}
