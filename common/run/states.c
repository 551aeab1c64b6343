/* Where unfinished runs have their checkpoints (states.h). */
#include "config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/run/states.h"
#include "common/train/cell.h"
#include "common/run/train_trial.h"

enum { DIGITS = 4, FILE_NAME = sizeof((struct checkpoints *)0)->file };
static const char *const ends[] = {"", ".before", ".new"};

void states_file(const struct states *s, int i, char file[FILE_NAME])
{
    snprintf(file, FILE_NAME, "%s/%04d", s->folder, i + 1);
}

/* "e74.state" of "e74.h5". */
static void name_folder(struct states *s, const char *output)
{
    size_t n = strlen(output);

    n -= n > 3 && strcmp(output + n - 3, ".h5") == 0 ? 3 : 0;
    snprintf(s->folder, sizeof s->folder, "%.*s.state", (int)n, output);
}

/* The number of a file of trial 0007, 6; -1: it is none. */
static int number_of(const char *name)
{
    int known = 0;

    if (strspn(name, "0123456789") != DIGITS || strtol(name, NULL, 10) < 1)
        return -1;
    for (int i = 0; i < (int)COUNT(ends); i++)
        known |= strcmp(name + DIGITS, ends[i]) == 0;
    return known ? (int)strtol(name, NULL, 10) - 1 : -1;
}

static void remove_files(const struct states *s, int i)
{
    char file[FILE_NAME], name[FILE_NAME + 8];

    states_file(s, i, file);
    for (int k = 0; k < (int)COUNT(ends); k++) {
        snprintf(name, sizeof name, "%s%s", file, ends[k]);
        unlink(name);
    }
}

/* Which trials have files there? */
static void find(const struct states *s, char there[MAX_TRIALS])
{
    DIR *d = opendir(s->folder);

    memset(there, 0, MAX_TRIALS);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (number_of(e->d_name) >= 0)
            there[number_of(e->d_name)] = 1;
    if (d)
        closedir(d);
}

/* Would that of trial i be lost?  1: yes; -1 after err_set(): it is another plan's. */
static int is_lost(const struct states *s, const struct experiment *x, int i)
{
    struct checkpoint_of *of = malloc(sizeof *of);
    char file[FILE_NAME];

    if (!of)
        return err_set("no memory for a checkpoint");
    states_file(s, i, file);
    const int none = checkpoint_read_of(file, of);
    const int other = !none && strcmp(of->plan, x->name) != 0;
    if (other) {
        err_set("%s: is of an unfinished run of another plan, '%s'", file, of->plan);
        err_advise(ADVICE_MOVE | ADVICE_ELSEWHERE);
    }
    free(of);
    return other ? -1 : none <= 0;
}

static int check_lost(const struct states *s, const struct experiment *x, int force)
{
    char there[MAX_TRIALS];
    int lost = 0;

    find(s, there);
    for (int i = 0; i < MAX_TRIALS; i++) {
        const int is = there[i] ? is_lost(s, x, i) : 0;
        if (is < 0)
            return -1;
        lost += is;
    }
    if (!lost || force || x->scratch)
        return 0;
    err_set("%s: holds %d unfinished run%s, which would be lost", s->folder, lost,
            lost == 1 ? "" : "s");
    return err_advise(ADVICE_RESUME | ADVICE_AGAIN);
}

int states_begin(struct states *s, struct experiment *x, int force)
{
    name_folder(s, x->output);
    for (int i = 0; i < x->n; i++)
        x->trial[i].number = i;
    x->states = s;
    return s->use == CHECKPOINT_IGNORED ? check_lost(s, x, force) : 0;
}

void states_clear(const struct experiment *x)
{
    char there[MAX_TRIALS];

    if (!x->states)
        return;
    find(x->states, there);
    for (int i = 0; i < MAX_TRIALS; i++)
        if (there[i])
            remove_files(x->states, i);
    rmdir(x->states->folder);
}

int states_refused(const struct experiment *x, int i)
{
    if (cell_waits(&x->trial[i].call))
        return 0; /* the run itself asks, when its rate is known */
    struct checkpoints *c = malloc(sizeof *c);
    int e = !c ? err_set("no memory for a checkpoint")
               : training_checkpoints(x, &x->trial[i], NULL, c) || checkpoint_refused(c);

    free(c);
    return e ? -1 : 0;
}

void states_done(const struct experiment *x, int i)
{
    if (!x->states)
        return;
    remove_files(x->states, i);
    rmdir(x->states->folder); /* which others keep */
}
