/* links.h - whether a dump's trials hold what is in them themselves. */
#ifndef LINKS_H
#define LINKS_H

#include <hdf5.h>

/* In the group `path` of the file, which is to be read as a dump's, all members at any depth: each
 * must be the one name of an object of this file whose values are in it.  Nonzero after err_set():
 * "/trial/0001/mine/y is a soft link: ...", a hard one (the object has another name, too), an external
 * one, a virtual dataset, or one whose values are in another file. */
int links_check(hid_t file, const char *path);

#endif
