/* decode.h - run-ablation --decode: the least time of a token of a model whose weights are read once. */
#ifndef EXPERIMENTS_DECODE_H
#define EXPERIMENTS_DECODE_H

/* Prints the bytes of so many parameters of so many bits, and their time at so many GB (1e9 bytes) per
 * second; nonzero after err_set(), and then nothing was printed. */
int decode_command(const char *parameters, const char *bits, const char *rate);

#endif
