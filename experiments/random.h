/* random.h - run-ablation --random: is the judgement right about cases that nobody chose? */
#ifndef EXPERIMENTS_RANDOM_H
#define EXPERIMENTS_RANDOM_H

/* The arguments of the options; NULL where one is not given. */
struct random_words {
    const char *n, *from, *seed, *op, *checks, *judge;
};

/* Returns the status to exit with; 2 and 3 with a message left: a word is wrong or a contract
 * refuses all cases, a device was lost. */
int random_command(const struct random_words *words, const volatile int *stop);

#endif
