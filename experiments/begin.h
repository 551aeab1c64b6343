/* begin.h - threads and memory, before the first of either is used; and the devices in use. */
#ifndef BEGIN_H
#define BEGIN_H

/* See that the threads which OpenMP is to start can be started, and that there
 * is address space for the libraries, and a stack: libgomp and OpenBLAS would end the
 * program, or hang.  Fewer threads are said on stderr.  Nonzero after err_set(). */
int begin(void);

/* The contexts that this process has opened. */
struct contexts *process_contexts(void);

#endif
