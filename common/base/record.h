/* record.h - a file of values that is whole or refused: each is passed by one call, by which it is written and read.
 *
 *     "ABLRECD\n"    int64 order = 0x0102030405060708    the values    uint64 FNV-1a of all before it
 *
 * Values are in the byte order of the machine that wrote them, which `order` says.  A file is written beside as
 * FILE.new, synced and renamed, and the one before is kept as FILE.before: killed at any moment, one of the two is there
 * and whole.  The folder is made where there is none.
 *
 * After a first error nothing further is written or read: values that were not read are 0, and record_close() says why. */
#ifndef RECORD_H
#define RECORD_H

#include <stddef.h>
#include <stdint.h>

enum { RECORD_NAME = 640 }; /* of a file, with its end */

struct record;

/* Begins FILE.new; NULL after err_set(). */
struct record *record_create(const char *file);
/* Opens a file whose bytes are those that were written.  NULL after err_set(): *missing, whether there is none; else
 * it cannot be read, is damaged, or is another machine's. */
struct record *record_open(const char *file, int *missing);
int record_is_read(const struct record *r);

/* n bytes at x. */
void record_bytes(struct record *r, void *x, size_t n);
void record_int(struct record *r, int64_t *x);
void record_real(struct record *r, double *x);
/* At most size - 1 characters. */
void record_text(struct record *r, char *x, size_t size);
/* How many values of so many bytes, at least, come behind it; read, it is no more than can be there. */
void record_count(struct record *r, int64_t *n, size_t each);
/* Ends it with that error, as it is after err_set(). */
void record_refuse(struct record *r);
/* Nonzero after an error. */
int record_failed(const struct record *r);

/* Of one that was read: nonzero after err_set(), where a value was refused or some are left.  Of one that is written: it
 * takes its place, and the one that is there becomes FILE.before, unless that is not `whole`; nonzero after err_set(), and
 * what was there stays. */
int record_close(struct record *r, int whole);
/* Without looking whether all was read, or giving up what was written. */
void record_drop(struct record *r);

#endif
