/* err.h - library code returns a code and leaves one message here; only
 * main prints and exits. */
#ifndef ERR_H
#define ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Leave a message (one sentence, no newline; made printable, see quote.h); returns -1 so that a
 * function can end with it. */
__attribute__((format(printf, 1, 2))) int err_set(const char *fmt, ...);
/* The same in a function of C that returns a pointer. */
#define err_null(...) (err_set(__VA_ARGS__), NULL)
/* Put "where: " before the message that is there; returns -1. */
__attribute__((format(printf, 1, 2))) int err_at(const char *fmt, ...);
/* Put something behind it; returns -1. */
__attribute__((format(printf, 1, 2))) int err_more(const char *fmt, ...);
const char *err_text(void);

/* What would help, for a program to say how: the library knows no options. */
enum {
    ADVICE_RESUME = 1,     /* go on with the part that is there */
    ADVICE_AGAIN = 2,      /* throw it away */
    ADVICE_REPLACE = 4,    /* replace the file that is there */
    ADVICE_MOVE = 8,       /* move it away */
    ADVICE_ELSEWHERE = 16, /* write to another file */
    ADVICE_ANYWAY = 32     /* go on with a checkpoint of another run, build or machine */
};
/* Leave advice, several flags or one, with the message that is there; err_set() takes it away.
 * Returns -1. */
int err_advise(int advice);
int err_advice(void);

#ifdef __cplusplus
}
#endif
#endif
