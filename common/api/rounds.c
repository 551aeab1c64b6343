/* What a program says that it rounds, "S:bf16 d_w:bf16", and what that allows it (ablate.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/h5.h"

static const char BLANKS[] = " ,\t\r\n";

/* A declaration's kernel, which is kept for good: bounds know it by its address. */
struct declaration {
    struct impl impl; /* named "given, rounds S:bf16" */
    char name[2 * MAX_ROUNDS], stores[MAX_ROUNDS];
    struct declaration *next;
};

/* The type of that name, or -1. */
static int type_named(const char *name)
{
    for (int n = 0; n < N_DTYPES; n++)
        if (strcmp(name, types[n].name) == 0)
            return n;
    return -1;
}

/* A word NAME:TYPE; nonzero after err_set(). */
static int read_word(char *word, enum dtype *type)
{
    char *colon = strchr(word, ':');

    if (!colon || colon == word || !colon[1])
        return err_set("rounds: %s is not NAME:TYPE", word);
    const int named = type_named(colon + 1);
    if (named < F32 || named > F16)
        return err_set("rounds: %s is none of the types fp32, bf16, fp16", colon + 1);
    *colon = 0;
    *type = (enum dtype)named;
    return 0;
}

/* Both lists of the operation's sites. */
static const char *names_of_sites(const struct op *o, char text[MAX_ROUNDS])
{
    snprintf(text, MAX_ROUNDS, "%s%s%s", o->sites ? o->sites : "none", o->declared ? " " : "",
             o->declared ? o->declared : "");
    return text;
}

/* A result of that name is given in that type. */
static int add_tensor(abl_result *r, const char *name, enum dtype type)
{
    int grad;
    const int arg = tensor_find(r->call.op, name, &grad);
    char sites[MAX_ROUNDS];

    if (arg < 0 || !op_results(&r->call, arg, grad))
        return err_set("rounds: %s is no result of %s here, and none of its sites, which are %s",
                       name, r->call.op->name, names_of_sites(r->call.op, sites));
    if (!grad && !(r->call.op->arg[arg].flags & OUT))
        return err_set("rounds: %s is kept for the backward pass, and never given", name);
    if (op_is_bytes(&r->call, arg) ||
        types[type].unit <= types[call_type(&r->call, arg, grad)].unit)
        return err_set("rounds: %s is %s, and %s is no coarser", name,
                       types[call_type(&r->call, arg, grad)].name, types[type].name);
    X_OR_G(r->unit, arg, grad) = types[type].unit;
    return 0;
}

/* Is it said already, of a site or of a result? */
static int is_said(const abl_result *r, const char *stores, const char *name)
{
    const struct op *o = r->call.op;
    int grad;
    const int arg = tensor_find(o, name, &grad);

    return op_sites(o, stores) & op_sites(o, name) ||
           (!op_sites(o, name) && arg >= 0 && X_OR_G(r->unit, arg, grad) > 0);
}

static int add_word(abl_result *r, char *word, char stores[MAX_ROUNDS], double *unit)
{
    enum dtype type = F32;

    if (read_word(word, &type))
        return -1;
    if (is_said(r, stores, word))
        return err_set("rounds: %s is named twice", word);
    if (!op_sites(r->call.op, word))
        return add_tensor(r, word, type);
    snprintf(stores + strlen(stores), MAX_ROUNDS - strlen(stores), "%s%s", *stores ? " " : "",
             word);
    *unit = types[type].unit > *unit ? types[type].unit : *unit;
    return 0;
}

/* The kernel that declares it: the one that is there, or a new one; NULL after err_set(). */
static const struct impl *declaring(const char *words, const char *stores, double unit)
{
    static struct declaration *all;
    struct declaration *d = all;
    char name[2 * MAX_ROUNDS];

    if (words[strspn(words, BLANKS)])
        snprintf(name, sizeof name, "given, rounds %s", words);
    else
        strcpy(name, "given");
    while (d && (strcmp(d->name, name) != 0 || strcmp(d->stores, stores) != 0))
        d = d->next;
    if (d)
        return &d->impl;
    if (!(d = calloc(1, sizeof *d)))
        return err_null("no memory for what a result rounds");
    strcpy(d->name, name);
    strcpy(d->stores, stores);
    d->impl =
        (struct impl){.name = d->name, .stores = *stores ? d->stores : NULL, .stored_unit = unit};
    d->next = all;
    all = d;
    return &d->impl;
}

static int read_words(abl_result *r, const char *words)
{
    char copy[MAX_ROUNDS], stores[MAX_ROUNDS] = "", *rest;
    double unit = 0;

    if (strlen(words) >= sizeof copy)
        return err_set("rounds: more than %d characters", MAX_ROUNDS - 1);
    strcpy(copy, words);
    memset(&r->unit, 0, sizeof r->unit);
    for (char *word = strtok_r(copy, BLANKS, &rest); word; word = strtok_r(NULL, BLANKS, &rest))
        if (add_word(r, word, stores, &unit))
            return -1;
    const struct impl *k = declaring(words, stores, unit);
    if (k)
        r->call.kernel = k;
    return k ? 0 : -1;
}

/* Another program's alone; what was said before stays where the words are wrong. */
static int set_words(abl_result *r, const char *words)
{
    const struct units before = r->unit;

    if (!*r->name)
        return err_set("rounds: this result is %s's, whose kernels declare what they round",
                       r->call.backend->name);
    if (!read_words(r, words))
        return 0;
    r->unit = before;
    return -1;
}

int abl_result_rounds(abl_result *r, const char *words)
{
    if (IS_NULL(r, "result") || IS_NULL(words, "string of words") || lock_library())
        return -1;
    const int e = set_words(r, words);
    unlock_library();
    return e;
}

/* ---- in a dump ---- */

static void append(char words[MAX_ROUNDS], const char *name, const char *type)
{
    const size_t used = strlen(words);
    snprintf(words + used, MAX_ROUNDS - used, "%s%s%s%s", used ? " " : "", name, type ? ":" : "",
             type ? type : "");
}

/* Do the words say something of that name? */
static int says(const char *words, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = words; (at = strstr(at, name)); at += n)
        if ((at == words || strchr(BLANKS, at[-1])) && at[n] == ':')
            return 1;
    return 0;
}

/* The type in which the dataset says that its values are stored, or -1; -2 after err_set(). */
static int stored_type(hid_t group, const char *path)
{
    if (H5Lexists(group, path, H5P_DEFAULT) <= 0 ||
        H5Aexists_by_name(group, path, "storage", H5P_DEFAULT) <= 0)
        return -1;
    const hid_t set = H5Oopen(group, path, H5P_DEFAULT);
    char *text = set < 0 ? NULL : h5_get_text(set, "storage");
    const int type = text ? type_named(text) : -1;

    if (text && type < 0)
        err_set("%s: storage = %s, which is none of the types fp32, bf16, fp16", path, text);
    free(text);
    if (set >= 0)
        H5Oclose(set);
    return type < 0 ? -2 : type;
}

/* Appends a word for a dataset that says that its values are stored in a coarser type. */
static int append_coarser(const abl_result *r, hid_t group, int arg, int grad,
                          char words[MAX_ROUNDS])
{
    char path[40], tensor[32];

    if (grad && H5Lexists(group, "d", H5P_DEFAULT) <= 0)
        return 0;
    snprintf(path, sizeof path, "%s%s", grad ? "d/" : "", r->call.op->arg[arg].name);
    const int type = stored_type(group, path);
    tensor_name(r->call.op, arg, grad, tensor);
    if (type >= 0 && types[type].unit > types[call_type(&r->call, arg, grad)].unit &&
        !says(words, tensor))
        append(words, tensor, types[type].name);
    return type == -2 ? -1 : 0;
}

int result_rounds_in(abl_result *r, int64_t group)
{
    char words[MAX_ROUNDS] = "", *said = NULL;

    if (H5Aexists(group, "rounds") > 0 && !(said = h5_get_text(group, "rounds")))
        return -1;
    append(words, said ? said : "", NULL);
    FOR_RESULTS (&r->call, i, grad)
        if (!op_is_bytes(&r->call, i) && append_coarser(r, group, i, grad, words)) {
            free(said);
            return -1;
        }
    const int e = (said && strlen(said) >= MAX_ROUNDS)
                      ? err_set("rounds: more than %d characters", MAX_ROUNDS - 1)
                  : *words ? set_words(r, words)
                           : 0;
    free(said);
    return e;
}
