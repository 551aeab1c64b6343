/* ablate.h's functions for words: what a case of them would be, and drawn ones. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/run/random_cases.h"

static const char EXACT[] = "dtype=fp64", SHORTER[] = "dtype=fp32";
_Static_assert(sizeof EXACT == sizeof SHORTER, "one takes the place of the other");

/* The plan of words that run-ablation knows. */
static int plan_of(const char *words, int elsewhere, struct trial *trial)
{
    char *text = NULL;
    size_t n;
    struct experiment x;
    FILE *errors = open_memstream(&text, &n);

    if (!errors)
        return err_set("no memory");
    int faults = (elsewhere ? plan_call : plan_words)(words, &x, errors);
    fclose(errors);
    if (faults) {
        text[strcspn(text, "\n")] = 0;
        err_set("%s", strncmp(text, "-t: ", 4) == 0 ? text + 4 : text);
    } else {
        if (x.measure == MEASURE_TRAIN)
            faults = err_set("train is a run, and no operation: run-ablation makes and judges it");
        else if (x.n == 1)
            *trial = x.trial[0];
        else
            faults = err_set("these words make %d cases", x.n);
        plan_free(&x);
    }
    free(text);
    return faults ? -1 : 0;
}

/* A word of that text which begins the line or follows a blank. */
static char *word_in(char *line, const char *word)
{
    const size_t n = strlen(word);

    for (char *at = line; (at = strstr(at, word)); at += n)
        if ((at == line || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return at;
    return NULL;
}

int words_parse(const char *words, int elsewhere, struct trial *trial)
{
    char *copy = strdup(words), *exact = copy ? word_in(copy, EXACT) : NULL;

    if (!copy)
        return err_set("no memory for words");
    if (exact)
        memcpy(exact, SHORTER, sizeof SHORTER - 1);
    int e = plan_of(copy, elsewhere, trial);
    if (!e && exact) {
        trial->type = F64;
        e = plan_text(trial);
    }
    free(copy);
    return e;
}

int abl_words_tensor(const char *words, int i, struct abl_tensor *to)
{
    if (IS_NULL(words, "string of words") || IS_NULL(to, "destination"))
        return -1;
    struct trial trial;
    if (lock_library())
        return -1;
    const int e = words_parse(words, 1, &trial);
    unlock_library();
    return e ? -1 : i < 0 ? 1 : call_tensor(&trial.call, i, to);
}

int abl_random(const char *op, uint64_t seed, int64_t i, char *words, int64_t size)
{
    if (IS_NULL(words, "string of words"))
        return -1;
    const struct op *only = op ? find_op(op) : NULL;
    const struct random r = {.seed = seed, .only = only};
    struct trial trial;

    if ((op && !only) || lock_library())
        return -1;
    const int e = random_trial(&r, i, &trial);
    unlock_library();
    if (e)
        return -1;
    if (size <= (int64_t)strlen(trial.text))
        return err_set("%lld bytes are too few for the words of a case", (long long)size);
    strcpy(words, trial.text);
    return 0;
}
