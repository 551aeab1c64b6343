/* What the runs in a file say of each other (read_ablation.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/base/number.h"
#include "common/store/header.h"
#include "common/store/read_ablation.h"
#include "common/store/read_runs.h"

/* ---- the experiment's keys ---- */

/* "a : b, c : d", cut at its names. */
static int cut_pairs(struct stored_ablation *s, struct ablation_how *how)
{
    char *rest = NULL;

    for (char *word = strtok_r(s->compare, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *colon = strstr(word, " : ");
        struct pair_of_names *more = grow(s->pair, how->n_pairs, sizeof *more);
        if (!colon || !more)
            return colon ? err_set("no memory for pairs")
                         : err_set("attribute compare has no pair '%s'", word);
        s->pair = more;
        *colon = 0;
        more[how->n_pairs++] =
            (struct pair_of_names){word + strspn(word, " "), colon + strlen(" : ")};
    }
    how->pair = s->pair;
    return 0;
}

static int read_margin(hid_t root, double *margin)
{
    char *text = h5_get_text(root, "margin");
    const int e = !text || number_real(text, 0, INFINITY, margin);

    free(text);
    return e ? err_at("attribute margin") : 0;
}

static int read_keys(hid_t file, struct stored_ablation *to, struct ablation_how *how)
{
    const hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    int e = root < 0 ? h5_cannot("open /") : h5_get_seed(root, "seed", &how->seed);

    if (!e && H5Aexists(root, "baseline") > 0)
        e = !(to->baseline = h5_get_text(root, "baseline")) ||
            !(to->compare = h5_get_text(root, "compare")) || read_margin(root, &how->margin);
    h5_drop(root);
    how->baseline = to->baseline ? to->baseline : "";
    to->margin = how->margin;
    return e || (to->compare && cut_pairs(to, how));
}

int stored_ablation_read(hid_t file, struct stored_ablation *to)
{
    struct ablation_how how = {.baseline = "", .intervals = 1};
    int e;

    *to = (struct stored_ablation){.margin = 0};
    QUIETLY(e = runs_read(file, &to->runs) || read_keys(file, to, &how))
    return e || ablation_of(&to->runs, &how, &to->ablation) ? -1 : 0;
}

void stored_ablation_free(struct stored_ablation *s)
{
    ablation_free(&s->ablation);
    runs_free(&s->runs);
    free(s->baseline);
    free(s->compare);
    free(s->pair);
    *s = (struct stored_ablation){.margin = 0};
}

/* ---- a search ---- */

static int searches_for(const struct trial *t, const struct trial *of)
{
    return !t->confirms && strcmp(t->variant, of->variant) == 0 && strcmp(t->task, of->task) == 0;
}

int stored_search_is_over(hid_t file, const struct experiment *x, int trial)
{
    int over = 1;

    for (int i = 0; over && i < x->n; i++)
        if (searches_for(&x->trial[i], &x->trial[trial])) {
            const hid_t g = header_trial(file, i);
            over = g >= 0 && header_complete(g) > 0;
            h5_drop(g);
        }
    return over;
}

int stored_best_rate(hid_t file, const struct experiment *x, int trial, double *rate)
{
    const struct trial *t = &x->trial[trial];
    struct runs r = {.n = 0};
    int e = 0;

    for (int i = 0; !e && i < x->n; i++) {
        struct stored_run *more =
            searches_for(&x->trial[i], t) ? grow(r.run, r.n, sizeof *more) : NULL;
        if (!searches_for(&x->trial[i], t))
            continue;
        if (!more) {
            e = err_set("no memory for the runs of a search");
            break;
        }
        r.run = more;
        int is;
        QUIETLY(is = run_read(file, i, &more[r.n]))
        e = is < 0 ? -1
            : is   ? 0
                   : err_set("lr = best: trial %d, of its search, is not there", i + 1);
        r.n += is > 0;
    }
    e = e || ablation_best_rate(&r, t->variant, t->task, rate);
    runs_free(&r);
    return e ? -1 : 0;
}
