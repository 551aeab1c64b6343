/* input.h - the source of a trial's inputs. */
#ifndef INPUT_H
#define INPUT_H

#include "common/call/run.h"
#include "common/plan/plan.h"

/* Fill the inputs of t, and the gradients of its outputs, in double:
 *
 * normal   all drawn from the trial's seed, as the contract says (tensors_draw);
 * text     the tensor that the contract flags TEXT, [T,B,d], holds the bytes
 *          of the file through an embedding drawn from the seed: x[t,b] =
 *          E[byte[start_b + t]], E [256,d] N(0,1); row b's window of T bytes
 *          starts at a place drawn from (seed, b).  The others are drawn;
 * hdf5     every input of the operation that the file's group has a dataset
 *          for, by name, is read from there; the others are drawn.  Whole
 *          numbers may be of any integer type, or of a floating-point one.
 *
 * gguf     each tensor that the trial names is an input (plan/model.h), the others are drawn.
 *
 * `from`, unless it is NULL, becomes the list of inputs from the file.
 *
 * Nonzero after err_set(): the file cannot be read; a text is shorter than T;
 * the operation has no TEXT tensor; a dataset has another shape (both are
 * named), is not of a floating-point type (the type is named), or holds values that
 * the input cannot take (values.h); a dataset is called nearly like an input
 * that is not there (W_K, w-k for W_k); the group has none of the inputs. */
struct origin {
    struct arg_set given; /* the arguments that came from the file */
    char warnings[1024];  /* "model.h5:/x has a NaN at [2,3]", one per line */
};
int input_fill(const struct trial *trial, struct tensors *t, struct origin *from);

/* Reads the inputs that come from an HDF5 or a GGUF file and keeps nothing: nonzero after err_set() where
 * input_fill() would fail because of that file.  Zero if there is not enough memory to read it. */
int input_check(const struct trial *trial);

/* Where input `arg` came from: "FILE:GROUP/NAME", "text" or "drawn". */
void input_origin(const struct trial *trial, const struct origin *from, int arg, char *text,
                  size_t size);

#endif
