/* progress.h - a line on a terminal that says what is being done. */
#ifndef PROGRESS_H
#define PROGRESS_H

/* A line on a terminal's stderr that says what is being done; nothing if
 * stderr is no terminal. */
void progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void progress_clear(void);
/* Is stderr a terminal? */
int progress_is_seen(void);

#endif
