/* judge.h - run-ablation judge: results that other programs wrote beside the inputs in a dump, judged
 * like a backend's. */
#ifndef JUDGE_H
#define JUDGE_H

struct judge_words {
    const char *file; /* the dump */
    const char
        *as; /* the program whose groups /trial/NNNN/NAME are judged; NULL: all that are there */
    const char *partial; /* "d_x,lse": results that may be absent; and `gradients`, `trials`; or
                          * `unchecked`: what cannot be compared with what was written is accepted */
    int tsv, verbose;
};
/* First the dump must be what run-ablation wrote, but for those groups (unchanged.h).
 * The report goes to stdout, the verdicts into the dump, too.  Returns an exit status of
 * run-ablation; 2 after err_set(), or where a trial could not be judged.  Once *stop is not 0 it ends,
 * without the trial that is being judged. */
int judge_command(const struct judge_words *w, const volatile int *stop);

#endif
