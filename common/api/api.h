/* api.h - what ablate.h's types are, for the files beside it. */
#ifndef API_H
#define API_H

#include "common/ablate.h"
#include "common/base/err.h"
#include "common/judge/check.h"
#include "common/judge/passing.h"
#include "common/plan/plan.h"

/* Whether p is NULL, which the public function that is running does not accept; err_set() has
 * then said so: "abl_run: the case is NULL". */
#define IS_NULL(p, what) (!(p) && err_set("%s: the %s is NULL", __func__, what))
/* Whether `given`, an enum abl_pass, is none; then err_set() has said so.  Else *p is that pass. */
#define IS_NO_PASS(given, p) pass_find(__func__, given, p)
int pass_find(const char *function, int64_t given, enum pass *p);

/* What the references computed for a case, and the rounded inputs of that. */
struct answer {
    struct tensors *inputs;
    struct truth truth;
    char *passing;     /* what would pass; NULL: it was not asked, and few samples do */
    char *refused;     /* what would not, of what was asked */
    char *hidden;      /* what would since it changes nothing */
    struct results by; /* as these */
    int as_declared;   /* by the roundings that a result declares */
};

struct abl_case {
    struct trial trial;
    struct tensors *t;
    struct answer *answer;  /* or NULL: not yet, or the inputs have changed */
    struct file_id *source; /* the files that it was read from */
    int n_sources;
};

/* The call is on the backend that it ran on; of another program's result, on the yardstick. */
struct abl_result {
    struct trial trial;
    struct tensors *t;
    struct call call;
    struct outcome outcome;
    int repeats, forward_only;
    struct {
        int x[MAX_ARGS], g[MAX_ARGS];
    } has;
    char name[48];     /* of another program's */
    struct units unit; /* of the type in which a result is given, where that is coarser; else 0 */
};
enum { MAX_ROUNDS = 256 };
/* As abl_result_rounds(), what the group of a dump says in its attribute `rounds`, and its datasets
 * in their attributes `storage`. */
int result_rounds_in(abl_result *r, int64_t group);

/* What the references say of the case, found once; NULL after err_set(). */
struct answer *answer_of(abl_case *c);
/* The bounds become those of the types in which the result says that it is given. */
void bounds_as_given(struct bounds *bounds, const abl_result *r);
/* Verdicts on every result that was set, of the program of that name; nonzero after err_set(). */
int result_judge(const abl_result *r, struct bounds *bounds, const char *name,
                 struct verdicts *list);

struct abl_verdicts {
    struct verdicts list;
    char name[48];
};

/* Around what runs, reads files, or uses what the process shares: one call at a time.  lock_library()
 * waits for another thread's call; nonzero after err_set(), and then unlock_library() must not follow. */
int lock_library(void);
/* The same around what gives something back, which nobody asks to end early. */
int lock_library_to_free(void);
void unlock_library(void);
/* Those of the library's own calls, under its lock. */
struct contexts *library_contexts(void);

/* By its name; NULL after err_set(). */
const struct op *find_op(const char *name);
const struct backend *find_backend(const char *name);
/* The same of a public function's argument, which may be NULL. */
#define OP_NAMED(name) (IS_NULL(name, "operation") ? NULL : find_op(name))
#define BACKEND_NAMED(name) (IS_NULL(name, "backend") ? NULL : find_backend(name))
/* Gives the call the kernel of that name, or the first that accepts it, if it is NULL.  Nonzero after
 * err_set(). */
int choose_kernel(struct call *f, const char *name);
/* The trial that the words make, which must be one; its first fault is the message.  It fits into this machine's
 * memory, unless its tensors are `elsewhere`, the caller's.  Nonzero after err_set(). */
int words_parse(const char *words, int elsewhere, struct trial *trial);
/* Tensor `arg` of the operation in a call of these sizes; or tensor i of those that the call has: 1
 * after the last. */
void describe_tensor(const struct op *o, const struct call *f, int arg, struct abl_tensor *to);
/* And its types in a call, which is on a backend. */
void describe_types(const struct call *f, int arg, struct abl_tensor *to);
int call_tensor(const struct call *f, int i, struct abl_tensor *to);

/* Is it the name of something that a trial in a dump has of its own, a backend's group or another? */
int name_is_taken(const char *name);
/* Nonzero after err_set(): a group has members that abl_dump_member() leaves out though they are no
 * axes. */
int dump_unseen(const abl_dump *d, const char *group);
/* Its inputs change: what is known of it is forgotten. */
void case_changed(abl_case *c);
/* Keep in mind that the case was read from that file.  Nonzero after err_set(): no memory. */
int case_add_source(abl_case *c, const char *file);
/* The case's inputs, rounded to its storage type for the backends; NULL after err_set(). */
struct tensors *case_rounded(const abl_case *c);
/* The inputs that a trial's words make, rounded likewise; NULL after err_set(). */
struct tensors *case_drawn(const struct trial *t);

#endif
