/* judge.h - run-ablation judge: results that other programs wrote beside the inputs in a dump, judged
 * like a backend's. */
#ifndef JUDGE_H
#define JUDGE_H

struct judge_words {
    const char *file; /* the dump */
    const char
        *as; /* the program whose groups /trial/NNNN/NAME are judged; NULL: all that are there */
    int tsv, verbose;
};
/* The report goes to stdout, the verdicts into the dump, too.  Returns an exit status of
 * run-ablation; 2 after err_set(), or where a trial could not be judged.  Once *stop is not 0 it ends,
 * without the trial that is being judged. */
int judge_command(const struct judge_words *w, const volatile int *stop);

#endif
