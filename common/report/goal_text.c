/* Verdicts on times in words (goal_text.h). */
#include "config.h"

#include <string.h>

#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/report/goal_text.h"
#include "common/report/time_text.h"
#include "common/run/goals.h"

/* "default, forward: fused 412 us, product 380 us: 8.4 % slower than the best" */
static void default_text(const struct result *r, const struct verdict *v, char *to, size_t size)
{
    const struct ran *best = goals_other(r, v);
    const double median = best->outcome.median[goals_pass(v)];
    char is[NUMBER_TEXT], fastest[NUMBER_TEXT];

    append(to, size, "%s default, %s: %s %s, %s %s: %.1f %% slower than the best", v->backend,
           v->tensor, v->kernel, number_seconds(v->error, is), best->call.kernel->name,
           number_seconds(median, fastest), 100 * (v->error / median - 1));
}

/* "gpu32 softmax warp: forward reached 75.2 % of memory (412 us), the goal is 90 %" */
static void goal_text(const struct result *r, const struct verdict *v, char *to, size_t size)
{
    const struct goal *g = &r->trial->goal[goals_pass(v)];
    const struct ran *other = goals_other(r, v);
    char is[NUMBER_TEXT], others[NUMBER_TEXT];

    append(to, size, "%s %s %s: %s ", v->backend, r->trial->call.op->name, v->kernel, v->tensor);
    if (g->kind == GOAL_TIME) {
        append(to, size, "took %s, the goal is %s", number_seconds(v->error, is), g->text);
        return;
    }
    append(to, size, "reached %.1f %% of ", 100 * g->value * v->bound / v->error);
    if (other)
        append(to, size, "the speed of %s (%s, it took %s)", other->call.kernel->name,
               number_seconds(v->error, is),
               number_seconds(other->outcome.median[goals_pass(v)], others));
    else
        append(to, size, "%s (%s)", ceiling_names[g->ceiling], number_seconds(v->error, is));
    append(to, size, ", the goal is %.*s %%", (int)strcspn(g->text, " "), g->text);
}

void goals_lines(const struct screen *s, int i, const struct result *r)
{
    for (int j = 0; j < r->verdicts.n; j++) {
        const struct verdict *v = &r->verdicts.v[j];
        char text[400] = "";
        if (!verdict_of_time(v) || (v->pass && !v->missed))
            continue;
        if (s->tsv)
            append(text, sizeof text, "%d: ", i + 1);
        if (strcmp(v->check, "default") == 0)
            default_text(r, v, text, sizeof text);
        else
            goal_text(r, v, text, sizeof text);
        say(s, s->tsv ? 0 : 6, "%s", text);
    }
}
