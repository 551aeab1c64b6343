/* model.h - tensors of a model's file (GGUF) as inputs of an operation: input = gguf, file, tensor.
 *
 * `tensor` names them, a word for each: blk.0.ffn_up.weight, or with the input that it is to be,
 * w:blk.0.attn_norm.weight.  Without one, it is the operation's quantised input, or its only one. */
#ifndef MODEL_H
#define MODEL_H

#include "common/base/gguf.h"
#include "common/plan/plan.h"

enum { MAX_TAKEN = 16 };

struct taken {
    int arg;
    const struct gguf_tensor *tensor;
};

struct model {
    struct gguf *file;
    struct taken taken[MAX_TAKEN];
    int n;
};

/* The tensors that a trial names; nonzero after err_set(): the file cannot be read or has no such
 * tensor, the operation no such input, or it does not take the tensor's type.  It is closed in any
 * case. */
int model_open(struct model *m, const struct trial *t);
void model_close(struct model *m);

/* Sets the sizes and the format of a call from those of the tensors, but for parameters that the
 * caller says are given: they must agree.  Nonzero after err_set(). */
typedef int model_given(const char *parameter, const void *data);
int model_sizes(const struct model *m, struct call *f, model_given *given, const void *data);

/* Sets the format of a call to that of the tensors, and no size; nonzero after err_set(). */
int model_format(const struct model *m, struct call *f);

/* The shape that a tensor must have as argument `arg`: that of the weights that bytes stand for. */
const char *model_shape(const struct call *f, int arg);

/* The name of the tensor that is to be input `arg`; "" where there is none. */
void model_name(const struct trial *t, int arg, char name[GGUF_NAME]);

#endif
