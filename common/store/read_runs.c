/* Reads runs of training from a dump (read_runs.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/store/header.h"
#include "common/store/read_runs.h"

/* ---- attributes ---- */

/* A run that words have made has no name; it is called by its mixer, and by its task. */
static int get_name(hid_t at, const char *name, const char *key, char to[RUN_NAME])
{
    char *text = h5_get_text(at, H5Aexists(at, name) > 0 ? name : key);

    snprintf(to, RUN_NAME, "%s", text ? text : "");
    free(text);
    return text ? 0 : -1;
}

/* NAN where there is none. */
static int get_optional(hid_t at, const char *name, double *to)
{
    int64_t whole = 0;

    *to = NAN;
    if (H5Aexists(at, name) <= 0)
        return 0;
    if (!h5_get_double(at, name, to))
        return 0;
    if (h5_get_int(at, name, &whole))
        return -1;
    *to = (double)whole;
    return 0;
}

static int get_end(hid_t at, enum run_end *to)
{
    char *text = h5_get_text(at, "ended");
    int found = 0;

    for (int i = 0; text && i < RUN_ENDS; i++)
        if (strcmp(text, run_ends[i]) == 0) {
            *to = (enum run_end)i;
            found = 1;
        }
    if (text && !found)
        err_set("attribute ended is '%.40s'", text);
    free(text);
    return found ? 0 : -1;
}

static int get_task(hid_t trial, struct stored_run *to)
{
    char there[64];
    int64_t classes = 0, batch = 0;

    if (h5_get_int(trial, "classes", &classes) || h5_get_int(trial, "batch", &batch))
        return -1;
    if (classes < 1)
        return err_set("attribute classes is %lld", (long long)classes);
    to->chance = 1 / (double)classes;
    to->tokens = batch; /* of a sequence's tokens, which get_tests() knows */
    to->in_bits = h5_same_text(trial, "task", "bytes", there, sizeof there);
    return 0;
}

/* ---- datasets ---- */

/* How long a dataset of one axis is; -1 after err_set(). */
static int64_t length_of(hid_t g, const char *name)
{
    hsize_t dim[1] = {0};
    const hid_t d = H5Dopen2(g, name, H5P_DEFAULT), space = d < 0 ? -1 : H5Dget_space(d);
    const int one = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
                    H5Sget_simple_extent_dims(space, dim, NULL) == 1;

    h5_drop(space);
    h5_drop(d);
    return one && dim[0] < 1 << 24 ? (int64_t)dim[0] : err_set("%s: not one axis", name);
}

/* Such a dataset, of `most` elements at most, into x; returns how many, or -1 after err_set(). */
static int64_t read_along(hid_t g, const char *name, int64_t most, double *x)
{
    const int64_t n = length_of(g, name);

    if (n > most)
        return err_set("%s: more than %lld", name, (long long)most);
    return n > 0 && h5_read_tensor(g, name, 1, &n, x) ? err_at("%s", name) : n;
}

static int get_validated(hid_t trial, struct stored_run *to)
{
    const hid_t g = H5Gopen2(trial, "eval", H5P_DEFAULT);
    const char *const what = to->in_bits ? "loss" : "accuracy";
    const int64_t n = g < 0 ? -1 : length_of(g, what);
    double *x = n < 0 ? NULL : malloc(((size_t)n + 1) * sizeof *x);
    int e = g < 0 ? h5_cannot("open eval") : n < 0 || !x || read_along(g, what, n, x) < 0;

    to->validated = !e && n ? x[n - 1] / (to->in_bits ? log(2) : 1) : NAN;
    free(x);
    h5_drop(g);
    return e ? -1 : 0;
}

static int get_tests(hid_t trial, struct stored_run *to)
{
    const hid_t g = H5Gopen2(trial, "test", H5P_DEFAULT);
    struct run_test *first = &to->test[0];
    int e = g < 0 ? h5_cannot("open test")
                  : h5_get_int(g, "length", &first->length) ||
                        h5_get_double(g, "accuracy", &first->accuracy) ||
                        h5_get_double(g, "loss", &first->loss);

    h5_drop(g);
    to->tokens *= first->length;
    to->n_tests = 1;
    if (e || H5Lexists(trial, "lengths", H5P_DEFAULT) <= 0)
        return e ? -1 : 0;
    double length[MAX_LENGTHS], accuracy[MAX_LENGTHS], loss[MAX_LENGTHS];
    const hid_t more = H5Gopen2(trial, "lengths", H5P_DEFAULT);
    const int64_t n = more < 0 ? -1 : read_along(more, "length", MAX_LENGTHS, length);
    e = n < 0 || read_along(more, "accuracy", MAX_LENGTHS, accuracy) != n ||
        read_along(more, "loss", MAX_LENGTHS, loss) != n;
    h5_drop(more);
    for (int64_t i = 0; !e && i < n; i++)
        if ((int64_t)length[i] != first->length)
            to->test[to->n_tests++] = (struct run_test){(int64_t)length[i], accuracy[i], loss[i]};
    return e ? err_at("lengths") : 0;
}

static int get_speed(hid_t trial, struct stored_run *to)
{
    const hid_t g = H5Gopen2(trial, "speed", H5P_DEFAULT);
    const int e = g < 0 ? h5_cannot("open speed")
                        : get_optional(g, "seconds", &to->seconds) ||
                              get_optional(g, "tokens_per_s", &to->tokens_per_s) ||
                              get_optional(g, "seconds_to_target", &to->to_target);

    h5_drop(g);
    to->to_target = isnan(to->to_target) ? INFINITY : to->to_target;
    return e;
}

/* ---- a run ---- */

static int read_trial(hid_t trial, struct stored_run *to)
{
    double confirms;
    int e = get_name(trial, "variant", "mixer", to->variant) ||
            get_name(trial, "task_name", "task", to->task) ||
            h5_get_double(trial, "lr", &to->rate) || h5_get_seed(trial, "seed", &to->seed) ||
            get_end(trial, &to->end) || h5_get_int(trial, "updates_done", &to->updates) ||
            h5_get_int(trial, "learned_at", &to->learned) ||
            get_optional(trial, "confirms", &confirms) || get_task(trial, to) ||
            get_tests(trial, to) || get_validated(trial, to) || get_speed(trial, to) ||
            get_optional(trial, "n_parameters", &to->parameters) ||
            get_optional(trial, "n_parameters_inner", &to->inner) ||
            get_optional(trial, "state_bytes", &to->state_bytes) ||
            get_optional(trial, "flops_per_token", &to->flops);

    to->confirms = !e && confirms > 0;
    return e ? -1 : 0;
}

int run_read(hid_t file, int trial, struct stored_run *to)
{
    const hid_t g = header_trial(file, trial);
    const int complete = g < 0 ? -1 : header_complete(g);
    int is = complete;

    *to = (struct stored_run){.trial = trial};
    if (complete > 0)
        is = H5Aexists(g, "ended") > 0;
    to->unnamed = is > 0 && H5Aexists(g, "variant") <= 0;
    if (is > 0 && read_trial(g, to))
        is = err_at("trial %d", trial + 1);
    h5_drop(g);
    return is;
}

int runs_read(hid_t file, struct runs *to)
{
    const int n = header_trials(file);

    *to = (struct runs){.n = 0};
    for (int i = 0; i < n; i++) {
        struct stored_run *more = grow(to->run, to->n, sizeof *more);
        if (!more)
            return err_set("no memory for %d runs", to->n + 1);
        to->run = more;
        const int is = run_read(file, i, &more[to->n]);
        if (is < 0)
            return -1;
        const int unnamed = is && n > 1 && more[to->n].unnamed;
        to->n += is && !unnamed;
        to->unnamed += unnamed;
        to->unfinished += !is;
    }
    return n < 0 ? -1 : 0;
}

void runs_free(struct runs *r)
{
    free(r->run);
    *r = (struct runs){.n = 0};
}
