/* ablate_types.h - what ablate.h's types are, for the files ablate*.c. */
#ifndef ABLATE_TYPES_H
#define ABLATE_TYPES_H

#include "common/ablate.h"
#include "common/base/err.h"
#include "common/judge/check.h"
#include "common/plan/plan.h"

/* Whether p is NULL, which the public function that is running does not accept; err_set() has
 * then said so: "abl_run: the case is NULL". */
#define IS_NULL(p, what) (!(p) && err_set("%s: the %s is NULL", __func__, what))

struct abl_case {
    struct trial trial;
    struct tensors *t;
    struct file_id *source; /* the files that it was read from */
    int n_sources;
};

/* The call is on the backend that it ran on; of another program's result, on the yardstick. */
struct abl_result {
    struct trial trial;
    struct tensors *t;
    struct call call;
    struct outcome outcome;
    int repeats;
    struct {
        int x[MAX_ARGS], g[MAX_ARGS];
    } has;
    char name[16]; /* of another program's */
};

struct abl_verdicts {
    struct verdicts list;
    char name[16];
};

/* Around what runs, reads files, or uses what the process shares: one call at a time.  call_begin()
 * waits for another thread's call; nonzero after err_set(), and then call_end() must not follow. */
int call_begin(void);
void call_end(void);

/* Keep in mind that the case was read from that file.  Nonzero after err_set(): no memory. */
int case_add_source(abl_case *c, const char *file);
/* The case's inputs, rounded to its storage type for the backends; NULL after err_set(). */
struct tensors *case_rounded(const abl_case *c);

#endif
