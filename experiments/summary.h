/* summary.h - run-ablation --summary: the settings of a dump compared. */
#ifndef EXPERIMENTS_SUMMARY_H
#define EXPERIMENTS_SUMMARY_H

struct summary_words {
    const char *file;
    char *by; /* "state,nonlin", which is cut; NULL: the settings that vary, but for the seed */
    int csv;
};
/* Prints the table of each operation, or all as CSV (RFC 4180).  An exit status of run-ablation: 0, or 2
 * after err_set(). */
int summary_command(const struct summary_words *w);

#endif
