/* instance.h - a program with sizes: its calls, their tensors, and which of these are needed when. */
#ifndef PROGRAM_INSTANCE_H
#define PROGRAM_INSTANCE_H

#include "common/program/text.h"

enum { MAX_BACKENDS = 16 };

/* An axis: its length, and its name in shapes. */
struct length {
    int64_t n;
    char name[MAX_NAME];
};

enum origin_of { GIVEN, PARAMETERS, RESULT, ZEROS };

struct tensor {
    char name[3 * MAX_NAME]; /* "1.n", "1.n.w", "1.n.rstd" */
    char plain[MAX_NAME];    /* the name in its line, "n"; "" where no line can name it */
    enum origin_of origin;
    int step, arg; /* of a result, the call that writes it; else one that reads it, or -1 */
    int rank;
    struct length axis[MAX_RANK];
    int readers; /* arguments of calls that it is */
    int backs;   /* those of them that have a gradient */
    int bad;     /* its line is wrong: lines that read it say nothing */
    int output;  /* of the program */
    int kept;    /* a result that some backward reads, or what makes such results again */
    int remade;  /* a result that backward makes again, and that only its blocks read */
    int needs;   /* its gradient is computed */
    int place;   /* which argument of the program's operation it is; -1: none */
};

/* A call; its tensors by the places of its arguments, -1 where none is. */
struct step {
    const struct line *line;
    char block[16];   /* "1.", or "" */
    int group;        /* of the blocks whose tensors are made again together, from 1; 0: none */
    int rerun;        /* it makes some of them */
    struct call call; /* sizes and choices, on no backend */
    int active;       /* it has a backward pass here */
    int tensor[MAX_ARGS];
};

struct instance {
    struct program_op own; /* with the tensors */
    struct program *program;
    struct instance *next;
    struct call sizes; /* of the program's own parameters */
    struct step *step;
    int n_steps;
    struct tensor *tensor;
    int n_tensors;
    /* What op points to. */
    struct arg *arg;
    int *tensor_at; /* the tensor of each argument */
    int n_args;
    struct axis axis[MAX_AXES + 1];
    char axis_name[MAX_AXES][MAX_NAME];
    int64_t length[MAX_AXES]; /* of the derived axes, by letter */
    int n_axes;
    /* What the calls' kernels declare on each backend, as far as somebody asked: a machine and a type. */
    struct declared_on {
        const struct backend *backend;
        struct impl impl;
    } declared[MAX_BACKENDS];
    int n_declared;
};

/* The instance of an operation that has the tensors. */
static inline const struct instance *instance_of(const struct op *o)
{
    return (const struct instance *)(const void *)o;
}

/* Makes that of the default sizes: all that is wrong with a text goes to `errors`, and is counted. */
void instance_first(struct program *p, FILE *errors, int *faults);
/* Makes f's, or finds it: f->op becomes its operation.  Nonzero after err_set(). */
int instance_set(struct call *f);
void instance_free(struct instance *m);

/* infer.c: the calls and tensors for sizes; every error goes to `errors`, a line each, and is counted. */
int instance_infer(struct instance *m, FILE *errors);
/* contract.c: the operation.  Nonzero after err_set(). */
int instance_contract(struct instance *m);

/* chain.c: the calls one after the other, on any machine. */
extern const struct kernels program_kernels;

int64_t tensor_elements(const struct tensor *t);

#endif
