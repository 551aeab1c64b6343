/* The library's interface: what would pass as results of a case (ablate.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/api/api.h"
#include "common/call/watch.h"

/* "y d_x", blanks between them, as bits; NULL: all outputs and gradients.  Nonzero after err_set(). */
static int results_named(const struct call *f, const char *names, struct results *to)
{
    const struct results all = results_of(f);
    char name[32];

    *to = names ? (struct results){0} : all;
    for (const char *at = names ? names + strspn(names, " ") : ""; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        int grad;
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        const int arg = n < sizeof name ? tensor_find(f->op, name, &grad) : -1;
        if (arg < 0 || !set_has(grad ? &all.g : &all.x, arg))
            return err_set("%s is no output or gradient of %s", name, f->op->name);
        set_add(grad ? &to->g : &to->x, arg);
        at += n;
    }
    return set_any(&to->x) || set_any(&to->g) ? 0 : err_set("no result is named");
}

/* Ends early as whoever watches this thread asks; NULL then, and after err_set(). */
static const char *passing_of(abl_case *c, const char *names, const abl_result *as)
{
    struct answer *a = answer_of(c);
    struct results by;
    struct passing p;
    struct bounds bounds;

    if (!a || results_named(&a->truth.call, names, &by))
        return NULL;
    if (as && as->call.backend->type != c->trial.type)
        return err_null("a result of another type than the case's");
    if (a->passing && !as && !a->as_declared && set_same(&by.x, &a->by.x) &&
        set_same(&by.g, &a->by.g))
        return a->passing;
    free(a->passing);
    free(a->refused);
    free(a->hidden);
    a->passing = a->refused = a->hidden = NULL;
    a->by = by;
    a->as_declared = as != NULL;
    bounds_from(&bounds, as ? &as->call : &a->truth.call, &a->truth);
    if (as)
        bounds_as_given(&bounds, as);
    if (!passing_find(&bounds, &by, c->trial.seed, NULL, &p) &&
        (a->refused = lines_text(&p.refused)) && (a->hidden = lines_text(&p.hidden)))
        a->passing = lines_text(&p.pass);
    passing_free(&p);
    return a->passing;
}

const char *abl_passing(abl_case *c, const char *results, const abl_result *as)
{
    if (IS_NULL(c, "case") || lock_library())
        return NULL;
    const char *text = passing_of(c, results, as);
    const int stopped = watch_stopped();
    unlock_library();
    return stopped ? NULL : text;
}

const char *abl_refused(const abl_case *c, int hidden)
{
    if (IS_NULL(c, "case"))
        return NULL;
    if (!c->answer || !c->answer->passing)
        return err_null("abl_refused: abl_passing() was not asked");
    return hidden ? c->answer->hidden : c->answer->refused;
}
