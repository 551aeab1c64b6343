/* program.h - programs: a model as a text of calls, and as an operation.
 *
 *     width  = 64                         ; a size and its default: a key of an ini file
 *     blocks = 2
 *     token  [steps, batch]               ; an input, and its axes: sizes or numbers
 *     target [steps, batch]
 *
 *     x      = embedding token            ; x.E [vocabulary,width] is a parameter
 *     repeat blocks
 *         n  = rmsnorm x                  ; 1.n.w, 2.n.w
 *         m  = e74 n state=diagonal       ; choices as key=value
 *         o  = linear m dim_out=width
 *         x  = add x o                    ; a name given anew is a new tensor
 *     logits = linear x W=x.E             ; a tied head: its gradient is the sum of two
 *     loss   = cross_entropy logits target
 *     output logits                       ; results that no call reads are outputs without that
 *
 * A line is `results = operation inputs key=value ...`.  Inputs stand in the contract's order or are named,
 * W=x.E.  A PARAMETER that is not given is the model's: its name is that of the block, the line's first result
 * and the tensor; a state that is not given is 0.  Results stand in the contract's order; what is not named is
 * not kept.  A size that follows from no input is that of the key, or else the program's of the same name.
 *
 * Axes: the inputs' match the contract's slowest first; where the contract has fewer, its first is the
 * product of several ([steps,batch,width] is [rows,columns]), and a result that has this axis gets those back.
 * Where it has one more, the first is left out if a key says that it is 1, or else the last axis is split ([batch,steps,projected] is [batch,steps,heads,dim] with
 * heads=4), and a result that ends so is joined again.  All else is an error with both shapes.
 *
 * There may be 1024 calls, and 256 tensors that are inputs, parameters, outputs or saved; recompute=K saves fewer.  A
 * repeat stands in no other one.  A name has up to 63 characters, that of a tensor of the operation up to 29 with its
 * block ("12.mixer.W_k"); an output has a name that no input and no other output has; of saved tensors of one name the second is
 * "1.x.2".  A size may not be a key of every trial (dtype, seed ...).
 *
 * With recompute=K the tensors within K blocks, all but those that others read, are not saved: backward makes them
 * again, by the same calls, so that no bit changes.
 *
 * Backward is the calls in reverse; to the gradient of a tensor that several read, all but the last add.
 * A program is an operation of its own (program_op()): its inputs are the declared ones and the
 * parameters, its outputs as above, and what backward reads is saved. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdio.h>

#include "common/call/contract.h"

enum { MAX_NAME = 64 };

struct program;

/* Reads a text, whose name messages begin with: "lm.model:5: ...".  All errors go to `errors`, a line each; NULL
 * then.  program_free() frees it, after which no call of its operation may be used. */
struct program *program_read(const char *name, const char *text, FILE *errors);
void program_free(struct program *p);

/* That of a name and a text, which is kept for the life of the process: the same ones give the same program.
 * Errors as program_read()'s. */
const struct program *program_known(const char *name, const char *text, FILE *errors);

/* The operation: its parameters are the sizes.  Its tensors follow from these: op_complete() makes f->op an
 * operation that has them, or says after err_set() with a line's number what does not fit. */
const struct op *program_op(const struct program *p);
/* What program_read() was given; of an operation that is no program's NULL. */
const char *program_name_of(const struct op *o);
const char *program_text_of(const struct op *o);
/* The line of its size of that name, from 1. */
int program_size_line(const struct op *o, const char *size);
/* Is it a program's? */
int is_program(const struct op *o);

/* ---- its calls, one by one: of an operation that op_complete() has made ---- */

int program_calls(const struct op *o);
/* The i-th, from 0, in the order of forward: its sizes and choices, of no backend.  `name` becomes the block's and the
 * first result's, "1.n". */
const struct call *program_call(const struct op *o, int i, char name[2 * MAX_NAME]);
/* Has it a backward pass here: is a gradient of its inputs asked for? */
int program_call_backs(const struct op *o, int i);

/* Who looks at the calls of a program's passes, as they run: before and after each one, with all its tensors where
 * they are; backward also runs calls of forward, where tensors are made again.  What the machine has begun may be
 * in flight (memory.get waits for it).  look() returns 0, or an error code of the machine, which ends the pass.
 *
 * A kernel of the program's operation, copied, with this as its data, runs with it. */
struct program_watch {
    int (*look)(const struct program_watch *w, int i, enum pass p, int after, const struct call *c);
};

#endif
