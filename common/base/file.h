/* file.h - may a file of the user's be read? */
#ifndef FILE_H
#define FILE_H

/* NULL, or why it cannot be read, in words: it is not there, it is not ours to
 * read, or it is no regular file, which could block or never end. */
const char *file_unreadable(const char *name);

#endif
