/* largest.h - the largest of some numbers. */
#ifndef LARGEST_H
#define LARGEST_H

/* The sum of the `most` largest of n numbers, or of all; they are put in order, the largest first. */
double largest_sum(double *x, int n, int most);

#endif
