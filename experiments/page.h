/* page.h - run-ablation --report: a dump as one page of HTML. */
#ifndef EXPERIMENTS_PAGE_H
#define EXPERIMENTS_PAGE_H

/* Writes the page of the dump into `output`, or beside the dump as NAME.html where that is NULL.  An
 * exit status of run-ablation: 0, or 2 after err_set(), and then nothing was written. */
int page_command(const char *dump, const char *output);

#endif
