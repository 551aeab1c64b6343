/* wrong.h - for the files in ref/wrong/: kernels with the mistakes that published ones have, in ref32
 * and in ref_bf16.
 *
 * None is ever chosen, listed, timed or judged: they are what a judge must see.  One of the contract's
 * cases refuses each (tests/wrong), and of a case that somebody asks for the judge says which of them
 * would pass there.
 *
 *     WRONG_CALL(id, "what", g.real[NORM_EPS] = 0);    the right kernel on a changed call g
 *     WRONG_AFTER(id, "what", FORWARD, function);      the right kernel; function(f) changes what that
 *                                                      pass has made
 *     WRONG_PASSES(id, "what", forward, backward);     passes of its own, or right_forward and
 *                                                      right_backward
 *
 * Further members of struct impl may follow: .declines, where a call does not have the mistake, and
 * .unseen. */
#ifndef WRONG_H
#define WRONG_H

#include "ref/ref.h"

#define WRONG(name) JOINED(REF(wrong_), name)
#define JOINED(a, b) JOINED_NOW(a, b)
#define JOINED_NOW(a, b) a##b

/* The right kernel's pass, and its workspace. */
static inline int right_pass(const struct call *f, enum pass p)
{
    return op_kernel(f->op, f->backend, 0)->pass[p](f);
}

/* The same with another tensor in the place of one. */
static inline int right_pass_with(const struct call *f, enum pass p, int arg, const void *at)
{
    struct call g = *f;

    g.arg[arg] = (void *)at;
    return right_pass(&g, p);
}

static inline int right_forward(const struct call *f)
{
    return right_pass(f, FORWARD);
}

static inline int right_backward(const struct call *f)
{
    return right_pass(f, BACKWARD);
}

/* What loops over whole tiles of `by` have of n, where there is a whole one. */
static inline int64_t whole(int64_t n, int64_t by)
{
    return n < by ? n : n / by * by;
}

static inline size_t right_work(const struct call *f, enum pass p)
{
    const struct impl *k = op_kernel(f->op, f->backend, 0);
    return k->work ? k->work(f, p) : 0;
}

#define WRONG_PASSES(id, what_, forward_, backward_, ...)                                          \
    static const struct impl id = {.name = #id,                                                    \
                                   .idea = what_,                                                  \
                                   .type = STORED,                                                 \
                                   .pass[FORWARD] = forward_,                                      \
                                   .pass[BACKWARD] = backward_,                                    \
                                   .work = right_work,                                             \
                                   __VA_ARGS__}
/* Both passes are id_run(f, pass). */
#define WRONG_RUN(id, what_, ...)                                                                  \
    static int id##_forward(const struct call *f)                                                  \
    {                                                                                              \
        return id##_run(f, FORWARD);                                                               \
    }                                                                                              \
    static int id##_backward(const struct call *f)                                                 \
    {                                                                                              \
        return id##_run(f, BACKWARD);                                                              \
    }                                                                                              \
    WRONG_PASSES(id, what_, id##_forward, id##_backward, __VA_ARGS__)
#define WRONG_CALL(id, what_, change, ...)                                                         \
    static int id##_run(const struct call *f, enum pass p)                                         \
    {                                                                                              \
        struct call g = *f;                                                                        \
        change;                                                                                    \
        return right_pass(&g, p);                                                                  \
    }                                                                                              \
    WRONG_RUN(id, what_, __VA_ARGS__)
#define WRONG_AFTER(id, what_, pass_, after, ...)                                                  \
    static int id##_run(const struct call *f, enum pass p)                                         \
    {                                                                                              \
        const int e = right_pass(f, p);                                                            \
        if (!e && p == pass_)                                                                      \
            after(f);                                                                              \
        return e;                                                                                  \
    }                                                                                              \
    WRONG_RUN(id, what_, __VA_ARGS__)

/* WRONG_KERNELS(rmsnorm, &no_eps, &eps_outside_root): those of an operation. */
#define WRONG_KERNELS(op, ...) const struct impl *const WRONG(op)[] = {__VA_ARGS__, NULL}

/* Why a call does not have the mistake: a function for .declines. */
#define WRONG_UNLESS(name, condition, why)                                                         \
    static const char *name(const struct call *f)                                                  \
    {                                                                                              \
        return (condition) ? NULL : (why);                                                         \
    }

#endif
