/* ablate.h's functions for dumps, by store.h and h5.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/base/quote.h"
#include "common/call/values.h"
#include "common/run/input.h"
#include "common/store/given.h"
#include "common/store/header.h"
#include "common/store/store.h"

/* A result as the store takes it: without what was not set. */
static void set_only(const abl_result *r, struct tensors *t, struct ran *to)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        t->x[i] = r->has.x[i] ? r->t->x[i] : NULL;
        t->b[i] = r->has.x[i] ? r->t->b[i] : NULL;
        t->g[i] = r->has.g[i] ? r->t->g[i] : NULL;
    }
    *to = (struct ran){
        .call = r->call, .name = *r->name ? r->name : NULL, .t = t, .outcome = r->outcome};
}

/* Nonzero after err_set() if these cannot be the n results of a dump of this trial. */
static int check_results(const abl_result *const *results, int n, const struct trial *t)
{
    if (n < 0 || n > MAX_RAN)
        return err_set("%d results are more than the %d that a dump can hold", n, MAX_RAN);
    if (n && !results)
        return err_set("abl_write: the list of results is NULL");
    for (int i = 0; i < n; i++) {
        if (!results[i])
            return err_set("abl_write: result %d in the list of results is NULL", i);
        if (strcmp(results[i]->trial.text, t->text) != 0)
            return err_set("a result of another case: %.*s", quote_fit(results[i]->trial.text, 400),
                           results[i]->trial.text);
    }
    return 0;
}

/* The results as the store takes them; more than belongs on the stack of a thread of the caller. */
struct taken {
    struct result r;
    struct tensors some[MAX_RAN];
};

/* The case's inputs as its words make them, rounded; NULL after err_set(). */
struct tensors *case_drawn(const struct trial *t)
{
    const struct call on = call_on(&t->call, reference_of(t->type), NULL, NULL);
    struct tensors *drawn = tensors_new(&t->call);

    if (drawn && input_fill(t, drawn, NULL)) {
        tensors_free(drawn);
        return NULL;
    }
    if (drawn)
        tensors_round(drawn, &on);
    return drawn;
}

/* Are these, rounded, not what its words make? */
static int are_set(const struct trial *t, const struct tensors *inputs)
{
    const struct call on = call_on(&t->call, reference_of(t->type), NULL, NULL);
    struct tensors *drawn = case_drawn(t);
    const int set = !drawn || given_differ(&on, inputs, drawn, "drawn", 0);

    tensors_free(drawn);
    err_set("%s", ""); /* neither is an error */
    return set;
}

static int write_dump(const char *file, const abl_case *c, const abl_result *const *results, int n,
                      const abl_verdicts *v)
{
    struct trial trial = c->trial;
    struct experiment x = {.name = "case",
                           .contexts = library_contexts(),
                           .seed = trial.seed,
                           .save = SAVE_ALL,
                           .compress = 1,
                           .text = trial.text,
                           .source = c->source,
                           .n_sources = c->n_sources,
                           .n = 1,
                           .trial = &trial};

    if (strlen(file) >= sizeof x.output)
        return err_set("the name of a file is too long: %.*s...", quote_fit(file, 60), file);
    if (check_results(results, n, &trial))
        return -1;
    struct taken *taken = calloc(1, sizeof *taken);
    if (!taken)
        return err_set("no memory for the results");
    struct result *r = &taken->r;
    r->trial = &trial;
    strcpy(x.output, file);
    for (int i = 0; i < n; i++) {
        set_only(results[i], &taken->some[i], &r->ran[i]);
        x.repeats = i == 0 || results[i]->repeats == x.repeats ? results[i]->repeats : 0;
    }
    r->n_ran = n;
    if (v) {
        r->verdicts = v->list;
        r->failed = abl_failed(v);
    }
    r->inputs = case_rounded(c);
    r->inputs_set = r->inputs && are_set(&trial, r->inputs);
    struct store *s = r->inputs ? store_open(&x, STORE_REPLACE | STORE_WHOLE) : NULL;
    int e = !s || store_write(s, 0, r);
    if (s) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_text());
        if (store_close(s, !e))
            e = 1;
        else if (e)
            err_set("%s", why);
    }
    tensors_free(r->inputs);
    free(taken);
    return e ? -1 : 0;
}

int abl_write(const char *file, const abl_case *c, const abl_result *const *results, int n,
              const abl_verdicts *v)
{
    if (IS_NULL(file, "name of the file") || IS_NULL(c, "case") || lock_library())
        return -1;
    int e = write_dump(file, c, results, n, v);
    unlock_library();
    return e;
}

/* Where tensors are read from: a group of a dump with the values of tensors or with gradients, as
 * the call stores them. */
struct source {
    hid_t group;
    int grad;
    struct call call;
    const char *line; /* of the trial */
};

/* The dataset into memory for it; nonzero after err_set() if it cannot be read, or has values that
 * are not allowed. */
static int read_into(const struct source *from, const char *name, int arg, const int64_t *size,
                     void *there)
{
    const struct call *f = &from->call;
    const int rank = (int)strlen(op_shape(f, arg));

    if (op_is_bytes(f, arg))
        return h5_read_bytes(from->group, name, rank, size, there) ||
               values_check_bytes(f, arg, name, there);
    return h5_read_tensor(from->group, name, rank, size, there) ||
           values_check(f, arg, from->grad, name, there);
}

/* Dataset `name` becomes the tensor, doubles or bytes, which stays as it was if the dataset cannot
 * be read or has values that are not allowed. */
static int read_values(const struct source *from, const char *name, int arg, void *values)
{
    const struct call *f = &from->call;
    const char *shape = op_shape(f, arg);
    int64_t size[MAX_RANK];
    const size_t bytes = op_count(f, arg) * tensors_each(f, arg);
    void *there = malloc(bytes);

    for (int i = 0; shape[i]; i++)
        size[i] = DIM(f, shape[i]);
    int e =
        !there ? err_set("no memory to read %s", name) : read_into(from, name, arg, size, there);
    if (!e)
        memcpy(values, there, bytes);
    free(there);
    return e;
}

/* The dataset of tensor number `arg` in a group, if it is there, into its values, if there are any;
 * *found counts them. */
static int read_one(const struct source *from, int arg, void *values, int *found)
{
    const struct arg *a = &from->call.op->arg[arg];
    const char *name = a->name, *was = a->was;

    if (was && H5Lexists(from->group, name, H5P_DEFAULT) <= 0)
        name = was;
    if (!values || H5Lexists(from->group, name, H5P_DEFAULT) <= 0)
        return 0;
    if (read_values(from, name, arg, values))
        return err_more(" (%.*s)", quote_fit(from->line, 300), from->line);
    ++*found;
    return 1;
}

/* Where the values of a tensor, its gradient or its initial gradient are. */
enum where { VALUES, GRADIENT, INITIAL };

/* All tensors of t whose flags have one of `flags`, from a group within from->group. */
static int read_all(const struct source *from, const char *within, unsigned flags,
                    const struct tensors *t, enum where where, int *has, int *found)
{
    const struct op *o = from->call.op;
    struct source inner = *from;
    int e = 0;

    if (*within && H5Lexists(from->group, within, H5P_DEFAULT) <= 0)
        return 0;
    inner.group = H5Gopen2(from->group, *within ? within : ".", H5P_DEFAULT);
    if (inner.group < 0)
        return err_set("%s is no group", within);
    for (int i = 0; e >= 0 && i < o->n_args; i++) {
        if (!(o->arg[i].flags & flags))
            continue;
        e = read_one(&inner, i, where == INITIAL ? t->g0[i] : tensors_values(t, i, where), found);
        if (e > 0 && has)
            has[i] = 1;
    }
    H5Gclose(inner.group);
    return e < 0 ? -1 : 0;
}

/* With the group open, do what `read` does, as one call; HDF5 itself prints nothing. */
static int with_group(const char *file, const char *group, int (*read)(hid_t group, void *data),
                      void *data)
{
    int e;
    if (lock_library())
        return -1;
    H5E_BEGIN_TRY
    {
        hid_t f = h5_open(file, H5F_ACC_RDONLY), g = -1;
        if (f < 0)
            e = err_set("%s cannot be read: %s", file, h5_reason());
        else if ((g = H5Gopen2(f, group, H5P_DEFAULT)) < 0)
            e = err_set("%s has no group %s", file, group);
        else if ((e = read(g, data)))
            err_at("%s:%s", file, group);
        if (g >= 0)
            H5Gclose(g);
        if (f >= 0)
            H5Fclose(f);
    }
    H5E_END_TRY
    unlock_library();
    return e;
}

static int read_case(hid_t g, void *data)
{
    abl_case *c = data;
    const struct call on = call_on(&c->trial.call, reference_of(c->trial.type), NULL, NULL);
    const struct source in = {g, 0, on, c->trial.text}, dout = {g, 1, on, c->trial.text};
    int found = 0;
    if (read_all(&in, "in", IN, c->t, VALUES, NULL, &found) ||
        read_all(&dout, "dout", OUT, c->t, GRADIENT, NULL, &found) ||
        read_all(&dout, "dinit", IN, c->t, INITIAL, NULL, &found))
        return -1;
    return found ? 0 : err_set("none of the inputs of %s is there", c->trial.call.op->name);
}

int abl_read(abl_case *c, const char *file, const char *group)
{
    if (IS_NULL(c, "case") || IS_NULL(file, "name of the file") || IS_NULL(group, "group"))
        return -1;
    case_changed(c);
    return with_group(file, group, read_case, c) || case_add_source(c, file) ? -1 : 0;
}

static int read_result(hid_t g, void *data)
{
    abl_result *r = data;
    const struct source out = {g, 0, r->call, r->trial.text}, d = {g, 1, r->call, r->trial.text};
    int found = 0;
    if (*r->name && result_rounds_in(r, g))
        return -1;
    if (read_all(&out, "", OUT | SAVED, r->t, VALUES, r->has.x, &found) ||
        read_all(&d, "d", IN, r->t, GRADIENT, r->has.g, &found))
        return -1;
    return found ? 0 : err_set("none of the results of %s is there", r->trial.call.op->name);
}

int abl_result_read(abl_result *r, const char *file, const char *group)
{
    if (IS_NULL(r, "result") || IS_NULL(file, "name of the file") || IS_NULL(group, "group"))
        return -1;
    return with_group(file, group, read_result, r);
}

/* A trial's words, and the program that they run. */
struct trial_words {
    char *line;
    struct program_texts programs;
};

/* The words of a trial's attribute `line`, less those that say where its
 * inputs came from: they are in the dump. */
static int read_line(hid_t g, void *data)
{
    struct trial_words *to = data;
    char *line = h5_get_text(g, "line");

    if (!line)
        return err_more(": not a trial of ours");
    char *from = strstr(line, " input=");
    if (from)
        *from = 0;
    to->line = line;
    return header_program(g, &to->programs);
}

/* The case of the words, by the program's text that stands beside them. */
static abl_case *case_of(const struct trial_words *words)
{
    const struct program_texts *before = program_texts_use(&words->programs);
    abl_case *c = abl_case_new(words->line);

    program_texts_use(before);
    return c;
}

abl_case *abl_case_read(const char *file, const char *group)
{
    if (IS_NULL(file, "name of the file") || IS_NULL(group, "group"))
        return NULL;
    struct trial_words words = {NULL, {0, NULL}};
    abl_case *c = with_group(file, group, read_line, &words) ? NULL : case_of(&words);

    if (words.line && !c)
        err_at("%s:%s", file, group);
    free(words.line);
    program_texts_free(&words.programs);
    if (c && abl_read(c, file, group)) {
        abl_case_free(c);
        c = NULL;
    }
    return c;
}
