/* goal.h - the goal of a pass, as a trial's keys `goal` (forward) and `goal_backward` say it:
 *
 *     90 % memory     at least that fraction of a ceiling (ceiling.h)
 *     12 us           at most that time; also ns, ms, s
 *     95 % best       at least that fraction of the speed of the operation's fastest kernel
 *     95 % cublas     the same of the kernel of that name
 */
#ifndef GOAL_H
#define GOAL_H

#include "common/call/ceiling.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

enum goal_kind { GOAL_NONE, GOAL_CEILING, GOAL_TIME, GOAL_BEST, GOAL_KERNEL };

struct goal {
    enum goal_kind kind;
    double value;         /* the fraction, or the time in seconds */
    enum ceiling ceiling; /* of GOAL_CEILING */
    char kernel[32];      /* of GOAL_KERNEL */
    char text[80];        /* "90 % memory", which reads back as the same goal; "": none */
};

/* The key of each pass. */
extern const char *const goal_keys[N_PASSES];

/* Read the value of such a key; o is the trial's operation, or NULL where it is not known or all
 * of them are meant.  Nonzero after err_set(). */
int goal_read(const struct op *o, const char *key, const char *value, struct goal *to);
/* The words of a trial's goals, ` measure=time goal="90 % memory"`; "" where it has none. */
void goals_words(const struct goal goal[N_PASSES], char *to, size_t size);
/* The length of the words of a trial without its goals, which end them: its times are those of
 * other trials with the same words up to there. */
size_t goals_begin(const char *words);

/* Faults of a section's goals beside its other keys; where op = all the operation of t is NULL. */
struct plan;
struct ini_section;
struct trial;
void goals_refuse(struct plan *p, const struct ini_section *s, const struct trial *t);

#endif
