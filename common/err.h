/* err.h - library code returns a code and leaves one message here; only
 * main prints and exits. */
#ifndef ERR_H
#define ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Leave a message (one sentence, no newline); returns -1 so that a function
 * can end with it. */
__attribute__((format(printf, 1, 2))) int err_set(const char *fmt, ...);
/* Put "where: " before the message that is there; returns -1. */
__attribute__((format(printf, 1, 2))) int err_at(const char *fmt, ...);
/* Put something behind it; returns -1. */
__attribute__((format(printf, 1, 2))) int err_more(const char *fmt, ...);
const char *err_text(void);

#ifdef __cplusplus
}
#endif
#endif
