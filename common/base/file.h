/* file.h - may a file of the user's be read, what does it hold, and who has it locked? */
#ifndef FILE_H
#define FILE_H

#include <stddef.h>
#include <stdint.h>

/* NULL, or why it cannot be read, in words: it is not there, it is not ours to
 * read, or it is no regular file, which could block or never end. */
const char *file_unreadable(const char *name);

/* The whole of it, to be freed, its length in *n; NULL after err_set(). */
unsigned char *file_read(const char *name, size_t *n);

/* What a file holds, so that it is known again: a hash of its bytes (fnv.h) and how many.  file_hash() goes on with those of a
 * file, from FNV_BEGIN and 0; nonzero after err_set().  The text is "fnv1a64 85944171f73967e8, 6 bytes". */
enum { MAX_CONTENTS = 64 };
int file_hash(const char *name, uint64_t *hash, uint64_t *bytes);
void file_contents_text(uint64_t hash, uint64_t bytes, char text[MAX_CONTENTS]);

/* The folder that a file is in, "." for a name alone, cut to fit. */
const char *file_folder(const char *name, char *text, size_t size);

/* Who holds a lock on it, by which HDF5 keeps others away: "python3 (process 123)", or "another program"
 * where the system does not say. */
enum { FILE_HOLDER = 64 };
const char *file_holder(const char *name, char text[FILE_HOLDER]);
/* Whether a lock keeps from reading or writing it.  Waits up to so many seconds for its end. */
int file_is_locked(const char *name, int to_write, double seconds);

#endif
